"""Which records may be worked on now, and how far a partition is finished.

Records of one lane (a key, a partition, or a value of the application's choice) are worked on one
after the other, in the order of their offsets. A partition is finished up to its first record that
is not; only that is committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from ottla.runtime.io_thread import Lock
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from ottla.clients.consumer.subscription_state import TopicPartitionState
    from ottla.record.consumer_record import ConsumerRecord

HELD_FOR_EACH_UNFINISHED: Final = 100
"""So many finished records wait for an unfinished one before them, for each that may be."""


class WorkQueue:
    """Gives records to workers; `begin` takes one that may be worked on now, in any thread.

    Invariant, under the lock: a lane is in `_lanes` while one of its records has begun, with those
    that wait for it; `_unfinished` counts the records that were added and are not over.
    """

    def __init__(self, begin: Callable[[WorkItem], object], on_room: Callable[[], object]) -> None:
        """`on_room` is called, in any thread, when as few are unfinished as `call_at` has said."""
        self._begin = begin
        self._on_room = on_room
        self._lock = Lock()
        self._lanes: dict[Hashable, deque[WorkItem] | None] = {}
        self._unfinished = 0
        self._call_at = -1  # never

    @property
    def unfinished(self) -> int:
        return self._unfinished

    def add(self, items: Iterable[WorkItem]) -> None:
        """Add records in order; those whose lanes are free begin."""
        ready = []
        with self._lock:
            for item in items:
                self._unfinished += 1
                if item.lane is None:
                    ready.append(item)
                elif item.lane not in self._lanes:
                    self._lanes[item.lane] = None
                    ready.append(item)
                else:
                    waiting = self._lanes[item.lane]
                    if waiting is None:
                        waiting = self._lanes[item.lane] = deque()
                    waiting.append(item)
        for item in ready:
            self._begin(item)

    def end(self, item: WorkItem) -> None:
        """The record is over, finished or given up: the next one of its lane begins."""
        following: WorkItem | None = None
        with self._lock:
            if item.is_over:
                return
            item.is_over = True
            self._unfinished -= 1
            if item.lane is not None:
                following = self._next_of(item.lane)
            is_room = self._unfinished <= self._call_at
            if is_room:
                self._call_at = -1  # never
        if following is not None:
            self._begin(following)
        if is_room:
            self._on_room()

    def give_up(self, item: WorkItem) -> None:
        """The record is over, not finished: what waits for it of its partition is given up too.

        But not what was read later, after the partition had gone and come back.
        """
        item.is_given_up = True
        with self._lock:
            waiting = None if item.lane is None else self._lanes.get(item.lane)
            for each in waiting or ():
                if each.progress is item.progress:
                    each.is_given_up = True
        self.end(item)

    def call_at(self, unfinished: int) -> bool:
        """Have `on_room` called once when no more are unfinished; False if that is so already."""
        with self._lock:
            if self._unfinished <= unfinished:
                return False
            self._call_at = unfinished
            return True

    def _next_of(self, lane: Hashable) -> WorkItem | None:
        waiting = self._lanes[lane]
        while waiting:
            item = waiting.popleft()
            if not item.is_given_up:
                return item
            item.is_over = True
            self._unfinished -= 1
        del self._lanes[lane]
        return None


class WorkItem:
    """One record on its way: it waits, is worked on (perhaps again and again), and is over.

    `is_given_up`: its partition has gone to another member, or the work ends; it is not begun any
    more, and its outcome does not count. A worker sets `is_running` before it looks at that, and
    `give_up` looks at `is_running` after it has set it, so that one of the two sees the other.
    """

    __slots__ = (
        "attempts",
        "is_finished",
        "is_given_up",
        "is_over",
        "is_running",
        "lane",
        "offset",
        "pause_ms",
        "place",
        "progress",
        "record",
    )

    def __init__(self, record: ConsumerRecord, lane: Hashable | None = None) -> None:
        self.record = record
        self.offset = record.offset
        self.place = TopicPartition(record.topic, record.partition)
        self.pause_ms = 0  # before the next attempt
        self.progress: PartitionProgress | None = None  # that of the partition while it is read
        self.lane = lane
        self.attempts = 0
        self.is_running = False
        self.is_given_up = False
        self.is_finished = False
        self.is_over = False

    def finish(self) -> None:
        """The record is finished, and not needed any longer."""
        self.is_finished = True
        del self.record


class PartitionProgress:
    """The records of one partition that were polled, from the first unfinished one on."""

    def __init__(self, state: TopicPartitionState) -> None:
        self.state = state
        self.generation = state.generation
        self._items: deque[WorkItem] = deque()

    def add(self, item: WorkItem) -> None:
        item.progress = self
        self._items.append(item)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[WorkItem]:
        return iter(self._items)

    def first_unfinished(self) -> int | None:
        """Its offset; None where all are finished."""
        items = self._items
        while items and items[0].is_finished:
            items.popleft()
        return items[0].offset if items else None
