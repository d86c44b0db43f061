"""The work of `process`: polls, gives records to workers, and keeps what may be committed.

It runs on the consumer's loop, between the poll and the workers. While handlers take their time,
polls continue, with no more records than have room: the group keeps its member, and no rebalance
is held up. The positions of the consumer are those of the first unfinished records, so that every
commit, on time, in a rebalance or at the end, is of finished work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Hashable, Mapping
from contextlib import suppress
from functools import partial
from inspect import isasyncgen, isawaitable, iscoroutine, isgenerator
from typing import TYPE_CHECKING, Any, Final, cast

from ottla.clients.consumer.subscription_state import RebalanceEvent
from ottla.clients.dead_letter_headers import repr_of
from ottla.clients.processing.dead_letters import DeadLetters
from ottla.clients.processing.process_options import ProcessOptions
from ottla.clients.processing.work_queue import (
    HELD_FOR_EACH_UNFINISHED,
    PartitionProgress,
    WorkItem,
    WorkQueue,
)
from ottla.clients.processing.workers import TaskWorkers, ThreadWorkers, is_coroutine_function
from ottla.clients.serialization import SerializationError
from ottla.errors import KafkaError, KafkaTimeoutError
from ottla.runtime.scheduler import within
from ottla.runtime.timing import Backoff, Deadline
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from ottla.clients.consumer.consumer_core import ConsumerCore
    from ottla.record.consumer_record import ConsumerRecord
    from ottla.runtime import Timer

logger = logging.getLogger(__name__)

LONGEST_POLL_MS: Final = 1000
RECORDS_IN_A_TURN: Final = 64
"""While the loop takes records, it holds the interpreter that the workers need."""
LONGEST_RETRY_PAUSE_MS: Final = 60_000
LAST_COMMIT_LIMIT_MS: Final = 10_000
SHORT_PAUSE_MS: Final = 1000
"""A rebalance, and the end, wait for another attempt of a handler that is so near."""


class HandlerFailedError(Exception):
    """A handler has failed for `record` as often as it may, and there is no topic of dead letters.

    What was finished before that record is committed; the cause is the handler's last error.
    """

    def __init__(self, record: ConsumerRecord, attempts: int) -> None:
        place = f"{record.topic}-{record.partition} offset {record.offset}"
        times = "once" if attempts == 1 else f"{attempts} times"
        super().__init__(f"the handler has failed {times} for {place}")
        self.record = record


class UnrunHandlerError(TypeError):
    """A handler has returned a coroutine or a generator: nothing of it was run."""


def check_result(result: object) -> None:
    """UnrunHandlerError for what would have to be awaited or iterated."""
    if isawaitable(result) or isgenerator(result) or isasyncgen(result):
        if iscoroutine(result):
            result.close()  # it would warn of itself
        raise UnrunHandlerError(
            f"the handler has returned {type(result).__name__!r}, which is not run: it must be a "
            "coroutine function itself (async def), or do its work before it returns"
        )


def checked_lane(lane: Any, record: ConsumerRecord) -> Hashable | None:
    """The result of a function `by`; TypeError if no two records can have an equal one."""
    rule = "must be hashable, such as a text, a number or a tuple of these"
    with suppress(TypeError):
        hash(lane)
        if not isawaitable(lane):
            return cast("Hashable", lane)
        rule = "would have to be awaited, which `by` cannot be"
    if iscoroutine(lane):
        lane.close()  # it would warn of itself
    place = f"{record.topic}-{record.partition} offset {record.offset}"
    raise TypeError(f"by: it has returned {lane!r} for {place}, which {rule}")


class GivenUpError(Exception):
    """A record was not begun, as its partition has gone or the work ends."""


class Processing:
    """One call of `process`: `run` until it returns None, then `end`, also after an error."""

    def __init__(
        self, core: ConsumerCore, options: ProcessOptions, settings: Mapping[str, Any]
    ) -> None:
        """A producer of dead letters takes the connection of the consumer's `settings`."""
        self._core = core
        self._options = options
        self._clock, self._scheduler = core.runtime.clock, core.runtime.scheduler
        self._loop = asyncio.get_running_loop()
        self._decoding = core.fetcher.decoding
        self._is_plain = self._decoding.is_plain and not core.interceptors
        self._progress: dict[TopicPartition, PartitionProgress] = {}
        self._pauses: dict[WorkItem, Timer] = {}
        self._workers: ThreadWorkers | TaskWorkers = (
            TaskWorkers(options.workers, self._work_async, self._on_outcome)
            if is_coroutine_function(options.handler)
            else ThreadWorkers(options.workers, self._work, self._on_outcome)
        )
        self._queue = WorkQueue(self._workers.put, partial(self._post, core.notify))
        self._letters = None
        if options.dead_letters is not None:
            self._letters = DeadLetters(options, settings)
        pause_ms = int(options.retry_pause * 1000)
        longest_ms = max(pause_ms, LONGEST_RETRY_PAUSE_MS)
        self._backoff = Backoff(pause_ms, longest_ms, core.runtime.random.random)
        self._poll_deadline = Deadline(self._clock, 0)
        self._end_deadline: Deadline | None = None
        self._failure: BaseException | None = None
        self._drained: asyncio.Future[None] | None = None
        self._going: frozenset[TopicPartition] = frozenset()
        if core.coordinator is not None:
            self._nothing_to_finish = core.coordinator.before_revoke
        self._take_over()

    def _take_over(self) -> None:
        """Have the consumer count and commit by the first unfinished records."""
        core = self._core
        core.unread.give_back(list(core.subscriptions.assigned), core.rewind)
        core.fetcher.use(self._decoding.plain())
        core.unfinished = self._unfinished
        if core.coordinator is not None:
            core.coordinator.commits_automatically = True
            core.coordinator.before_revoke = self._before_revoke
        core.on_stop = self.stop
        if core.is_stop_requested:
            core.is_stop_requested = False
            self.stop()

    # The loop of polls

    async def run(self) -> RebalanceEvent | None:
        """Work until `stop`, or an error. A caller acknowledges an event that is returned.

        Raises the errors of polls.
        """
        while not self._is_over:
            self._poll_deadline = Deadline(self._clock, LONGEST_POLL_MS)
            outcome = await self._core.poll_for(self._collect, self._poll_deadline)
            if isinstance(outcome, RebalanceEvent):
                return outcome
            self._add(outcome)
            await asyncio.sleep(0)
        return None

    def stop(self) -> None:
        """Begin no more records; `run` ends when those that are worked on are finished.

        They have half of max.poll.interval.ms.
        """
        if self._end_deadline is None:
            self._end_deadline = self._work_deadline()
            self._give_up(list(self._progress), but_for_begun=True)
            if not self._queue.call_at(0):
                self._core.notify()
        self._end_poll_at(self._end_deadline.at_ms if self._queue.unfinished else 0)

    @property
    def _is_over(self) -> bool:
        if self._end_deadline is None:
            return False
        return not self._queue.unfinished or self._end_deadline.has_passed

    def _end_poll_at(self, at_ms: int) -> None:
        self._poll_deadline.at_ms = min(self._poll_deadline.at_ms, at_ms)
        self._core.notify()

    def _work_deadline(self) -> Deadline:
        """Until when work is waited for that holds others up."""
        return Deadline(self._clock, self._core.config.max_poll_interval_ms // 2)

    def _collect(self) -> tuple[list[ConsumerRecord], bool]:
        """The next records, as many as have room; the rest waits in the fetcher."""
        if self._end_deadline is not None:
            if not self._queue.unfinished:
                self._poll_deadline.at_ms = 0
            return [], False
        most, unfinished = self._options.max_in_flight, self._queue.unfinished
        is_full = self._held() >= most * HELD_FOR_EACH_UNFINISHED
        if is_full and self._queue.call_at(unfinished - 1):
            return [], False
        if unfinished > most // 2 and self._queue.call_at(most // 2):
            return [], False
        room = min(most - unfinished, self._core.config.max_poll_records, RECORDS_IN_A_TURN)
        return self._core.fetcher.collect(room)

    def _add(self, records: list[ConsumerRecord]) -> None:
        items = []
        for record in records:
            item = WorkItem(record)
            progress = self._progress.get(item.place)
            if progress is None:
                progress = PartitionProgress(self._core.subscriptions.state(item.place))
                self._progress[item.place] = progress
            progress.add(item)
            if self._failure is None and self._finds_lane(item):
                items.append(item)
        self._queue.add(items)

    def _finds_lane(self, item: WorkItem) -> bool:
        """Find the records that must be finished before one; if that fails, the work ends."""
        try:
            item.lane = self._lane_of(item.record)
        except SerializationError:
            item.lane = None  # the worker meets the same error, and it is the record's alone
        except BaseException as error:  # out of a task it would end the loop
            self._fail(error)
            return False
        return True

    def _lane_of(self, record: ConsumerRecord) -> Hashable | None:
        by = self._options.by
        if by == "key":
            if record.key is None:
                return None
            return record.topic, record.partition, record.key
        if by == "partition":
            return record.topic, record.partition
        assert callable(by), "it was checked"
        return checked_lane(by(self._decoding.decoded(record)), record)

    # What is finished

    def _held(self) -> int:
        """How many records are unfinished, or finished behind one that is not."""
        self._unfinished()
        return sum(map(len, self._progress.values()))

    def _unfinished(self) -> dict[TopicPartition, int]:
        """The offset of the first unfinished record of each partition that has one."""
        self._forget_lost()
        firsts = {place: each.first_unfinished() for place, each in self._progress.items()}
        return {place: first for place, first in firsts.items() if first is not None}

    def _forget_lost(self) -> None:
        """Give up the records of partitions that have gone, or begin elsewhere by now."""
        is_current = self._core.subscriptions.is_current
        lost = [
            place
            for place, each in self._progress.items()
            if not is_current(each.state, each.generation)
        ]
        self._give_up(lost)
        for place in lost:
            self._rewind(self._progress.pop(place))

    def _rewind(self, lost: PartitionProgress) -> None:
        """Read unfinished records again of a partition that has only moved, as after truncation."""
        state = lost.state
        first, position = lost.first_unfinished(), state.position
        is_still_read = self._core.subscriptions.is_current(state, state.generation)
        if is_still_read and first is not None and position is not None and first < position:
            state.rewind(first)

    def _give_up(
        self, places: Collection[TopicPartition], *, but_for_begun: bool = False
    ) -> list[WorkItem]:
        """Begin no more records of these partitions.

        `but_for_begun` leaves those that have begun, unless their next attempt is far, and those
        before them: unless these are finished too, others would be handled again. Returns what is
        still to be worked on.
        """
        left: list[WorkItem] = []
        for place in places:
            items = list(self._progress.get(place, ()))
            end = -1
            if but_for_begun:
                end = max((n for n, item in enumerate(items) if self._has_begun(item)), default=-1)
            for number, item in enumerate(items):
                if number > end:
                    item.is_given_up = True
                if item in self._pauses and (item.is_given_up or not self._has_begun(item)):
                    self._pauses.pop(item).cancel()
                    self._queue.give_up(item)
            left += filter(_is_to_be_worked_on, items)
        return left

    def _has_begun(self, item: WorkItem) -> bool:
        if item in self._pauses:
            return item.pause_ms <= SHORT_PAUSE_MS
        return item.is_running or item.is_finished

    async def _before_revoke(self, partitions: Collection[TopicPartition]) -> None:
        """Have what has begun of these partitions finished, and no more of it begun."""
        deadline = self._work_deadline()
        self._drained = self._loop.create_future()
        self._going = frozenset(partitions)
        left = self._give_up(partitions, but_for_begun=True)
        while left and not deadline.has_passed:
            try:
                await within(self._scheduler, deadline.left_ms, self._drained, "")
            except KafkaError:
                logger.warning(
                    "handlers still work on records of %s, which go to other members: these will "
                    "get the records as well",
                    ", ".join(map(str, partitions)),
                )
            self._drained = self._loop.create_future()
            left = list(filter(_is_to_be_worked_on, left))
        self._give_up(partitions)
        self._drained, self._going = None, frozenset()

    # In the workers

    def _work(self, item: WorkItem) -> BaseException | None:
        item.is_running = True
        try:
            record = self._record_of(item)
            if record is not None:
                result = self._options.handler(record)
                if result is not None:
                    check_result(result)
        except BaseException as error:
            return error
        return None

    async def _work_async(self, item: WorkItem) -> BaseException | None:
        item.is_running = True
        try:
            record = self._record_of(item)
            if record is not None:
                await self._options.handler(record)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # out of a task it would end the loop
            return error
        return None

    def _record_of(self, item: WorkItem) -> ConsumerRecord | None:
        """The record as the handler gets it; None where the interceptors keep it back."""
        if item.is_given_up:
            raise GivenUpError
        if self._is_plain:
            return item.record
        record = self._decoding.decoded(item.record)
        if not self._core.interceptors:
            return record
        return next(iter(self._core.interceptors.on_consume([record])), None)

    def _on_outcome(self, item: WorkItem, error: BaseException | None) -> None:
        """In the thread of the worker."""
        if error is None:
            item.finish()
        item.is_running = False
        if error is None or isinstance(error, GivenUpError):
            self._queue.end(item)
        else:
            self._post(partial(self._on_error, item, error))
        if self._drained is not None:
            self._post(self._on_drained)

    def _on_drained(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def _post(self, callback: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            logger.debug("the consumer was closed before its handlers were done")

    # Failures, on the loop

    def _on_error(self, item: WorkItem, error: BaseException) -> None:
        item.attempts += 1
        retries = self._options.retries
        item.pause_ms = self._backoff.delay_ms(item.attempts)
        if item.is_given_up or (self._is_going(item) and item.pause_ms > SHORT_PAUSE_MS):
            self._queue.give_up(item)
        elif not isinstance(error, Exception) or isinstance(error, UnrunHandlerError):
            self._fail(error)
            self._queue.end(item)
        elif self._may_succeed(error) and (retries is None or item.attempts <= retries):
            level = logging.WARNING if item.attempts == 1 else logging.DEBUG
            record = item.record
            logger.log(
                level,
                "the handler failed for %s-%d offset %d, it is called again in %d ms: %s",
                *(record.topic, record.partition, record.offset, item.pause_ms, repr_of(error)),
            )
            again = partial(self._again, item)
            self._pauses[item] = self._scheduler.call_later(item.pause_ms, again)
        elif self._letters is not None:
            self._scheduler.spawn(self._bury(self._letters, item, error), "dead letter")
        else:
            failure = HandlerFailedError(item.record, item.attempts)
            failure.__cause__ = error
            self._fail(failure)
            self._queue.end(item)

    def _is_going(self, item: WorkItem) -> bool:
        """Whether the partition of a record goes, or the work ends: others wait for it then."""
        return self._end_deadline is not None or item.place in self._going

    @staticmethod
    def _may_succeed(error: BaseException) -> bool:
        """Whether another attempt may have another outcome: the bytes of a record stay the same."""
        return not isinstance(error, SerializationError)

    def _again(self, item: WorkItem) -> None:
        del self._pauses[item]
        self._workers.put(item)

    async def _bury(self, letters: DeadLetters, item: WorkItem, error: BaseException) -> None:
        """Write a dead letter; the record is finished when that is there."""
        try:
            await letters.send(item.record, error)
        except Exception as cause:
            self._fail(cause)
        else:
            item.finish()
        finally:
            self._queue.end(item)

    def _fail(self, error: BaseException) -> None:
        """End the work; the first error is raised."""
        self._failure = self._failure or error
        self.stop()

    # The end

    async def end(self) -> None:
        """Give up what is not finished, commit what is, and give the consumer back; once."""
        self._end_deadline = Deadline(self._clock, 0)
        self._give_up(list(self._progress))
        self._workers.close()
        try:
            await self._commit()
        finally:
            self._give_back()
            if self._letters is not None:
                await self._letters.close()

    async def _commit(self) -> None:
        """Commit finished records, if a coordinator answers before a supervisor loses patience."""
        core = self._core
        if core.coordinator is None or not self._progress:
            return
        commit = core.coordinator.auto_commit(core.positions(), LAST_COMMIT_LIMIT_MS)
        try:
            await within(self._scheduler, LAST_COMMIT_LIMIT_MS, commit, "no commit")
        except KafkaTimeoutError:
            logger.warning("no coordinator has answered the last commit: it may not have been made")

    def check(self) -> None:
        """Raise the error that has ended the work, if it was one."""
        if self._failure is not None:
            raise self._failure

    def _give_back(self) -> None:
        """Have polls return the first unfinished records next, as before."""
        core = self._core
        for place, first in self._unfinished().items():
            core.rewind(place, first)
        core.unfinished = core.unread.offsets
        core.on_stop = None
        core.fetcher.use(self._decoding)
        if core.coordinator is not None:
            core.coordinator.commits_automatically = core.config.enable_auto_commit
            core.coordinator.before_revoke = self._nothing_to_finish


def _is_to_be_worked_on(item: WorkItem) -> bool:
    return not item.is_over and (item.is_running or not item.is_given_up)
