"""Sensors under Kafka's names, and the forms in which they are read.

`MetricsReporter` is for programs of users; it is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.late_names import late_names

if TYPE_CHECKING:
    from ottla.metrics.metrics_reporter import MetricsReporter

__all__ = ["MetricsReporter"]

__getattr__, __dir__ = late_names(__name__, {"metrics_reporter": "MetricsReporter"})
