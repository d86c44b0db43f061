"""A context for connectors that are driven without a worker."""

from __future__ import annotations

from ottla.connect.connector import SourceTaskContext
from ottla.metrics.metrics_registry import Beans
from ottla.runtime import SystemClock


class LoneContext(SourceTaskContext):
    """Has the offsets that it is given, never waits, and keeps what is asked of it."""

    transaction = None

    def __init__(self, stored=None, properties=None):
        self.beans = Beans(SystemClock())
        self.name = "lone"
        self.properties = properties or {}
        self.stored = stored or {}
        self.asked = []
        self.is_over = False

    @property
    def is_stopping(self):
        return self.is_over

    def wait(self, seconds):
        self.asked.append(("wait", seconds))
        return self.is_over

    def request_task_reconfiguration(self):
        self.asked.append(("reconfigure",))

    def offset(self, partition):
        return self.stored.get(tuple(sorted(partition.items())))

    def offsets(self):
        return [(dict(partition), offset) for partition, offset in self.stored.items()]

    def fail(self, error):
        self.asked.append(("fail", error))
