"""`ottla.Consumer`: the synchronous API of a consumer, for one thread at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from ottla.clients.admin.admin_client import checked
from ottla.clients.client_metrics import Metrics
from ottla.clients.client_settings import ClosedOnExit, Servers, limit_in_ms, merge_settings
from ottla.clients.committed_offsets import ConsumerGroupMetadata
from ottla.clients.consumer.completed_fetch import FetchedBatches
from ottla.clients.consumer.consumer_core import ConsumerCore, OnCommit, WakeupError
from ottla.clients.consumer.consumer_health import NO_ANSWER_MS, ConsumerHealth, dead, health_of
from ottla.clients.consumer.subscription_state import (
    RebalanceEvent,
    RebalanceListener,
    compiled_pattern,
    names_of,
)
from ottla.clients.metadata import PartitionInfo
from ottla.clients.processing.processing_calls import ProcessingCalls
from ottla.clients.topic_offsets import (
    ListOffsetsResult,
    OffsetAndMetadata,
    OffsetSpec,
    checked_times,
    place_of,
    with_metadata,
)
from ottla.config.client_config import ConsumerConfig
from ottla.errors import KafkaError, KafkaTimeoutError
from ottla.record.consumer_record import ConsumerRecord
from ottla.runtime.io_thread import MARGIN_MS, ForkHearer, IoThread, RLock
from ottla.runtime.timing import Deadline
from ottla.structs import CONSUMER_REPLICA_ID, DEBUGGING_REPLICA_ID, NO_OFFSET, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Consumer", "WakeupError"]

T = TypeVar("T")
OffsetsToCommit = Mapping[TopicPartition, OffsetAndMetadata | int]
ITERATION_POLL_MS = 1000


class Consumer(ProcessingCalls, ClosedOnExit):
    """Reads topics, alone or sharing them with the other members of its group.

        with Consumer("localhost:9092", group_id="report", topics=["pages"]) as consumer:
            for record in consumer:
                print(record.offset, record.value)

    Settings are Kafka's, as keywords with underscores or as a mapping with dots. One thread at a
    time may use a consumer; only `wakeup` may be called from others. Heartbeats and fetches run in
    the background; rebalances, listeners and automatic commits happen inside `poll`.
    """

    def __init__(
        self,
        bootstrap_servers: Servers = None,
        settings: Mapping[str, Any] | None = None,
        *,
        topics: Collection[str] | str = (),
        **keywords: Any,
    ) -> None:
        self._given = merge_settings(bootstrap_servers, settings, keywords)
        self._config = ConsumerConfig.parse(self._given)
        self._is_closed = self._is_telling = False
        self._lock = RLock()
        self._io = IoThread(f"{self._config.client_id}-consumer")
        self._clock = self._io.runtime.clock
        try:
            self._core = self._io.run(self._build())
            # In a forked child polls go to the loop, and are told that it does not run there.
            self._fork_hearer = ForkHearer(partial(setattr, self._core, "is_settled", False))
            if topics:
                self.subscribe(topics)
        except BaseException:
            self._io.close()
            raise

    # The partitions and positions to read

    def subscribe(
        self,
        topics: Collection[str] | str = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics, or all whose whole name matches `pattern`, as a member of the group.

        It replaces the previous subscription, and takes effect in the next polls.
        """
        names = names_of(topics, pattern)
        with self._alone():
            if pattern is not None:
                deadline = self._deadline(None)
                compiled = compiled_pattern(pattern)
                self._run(self._core.subscribe_pattern(compiled, listener, deadline))
            else:
                self._call(self._core.subscribe, names, listener)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without a group that assigns them."""
        with self._alone():
            self._give_back_unread(self.assignment())
            self._call(self._core.assign, [TopicPartition(*partition) for partition in partitions])

    def unsubscribe(self) -> None:
        """Read nothing, and leave the group."""
        with self._alone(polls=True):
            try:
                self._tell(self._core.last_event())
            finally:
                self._core.unread.take()
                self._run(self._core.unsubscribe())

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are currently read."""
        return set(self._core.subscriptions.assigned)

    def subscription(self) -> set[str]:
        """The topics that are subscribed to."""
        return set(self._core.subscriptions.topics)

    # Reading

    def poll(self, timeout_ms: int = 0) -> list[ConsumerRecord]:
        """The next records, at most max.poll.records; waits up to `timeout_ms` for the first one.

        Partitions that a rebalance takes away are committed, and reported to the listener, in here.
        If the log has lost records that were already read, and auto.offset.reset is none, it raises
        LogTruncationError.
        """
        with self._alone(polls=True):
            if self._core.unread:
                return self._core.unread.take()
            with self._given_back_if_cut_short():
                return self._core.interceptors.on_consume(self._poll(timeout_ms))

    def poll_batches(self, timeout_ms: int = 0) -> list[FetchedBatches]:
        """All that has arrived of the assigned partitions, as batches that are not decoded.

        For copies: `Producer.send_encoded` takes such batches. Nothing is committed, interceptors
        see nothing, and a consumer that has subscribed to topics cannot use it.
        """
        with self._alone(polls=True):
            if self._core.subscriptions.is_by_group:
                raise RuntimeError("poll_batches is for partitions that were assigned")
            deadline = self._deadline(timeout_ms)
            call = self._core.poll_for(self._core.fetcher.collect_batches, deadline)
            with self._given_back_if_cut_short():
                found = self._run(call, timeout_ms)
            assert isinstance(found, list), "without a group there are no rebalances"
            return found

    def poll_arrow(self, timeout_ms: int = 0) -> pa.Table:
        """The next records as an Arrow table, with the columns of `ottla.read_arrow`.

        It has the records of the batches that have arrived and that come to fetch.max.bytes without
        their codecs, and may be empty; it waits up to `timeout_ms` for the first record. Groups,
        rebalances and commits are as with `poll`; interceptors see nothing of it. Needs pyarrow
        (`pip install ottla[arrow]`).
        """
        from ottla.clients.arrow_tables import require_pyarrow, table_of

        require_pyarrow()
        with self._alone(polls=True):
            self._give_back_unread(self.assignment())
            with self._given_back_if_cut_short():
                fetched = self._poll_for(self._core.fetcher.collect_for_table, timeout_ms)
                give_back = partial(self._call, self._core.fetcher.taken.rewind)
                table, left = table_of(fetched, give_back, self._config.fetch_max_bytes)
                if left:
                    self._call(self._core.fetcher.put_back, left)
                self._core.metrics.on_records(table.num_rows)
                return table

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Records, one by one, forever; those not taken yet are not committed either."""
        return self.records()

    def records(self, idle_timeout_ms: int | None = None) -> Iterator[ConsumerRecord]:
        """Records, one by one, until none has come for `idle_timeout_ms`."""
        unread = self._core.unread
        while True:
            with self._alone(polls=True):
                if not unread and not self._refill(idle_timeout_ms):
                    return
            while unread:
                yield unread.pop()

    def wakeup(self) -> None:
        """Make the current poll, or the next one, raise WakeupError; callable from any thread."""
        self._core.is_settled = False
        self._io.post(self._core.wakeup)

    # Offsets

    def commit(self, offsets: OffsetsToCommit | None = None, timeout_ms: int | None = None) -> None:
        """Commit and wait; by default everything that the polls have returned."""
        with self._alone():
            deadline = self._deadline(timeout_ms)
            wanted = None if offsets is None else with_metadata(offsets)
            self._run(self._core.commit(wanted, deadline), timeout_ms)

    def commit_async(
        self, offsets: OffsetsToCommit | None = None, on_commit: OnCommit | None = None
    ) -> None:
        """Commit in the background, once; `on_commit(offsets, error)` runs in the I/O thread."""
        with self._alone():
            wanted = self._core.positions() if offsets is None else with_metadata(offsets)
            self._io.post(self._core.begin_commit, wanted, on_commit)

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets that the group has committed; partitions without a commit are left out."""
        with self._alone():
            wanted = [TopicPartition(*partition) for partition in partitions]
            return self._run(self._core.committed(wanted, self._deadline(timeout_ms)), timeout_ms)

    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """The offset of the next record that will be read."""
        with self._alone():
            return self._run(self._core.position(partition, self._deadline(timeout_ms)), timeout_ms)

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """The partition's high watermark as of the last fetch; None before the first."""
        with self._alone():
            return self._call(self._core.high_watermark, partition)

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How far the position is behind the last readable record; None if unknown yet (KIP-695).

        Records are readable up to the high watermark, with isolation.level=read_committed up to the
        last stable offset, both as of the last fetch.
        """
        with self._alone():
            return self._call(self._core.current_lag, partition)

    def seek(self, partition: TopicPartition, offset: OffsetAndMetadata | int) -> None:
        """Continue at `offset`; whether it is in the log is checked when it is read.

        With the leader epoch of a committed offset, truncation before it is detected (KIP-320).
        """
        place = place_of(offset)
        with self._alone():
            self._core.unread.drop([partition])
            self._call(self._core.seek, partition, place.offset, place.leader_epoch)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue at the first record of these partitions, or of all that are assigned."""
        self._reset(partitions, OffsetSpec.EARLIEST)

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue after the last record of these partitions, or of all that are assigned."""
        self._reset(partitions, OffsetSpec.LATEST)

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        found = self._list(dict.fromkeys(partitions, int(OffsetSpec.EARLIEST)), timeout_ms)
        return {partition: result.offset for partition, result in found.items()}

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The offsets that the next records will get."""
        found = self._list(dict.fromkeys(partitions, int(OffsetSpec.LATEST)), timeout_ms)
        return {partition: result.offset for partition, result in found.items()}

    def log_end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The ends of the leaders' logs, with records that are not replicated or committed yet."""
        wanted = dict.fromkeys(partitions, int(OffsetSpec.LATEST))
        found = self._list(wanted, timeout_ms, DEBUGGING_REPLICA_ID)
        return {partition: result.offset for partition, result in found.items()}

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, ListOffsetsResult | None]:
        """The first record at or after each timestamp; None where there is none."""
        found = self._list(checked_times(timestamps), timeout_ms)
        return {p: None if r.offset == NO_OFFSET else r for p, r in found.items()}

    def metrics(self) -> Metrics:
        """The metrics of the consumer, by group and name, as Kafka's clients have them.

        Such as `consumer.metrics()["consumer-fetch-manager-metrics"]["records-lag-max"]`; a metric
        without a value yet is NaN.
        """
        with self._alone():
            return self._call(self._core.read_metrics)

    def health(self) -> ConsumerHealth:
        """How it is, for a supervisor's probes; from any thread, also while another one polls."""
        if self._is_closed:
            return dead()
        try:
            return self._io.run(self._health(), NO_ANSWER_MS)
        except (KafkaTimeoutError, RuntimeError):
            return dead()

    def group_metadata(self) -> ConsumerGroupMetadata:
        """This consumer's membership in its group, for `Producer.send_offsets_to_transaction`."""
        with self._alone():
            return self._call(self._core.group_metadata)

    # Partitions

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until `resume`."""
        with self._alone():
            chosen = list(partitions)
            self._give_back_unread(chosen)
            self._call(self._core.pause, chosen, True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        with self._alone():
            self._call(self._core.pause, list(partitions), False)

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        assigned = self._core.subscriptions.assigned
        return {partition for partition, state in assigned.items() if state.is_paused}

    def partitions_for(self, topic: str, timeout_ms: int | None = None) -> list[PartitionInfo]:
        """The partitions of a topic, with leaders and replicas."""
        with self._alone():
            deadline = self._deadline(timeout_ms)
            return self._run(self._core.topic_partitions(topic, deadline), timeout_ms)

    def topic_id(self, topic: str) -> UUID | None:
        """The id of a topic that is read, as the brokers said last; NO_UUID if they said none.

        None if they know of no such topic, as after it was deleted.
        """
        return self._core.metadata.cluster.topic_id(topic)

    def list_topics(self, timeout_ms: int | None = None) -> dict[str, list[PartitionInfo]]:
        """All topics that this consumer may see, with their partitions."""
        with self._alone():
            return self._run(self._core.list_topics(self._deadline(timeout_ms)), timeout_ms)

    def close(self, timeout_ms: int | None = None) -> None:
        """Commit if enable.auto.commit is set, leave the group, end the I/O thread.

        Closing twice does nothing.
        """
        if self._is_closed:
            return
        with self._alone(polls=True):
            try:
                if self._io.is_alive:
                    limit_ms = self._limit_ms(timeout_ms)
                    try:
                        self._tell(self._core.last_event())
                    finally:  # the listener's error is raised when all is done
                        self._run(self._core.close(self._deadline(limit_ms)), limit_ms)
            finally:
                self._is_closed = True
                self._core.unread.take()
                self._io.close()

    # Internals

    @contextmanager
    def _alone(self, *, polls: bool = False) -> Iterator[None]:
        """Let in one thread at a time; a listener may call back in the same thread.

        But it may not call what `polls`, or ends the polls: it would be told of the same again.
        """
        if self._is_closed:
            raise RuntimeError("the consumer is closed")
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("the consumer is being used by another thread")
        try:
            if polls and self._is_telling:
                raise RuntimeError("a listener must not poll, unsubscribe or close its consumer")
            yield
        finally:
            self._lock.release()

    @contextmanager
    def _given_back_if_cut_short(self) -> Iterator[None]:
        """Read again later what a poll took and did not return, as after KeyboardInterrupt.

        Its positions would be committed although the application has not seen the records.
        """
        self._core.fetcher.taken.clear()
        try:
            yield
        except BaseException as error:
            if not isinstance(error, KafkaError | WakeupError) and self._core.fetcher.taken:
                self._call(self._give_back_taken)
            raise

    def _give_back_taken(self) -> None:
        for place in self._core.fetcher.taken.offsets().items():
            self._core.rewind(*place)

    async def _health(self) -> ConsumerHealth:
        return health_of(self._core)

    async def _build(self) -> ConsumerCore:
        return ConsumerCore(self._io.runtime, self._config)

    def _poll(self, timeout_ms: int) -> list[ConsumerRecord]:
        core = self._core
        records, has_room = core.collect_settled()
        if has_room:
            self._io.post(core.fetcher.send_fetches)
        return records or self._poll_for(core.collect, timeout_ms)

    def _poll_for(self, collect: Callable[[], tuple[list[T], bool]], timeout_ms: int) -> list[T]:
        """Records that have arrived; the listener hears of rebalances on this thread."""
        core, deadline = self._core, self._deadline(timeout_ms)
        while True:
            outcome = self._run(core.poll_for(collect, deadline), timeout_ms)
            if not isinstance(outcome, RebalanceEvent):
                return outcome
            try:
                self._tell(outcome)
            finally:
                self._call(core.acknowledge)

    def _refill(self, idle_timeout_ms: int | None) -> bool:
        """Poll for iteration; False when nothing came in time."""
        idle = Deadline(self._clock, idle_timeout_ms)
        core = self._core
        while not core.unread:
            with self._given_back_if_cut_short():
                records = self._poll(min(ITERATION_POLL_MS, idle.left_ms))
                core.unread.fill(core.interceptors.on_consume(records))
            if not core.unread and idle.has_passed:
                return False
        return True

    def _give_back_unread(self, partitions: Iterable[TopicPartition]) -> None:
        """Have the records that the iteration has not returned yet fetched again later."""
        self._core.unread.give_back(partitions, partial(self._call, self._core.rewind))

    def _reset(self, partitions: Iterable[TopicPartition], timestamp: int) -> None:
        with self._alone():
            chosen = list(partitions) or list(self.assignment())
            self._core.unread.drop(chosen)
            self._call(self._core.reset, chosen, timestamp)

    def _tell(self, event: RebalanceEvent | None) -> None:
        """Tell the listener of an event, if there is one."""
        if event is None:
            return
        self._is_telling = True
        try:
            event.tell(self._core.subscriptions.listener)
        finally:
            self._is_telling = False

    def _list(
        self,
        timestamps: Mapping[TopicPartition, int],
        timeout_ms: int | None,
        replica_id: int = CONSUMER_REPLICA_ID,
    ) -> dict[TopicPartition, ListOffsetsResult]:
        with self._alone():
            wanted = {TopicPartition(*p): int(timestamp) for p, timestamp in timestamps.items()}
            call = self._core.list_offsets(wanted, self._deadline(timeout_ms), replica_id)
            return checked(self._run(call, timeout_ms))

    def _limit_ms(self, timeout_ms: int | None) -> int:
        if timeout_ms is None:
            return self._config.default_api_timeout_ms
        return limit_in_ms(timeout_ms)

    def _deadline(self, timeout_ms: int | None) -> Deadline:
        return Deadline(self._clock, self._limit_ms(timeout_ms))

    def _run(self, call: Coroutine[Any, Any, T], timeout_ms: int | None = None) -> T:
        # The call keeps its own deadline; this limit is a safety net.
        limit_ms = self._limit_ms(timeout_ms) + self._config.request_timeout_ms + MARGIN_MS
        return self._io.run(call, limit_ms)

    def _call(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a plain function of the core on its loop, and wait."""

        async def call() -> T:
            return function(*arguments)

        return self._run(call())
