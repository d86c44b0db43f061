"""A reporter gets a broker's metrics: the class that programs of users derive theirs from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from ottla.metrics.metrics_registry import Attributes

Beans = Mapping[str, Attributes]
"""The attributes of MBeans, by names as `kafka.server:type=KafkaServer,name=BrokerState`."""


class MetricsReporter(ABC):
    """The receiver of the metrics. It is made without arguments, and lives as long as the broker.

    All calls come from threads of the background, one at a time: it may wait and fail; an
    exception is logged, and the next report comes none the less.
    """

    def configure(self, settings: Mapping[str, str]) -> None:
        """Take the broker's settings that have a value, but for secrets."""

    @abstractmethod
    def report(self, beans: Beans) -> None:
        """Take all metrics, as they are now; called each metric.reporters.interval.ms."""

    def close(self) -> None:
        """The broker stops."""
