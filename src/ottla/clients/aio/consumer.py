"""`ottla.aio.Consumer`: the API of a consumer for the coroutines of one event loop."""

from __future__ import annotations

import asyncio
import re
from contextlib import contextmanager, suppress
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from ottla.clients.admin.admin_client import checked
from ottla.clients.aio.loop_client import LoopClient, documented_by
from ottla.clients.client_settings import Servers, limit_in_ms, merge_settings
from ottla.clients.consumer.consumer import ITERATION_POLL_MS
from ottla.clients.consumer.consumer import Consumer as BlockingConsumer
from ottla.clients.consumer.consumer_core import ConsumerCore, OnCommit, WakeupError, no_group_id
from ottla.clients.consumer.consumer_health import ConsumerHealth, dead, health_of
from ottla.clients.consumer.subscription_state import (
    RebalanceEvent,
    RebalanceListener,
    compiled_pattern,
    names_of,
)
from ottla.clients.processing.process_options import ProcessOptions
from ottla.clients.topic_offsets import OffsetSpec, checked_times, place_of, with_metadata
from ottla.config.client_config import ConsumerConfig
from ottla.runtime.timing import Deadline
from ottla.structs import CONSUMER_REPLICA_ID, DEBUGGING_REPLICA_ID, NO_OFFSET, TopicPartition

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Collection,
        Hashable,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )
    from uuid import UUID

    import pyarrow as pa

    from ottla.clients.client_metrics import Metrics
    from ottla.clients.committed_offsets import ConsumerGroupMetadata
    from ottla.clients.consumer.completed_fetch import FetchedBatches
    from ottla.clients.consumer.consumer import OffsetsToCommit
    from ottla.clients.consumer.unread_records import UnreadRecords
    from ottla.clients.metadata import PartitionInfo
    from ottla.clients.processing.processing import Processing
    from ottla.clients.topic_offsets import ListOffsetsResult, OffsetAndMetadata
    from ottla.record.consumer_record import ConsumerRecord
    from ottla.runtime import Runtime

T = TypeVar("T")


class AsyncRebalanceListener:
    """Base class for `subscribe(listener=...)` whose methods are coroutines.

    They are awaited inside `poll`; `commit`, `seek` and `position` may be called from here.
    """

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """These partitions are about to be reassigned: the last chance to commit."""

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """These partitions were added."""

    async def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """These partitions may already belong to others; a commit for them would be refused."""
        await self.on_partitions_revoked(partitions)


@documented_by(BlockingConsumer)
class Consumer(LoopClient):
    """Reads topics, alone or sharing them with the other members of its group.

        async with ottla.aio.Consumer("localhost:9092", group_id="report", topics=["pages"]) as it:
            async for record in it:
                print(record.offset, record.value)

    Settings are those of `ottla.Consumer`. One task at a time polls or iterates, others of the same
    loop may commit or ask meanwhile. Calls that a broker may have to answer are coroutines. A call
    that is cancelled leaves the consumer usable: no record is lost.
    """

    title: ClassVar[str] = "consumer"
    _core: ConsumerCore

    def __init__(
        self,
        bootstrap_servers: Servers = None,
        settings: Mapping[str, Any] | None = None,
        *,
        topics: Collection[str] | str = (),
        **keywords: Any,
    ) -> None:
        super().__init__()
        self._given = merge_settings(bootstrap_servers, settings, keywords)
        self._config = ConsumerConfig.parse(self._given)
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        if self._topics and self._config.group_id is None:
            raise no_group_id()
        self._polling: asyncio.Future[None] | None = None
        self._telling: asyncio.Task[Any] | None = None

    # The partitions and positions to read

    async def subscribe(
        self,
        topics: Collection[str] | str = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | AsyncRebalanceListener | None = None,
    ) -> None:
        names = names_of(topics, pattern)
        core = self._opened()
        if pattern is not None:
            compiled = compiled_pattern(pattern)
            await core.subscribe_pattern(compiled, listener, self._deadline(None))
        else:
            core.subscribe(names, listener)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        core = self._opened()
        core.unread.give_back(self.assignment(), core.rewind)
        core.assign([TopicPartition(*partition) for partition in partitions])

    async def unsubscribe(self) -> None:
        core = self._opened()
        with self._alone():
            try:
                await self._tell(core.last_event())
            finally:
                core.unread.take()
                await core.unsubscribe()

    def assignment(self) -> set[TopicPartition]:
        return set(self._opened().subscriptions.assigned)

    def subscription(self) -> set[str]:
        return set(self._opened().subscriptions.topics)

    # Reading

    async def poll(self, timeout_ms: int = 0) -> list[ConsumerRecord]:
        core = self._opened()
        with self._alone():
            if core.unread:
                return core.unread.take()
            return core.interceptors.on_consume(await self._poll(timeout_ms))

    async def poll_batches(self, timeout_ms: int = 0) -> list[FetchedBatches]:
        core = self._opened()
        if core.subscriptions.is_by_group:
            raise RuntimeError("poll_batches is for partitions that were assigned")
        with self._alone():
            return await self._poll_for(core.fetcher.collect_batches, timeout_ms)

    async def poll_arrow(self, timeout_ms: int = 0) -> pa.Table:
        from ottla.clients.arrow_tables import require_pyarrow, table_of

        require_pyarrow()
        core = self._opened()
        with self._alone():
            core.unread.give_back(self.assignment(), core.rewind)
            fetched = await self._poll_for(core.fetcher.collect_for_table, timeout_ms)
            core.unfinished = core.fetcher.taken.offsets  # until it returns them
            returned: list[tuple[TopicPartition, int]] = []
            give_back = returned.append  # of this list, also where a cancellation comes first
            most = core.config.fetch_max_bytes
            make_table = partial(table_of, fetched, lambda *place: give_back(place), most)
            try:
                table, left = await core.runtime.background.run(make_table)
                core.fetcher.put_back(left)
                core.metrics.on_records(table.num_rows)
                return table
            except asyncio.CancelledError:
                returned = [(each.topic_partition, each.position) for each in reversed(fetched)]
                raise
            finally:
                for place in returned:
                    core.fetcher.taken.rewind(*place)
                core.unfinished = core.unread.offsets

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Records, one by one, without an end; those not taken yet are not committed either."""
        return self.records()

    def records(self, idle_timeout_ms: int | None = None) -> AsyncIterator[ConsumerRecord]:
        return _RecordIterator(self._opened().unread, partial(self._refill, idle_timeout_ms))

    async def process(
        self,
        handler: Callable[[ConsumerRecord], object],
        *,
        workers: int = 8,
        by: str | Callable[[ConsumerRecord], Hashable] = "key",
        retries: int | None = 3,
        retry_pause: float = 0.1,
        dead_letters: str | None = None,
        max_in_flight: int = 1000,
    ) -> None:
        """Await `handler` with each record, in so many tasks at once, until `stop`.

        As `ottla.Consumer.process`; a handler that is no coroutine function is called in threads.
        Where this call is cancelled, so are the tasks; what is finished is committed.
        """
        options = ProcessOptions(
            handler, workers, by, retries, retry_pause, dead_letters, max_in_flight
        )
        core = self._opened()
        options.check(core.subscriptions)
        with self._alone():
            await self._process(options)

    def stop(self) -> None:
        """End `process`, or the next one: no more records are begun.

        It returns when those that handlers work on are finished and committed, or have taken half
        of max.poll.interval.ms.
        """
        self._opened().stop_processing()

    def wakeup(self) -> None:
        """Make the current poll, or the next one, raise WakeupError; its task may be cancelled too.

        It is called in the loop: elsewhere by `loop.call_soon_threadsafe(consumer.wakeup)`.
        """
        self._opened().wakeup()

    # Offsets

    async def commit(
        self, offsets: OffsetsToCommit | None = None, timeout_ms: int | None = None
    ) -> None:
        wanted = None if offsets is None else with_metadata(offsets)
        await self._opened().commit(wanted, self._deadline(timeout_ms))

    def commit_async(
        self, offsets: OffsetsToCommit | None = None, on_commit: OnCommit | None = None
    ) -> None:
        """Commit in the background, once; `on_commit(offsets, error)` is called at the end."""
        core = self._opened()
        wanted = core.positions() if offsets is None else with_metadata(offsets)
        core.begin_commit(wanted, on_commit)

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        wanted = [TopicPartition(*partition) for partition in partitions]
        return await self._opened().committed(wanted, self._deadline(timeout_ms))

    async def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        return await self._opened().position(partition, self._deadline(timeout_ms))

    def high_watermark(self, partition: TopicPartition) -> int | None:
        return self._opened().high_watermark(partition)

    def current_lag(self, partition: TopicPartition) -> int | None:
        return self._opened().current_lag(partition)

    def seek(self, partition: TopicPartition, offset: OffsetAndMetadata | int) -> None:
        place = place_of(offset)
        core = self._opened()
        core.unread.drop([partition])
        core.seek(partition, place.offset, place.leader_epoch)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        self._reset(partitions, OffsetSpec.EARLIEST)

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        self._reset(partitions, OffsetSpec.LATEST)

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        found = await self._list(dict.fromkeys(partitions, int(OffsetSpec.EARLIEST)), timeout_ms)
        return {partition: result.offset for partition, result in found.items()}

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        found = await self._list(dict.fromkeys(partitions, int(OffsetSpec.LATEST)), timeout_ms)
        return {partition: result.offset for partition, result in found.items()}

    async def log_end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(partitions, int(OffsetSpec.LATEST))
        found = await self._list(wanted, timeout_ms, DEBUGGING_REPLICA_ID)
        return {partition: result.offset for partition, result in found.items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, ListOffsetsResult | None]:
        found = await self._list(checked_times(timestamps), timeout_ms)
        return {p: None if r.offset == NO_OFFSET else r for p, r in found.items()}

    def metrics(self) -> Metrics:
        return self._opened().read_metrics()

    def health(self) -> ConsumerHealth:
        """How it is, for a supervisor's probes; a handler of these runs in the same loop."""
        return dead() if self._is_closed else health_of(self._opened())

    def group_metadata(self) -> ConsumerGroupMetadata:
        return self._opened().group_metadata()

    # Partitions

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        core, chosen = self._opened(), list(partitions)
        core.unread.give_back(chosen, core.rewind)
        core.pause(chosen, True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._opened().pause(list(partitions), False)

    def paused(self) -> set[TopicPartition]:
        assigned = self._opened().subscriptions.assigned
        return {partition for partition, state in assigned.items() if state.is_paused}

    async def partitions_for(
        self, topic: str, timeout_ms: int | None = None
    ) -> list[PartitionInfo]:
        return await self._opened().topic_partitions(topic, self._deadline(timeout_ms))

    def topic_id(self, topic: str) -> UUID | None:
        return self._opened().metadata.cluster.topic_id(topic)

    async def list_topics(self, timeout_ms: int | None = None) -> dict[str, list[PartitionInfo]]:
        return await self._opened().list_topics(self._deadline(timeout_ms))

    async def close(self, timeout_ms: int | None = None) -> None:
        """Commit if enable.auto.commit is set, and leave the group.

        Closing twice does nothing; a call that is cancelled leaves the rest to the background.
        """
        if self._telling is not None and self._telling is asyncio.current_task():
            raise RuntimeError("a listener must not poll, unsubscribe or close its consumer")
        await self._close(timeout_ms)

    # Internals

    def _open(self, runtime: Runtime) -> None:
        self._core = ConsumerCore(runtime, self._config, shares_loop=True)
        if self._topics:
            self._core.subscribe(self._topics, None)

    def _opened(self) -> ConsumerCore:
        self._here()
        return self._core

    async def _finish(self, timeout_ms: int | None) -> None:
        core = self._core
        limit_ms = self._limit_ms(timeout_ms)
        if self._polling is not None:
            core.wakeup()
            await asyncio.wait([self._polling], timeout=limit_ms / 1000)
        try:
            await self._tell(core.last_event())
        finally:
            core.unread.take()
            await core.close(Deadline(core.runtime.clock, limit_ms))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Let in one task at a time: each record is returned once, in order."""
        if self._polling is not None:
            raise RuntimeError("the consumer is polled by another task, or by its own listener")
        self._polling = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            self._polling.set_result(None)
            self._polling = None

    async def _poll(self, timeout_ms: int) -> list[ConsumerRecord]:
        core = self._core
        await asyncio.sleep(0)  # others have their turns, however many records have arrived
        self._here()
        await core.fetcher.decompress_ahead()
        records, has_room = core.collect_settled()
        if has_room:
            core.fetcher.send_fetches()
        return records or await self._poll_for(core.collect, timeout_ms)

    async def _process(self, options: ProcessOptions) -> None:
        from ottla.clients.processing.processing import Processing

        core = self._core
        processing = Processing(core, options, self._given)
        try:
            while True:
                try:
                    event = await processing.run()
                except WakeupError:
                    self._here()  # it may have been closed meanwhile
                    raise
                if event is None:
                    break
                try:
                    await self._tell(event)
                finally:
                    core.acknowledge()
        finally:
            await self._end_work(processing)
        processing.check()

    async def _end_work(self, processing: Processing) -> None:
        """End the work before the consumer is free again; a second cancellation hurries it."""
        ending = asyncio.ensure_future(processing.end())
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            ending.cancel()
            while not ending.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([ending])
            raise

    async def _poll_for(
        self, collect: Callable[[], tuple[list[T], bool]], timeout_ms: int
    ) -> list[T]:
        """Records that have arrived; the listener hears of rebalances."""
        core, deadline = self._core, self._deadline(timeout_ms)
        while True:
            try:
                outcome = await core.poll_for(collect, deadline)
            except WakeupError:
                self._here()  # it may have been closed meanwhile
                raise
            if not isinstance(outcome, RebalanceEvent):
                return outcome
            try:
                await self._tell(outcome)
            finally:
                core.acknowledge()

    async def _tell(self, event: RebalanceEvent | None) -> None:
        if event is None:
            return
        self._telling = asyncio.current_task()
        try:
            told = event.tell(self._core.subscriptions.listener)
            if isawaitable(told):
                await told
        finally:
            self._telling = None

    async def _refill(self, idle_timeout_ms: int | None) -> bool:
        """Poll for iteration; False when nothing came in time."""
        core = self._core
        idle = Deadline(core.runtime.clock, idle_timeout_ms)
        with self._alone():
            while not core.unread:
                records = await self._poll(min(ITERATION_POLL_MS, idle.left_ms))
                core.unread.fill(core.interceptors.on_consume(records))
                if not core.unread and idle.has_passed:
                    return False
        return True

    def _reset(self, partitions: Iterable[TopicPartition], timestamp: int) -> None:
        core = self._opened()
        chosen = list(partitions) or list(self.assignment())
        core.unread.drop(chosen)
        core.reset(chosen, timestamp)

    async def _list(
        self,
        timestamps: Mapping[TopicPartition, int],
        timeout_ms: int | None,
        replica_id: int = CONSUMER_REPLICA_ID,
    ) -> dict[TopicPartition, ListOffsetsResult]:
        core = self._opened()
        wanted = {TopicPartition(*p): int(timestamp) for p, timestamp in timestamps.items()}
        return checked(await core.list_offsets(wanted, self._deadline(timeout_ms), replica_id))

    def _deadline(self, timeout_ms: int | None) -> Deadline:
        return Deadline(self._opened().runtime.clock, self._limit_ms(timeout_ms))

    def _limit_ms(self, timeout_ms: int | None) -> int:
        if timeout_ms is None:
            return self._config.default_api_timeout_ms
        return limit_in_ms(timeout_ms)


class _RecordIterator:
    """Not a generator: one that was cancelled, as by `wait_for`, returns the next record later."""

    def __init__(self, unread: UnreadRecords, refill: Callable[[], Awaitable[bool]]) -> None:
        self._unread = unread
        self._refill = refill

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        if not self._unread and not await self._refill():
            raise StopAsyncIteration
        return self._unread.pop()
