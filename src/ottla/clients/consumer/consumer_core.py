"""The parts of a consumer put together, on the loop that runs them."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TypeVar

from ottla.clients.admin.admin_client import checked
from ottla.clients.callbacks import tell
from ottla.clients.client_metrics import ConsumerMetrics, Metrics
from ottla.clients.client_settings import retry_backoff
from ottla.clients.committed_offsets import NO_MEMBERSHIP, ConsumerGroupMetadata
from ottla.clients.consumer.completed_fetch import Decoding
from ottla.clients.consumer.consumer_coordinator import ConsumerCoordinator, Offsets
from ottla.clients.consumer.consumer_interceptors import ConsumerInterceptors
from ottla.clients.consumer.fetcher import Fetcher
from ottla.clients.consumer.positions import Positions
from ottla.clients.consumer.reconciling_coordinator import ReconcilingCoordinator
from ottla.clients.consumer.subscription_state import (
    RebalanceEvent,
    RebalanceKind,
    SubscriptionState,
)
from ottla.clients.consumer.unread_records import UnreadRecords
from ottla.clients.metadata import Cluster, Metadata, PartitionInfo
from ottla.clients.network_client import NetworkClient
from ottla.clients.retrying import Retrying
from ottla.clients.serialization import deserializer_of
from ottla.clients.topic_offsets import ListOffsetsResult, OffsetAndMetadata, list_offsets
from ottla.config.client_config import CONSUMER_PROTOCOL, ConsumerConfig
from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError
from ottla.record.consumer_record import ConsumerRecord
from ottla.runtime import Runtime
from ottla.runtime.scheduler import is_under_way, within
from ottla.runtime.timing import Deadline
from ottla.structs import (
    CONSUMER_REPLICA_ID,
    NO_EPOCH,
    NO_GENERATION,
    IsolationLevel,
    TopicPartition,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")
OnCommit = Callable[[Mapping[TopicPartition, OffsetAndMetadata], KafkaError | None], object]


class WakeupError(Exception):
    """`wakeup` was called before or while the consumer waited in `poll`."""


class ConsumerCore:
    """A consumer without its synchronous API: created, used and closed on one loop.

    `is_settled` says that there is nothing to do but fetching; while it holds, the application's
    thread may take records from `fetcher` by itself.
    """

    def __init__(
        self, runtime: Runtime, config: ConsumerConfig, *, shares_loop: bool = False
    ) -> None:
        """With `shares_loop` the application is on the loop too: no call blocks it for long."""
        self.runtime = runtime
        self.config = config
        self.is_settled = False
        self.unread = UnreadRecords()
        self.unfinished: Callable[[], Mapping[TopicPartition, int]] = self.unread.offsets
        """The offset of the first record that was polled and does not count as read, if any."""
        self.subscriptions = SubscriptionState()
        self.interceptors = ConsumerInterceptors(config.interceptor_classes)
        self.client = NetworkClient(runtime, config)
        self.metadata = Metadata(
            self.client,
            allow_auto_topic_creation=config.allow_auto_create_topics,
            on_update=self._on_metadata,
        )
        decoding = Decoding(
            config.check_crcs,
            deserializer_of("key.deserializer", config.key_deserializer),
            deserializer_of("value.deserializer", config.value_deserializer),
            is_ahead=shares_loop,
        )
        self.fetcher = Fetcher(self.client, self.metadata, self.subscriptions, config, decoding)
        self.fetcher.on_arrival = self.notify
        self._common_metrics = self.client.metrics("consumer-metrics")
        self.metrics = self.fetcher.metrics = ConsumerMetrics(self._common_metrics, self._lags)
        self.coordinator: ConsumerCoordinator | None = None
        if config.group_id is not None:
            is_newer = config.group_protocol == CONSUMER_PROTOCOL
            coordinator_type = ReconcilingCoordinator if is_newer else ConsumerCoordinator
            self.coordinator = coordinator_type(
                self.client, self.metadata, self.subscriptions, config, self.unsettle
            )
            self.coordinator.positions = self.positions
        link = None if self.coordinator is None else self.coordinator.link
        self._positions = Positions(self.client, self.metadata, self.subscriptions, config, link)
        self._finding: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self._is_woken = False
        self.poll_error: KafkaError | None = None
        self.is_stop_requested = False
        self.on_stop: Callable[[], object] | None = None
        self._polled_as = NO_MEMBERSHIP
        self._committing: asyncio.Task[None] | None = None
        self._commit_ms = runtime.clock.monotonic_ms() + config.auto_commit_interval_ms
        idle_ms = max(1000, config.connections_max_idle_ms // 2)
        self._timers = [
            runtime.scheduler.call_every(max(1, config.auto_commit_interval_ms), self.unsettle),
            runtime.scheduler.call_every(idle_ms, self.client.close_idle),
        ]
        backoff = retry_backoff(config, runtime)
        self._retrying = Retrying(self.metadata, backoff, runtime.scheduler, ends_attempts=True)

    # Polling

    def collect(self) -> tuple[list[ConsumerRecord], bool]:
        """The records that have arrived, at most max.poll.records, and whether to fetch more."""
        return self.fetcher.collect(self.config.max_poll_records)

    def collect_settled(self) -> tuple[list[ConsumerRecord], bool]:
        """The same if there is nothing to do but fetching, else nothing; in any thread."""
        if not self.is_settled:
            return [], False
        records, has_room = self.collect()
        if records:
            if self.coordinator is not None:
                self.coordinator.member.poll_watch.note()
            self.metrics.on_poll()
        return records, has_room

    async def poll(self, deadline: Deadline) -> list[ConsumerRecord] | RebalanceEvent:
        """The next records, none after the deadline, or an event to report and acknowledge."""
        return await self.poll_for(self.collect, deadline)

    async def poll_for(
        self, collect: Callable[[], tuple[list[T], bool]], deadline: Deadline
    ) -> list[T] | RebalanceEvent:
        """Poll; `collect` takes fetched batches and returns whether there is room for more."""
        try:
            found = await self._poll_for(collect, deadline)
        except KafkaError as error:
            self.poll_error = error
            raise
        self.poll_error = None
        return found

    async def _poll_for(
        self, collect: Callable[[], tuple[list[T], bool]], deadline: Deadline
    ) -> list[T] | RebalanceEvent:
        self.metrics.on_poll()
        if self.coordinator is not None:
            self.coordinator.member.poll_watch.note()
        while True:
            if self._is_woken:
                self._is_woken = False
                raise WakeupError
            event = self._settle()
            if event is not None:
                if event.kind is RebalanceKind.ASSIGNED:
                    self._note_membership()
                return event
            if self._has_no_partitions:
                if deadline.has_passed:
                    return []
                await self._wait(deadline)
                continue
            self.fetcher.send_fetches()
            await self.fetcher.decompress_ahead()
            found, has_room = collect()
            if has_room:
                self.fetcher.send_fetches()
            if found or deadline.has_passed:
                self._note_membership()
                return found
            await self._wait(deadline)

    def _note_membership(self) -> None:
        if self.coordinator is not None:
            self._polled_as = self.coordinator.member.membership

    @property
    def _assigning(self) -> ConsumerCoordinator | None:
        """The member of the group that assigns the partitions; None if none does."""
        return self.coordinator if self.subscriptions.is_by_group else None

    @property
    def _has_no_partitions(self) -> bool:
        """Whether a rebalance allows none of the assigned partitions to be read now.

        The member gives some of them up, or it has no generation. Then others may have its
        partitions; and in a transaction, offsets without a generation would be taken for those of
        an application outside the group.
        """
        assigning = self._assigning
        if assigning is None:
            return False
        return assigning.is_revoking or assigning.member.membership.generation == NO_GENERATION

    def acknowledge(self) -> None:
        """The application has handled the event that `poll` returned."""
        if self.coordinator is not None:
            self.coordinator.acknowledge()

    def notify(self) -> None:
        """Wake those that wait, such as a `poll`: there is something for it to handle."""
        for changed in self._waiting:
            if not changed.done():
                changed.set_result(None)

    def unsettle(self) -> None:
        """Have the next poll, or the one under way, look for work besides fetching."""
        self.is_settled = False
        self.notify()

    def wakeup(self) -> None:
        """End the current poll, or the next one, with WakeupError."""
        self._is_woken = True
        self.unsettle()

    def _settle(self) -> RebalanceEvent | None:
        """Do all work but fetching; returns an event that the application has to handle."""
        assigning = self._assigning
        event = None if assigning is None else assigning.step()
        if event is not None:
            return event
        self._auto_commit_if_due()
        self._find_positions()
        self.is_settled = (
            self._finding is None
            and self.subscriptions.has_all_positions
            and (assigning is None or assigning.is_settled)
        )
        return None

    def _find_positions(self) -> None:
        if self._finding is not None and self._finding.done():
            task, self._finding = self._finding, None
            if not task.cancelled():  # by the application, as one of all its tasks
                task.result()
        if self._finding is None and not self.subscriptions.has_all_positions:
            loop = asyncio.get_running_loop()
            self._finding = loop.create_task(self._positions.find(), name="find positions")
            self._finding.add_done_callback(self._on_found)

    def _on_found(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # the next poll raises it
        self.notify()

    async def _wait(self, deadline: Deadline) -> None:
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(changed)
        try:
            await within(self.runtime.scheduler, deadline.left_ms, changed, "")
        except KafkaTimeoutError:
            pass  # the caller checks the deadline
        finally:
            self._waiting.discard(changed)

    def stop_processing(self) -> None:
        """Stop the work of `process`, or of its next call."""
        if self.on_stop is None:
            self.is_stop_requested = True
        else:
            self.on_stop()

    # Subscribing

    def subscribe(self, topics: Collection[str], listener: object | None) -> None:
        group = self._group()
        self.subscriptions.subscribe(topics, listener)
        self.metadata.set_topics(self.subscriptions.topics)
        group.member.request_join()

    async def subscribe_pattern(
        self, pattern: re.Pattern[str], listener: object | None, deadline: Deadline
    ) -> None:
        self._group()
        self.subscriptions.subscribe_pattern(pattern, listener)
        self.metadata.set_topics(None)
        await self.metadata.update(deadline)  # `_on_metadata` finds the topics

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        self.subscriptions.assign(partitions)
        self.metadata.set_topics(self.subscriptions.topics)
        self.unsettle()

    async def unsubscribe(self) -> None:
        """Stop reading, and leave the group if there is one."""
        if self.coordinator is not None:
            await self.coordinator.leave("the consumer unsubscribed")
        self._cancel_finding()
        self.subscriptions.unsubscribe()
        self.unsettle()

    def _on_metadata(self, cluster: Cluster) -> None:
        if self.subscriptions.pattern is not None:
            hides = self.config.exclude_internal_topics
            names = [t.name for t in cluster.topics.values() if not (hides and t.is_internal)]
            self.subscriptions.match_topics(names)
        if self._assigning is not None:
            self._assigning.on_metadata(cluster)
        self.fetcher.send_fetches()

    # Offsets

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """How far the application has read; records that are unfinished do not count.

        Positions in topics that were deleted are left out.
        """
        unfinished = self.unfinished()
        return {
            partition: state.to_commit(unfinished.get(partition, state.position))
            for partition, state in self.subscriptions.assigned.items()
            if state.position is not None
            and self.fetcher.may_commit(state, partition in unfinished)
        }

    async def commit(self, offsets: Offsets | None, deadline: Deadline) -> None:
        """Commit and wait; by default the positions."""
        are_positions = offsets is None
        wanted = self.positions() if offsets is None else self.subscriptions.with_ids(offsets)
        done = await self._group().commit(wanted, deadline, are_positions=are_positions)
        self.interceptors.on_commit(done)

    def begin_commit(self, offsets: Offsets, on_commit: OnCommit | None) -> None:
        """Commit in the background, once; `on_commit(offsets, error)` is called at the end."""
        commit = self._commit_quietly(self.subscriptions.with_ids(offsets))
        task = self.runtime.scheduler.spawn(commit, "commit")
        if on_commit is not None:
            task.add_done_callback(partial(_tell_committed, offsets, on_commit))

    async def _commit_quietly(self, offsets: Offsets) -> KafkaError | None:
        try:
            deadline = Deadline(self.runtime.clock, self.config.default_api_timeout_ms)
            await self.commit_once(offsets, deadline)
        except KafkaError as error:
            logger.warning("a commit failed: %s", error)
            return error
        return None

    async def commit_once(self, offsets: Offsets, deadline: Deadline) -> None:
        await self._group().commit_once(self.subscriptions.with_ids(offsets), deadline)
        self.interceptors.on_commit(offsets)

    async def committed(
        self, partitions: Collection[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return await self._group().committed(partitions, self._retrying, deadline)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """The group, and the generation in which the last poll returned its records.

        Not the current generation: a rebalance since that poll may have reassigned the partitions.
        Only before the first poll as a member, and from the listener's `on_partitions_assigned`
        on, it is the current one.
        """
        group = self._group()
        membership = self._polled_as if self.subscriptions.is_by_group else NO_MEMBERSHIP
        if membership == NO_MEMBERSHIP and self.subscriptions.is_by_group:
            membership = group.member.membership
        topics = self.subscriptions.known_topics()
        return ConsumerGroupMetadata(group.link.group_id, membership, topics)

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """The high watermark as of the last fetch; None before the first one."""
        return self.subscriptions.state(partition).high_watermark

    def read_metrics(self) -> Metrics:
        return self.metrics.read(len(self.subscriptions.assigned))

    def _lags(self) -> dict[TopicPartition, int]:
        """How far each position is behind, where that is known."""
        lags = {each: self.current_lag(each) for each in self.subscriptions.assigned}
        return {partition: lag for partition, lag in lags.items() if lag is not None}

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How far the position is behind the last readable record; None if unknown."""
        state = self.subscriptions.state(partition)
        isolation = IsolationLevel.of(self.config.isolation_level)
        position = self.unfinished().get(state.topic_partition, state.position)
        return state.lag(isolation is IsolationLevel.READ_COMMITTED, position)

    async def position(self, partition: TopicPartition, deadline: Deadline) -> int:
        """The offset of the next record, looked up first if it is not known."""
        state = self.subscriptions.state(partition)
        while state.position is None:
            self._find_positions()
            if deadline.has_passed:
                raise deadline.timeout(f"the position of {partition} was not found")
            await self._wait(deadline)
        return self.unfinished().get(state.topic_partition, state.position)

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int = NO_EPOCH) -> None:
        self.subscriptions.seek(partition, offset, leader_epoch)
        self.unsettle()

    def rewind(self, partition: TopicPartition, offset: int) -> None:
        """Read records of a partition again, from one that was read already."""
        self.subscriptions.state(partition).rewind(offset)
        self.unsettle()

    def reset(self, partitions: Iterable[TopicPartition], timestamp: int) -> None:
        """Continue at the offset of `timestamp`, which may stand for the beginning or the end."""
        for partition in partitions:
            self.subscriptions.reset(partition, timestamp)
        self.unsettle()

    def pause(self, partitions: Iterable[TopicPartition], is_paused: bool) -> None:
        for partition in partitions:
            self.subscriptions.state(partition).is_paused = is_paused
        self.fetcher.send_fetches()

    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        deadline: Deadline,
        replica_id: int = CONSUMER_REPLICA_ID,
    ) -> dict[TopicPartition, ListOffsetsResult | KafkaError]:
        """The offsets of timestamps, for any partitions."""
        isolation = IsolationLevel.of(self.config.isolation_level)

        async def attempt(
            pending: list[TopicPartition], limit: Deadline
        ) -> dict[TopicPartition, ListOffsetsResult | KafkaError]:
            for topic in {partition.topic for partition in pending}:
                await self.topic_partitions(topic, limit)
            wanted = {partition: timestamps[partition] for partition in pending}
            return await list_offsets(self.client, self.metadata, wanted, isolation, replica_id)

        return await self._retrying.for_each(timestamps, attempt, deadline)

    async def topic_partitions(self, topic: str, deadline: Deadline) -> list[PartitionInfo]:
        """The partitions of a topic, which need not be subscribed to."""
        if self.metadata.cluster.error_of(topic) is not ErrorCode.NONE:
            self.metadata.want([topic])
            await self.metadata.update(deadline)
        error = self.metadata.cluster.error_of(topic)
        if error not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            if topic not in self.subscriptions.topics:
                self.metadata.forget(topic)
            raise KafkaError.of(error, f"topic {topic}: {error.sentence}")
        return list((await self.metadata.topic(topic, deadline)).partitions.values())

    async def list_topics(self, deadline: Deadline) -> dict[str, list[PartitionInfo]]:
        """All topics that this client may see, with their partitions."""

        async def attempt(_: list[str], __: Deadline) -> dict[str, Cluster | KafkaError]:
            return {"topics": await self.metadata.fetch(None)}

        cluster = checked(await self._retrying.for_each(["topics"], attempt, deadline))["topics"]
        known = [topic for topic in cluster.topics.values() if topic.error is ErrorCode.NONE]
        return {topic.name: list(topic.partitions.values()) for topic in known}

    def last_event(self) -> RebalanceEvent | None:
        """What the application has to know before it gives up all partitions at once."""
        if not (self.subscriptions.is_by_group and self.subscriptions.assigned):
            return None
        is_lost = self.coordinator is not None and self.coordinator.member.is_lost
        kind = RebalanceKind.LOST if is_lost else RebalanceKind.REVOKED
        return RebalanceEvent(kind, tuple(sorted(self.subscriptions.assigned)))

    async def close(self, deadline: Deadline) -> None:
        """Commit if enable.auto.commit is set, leave the group, and close the connections."""
        self._cancel_finding()
        try:
            if self.coordinator is not None and self.subscriptions.assigned:
                await self.coordinator.auto_commit(self.positions(), deadline.left_ms)
            if self.coordinator is not None:
                leaving = self.coordinator.leave("the consumer is closed")
                await within(self.runtime.scheduler, max(1, deadline.left_ms), leaving, "")
        except KafkaTimeoutError:
            pass  # the group removes the member when its session ends
        finally:
            for timer in self._timers:
                timer.cancel()
            self.fetcher.close()
            self.metadata.close()
            self._common_metrics.close()
            self.client.close()

    def _auto_commit_if_due(self) -> None:
        if self.coordinator is None or is_under_way(self._committing):
            return
        now_ms = self.runtime.clock.monotonic_ms()
        if now_ms >= self._commit_ms:
            self._commit_ms = now_ms + self.config.auto_commit_interval_ms
            # The current positions: the records that this poll is about to return are not read yet.
            commit = self.coordinator.auto_commit(self.positions(), self.config.request_timeout_ms)
            self._committing = self.runtime.scheduler.spawn(commit, "automatic commit")

    def _cancel_finding(self) -> None:
        if self._finding is not None:
            self._finding.cancel()
            self._finding = None

    def _group(self) -> ConsumerCoordinator:
        if self.coordinator is None:
            raise no_group_id()
        return self.coordinator


def _tell_committed(
    offsets: Offsets, on_commit: OnCommit, task: asyncio.Task[KafkaError | None]
) -> None:
    if not task.cancelled():
        tell("the commit callback %r", on_commit, on_commit, offsets, task.result())


def no_group_id() -> KafkaError:
    """The error of a call that needs a group."""
    return KafkaError(
        ErrorCode.INVALID_GROUP_ID,
        "group.id: must be set to subscribe to topics; without one, assign partitions",
    )
