"""Hierarchical timing wheels: to set or cancel a timer costs the same however many wait.

A wheel is a ring of `wheel_size` buckets, each `tick_ms` wide, that starts at its current time
and reaches `interval_ms = tick_ms * wheel_size` ahead. A task that expires within the interval
goes to bucket `expiration // tick_ms % wheel_size`; one that expires later goes to the overflow
wheel, whose tick is this wheel's interval. With a tick of 1 ms and 20 buckets:

    level 1    tick   1 ms    reaches    20 ms
    level 2    tick  20 ms    reaches   400 ms
    level 3    tick 400 ms    reaches 8,000 ms

When a bucket of an overflow wheel expires, its tasks are inserted again and land on a lower wheel
(demotion), until a bucket of level 1 runs them. Nothing ticks: a heap holds the buckets that have
tasks, and time is advanced from one expiration to the next. At most one entry per bucket is in
the heap, so the heap stays as small as the wheels are, with any number of tasks.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Callable
from itertools import count
from math import inf
from typing import Final

logger = logging.getLogger(__name__)

NOT_QUEUED = -1
TICK_MS: Final = 1
WHEEL_SIZE: Final = 20


class TimingWheel:
    """One level of the hierarchy; it makes the next level when a task needs it."""

    __slots__ = (
        "_overflow_wheel",
        "_queue",
        "buckets",
        "current_time_ms",
        "interval_ms",
        "tick_ms",
        "wheel_size",
    )

    def __init__(self, tick_ms: int, wheel_size: int, start_ms: int, queue: BucketQueue) -> None:
        self.tick_ms = tick_ms
        self.wheel_size = wheel_size
        self.interval_ms = tick_ms * wheel_size
        self.current_time_ms = start_ms - start_ms % tick_ms
        # Made when a task first needs it: most of a wheel's are empty for all of its life.
        self.buckets: list[TimerTaskList | None] = [None] * wheel_size
        self._queue = queue
        self._overflow_wheel: TimingWheel | None = None

    @property
    def overflow_wheel(self) -> TimingWheel:
        """The next level, whose tick is the interval of this one."""
        if self._overflow_wheel is None:
            self._overflow_wheel = TimingWheel(
                self.interval_ms, self.wheel_size, self.current_time_ms, self._queue
            )
        return self._overflow_wheel

    def add(self, task: TimerTask) -> bool:
        """Put the task into its bucket; False if it is due already."""
        expiration_ms = task.expiration_ms
        if expiration_ms < self.current_time_ms + self.tick_ms:
            return False
        wheel = self
        while expiration_ms >= wheel.current_time_ms + wheel.interval_ms:
            wheel = wheel._overflow_wheel or wheel.overflow_wheel
        tick_ms = wheel.tick_ms
        tick = expiration_ms // tick_ms
        index = tick % wheel.wheel_size
        bucket = wheel.buckets[index]
        if bucket is None:
            bucket = wheel.buckets[index] = TimerTaskList(self._queue)
        bucket.append(task)
        if bucket.expiration_ms == NOT_QUEUED:
            self._queue.push(bucket, tick * tick_ms)
        return True

    def advance_clock(self, time_ms: int) -> None:
        """Move the current time; buckets that expire up to `time_ms` must be empty by then."""
        if time_ms >= self.current_time_ms + self.tick_ms:
            self.current_time_ms = time_ms - time_ms % self.tick_ms
            if self._overflow_wheel is not None:
                self._overflow_wheel.advance_clock(self.current_time_ms)


class TimerTask:
    """A callback and the time when it is due; a link in the list of the bucket that holds it.

    It has neighbours in a bucket only: one that pointed to itself would be left to the collector.
    """

    __slots__ = ("bucket", "callback", "expiration_ms", "next", "previous")
    __deletable__ = ("next", "previous")  # the compiled class asks for it

    next: TimerTask
    previous: TimerTask

    def __init__(self, expiration_ms: int, callback: Callable[[], object] | None) -> None:
        self.expiration_ms = expiration_ms
        self.callback = callback
        self.bucket: TimerTaskList | None = None

    def cancel(self) -> None:
        """Never run; of no effect when it has run already."""
        self.callback = None
        if self.bucket is not None:
            self.bucket.remove(self)

    def run(self) -> None:
        """Run the callback unless the task is cancelled; its exceptions go to the log."""
        callback = self.callback
        if callback is None:
            return
        self.callback = None
        try:
            callback()
        except Exception:
            logger.exception("A timer's callback %r failed", callback)


class TimerTaskList:
    """One bucket: a circular doubly linked list, so that any task can be taken out at once.

    `expiration_ms` is the start of the bucket's present turn of the wheel, NOT_QUEUED while the
    bucket is not in the heap.
    """

    __slots__ = ("_owner", "_root", "expiration_ms")

    def __init__(self, owner: BucketQueue) -> None:
        self._owner = owner
        root = self._root = TimerTask(NOT_QUEUED, None)
        root.next = root.previous = root
        self.expiration_ms = NOT_QUEUED

    def __bool__(self) -> bool:
        return self._root.next is not self._root

    def append(self, task: TimerTask) -> None:
        root = self._root
        last = root.previous
        task.bucket = self
        task.previous = last
        task.next = root
        last.next = root.previous = task
        self._owner.task_count += 1

    def remove(self, task: TimerTask) -> None:
        before, after = task.previous, task.next
        before.next = after
        after.previous = before
        del task.previous, task.next
        task.bucket = None
        self._owner.task_count -= 1

    def flush(self) -> list[TimerTask]:
        """Take out all tasks, oldest first."""
        tasks = []
        task = self._root.next
        while task is not self._root:
            following = task.next
            del task.previous, task.next
            task.bucket = None
            tasks.append(task)
            task = following
        self._root.next = self._root.previous = self._root
        self._owner.task_count -= len(tasks)
        return tasks


class BucketQueue:
    """The buckets of all levels that have tasks, ordered by expiration."""

    __slots__ = ("_heap", "_order", "task_count")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, TimerTaskList]] = []
        self._order = count()
        self.task_count = 0

    def push(self, bucket: TimerTaskList, expiration_ms: int) -> None:
        bucket.expiration_ms = expiration_ms
        heapq.heappush(self._heap, (expiration_ms, next(self._order), bucket))

    def next_expiration_ms(self) -> int | None:
        """When the first bucket with tasks expires; buckets emptied by cancellation are dropped."""
        heap = self._heap
        while heap:
            expiration_ms, _, bucket = heap[0]
            if bucket:
                return expiration_ms
            self.pop()
        return None

    def first_queued_ms(self) -> int | None:
        """As `next_expiration_ms`, but counts buckets that may have become empty."""
        return self._heap[0][0] if self._heap else None

    def pop(self) -> TimerTaskList:
        bucket = heapq.heappop(self._heap)[2]
        bucket.expiration_ms = NOT_QUEUED
        return bucket


class SystemTimer:
    """All timers of one thread: at a given time it runs those due, in order of expiration."""

    __slots__ = ("_late", "_queue", "_wheel")

    def __init__(self, start_ms: int) -> None:
        self._queue = BucketQueue()
        self._wheel = TimingWheel(TICK_MS, WHEEL_SIZE, start_ms, self._queue)
        # Tasks of the moment that `advance` has come to, which were more than it may run.
        self._late: deque[TimerTask] = deque()

    def __len__(self) -> int:
        return self._queue.task_count + len(self._late)

    def add(self, now_ms: int, delay_ms: int, callback: Callable[[], object]) -> TimerTask:
        """Run `callback` at the first `advance` to `now_ms + delay_ms` or later."""
        if now_ms > self._wheel.current_time_ms:
            self._follow(now_ms)
        task = TimerTask(now_ms + max(delay_ms, TICK_MS), callback)
        if not self._wheel.add(task):
            raise ValueError(f"the timer is ahead of {now_ms} ms: time went back")
        return task

    def next_expiration_ms(self) -> int | None:
        """When `advance` should be called next: None while nothing waits."""
        return self._late[0].expiration_ms if self._late else self._queue.next_expiration_ms()

    def advance(self, now_ms: int, most: float = inf) -> int:
        """Run everything due up to `now_ms`, or `most` of it; returns how many tasks that were."""
        run_count = self._run_late(most)
        while not self._late and (expiration_ms := self._queue.next_expiration_ms()) is not None:
            if expiration_ms > now_ms or run_count >= most:
                break
            bucket = self._queue.pop()
            self._wheel.advance_clock(expiration_ms)
            self._late.extend(
                task
                for task in bucket.flush()
                if task.callback is not None and not self._wheel.add(task)
            )
            run_count += self._run_late(most - run_count)
        self._follow(now_ms)
        return run_count

    def _run_late(self, most: float) -> int:
        run_count = 0
        while self._late and run_count < most:
            task = self._late.popleft()
            if task.callback is not None:  # it was not cancelled by one before it
                task.run()
                run_count += 1
        return run_count

    def _follow(self, now_ms: int) -> None:
        """Let the wheels start as late as possible, so that new tasks land on the lowest wheel.

        They may not pass a bucket that still has to expire.
        """
        first_ms = self._queue.first_queued_ms()
        self._wheel.advance_clock(now_ms if first_ms is None else min(now_ms, first_ms))
