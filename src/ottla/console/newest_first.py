"""Records newest first over all partitions of a topic, in the true order of time.

Each partition is read backwards in steps. A record is handed out once no partition can still have
a newer one: of what is left unread of a partition, the newest is taken to be no newer than the
oldest that was read of it. Where a partition's timestamps run backwards this is not so, and
`out_of_order` names it; then records are in the order in which each partition has them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from ottla.clients.partition_reader import Chunk
from ottla.console.record_source import (
    PARTITION_BYTES,
    FoundRecord,
    ReadPart,
    RecordSource,
    Span,
    read_part,
    size_of,
)
from ottla.errors import KafkaError
from ottla.structs import NamedTuple, TopicPartition, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.runtime import Clock

LATEST: Final = 1 << 63
LARGEST_STEP: Final = 65_536
LARGE_WINDOW: Final = 2 * 1024 * 1024
"""A window whose records are so large is made shorter, as only its newest are looked at."""
STALLS: Final = 3
TESTED_AT_ONCE: Final = 50
"""Records between two looks at the clock."""


class Limits(NamedTuple):
    """How much one walk may read before it stops, and says how far it came."""

    records: int = 20_000
    bytes: int = 16 * 1024 * 1024
    ms: int = 5_000


class Wanted(NamedTuple):
    """A test for records, and one for the bytes of many: False where none of them can pass."""

    test: Callable[[FoundRecord], bool] | None
    may_have: Callable[[bytes | memoryview], bool] | None = None


class Backwards(Value, eq=False):
    """A partition on the way from its end to its start.

    Records from `unread` on were read; those of them that are wanted, and were not handed out, are
    in `buffer`, the newest last. `bound_ms` is the oldest timestamp so far.
    """

    partition: TopicPartition
    start: int
    unread: int
    step: int
    buffer: list[FoundRecord]
    bound_ms: int = LATEST

    @property
    def is_over(self) -> bool:
        """Whether it was read to its start."""
        return self.unread <= self.start

    @property
    def position(self) -> int:
        """The offset up to which a walk continues that begins where this one ends."""
        return self.buffer[-1].offset + 1 if self.buffer else self.unread


class NewestFirst:
    """One walk over some partitions of a topic; `take` continues it."""

    def __init__(
        self,
        source: RecordSource,
        clock: Clock,
        spans: Mapping[TopicPartition, Span],
        limits: Limits = Limits(),  # noqa: B008 - it is a constant
        wanted: Wanted | None = None,
        step: int = 50,
    ) -> None:
        self._source = source
        self._clock = clock
        self._limits = limits
        self._is_wanted, self._may_have = wanted or Wanted(None)
        self._began_ms = clock.monotonic_ms()
        self._stalls = 0
        self.walks = [Backwards(each, *span, step, []) for each, span in spans.items()]
        self.read_records = 0
        self.read_bytes = 0
        self.out_of_order: set[int] = set()
        self.errors: dict[int, str] = {}
        """Partitions that could not be read, and why."""

    @property
    def is_over(self) -> bool:
        """Whether all was read and handed out."""
        return all(walk.is_over and not walk.buffer for walk in self.walks)

    @property
    def is_spent(self) -> bool:
        """Whether the walk has read as much as it may."""
        limits = self._limits
        return (
            self.read_records >= limits.records
            or self.read_bytes >= limits.bytes
            or self._is_late
            or self._stalls >= STALLS
        )

    @property
    def _is_late(self) -> bool:
        return self._clock.monotonic_ms() - self._began_ms >= self._limits.ms

    @property
    def left(self) -> dict[int, int]:
        """The partitions that are not over, each with the offset at which its rest ends."""
        return {
            walk.partition.partition: walk.position
            for walk in self.walks
            if walk.buffer or not walk.is_over
        }

    async def take(
        self, count: int, on_step: Callable[[], object] = lambda: None
    ) -> list[FoundRecord]:
        """The next records; fewer where the walk is over, or has read as much as it may.

        In the latter case the last of them are those that were found so far, and there may be newer
        ones in what is left. `on_step` is called after each window.
        """
        taken: list[FoundRecord] = []
        while len(taken) < count:
            best = max((w for w in self.walks if w.buffer), key=_newest, default=None)
            newest_ms = -1 if best is None else best.buffer[-1].timestamp_ms
            needed = [w for w in self.walks if not w.buffer and not w.is_over]
            needed = [w for w in needed if w.bound_ms > newest_ms or best is None]
            if needed and not self.is_spent:
                await self.extend(self._newest_of(needed))
                on_step()
            elif best is None:
                break
            else:
                taken.append(best.buffer.pop())
        return taken

    def _newest_of(self, walks: list[Backwards]) -> list[Backwards]:
        """Those that may have the newest records: partitions go back in time together."""
        bound_ms = max(walk.bound_ms for walk in walks)
        return [walk for walk in walks if walk.bound_ms == bound_ms]

    async def extend(self, walks: list[Backwards]) -> None:
        """Read one more window of each, forwards, until all of them are read."""
        windows = {walk.partition: ReadWindow(walk) for walk in walks}
        while pending := {each: window.rest for each, window in windows.items() if window.rest}:
            chunks = await self._source.fetch(pending, partition_bytes=self.fetch_bytes)
            for partition, chunk in chunks.items():
                self._add(windows[partition], chunk)
            if pending == {each: window.rest for each, window in windows.items()}:
                self._stalls += 1
                if self._stalls >= STALLS:
                    return
        for walk in walks:
            if walk.partition.partition not in self.errors:
                self.finish(walk, windows[walk.partition])

    @property
    def fetch_bytes(self) -> int:
        """How much of a partition one fetch asks for."""
        return PARTITION_BYTES if self._is_wanted is None else 4 * PARTITION_BYTES

    def _add(self, window: ReadWindow, chunk: Chunk | KafkaError) -> None:
        """Take in the answer of a fetch."""
        number = window.walk.partition.partition
        assert window.rest is not None, "a fetch was asked for it"
        try:
            if isinstance(chunk, KafkaError):
                raise chunk
            part = self.read_chunk(number, chunk, window.rest)
        except KafkaError as error:
            self.errors[number] = error.message
            window.walk.unread = window.walk.start
            window.end_now()
            return
        self.read_records += part.number
        size = size_of(chunk)
        self.read_bytes += size
        window.add(part, chunk.next_offset, size if self._is_wanted is None else 0)

    def read_chunk(self, partition: int, chunk: Chunk, span: Span) -> ReadPart:
        """Read the records of a chunk within a span; KafkaError for a batch that cannot be."""
        return read_part(partition, chunk, span, self._may_have)

    def finish(self, walk: Backwards, window: ReadWindow) -> None:
        """A window is read: its wanted records can be handed out."""
        walk.unread = window.start
        if window.count < walk.step // 2 and not window.is_shortened:
            walk.step = min(2 * walk.step, LARGEST_STEP)  # compaction has left few
        if window.times:
            if not window.is_ordered or window.times[-1][1] > walk.bound_ms:
                self.out_of_order.add(walk.partition.partition)
            walk.bound_ms = min(walk.bound_ms, *(oldest for oldest, _ in window.times))
        walk.buffer = self._passing(walk, window.records) + walk.buffer

    def _passing(self, walk: Backwards, records: list[FoundRecord]) -> list[FoundRecord]:
        """The wanted ones of a window.

        The newest are tested first; at the limit of time the others are left, as if unread.
        """
        if self._is_wanted is None:
            return records
        found = []
        for number, record in enumerate(reversed(records)):
            if number and number % TESTED_AT_ONCE == 0 and self._is_late:
                walk.unread = record.offset + 1
                break
            if self._is_wanted(record):
                found.append(record)
        return found[::-1]


class ReadWindow:
    """Offsets of a partition that are read forwards, before the walk continues backwards."""

    def __init__(self, walk: Backwards) -> None:
        self.walk = walk
        self.start = max(walk.start, walk.unread - walk.step)
        self.rest: Span | None = Span(self.start, walk.unread)
        """What is left to read; None once all was read."""
        self.records: list[FoundRecord] = []
        self.count = 0
        self.times: list[tuple[int, int]] = []
        self.is_ordered = True
        self.is_shortened = False
        """Whether the records are so large that the older ones were left."""

    def add(self, part: ReadPart, next_offset: int, size: int) -> None:
        """Add the records up to an offset, of so many bytes; 0 where all of them are wanted."""
        assert self.rest is not None, "a fetch was asked for it"
        self.records += part.records
        self.count += part.number
        is_later = not self.times or not part.times or part.times[0][0] >= self.times[-1][1]
        in_order = all(one[1] <= two[0] for one, two in pairwise(part.times))
        self.is_ordered = self.is_ordered and part.is_ordered and is_later and in_order
        self.times += part.times
        if next_offset >= self.rest.end:
            self.rest = None
            return
        begin = next_begin(self.rest, next_offset, size)
        if begin > next_offset:
            self.records, self.times, self.count, self.start = [], [], 0, begin
            self.is_shortened = True
        self.rest = Span(begin, self.rest.end)

    def end_now(self) -> None:
        """Read no more of it."""
        self.rest = None


def next_begin(span: Span, next_offset: int, size: int) -> int:
    """Where the rest of a window begins, of which `size` bytes up to the next offset were read.

    Where the records are so large that only the newest are looked at, it begins later.
    """
    begun, rest = next_offset - span.start, span.end - next_offset
    if not begun or rest == 1 or size * rest <= LARGE_WINDOW * begun:
        return next_offset
    return max(next_offset, span.end - max(1, LARGE_WINDOW * begun // size))


class FoundRecords(NamedTuple):
    """The records of a page, and how far the reading went."""

    records: list[FoundRecord]
    left: dict[int, int]
    read_records: int
    read_bytes: int
    ms: int
    is_spent: bool
    out_of_order: list[int]
    errors: dict[int, str]


def found_by(walk: NewestFirst, taken: list[FoundRecord], ms: int) -> FoundRecords:
    """The records that were taken of a walk, and how far it is."""
    return FoundRecords(
        taken,
        walk.left,
        walk.read_records,
        walk.read_bytes,
        ms,
        walk.is_spent,
        sorted(walk.out_of_order),
        walk.errors,
    )


def _newest(walk: Backwards) -> tuple[int, int]:
    return walk.buffer[-1].timestamp_ms, -walk.partition.partition
