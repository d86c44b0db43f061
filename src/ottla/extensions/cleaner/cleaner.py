"""Attaches the cleaner to the logs of a broker, and shows its metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.extensions.cleaner.log_cleaner import LogCleaner
from ottla.server.extension import Extension

if TYPE_CHECKING:
    from ottla.metrics.metrics_registry import MetricsRegistry


class Cleaner(Extension):
    """Has the logs of a broker compacted, from the moment in which they are loaded."""

    log_cleaner: LogCleaner

    def before_logs(self) -> None:
        logs = self.broker.log_manager
        self.log_cleaner = LogCleaner(logs)
        logs.attach(self.log_cleaner)

    def measure(self, registry: MetricsRegistry) -> None:
        from ottla.extensions.cleaner.cleaner_metrics import of_cleaner  # only where it is shown

        of_cleaner(registry, self.log_cleaner, self.broker.log_manager)
