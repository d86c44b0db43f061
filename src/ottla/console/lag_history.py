"""The history of lag: rings of numbers in arrays, whose memory is bounded.

| kept | for each | slots | bytes |
|---|---|---|---|
| lag, new records | group and topic | 5 s x 1 h, 1 min x 24 h, 15 min x 14 days | 28 KB |
| log ends | partition | 5 s x 1 h | 7 KB |
| committed offsets | group and partition | 5 s x 5 min | 0.6 KB |

Of each kind there is a limit, beyond which new ones take the place of those that are no longer
written. Nothing is kept over a restart.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from math import isnan, nan
from typing import Final, Generic, TypeVar

from ottla.structs import NamedTuple, TopicPartition

SECOND_MS: Final = 1000
LOOK_MS: Final = 5 * SECOND_MS
"""The length of the shortest slots, and how often the collector looks."""
SPANS: Final = {"1h": (LOOK_MS, 720), "24h": (60 * SECOND_MS, 1440), "14d": (900 * SECOND_MS, 1344)}
"""Length and number of the slots of each ring, by the span that they cover together."""
WINDOW_SLOTS: Final = 60
"""Committed offsets are kept for five minutes: lag is explained by these."""
KEPT_MS: Final = 300_000
"""An entry that was not written for so long may be dropped for a new one."""
MOST_SERIES: Final = 2_000
MOST_PARTITIONS: Final = 4_000
MOST_COMMITS: Final = 10_000
NO_VALUE: Final = -1
"""In a ring of offsets: nothing was seen in that slot."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class OffsetSample(NamedTuple):
    """An offset that was seen at a moment, in milliseconds since 1970."""

    time_ms: int
    offset: int


class LagPoint(NamedTuple):
    """The lag of a slot at its highest, and the records that came in; None: nothing was seen."""

    time_ms: int
    lag: float | None
    records_in: float | None


class Wait(NamedTuple):
    """The time for which a record has waited for its reader, in seconds."""

    seconds: float
    is_at_least: bool = False
    """Whether it was written before the first look, so that it may have waited longer."""


class LagHistory:
    """What was seen of groups and logs up to now; its times come with what is recorded."""

    def __init__(self) -> None:
        self._series: Recent[tuple[str, str], LagSeries] = Recent(MOST_SERIES)
        self._ends: Recent[TopicPartition, OffsetRing] = Recent(MOST_PARTITIONS)
        self._commits: Recent[tuple[str, TopicPartition], OffsetRing] = Recent(MOST_COMMITS)

    def record_ends(self, time_ms: int, ends: Mapping[TopicPartition, int]) -> None:
        """The log ends of partitions."""
        for partition, end in ends.items():
            ring = self._ends.touch(partition, _ends_ring, time_ms)
            if ring is not None:
                ring.record(time_ms, end)

    def record_commits(
        self, time_ms: int, group: str, committed: Mapping[TopicPartition, int]
    ) -> None:
        """The committed offsets of a group."""
        for partition, offset in committed.items():
            ring = self._commits.touch((group, partition), _commits_ring, time_ms)
            if ring is not None:
                ring.record(time_ms, offset)

    def record_lag(
        self, time_ms: int, group: str, topic: str, lag: int, records_in: int | None
    ) -> None:
        """The lag of a group in a topic, and the records that have come since the last look.

        None stands for a first look, which has none before it.
        """
        series = self._series.touch((group, topic), LagSeries, time_ms)
        if series is not None:
            series.record(time_ms, lag, records_in)

    def points(self, group: str, topic: str, span: str) -> list[LagPoint]:
        """The lag of a group in a topic over a span of `SPANS`; none if it was never seen."""
        series = self._series.get((group, topic))
        return [] if series is None else series.points(span)

    def ends(self, partition: TopicPartition) -> list[OffsetSample]:
        """The log ends of a partition within the last hour."""
        ring = self._ends.get(partition)
        return [] if ring is None else list(ring.samples())

    def commits(self, group: str, partition: TopicPartition) -> list[OffsetSample]:
        """The offsets that a group has committed within the last five minutes."""
        ring = self._commits.get((group, partition))
        return [] if ring is None else list(ring.samples())

    def commits_of(
        self, groups: Collection[str]
    ) -> Iterator[tuple[str, TopicPartition, list[OffsetSample]]]:
        """What some groups have committed within the last five minutes, by partition."""
        for group, partition in list(self._commits):
            if group in groups and (found := self.commits(group, partition)):
                yield group, partition, found

    def newest_lags(self, group: str, topics: Iterable[str], count: int) -> list[float | None]:
        """The lag of some topics together in the newest slots of 5 s, the oldest first.

        There are `count` of them, or as many as were written; None: nothing was seen.
        """
        found = [self._series.get((group, each)) for each in topics]
        rings = [each.hour for each in found if each is not None]
        end = max((ring.slots().stop for ring in rings), default=0)
        first = max(end - count, min((ring.slots().start for ring in rings), default=end))
        totals: list[float | None] = [None] * (end - first)
        for ring in rings:
            for index, lag in enumerate(ring.values(first, end)):
                if lag == lag:  # a slot without a look is NaN
                    before = totals[index]
                    totals[index] = lag if before is None else before + lag
        return totals

    def topics_of(self, group: str) -> list[str]:
        """The topics that a group has a history of."""
        return sorted(topic for known, topic in self._series if known == group)

    def wait(self, partition: TopicPartition, committed: int, now_ms: int) -> Wait:
        """The time for which the record at a committed offset has waited.

        It is the time since the log end passed the offset, between two looks by interpolation.
        """
        ring = self._ends.get(partition)
        return Wait(0.0, is_at_least=True) if ring is None else ring.wait(committed, now_ms)

    def forget_topic(self, topic: str) -> None:
        """Drop all about a topic: it was deleted, and another one has its name."""
        self._ends.drop([each for each in self._ends if each.topic == topic])
        self._commits.drop([each for each in self._commits if each[1].topic == topic])
        self._series.drop([each for each in self._series if each[1] == topic])


class Ring:
    """Numbers in equal slots of time; a slot takes the place of the one a whole ring before it."""

    __slots__ = ("_empty", "_first", "_newest", "_values", "step_ms")

    def __init__(self, step_ms: int, size: int, code: str, empty: float) -> None:
        """`code` is that of `array`, and `empty` the number of a slot without a look."""
        self.step_ms = step_ms
        self._empty = empty
        self._values = array(code, [empty]) * size
        self._newest = NO_VALUE
        self._first = NO_VALUE
        """The first slot that was ever set; the newest one is always set."""

    def get(self, slot: int) -> float:
        """The number of a slot, which may be `empty`."""
        size = len(self._values)
        if not self._newest - size < slot <= self._newest:
            return self._empty
        return self._values[slot % size]

    def put(self, slot: int, value: float) -> None:
        """Set a slot; the slots that were passed over are empty. One that is too old is ignored."""
        size = len(self._values)
        if slot > self._newest:
            is_fresh = self._newest == NO_VALUE
            first = slot if is_fresh else max(self._newest + 1, slot - size + 1)
            for skipped in range(first, slot):
                self._values[skipped % size] = self._empty
            self._newest = slot
            self._first = slot if is_fresh else self._first
        elif slot <= self._newest - size:
            return
        self._values[slot % size] = value
        self._first = min(self._first, slot)

    def slots(self) -> range:
        """The slots from the first that was set, as far as the ring has it, to the newest."""
        if self._newest == NO_VALUE:
            return range(0)
        return range(max(self._first, self._newest - len(self._values) + 1), self._newest + 1)

    def values(self, first: int, end: int) -> list[float]:
        """The numbers of the slots from `first` to before `end`."""
        slots, size = self.slots(), len(self._values)
        low, high = max(first, slots.start), max(first, min(end, slots.stop))
        found = [self._empty] * (low - first)
        if low < high:
            start, stop = low % size, (high - 1) % size + 1
            parts = (
                (self._values[start:stop],)
                if start < stop
                else (self._values[start:], self._values[:stop])
            )
            for part in parts:
                found += part
        return found + [self._empty] * (end - first - len(found))

    def filled(self, slots: range) -> int | None:
        """The first of some slots, in their order, that is set; None where none is."""
        return next((slot for slot in slots if self.get(slot) != self._empty), None)

    def slot(self, time_ms: int) -> int:
        """The slot of a moment."""
        return time_ms // self.step_ms


class LagSeries:
    """The lag of a group in a topic, and the topic's new records, in three resolutions."""

    __slots__ = ("_rings",)

    def __init__(self) -> None:
        self._rings = {
            span: (Ring(step_ms, size, "f", nan), Ring(step_ms, size, "f", nan))
            for span, (step_ms, size) in SPANS.items()
        }

    def record(self, time_ms: int, lag: int, records_in: int | None) -> None:
        """Keep the highest lag of a slot, and the sum of the records."""
        for highest, total in self._rings.values():
            slot = highest.slot(time_ms)
            before, came = highest.get(slot), total.get(slot)
            highest.put(slot, lag if isnan(before) else max(before, lag))
            if records_in is not None:
                total.put(slot, records_in if isnan(came) else came + records_in)

    @property
    def hour(self) -> Ring:
        """The highest lag of each 5 s of the last hour."""
        return self._rings["1h"][0]

    def points(self, span: str) -> list[LagPoint]:
        """The slots of a ring that have been written, the oldest first; KeyError: another span."""
        highest, total = self._rings[span]
        return [
            LagPoint(slot * highest.step_ms, _known(highest.get(slot)), _known(total.get(slot)))
            for slot in highest.slots()
        ]


class OffsetRing:
    """Offsets of a partition over time: of its log end, or of a group's commits."""

    __slots__ = ("_parts", "_ring")

    def __init__(self, size: int) -> None:
        self._ring = Ring(LOOK_MS, size, "q", NO_VALUE)
        self._parts = Ring(LOOK_MS, size, "H", 0)  # the moment within its slot

    def record(self, time_ms: int, offset: int) -> None:
        """Keep the newest offset of a slot, with its moment."""
        slot = self._ring.slot(time_ms)
        self._ring.put(slot, offset)
        self._parts.put(slot, time_ms % LOOK_MS)

    def samples(self) -> Iterator[OffsetSample]:
        """The offsets, the oldest first."""
        for slot in self._ring.slots():
            if self._ring.get(slot) != NO_VALUE:
                yield self._sample(slot)

    def wait(self, offset: int, now_ms: int) -> Wait:
        """The time since the log end passed an offset; none if it has not.

        The slots are halved until two samples are next to each other: a page of 1,000 groups asks
        for 10,000 partitions, each with 720 slots.
        """
        slots = self._ring.slots()
        low = self._ring.filled(slots)
        if low is None:
            return Wait(0.0, is_at_least=True)
        first, last = self._sample(low), self._sample(slots[-1])
        if first.offset > offset:
            return Wait(max(0, now_ms - first.time_ms) / SECOND_MS, is_at_least=True)
        if last.offset <= offset:
            return Wait(0.0)
        before, after = self._around(offset, low, slots[-1])
        share = (offset - before.offset) / (after.offset - before.offset)
        passed_ms = before.time_ms + share * (after.time_ms - before.time_ms)
        return Wait(max(0.0, (now_ms - passed_ms) / SECOND_MS))

    def _around(self, offset: int, low: int, high: int) -> tuple[OffsetSample, OffsetSample]:
        """The samples before and after the moment at which the log end passed an offset.

        Both slots are set; the end has not passed it at `low`, and has at `high`.
        """
        while True:
            middle = (low + high) // 2
            found = self._ring.filled(range(middle, low, -1))
            if found is None:
                found = self._ring.filled(range(middle + 1, high))
            if found is None:
                return self._sample(low), self._sample(high)
            if self._ring.get(found) > offset:
                high = found
            else:
                low = found

    def _sample(self, slot: int) -> OffsetSample:
        time_ms = slot * LOOK_MS + int(self._parts.get(slot))
        return OffsetSample(time_ms, int(self._ring.get(slot)))


class Recent(Generic[K, V]):
    """A mapping of bounded size, whose entries were written at moments.

    A new key takes the place of one that was not written for five minutes; if there is none, it is
    left out: with more keys than fit, each look would otherwise replace those of the one before.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._written_ms: dict[K, int] = {}

    def get(self, key: K) -> V | None:
        return self._kept.get(key)

    def touch(self, key: K, make: Callable[[], V], time_ms: int) -> V | None:
        """The value of a key, made if there is none, as written now; None if there is no room."""
        value = self._kept.get(key)
        if value is None:
            if len(self._kept) >= self._most and not self._make_room(time_ms):
                return None
            value = self._kept[key] = make()
        self._kept.move_to_end(key)
        self._written_ms[key] = time_ms
        return value

    def drop(self, keys: list[K]) -> None:
        for key in keys:
            self._kept.pop(key, None)
            self._written_ms.pop(key, None)

    def __iter__(self) -> Iterator[K]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def _make_room(self, time_ms: int) -> bool:
        oldest = next(iter(self._kept))
        if time_ms - self._written_ms[oldest] < KEPT_MS:
            return False
        self.drop([oldest])
        return True


def _ends_ring() -> OffsetRing:
    return OffsetRing(SPANS["1h"][1])


def _commits_ring() -> OffsetRing:
    return OffsetRing(WINDOW_SLOTS)


def _known(value: float) -> float | None:
    return None if isnan(value) else value
