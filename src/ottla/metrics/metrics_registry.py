"""All metrics of a process by Kafka's names, with what they are read from.

A family is what JMX shows as MBeans of one type and name, with any tags: the partitions of
`kafka.log:type=Log,name=Size` are one family. It is read when it is asked for, and only then.

Wing: attaches to the broker and the clients, for their metrics; the core works without it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from ottla.errors import ConfigError
from ottla.metrics.sensors import (
    RATE_NAMES,
    TICK_MS,
    Histogram,
    Meter,
    Read,
    Timer,
)
from ottla.runtime import Chance, Runtime
from ottla.runtime import Timer as RuntimeTimer

logger = logging.getLogger(__name__)

Tags = tuple[tuple[str, str], ...]
Number = int | float
Attributes = Mapping[str, Number | str]
Value = Number | str | Meter | Histogram | Timer | Attributes
Series = Iterable[tuple[Tags, Value]]

NO_TAGS: Final[Tags] = ()
_MUST_BE_QUOTED: Final = re.compile(r'[,=:"*?\s]')
_ESCAPED: Final = re.compile(r'(["\\*?])')


class Kind(Enum):
    """What a family has: the attributes of its MBeans follow from it."""

    GAUGE = "gauge"
    METER = "meter"
    HISTOGRAM = "histogram"
    TIMER = "timer"
    KAFKA = "kafka"
    """A bean of Kafka's own library: its attributes are metrics, and it has no name."""


class FamilyName(NamedTuple):
    """Domain, type and name of MBeans, such as `kafka.log`, `Log`, `Size`."""

    domain: str
    type: str
    name: str = ""

    def bean(self, tags: Tags = NO_TAGS) -> str:
        """The name of one MBean, as JMX writes it."""
        parts = [f"type={self.type}"]
        if self.name:
            parts.append(f"name={self.name}")
        parts += [f"{key}={quoted(value)}" for key, value in tags]
        return f"{self.domain}:{','.join(parts)}"


def quoted(value: str) -> str:
    """A value of a tag, in quotes where it would break the name of the MBean."""
    if not _MUST_BE_QUOTED.search(value):
        return value
    escaped = _ESCAPED.sub(r"\\\1", value).replace("\n", "\\n")
    return f'"{escaped}"'


@dataclass(frozen=True, slots=True)
class Family:
    """A name, a kind, what it means, and how its series are read.

    A family whose tags come from outside, such as topics and client ids, is `unbounded`: its
    series count against `metrics.max.series`.
    """

    name: FamilyName
    kind: Kind
    doc: str
    read: Callable[[], Series]
    unbounded: bool = False


def attributes(value: Value, now_ms: int) -> Attributes:
    """What an MBean shows of a value, by the names of its attributes."""
    if isinstance(value, Meter):
        return {
            "Count": value.count,
            "EventType": value.event_type,
            "RateUnit": "SECONDS",
            "MeanRate": value.mean_rate(now_ms),
            **dict(zip(RATE_NAMES, value.rates, strict=True)),
        }
    if isinstance(value, Histogram):
        shown = value.snapshot(now_ms)
        return {
            "Count": shown.count,
            "Min": shown.min,
            "Max": shown.max,
            "Mean": shown.mean,
            "StdDev": shown.std_dev,
            **shown.percentiles,
        }
    if isinstance(value, Timer):
        both = {**attributes(value.histogram, now_ms), **attributes(value.meter, now_ms)}
        return {**both, "LatencyUnit": "MILLISECONDS"}
    if isinstance(value, Mapping):
        return value
    return {"Value": value}


class MetricsRegistry:
    """The families of one process, and the ticks that its meters need.

    Invariant: a name is registered once. What `close` ends, nothing begins again.
    """

    def __init__(self, runtime: Runtime, max_series: int) -> None:
        self.runtime = runtime
        self.max_series = max_series
        self.families: dict[FamilyName, Family] = {}
        self.dropped_count = 0
        """How many series the last reading left out because of `max_series`."""
        self._ticked: dict[Meter | Timer, None] = {}
        self._before_read: list[Callable[[], object]] = []
        self._on_tick: list[Callable[[], object]] = []
        self._timer: RuntimeTimer | None = None

    @property
    def now_ms(self) -> int:
        """The monotonic clock, from which rates and windows are reckoned."""
        return self.runtime.clock.monotonic_ms()

    @property
    def chance(self) -> Chance:
        return self.runtime.random

    # -- what there is

    def register(self, family: Family) -> None:
        """Add a family; its name must be new."""
        if family.name in self.families:
            raise ConfigError(f"{family.name.bean()}: a metric of this name is registered already")
        self.families[family.name] = family

    def gauge(self, name: FamilyName, doc: str, read: Callable[[], Number | str]) -> None:
        """One number, without tags."""
        self.register(Family(name, Kind.GAUGE, doc, lambda: ((NO_TAGS, read()),)))

    def gauges(self, name: FamilyName, doc: str, read: Callable[[], Series]) -> None:
        """Numbers by tags that come from outside."""
        self.register(Family(name, Kind.GAUGE, doc, read, unbounded=True))

    def meter(self, name: FamilyName, doc: str, read: Read, event_type: str = "events") -> Meter:
        """A number that only grows, without tags."""
        meter = self.new_meter(read, event_type)
        self.register(Family(name, Kind.METER, doc, lambda: ((NO_TAGS, meter),)))
        return meter

    def histogram(self, name: FamilyName, doc: str) -> Histogram:
        """A distribution without tags, for the caller to update."""
        histogram = self.new_histogram()
        self.register(Family(name, Kind.HISTOGRAM, doc, lambda: ((NO_TAGS, histogram),)))
        return histogram

    def timer(self, name: FamilyName, doc: str) -> Timer:
        """A timer without tags, for the caller to update."""
        timer = self.new_timer()
        self.register(Family(name, Kind.TIMER, doc, lambda: ((NO_TAGS, timer),)))
        return timer

    # -- sensors of families with tags

    def new_meter(self, read: Read, event_type: str = "events") -> Meter:
        """A meter that follows its number until `forget`."""
        meter = Meter(read, self.now_ms, event_type)
        self._ticked[meter] = None
        return meter

    def new_histogram(self) -> Histogram:
        return Histogram(self.chance, self.now_ms)

    def new_timer(self) -> Timer:
        """A timer that is ticked until `forget`."""
        timer = Timer(self.chance, self.now_ms)
        self._ticked[timer] = None
        return timer

    def forget(self, sensor: Meter | Timer) -> None:
        """Tick a sensor no longer; its family does not show it from now on."""
        self._ticked.pop(sensor, None)

    # -- time

    def start(self) -> None:
        """Have meters follow their numbers from now on."""
        self._timer = self.runtime.scheduler.call_every(TICK_MS, self.tick)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def before_read(self, prepare: Callable[[], object]) -> None:
        """Have `prepare` called before families are read, and at each tick."""
        self._before_read.append(prepare)

    def on_tick(self, callback: Callable[[], object]) -> None:
        """Have `callback` called every 5 seconds."""
        self._on_tick.append(callback)

    def prepare(self) -> None:
        """Bring sensors up to date that are filled in lists."""
        for prepare in self._before_read:
            prepare()

    def tick(self) -> None:
        """Have every meter follow its number; `start` calls this every 5 seconds."""
        self.prepare()
        for callback in self._on_tick:
            callback()
        for sensor in self._ticked:
            sensor.tick()

    # -- reading

    def read(self, wanted: Callable[[Family], bool] | None = None) -> Iterator[Reading]:
        """The series of every family, family after family, at most `max_series` with tags.

        It is a generator, so that a reader may let others run between two series.
        """
        self.prepare()
        left = self.max_series
        dropped = 0
        for family in list(self.families.values()):
            if wanted is not None and not wanted(family):
                continue
            for tags, value in family.read():
                if family.unbounded:
                    if left <= 0:
                        dropped += 1
                        continue
                    left -= 1
                yield Reading(family, tags, value)
        if dropped and not self.dropped_count:
            logger.warning(
                "metrics.max.series=%d: %d series with tags are not shown", self.max_series, dropped
            )
        self.dropped_count = dropped


class Reading(NamedTuple):
    """One series of a family, as it is at this moment."""

    family: Family
    tags: Tags
    value: Value
