"""Attaches the measures of a broker: metrics over HTTP, reporters, and the log of requests.

Most brokers show nothing, so that each part is imported when it is first wanted: metrics may be
wanted by the broker's file, reporters also by a setting that changes, and requests are logged when
the level of a logger says so.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.config.broker_config import BrokerConfig
from ottla.extensions.measures.request_log import RequestLog
from ottla.runtime.log_levels import follow
from ottla.server.extension import Extension
from ottla.server.parts import Parts

if TYPE_CHECKING:
    from ottla.extensions.measures.metric_reporters import MetricReporters
    from ottla.extensions.measures.metrics_listener import MetricsListener
    from ottla.extensions.measures.request_log_switch import RequestLogSwitch


class Measures(Extension):
    """The metrics of one broker, from its first moment to its last, and their receivers."""

    def __init__(self, broker: Parts) -> None:
        super().__init__(broker)
        self.listener: MetricsListener | None = None
        self.reporters: MetricReporters | None = None
        self._log: RequestLog | None = None
        self._log_switch: RequestLogSwitch | None = None

    async def start(self) -> None:
        """Tell of the broker's health from the first moment, where that is wanted."""
        broker = self.broker
        config = broker.config
        if config.metrics_listener is not None:
            from ottla.extensions.measures.health import why_not_ready
            from ottla.extensions.measures.metrics_listener import MetricsListener

            ready = partial(why_not_ready, broker)
            self.listener = MetricsListener(broker.runtime, config, config.metrics_listener, ready)
            await self.listener.start()
        if config.metric_reporters:
            self.reporters = self._new_reporters()
            await self.reporters.start()

    async def before_clients(self) -> None:
        self.broker.dynamic_config.checks.append(self._check_reporters)

    def wrap(self) -> None:
        """Have clients push their metrics where there is somewhere to show them (KIP-714)."""
        shown = self.listener or self.reporters
        if shown is None:
            return
        from ottla.extensions.measures.telemetry import ClientTelemetry, TelemetryHandler

        broker = self.broker
        telemetry = ClientTelemetry(
            broker.runtime,
            shown.registry,
            lambda: broker.dynamic_config.client_metrics,
            broker.config.telemetry_max_bytes,
        )
        broker.apis.register(TelemetryHandler(telemetry))

    def begin(self) -> None:
        dynamic = self.broker.dynamic_config
        for each in (self.listener, self.reporters):
            if each is not None:
                each.measure(self.broker)
        dynamic.on_broker_change(self._follow_reporters)
        self._follow_reporters()
        self._log = log = RequestLog(dynamic.broker_config)
        dynamic.on_broker_change(lambda: log.update_config(dynamic.broker_config))
        follow(self._follow_request_log)
        self._follow_request_log()

    async def close(self, *, is_killed: bool = False) -> None:
        """Measure, report and serve nothing any longer; the listener last."""
        if self.reporters is not None and not is_killed:
            await self.reporters.close()
        if self.listener is not None:
            await self.listener.close()

    def _new_reporters(self) -> MetricReporters:
        from ottla.extensions.measures.metric_reporters import MetricReporters

        served = None if self.listener is None else self.listener.registry
        return MetricReporters(self.broker.runtime, self.broker.config, served)

    def _check_reporters(self, config: BrokerConfig) -> None:
        """ConfigError where `metric.reporters` names one that a running broker may not take."""
        wanted = config.metric_reporters
        if wanted == self.broker.dynamic_config.broker_config.metric_reporters:
            return
        from ottla.extensions.measures.metric_reporters import check_reporters

        check_reporters(wanted, self.broker.config.metric_reporters)

    def _follow_reporters(self) -> None:
        """Have the reporters that are set now, also the first one."""
        config = self.broker.dynamic_config.broker_config
        if self.reporters is None:
            if not config.metric_reporters:
                return
            self.reporters = self._new_reporters()
            self.reporters.measure(self.broker)
        self.broker.runtime.scheduler.spawn(
            self.reporters.follow(config), "follow metric.reporters"
        )

    def _follow_request_log(self) -> None:
        """The level of its logger may have changed."""
        log = self._log
        if self._log_switch is None and log is not None and log.is_on:
            from ottla.extensions.measures.request_log_switch import RequestLogSwitch

            self._log_switch = RequestLogSwitch(log, self.broker.apis, self.broker.processor)
        if self._log_switch is not None:
            self._log_switch.follow()
