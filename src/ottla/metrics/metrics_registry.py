"""All metrics of a process by Kafka's names, with the sources that they are read from.

A family is what JMX shows as MBeans of one type and name, with any tags: the partitions of
`kafka.log:type=Log,name=Size` are one family. It is read when it is asked for, and only then.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from operator import itemgetter
from typing import Final

from ottla.errors import ConfigError
from ottla.metrics.sensors import (
    RATE_NAMES,
    TICK_MS,
    Histogram,
    Meter,
    Read,
    Timer,
    WindowedRate,
    WindowedValues,
)
from ottla.runtime import Chance, Clock, Runtime
from ottla.runtime import Timer as RuntimeTimer
from ottla.runtime.io_thread import Lock
from ottla.structs import NamedTuple

logger = logging.getLogger(__name__)

Tags = tuple[tuple[str, str], ...]
Number = int | float
Attributes = Mapping[str, Number | str]
Value = Number | str | Meter | Histogram | Timer | Attributes
Series = Iterable[tuple[Tags, Value] | None]
"""Values by tags; None stands where there is none for a while, and others may run."""

NO_TAGS: Final[Tags] = ()
MAX_SERIES: Final = 100_000
"""In one reading, where no setting says it."""
NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]+")
_MUST_BE_QUOTED: Final = re.compile(r'[,=:"*?\s]')
_ESCAPED: Final = re.compile(r'(["\\*?])')
_UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NOT_IN_KEYS: Final = re.compile(r'[,=:"*?\s]')
LONGEST_NAME: Final = 255
"""Letters of each part of a name that a plug-in gives."""


def plain_text(given: object) -> str:
    """A part of a name that a plug-in gives as one line that UTF-8 can hold, cut where it is long.

    Bytes are read as UTF-8; control characters and lone surrogates are escaped.
    """
    text = given.decode("utf-8", "backslashreplace") if isinstance(given, bytes) else str(given)
    short = text[:LONGEST_NAME]
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", short)


def plain_key(given: object) -> str:
    """The same for a domain or the key of a tag, in which JMX cannot quote anything."""
    return _NOT_IN_KEYS.sub("_", plain_text(given))


def label(key: str) -> str:
    """A tag as a label of Prometheus: `client-id` is `client_id`; "" where nothing is left.

    Prometheus keeps names with two underscores in front to itself.
    """
    name = NOT_IN_NAMES.sub("_", key).lstrip("_")
    return f"_{name}" if name[:1].isdigit() else name


class Kind(Enum):
    """The kind of a family: the attributes of its MBeans follow from it."""

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
        parts = [f"type={quoted(self.type)}"]
        if self.name:
            parts.append(f"name={quoted(self.name)}")
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
    """A name, a kind, a meaning, and the way its series are read.

    A family whose tags come from outside, such as topics and client ids, is `unbounded`: its
    series count against `metrics.max.series`.
    """

    name: FamilyName
    kind: Kind
    doc: str
    read: Callable[[], Series]
    unbounded: bool = False


def attributes(value: Value, now_ms: int) -> Attributes:
    """The attributes of an MBean for a value, by their names."""
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


MAX_COUNTED: Final = 1000
"""The series that are not shown are counted up to this many."""


class MetricsRegistry:
    """The families of one process, and the ticks that its meters need.

    Invariant: a name is registered once. Nothing begins again after `close`.
    """

    def __init__(self, runtime: Runtime, max_series: int = MAX_SERIES) -> None:
        self.runtime = runtime
        self.max_series = max_series
        self.families: dict[FamilyName, Family] = {}
        self.dropped_count = 0
        """How many series the last reading left out because of `max_series`, up to a limit."""
        self.series_counts: dict[FamilyName, int] = {}
        """How many series the last reading met in each family; it may have ended before the last.
        """
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

    def show(self, found: Callable[[], Iterable[Beans]]) -> None:
        """Have MBeans shown that threads fill: those that there are when somebody asks.

        Of two with the same name and tags the first counts; those whose name a family of the
        process has are not shown, and the log says so.
        """
        shown: set[FamilyName] = set()

        def look() -> None:
            for beans in found():
                beans.tick()
                for kind in beans.kinds():
                    if kind.name not in shown:
                        shown.add(kind.name)
                        self._show_kind(kind, partial(_series_of, found, kind.name))

        self.before_read(look)

    def _show_kind(self, kind: BeanKind, read: Callable[[], Series]) -> None:
        if kind.name in self.families:
            logger.warning(
                "%s: these MBeans are not shown, as the process has others of this name",
                kind.name.bean(),
            )
        else:
            self.register(Family(kind.name, Kind.KAFKA, kind.doc, read, unbounded=True))

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

    def read(self, wanted: Callable[[Family], bool] | None = None) -> Iterator[Reading | None]:
        """The series of every family, family after family, at most `max_series` with tags.

        It is a generator, so that a reader may let others run between two series, and at a None.
        """
        self.prepare()
        left = self.max_series
        dropped = 0
        for family in list(self.families.values()):
            if wanted is not None and not wanted(family):
                continue
            count = 0
            for series in family.read():
                if series is None:
                    yield None
                    continue
                count += 1
                if family.unbounded:
                    if left <= 0:
                        dropped += 1
                        if dropped >= MAX_COUNTED:
                            break  # nobody is let in between while nothing is shown
                        continue
                    left -= 1
                yield Reading(family, *series)
            self.series_counts[family.name] = count
        if dropped and not self.dropped_count:
            logger.warning(
                "metrics.max.series=%d: %d series with tags or more are not shown",
                self.max_series,
                dropped,
            )
        self.dropped_count = dropped


class Reading(NamedTuple):
    """One series of a family, as it is at this moment."""

    family: Family
    tags: Tags
    value: Value


class BeanKind(NamedTuple):
    """A type of MBeans of Kafka's library, and the attributes of each.

    A count `record` is shown as `record-count` and `record-rate`, a value `age-ms` as the last one
    that came, and with `-min`, `-max` and `-avg` after it.
    """

    name: FamilyName
    doc: str
    counts: tuple[str, ...] = ()
    values: tuple[str, ...] = ()


class BeanValues:
    """The values of one MBean. Any thread may add to it, and any may read it."""

    def __init__(self, kind: BeanKind, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._counts = dict.fromkeys(kind.counts, 0)
        now_ms = clock.monotonic_ms()
        self._rates = {
            name: WindowedRate(partial(self._counts.__getitem__, name), now_ms)
            for name in kind.counts
        }
        self._values = {name: WindowedValues() for name in kind.values}
        self._shown_as = {name: plain_text(name) for name in (*kind.counts, *kind.values)}

    def add(self, name: str, count: int) -> None:
        """Add so many to a count."""
        with self._lock:
            self._counts[name] += count

    def record(self, name: str, values: Sequence[float]) -> None:
        """Values that have come since the last call."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            kept = self._values[name]
            for value in values:
                kept.record(value, now_ms)

    def tick(self) -> None:
        """Begin new windows of rates; to be called every few seconds."""
        with self._lock:
            for rate in self._rates.values():
                rate.tick(self._clock.monotonic_ms())

    def shown(self) -> dict[str, Number | str]:
        """All attributes by Kafka's names."""
        now_ms = self._clock.monotonic_ms()
        found: dict[str, Number | str] = {}
        with self._lock:
            for name, rate in self._rates.items():
                shown = self._shown_as[name]
                found |= {f"{shown}-count": self._counts[name], f"{shown}-rate": rate.value(now_ms)}
            for name, kept in self._values.items():
                shown = self._shown_as[name]
                found[shown] = kept.last
                found[f"{shown}-min"] = kept.minimum(now_ms)
                found[f"{shown}-max"] = kept.maximum(now_ms)
                found[f"{shown}-avg"] = kept.average(now_ms)
        return found


class Beans:
    """MBeans that come and go with their subjects; for any thread.

    A plug-in may give any names: each is shown as `plain_text` has it.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._lock = Lock()
        self._found: dict[tuple[BeanKind, Tags], BeanValues] = {}

    def measures(self, kind: BeanKind, tags: Tags) -> BeanValues:
        """The MBean with these tags, which is there until `drop`."""
        key = _plain(kind, tags)
        with self._lock:
            found = self._found.get(key)
            if found is None:
                found = self._found[key] = BeanValues(kind, self.clock)
            return found

    def drop(self, kind: BeanKind, tags: Tags) -> None:
        """Show it no longer."""
        with self._lock:
            self._found.pop(_plain(kind, tags), None)

    def kinds(self) -> list[BeanKind]:
        """The kinds that have an MBean."""
        with self._lock:
            return list(dict.fromkeys(kind for kind, _ in self._found))

    def read(self, name: FamilyName) -> list[tuple[Tags, Attributes]]:
        """The present values of the MBeans of a name."""
        with self._lock:
            found = [(tags, each) for (k, tags), each in self._found.items() if k.name == name]
        return [(tags, each.shown()) for tags, each in sorted(found, key=itemgetter(0))]

    def tick(self) -> None:
        """Have rates follow their counts; to be called every few seconds."""
        with self._lock:
            found = list(self._found.values())
        for each in found:
            each.tick()


def _plain(kind: BeanKind, tags: Tags) -> tuple[BeanKind, Tags]:
    """Both with names that every form of metrics can show."""
    domain, type, name = kind.name
    plain = FamilyName(plain_key(domain), plain_text(type), plain_text(name))
    keyed = {plain_key(key): plain_text(value) for key, value in tags}
    return kind._replace(name=plain, doc=plain_text(kind.doc)), tuple(keyed.items())


def _series_of(found: Callable[[], Iterable[Beans]], name: FamilyName) -> Series:
    series: dict[Tags, Attributes] = {}
    for beans in found():
        for tags, shown in beans.read(name):
            series.setdefault(tags, shown)
    return list(series.items())
