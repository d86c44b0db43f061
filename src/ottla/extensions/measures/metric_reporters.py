"""Reporters that get a broker's metrics, such as one that sends them to a collector.

`metric.reporters` names them: an entry point of the group `ottla.metric_reporters`, or a class as
`package.module:Class`. A reporter is a subclass of `ottla.metrics.MetricsReporter`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.config.broker_config import BrokerConfig
from ottla.config.place import class_named, installed, made
from ottla.errors import ConfigError
from ottla.extensions.measures.broker_metrics import BrokerMetrics
from ottla.metrics.metrics_registry import MetricsRegistry, attributes
from ottla.metrics.metrics_reporter import MetricsReporter
from ottla.runtime import Runtime, Timer

if TYPE_CHECKING:
    from ottla.server.parts import Parts

logger = logging.getLogger(__name__)

KEY: Final = "metric.reporters"
GROUP: Final = "ottla.metric_reporters"
SERIES_AT_ONCE: Final = 500


def load_reporter(word: str) -> MetricsReporter:
    """Make a reporter of `metric.reporters`; ConfigError where there is none."""
    return made(KEY, word, GROUP, MetricsReporter)  # type: ignore[type-abstract] # its subclass


def check_reporters(words: Iterable[str], in_file: Collection[str]) -> None:
    """ConfigError where a running broker may not take one of these reporters.

    A client that may alter settings chooses among the classes that the operator has named in the
    broker's file and those that packages have installed as reporters; it has no module of its own
    choice imported.
    """
    found = installed(GROUP)
    for word in words:
        if word not in found and word not in in_file:
            raise ConfigError(
                f"{KEY}={word}: while the broker runs it must be one that its file "
                f"names, or one of the entry points of {GROUP}: "
                f"{', '.join(sorted(found)) or 'none is installed'}"
            )
        class_named(KEY, word, GROUP, MetricsReporter)  # type: ignore[type-abstract] # its subclass


class MetricReporters:
    """The reporters of one broker, and when they are called.

    Where metrics are served as well, both read the same registry.
    """

    def __init__(
        self, runtime: Runtime, config: BrokerConfig, registry: MetricsRegistry | None = None
    ) -> None:
        self._runtime, self._config = runtime, config
        self._is_own = registry is None
        self.registry = registry or MetricsRegistry(runtime, config.metrics_max_series)
        self._reporters = {word: load_reporter(word) for word in config.metric_reporters}
        self._metrics: BrokerMetrics | None = None
        self._timer: Timer | None = None
        self._is_busy = False

    async def start(self) -> None:
        """Give the reporters their settings."""
        for reporter in self._reporters.values():
            await self._call(reporter, "configure", self._config.open_texts())

    async def follow(self, config: BrokerConfig) -> None:
        """Close the reporters that the settings no longer name, and make those that are new."""
        for word in self._reporters.keys() - set(config.metric_reporters):
            await self._call(self._reporters.pop(word), "close")
        for word in config.metric_reporters:
            if word not in self._reporters:
                try:
                    self._reporters[word] = load_reporter(word)
                except ConfigError as error:
                    logger.error("%s", error)
                else:
                    await self._call(self._reporters[word], "configure", self._config.open_texts())

    def measure(self, broker: Parts) -> None:
        """All parts of the broker are there: report from now on."""
        if self._is_own:
            self._metrics = BrokerMetrics(broker, self.registry)
            self.registry.start()
        self._timer = self._runtime.scheduler.call_every(
            self._config.metric_reporters_interval_ms, self._report_soon
        )

    def _report_soon(self) -> None:
        # A slow reporter gets fewer reports, and no queue of them.
        if self._reporters and not self._is_busy:
            self._is_busy = True
            self._runtime.scheduler.spawn(self._report(), "report metrics")

    async def _report(self) -> None:
        try:
            now_ms = self.registry.now_ms
            beans = {
                each.family.name.bean(each.tags): attributes(each.value, now_ms)
                async for each in self._runtime.slices.over(self.registry.read(), SERIES_AT_ONCE)
                if each is not None
            }
            for reporter in list(self._reporters.values()):
                await self._call(reporter, "report", beans)
        finally:
            self._is_busy = False

    async def _call(self, reporter: MetricsReporter, method: str, *arguments: object) -> None:
        call = partial(getattr(reporter, method), *arguments)
        try:
            await self._runtime.background.run(call)
        except Exception:
            logger.exception("%s.%s of a reporter failed", type(reporter).__name__, method)

    async def close(self) -> None:
        """Report no longer."""
        if self._timer is not None:
            self._timer.cancel()
        if self._metrics is not None:
            self._metrics.close()
            self.registry.close()
        for reporter in self._reporters.values():
            await self._call(reporter, "close")
