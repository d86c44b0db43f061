"""Turns the log of requests on and off, as the level of its logger says."""

from __future__ import annotations

from ottla.extensions.measures.request_log import RequestLog
from ottla.extensions.measures.request_metrics import RequestMetrics
from ottla.metrics.metrics_registry import MetricsRegistry
from ottla.network.processor import Processor
from ottla.server.apis import Apis


class RequestLogSwitch:
    """Has the requests of one broker logged while the level of their logger says so.

    Where the broker has no metrics, its requests are timed for that time.
    """

    def __init__(self, log: RequestLog, apis: Apis, processor: Processor) -> None:
        self.log = log
        self._apis, self._processor = apis, processor
        self._own: RequestMetrics | None = None

    def follow(self) -> None:
        """Begin or end, after the level has changed."""
        apis, sent = self._apis, self._processor.sent
        if self.log.is_on and apis.meter is None:
            self._own = RequestMetrics(MetricsRegistry(apis.runtime, 0), sent)
            apis.meter, sent.on_sent = self._own, self._own.on_sent
        if isinstance(apis.meter, RequestMetrics):
            apis.meter.log = self.log if self.log.is_on else None
        if not self.log.is_on and self._own is not None:
            self._own = apis.meter = sent.on_sent = None
