"""Sensors under Kafka's names, and the forms in which they are read.

`MetricsReporter` is for programs of users; it is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.metrics.metrics_reporter import MetricsReporter

__all__ = ["MetricsReporter"]


def __getattr__(name: str) -> Any:
    if name != "MetricsReporter":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ottla.metrics.metrics_reporter import MetricsReporter

    return MetricsReporter
