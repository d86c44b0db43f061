"""A context for connectors that are driven without a worker, and its default converters."""

from __future__ import annotations

import json

from ottla.connect.connector import SourceTaskContext
from ottla.connect.json_converter import JsonConverter
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


WITH_SCHEMAS, WITHOUT = JsonConverter(), JsonConverter.of({"schemas.enable": "false"})


def through_json(record):
    """The value of a record as a topic has it, by the converter of config/ in both its forms.

    What is read back with its schema must be the value itself.
    """
    for converter in (WITH_SCHEMAS, WITHOUT):
        converter.from_connect_data(record.topic, record.key_schema, record.key)
    given = (record.topic, record.value_schema, record.value)
    enveloped, plain = (each.from_connect_data(*given) for each in (WITH_SCHEMAS, WITHOUT))
    assert json.loads(enveloped)["payload"] == json.loads(plain)
    _, back = WITH_SCHEMAS.to_connect_data(record.topic, enveloped)
    assert WITH_SCHEMAS.from_connect_data(record.topic, record.value_schema, back) == enveloped
    return json.loads(plain)
