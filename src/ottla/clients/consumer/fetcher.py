"""Reads ahead: keeps a fetch in flight to every leader, and returns the batches that arrived."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar, cast
from uuid import UUID

from ottla.clients.answers import left_out
from ottla.clients.client_metrics import ConsumerMetrics
from ottla.clients.consumer.completed_fetch import (
    AbortedTransactions,
    CompletedFetch,
    Decoding,
    FetchedBatches,
    split_batches,
)
from ottla.clients.consumer.position_validator import PositionValidator
from ottla.clients.consumer.subscription_state import (
    FETCH_AGAIN,
    RESETS,
    SubscriptionState,
    TopicPartitionState,
)
from ottla.clients.metadata import Metadata
from ottla.clients.network_client import NetworkClient, RequestKind, connection_id
from ottla.clients.topic_offsets import parting_of
from ottla.config.client_config import ConsumerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.network.node_connection import HIGHEST_VERSION
from ottla.protocol.fetch import (
    FIRST_VERSION_OF_CONSUMERS,
    LAST_VERSION_WITH_NAMES,
    DivergingEpoch,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.record.consumer_record import ConsumerRecord
from ottla.runtime import Timer
from ottla.structs import NO_EPOCH, NO_REPLICA, NO_UUID, IsolationLevel, NamedTuple, TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")

FETCHES_AHEAD = 2
NOT_TAKEN = (-1, 0)
"""The generation and the position of a partition that nothing was taken from."""


class AskedPartition(NamedTuple):
    """One partition of a fetch in flight: its start, and the generation of its state."""

    state: TopicPartitionState
    generation: int
    offset: int
    leader_epoch: int


class TakenPartitions:
    """The partitions that records were taken from last, and where that began."""

    def __init__(self, subscriptions: SubscriptionState) -> None:
        self._subscriptions = subscriptions
        self._begun: dict[TopicPartitionState, tuple[int, int]] = {}
        """The generation, and the position."""

    def __bool__(self) -> bool:
        return bool(self._begun)

    def clear(self) -> None:
        self._begun = {}

    def note(self, state: TopicPartitionState) -> None:
        """Records of a partition are taken next."""
        self._begun.setdefault(state, (state.generation, state.position or 0))

    def is_current(self, state: TopicPartitionState) -> bool:
        """Whether a partition was taken from, and has not moved since."""
        generation, _ = self._begun.get(state, NOT_TAKEN)
        return self._subscriptions.is_current(state, generation)

    def offsets(self) -> dict[TopicPartition, int]:
        """Where it began in those that have not moved since."""
        return {
            state.topic_partition: position
            for state, (_, position) in self._begun.items()
            if self.is_current(state)
        }

    def rewind(self, partition: TopicPartition, offset: int) -> None:
        """Read a partition again from an offset on.

        Unless it is another member's by now, or the application has sought another place, or the
        log was found to part before that offset.
        """
        state = self._subscriptions.assigned.get(partition)
        if state is None or state.sought > self._begun.get(state, NOT_TAKEN)[0]:
            return
        if state.position is None or state.position > offset:
            state.rewind(offset)


class Fetcher:
    """Sessionless fetches (KIP-227 session 0), one at a time per broker.

    The next fetch is sent once none of the broker's partitions has two fetches waiting to be read.
    `send_fetches` belongs to the loop; `collect` may run in the application's thread, if only one
    thread calls it: the two share queues to which one side appends and from which the other takes.
    """

    def __init__(
        self,
        client: NetworkClient,
        metadata: Metadata,
        subscriptions: SubscriptionState,
        config: ConsumerConfig,
        decoding: Decoding,
    ) -> None:
        self.on_arrival: Callable[[], object] = lambda: None
        self._client = client
        self._metadata = metadata
        self._subscriptions = subscriptions
        self._config = config
        self.decoding = decoding
        self._isolation = IsolationLevel.of(config.isolation_level)
        self._runtime = client.runtime
        self._completed: deque[CompletedFetch] = deque()
        self._errors: deque[tuple[TopicPartitionState, int, KafkaError]] = deque()
        self._under_way: set[int] = set()
        self._retry_timer: Timer | None = None
        self._decoded_bytes = 0  # by the collection under way
        self._is_closed = False
        self.metrics: ConsumerMetrics | None = None
        self.taken = TakenPartitions(subscriptions)
        self._validator = PositionValidator(
            client, metadata, subscriptions, config, self._on_validation, self._tell
        )
        self.may_commit = self._validator.may_commit

    def send_fetches(self) -> None:
        """Send a fetch to every broker that has wanted partitions and no fetch in flight."""
        if self._is_closed:
            return
        for node_id, states in self._by_node().items():
            if node_id not in self._under_way and states:
                self._ask(node_id, states)

    def use(self, decoding: Decoding) -> None:
        """Decode records in another way, also those that have arrived and were not returned."""
        self.decoding = decoding
        for fetch in self._completed:
            fetch.use(decoding)

    async def decompress_ahead(self) -> None:
        """Decompress the batch that is read next, elsewhere, if that takes long (`is_ahead`)."""
        if not self.decoding.is_ahead:
            return
        fetch = next((each for each in self._completed if self._is_wanted(each)), None)
        if fetch is None or not fetch.is_read_up or not fetch.is_compressed:
            return
        decompress = fetch.next_payload()
        try:
            payload = await self._runtime.background.run(decompress)
        except KafkaError:
            return  # reading it raises the same, where its order is
        if fetch.is_compressed and fetch.next_payload() == decompress:
            fetch.put_payload(payload)

    def _is_wanted(self, fetch: CompletedFetch) -> bool:
        is_current = self._subscriptions.is_current(fetch.state, fetch.generation)
        return is_current and not fetch.state.is_paused

    def collect(self, max_records: int) -> tuple[list[ConsumerRecord], bool]:
        """The records that have arrived, in order, and whether to fetch more; never waits.

        Those of the batches that come to fetch.max.bytes, at most: a few bytes that have arrived
        may be a GB without their codecs.
        """

        def take(fetch: CompletedFetch, count: int) -> list[ConsumerRecord]:
            before = fetch.decoded_bytes
            room = self._config.fetch_max_bytes - self._decoded_bytes
            try:
                return fetch.take(max_records - count, room)
            finally:
                self._decoded_bytes += fetch.decoded_bytes - before

        found = self._collect(take, max_records)
        if self.metrics is not None:
            self.metrics.on_records(len(found[0]))
        return found

    def collect_batches(self) -> tuple[list[FetchedBatches], bool]:
        """The same of all that has arrived, as batches that are not decoded."""
        found = self._collect(self._take_batches, sys.maxsize)
        if self.metrics is not None:
            batches = (batch for fetched in found[0] for batch in fetched.batches)
            self.metrics.on_records(sum(batch.record_count for batch in batches))
        return found

    def collect_for_table(self) -> tuple[list[FetchedBatches], bool]:
        """The same of one fetch more than come to fetch.max.bytes in their codecs, not counted.

        Many of them may be put back, and as much is fetched as is taken.
        """

        def take(fetch: CompletedFetch, count: int) -> list[FetchedBatches]:
            found = self._take_batches(fetch, count)
            batches = (batch for fetched in found for batch in fetched.batches)
            self._decoded_bytes += sum(batch.size_in_bytes for batch in batches)
            return found

        return self._collect(take, sys.maxsize)

    def _take_batches(self, fetch: CompletedFetch, _: int) -> list[FetchedBatches]:
        position = fetch.state.position or 0
        batches = fetch.take_batches()
        return [FetchedBatches(fetch.state.topic_partition, position, batches)] * bool(batches)

    def put_back(self, left: Sequence[FetchedBatches]) -> None:
        """Have the last batches of a collection come with the next one, or be fetched again."""
        for fetched in reversed(left):
            state = self._subscriptions.assigned.get(fetched.topic_partition)
            if state is None or not self.taken.is_current(state):
                self.taken.rewind(fetched.topic_partition, fetched.position)
                continue
            state.position, state.leader_epoch = fetched.position, NO_EPOCH
            kept = CompletedFetch(state, (list(fetched.batches), None), self.decoding, None)
            self._completed.appendleft(kept)
            state.fetched += 1

    def _collect(
        self, take: Callable[[CompletedFetch, int], list[T]], limit: int
    ) -> tuple[list[T], bool]:
        found: list[T] = []
        has_room = False
        self.taken.clear()
        self._raise_error()
        self._decoded_bytes = 0
        paused: list[CompletedFetch] = []
        try:
            while self._completed and len(found) < limit and (not found or self._has_bytes_left):
                fetch = self._completed[0]
                if not self._subscriptions.is_current(fetch.state, fetch.generation):
                    self._completed.popleft()
                elif fetch.state.is_paused:
                    paused.append(self._completed.popleft())
                else:
                    state = fetch.state
                    self.taken.note(state)
                    found += take(fetch, len(found))
                    has_room |= self._forget_if_empty(fetch)
        except KafkaError:
            if not found:
                raise  # else return the batches that arrived; the error comes with the next call
        finally:
            self._completed.extendleft(reversed(paused))
        return found, has_room

    @property
    def _has_bytes_left(self) -> bool:
        return self._decoded_bytes <= self._config.fetch_max_bytes

    def _forget_if_empty(self, fetch: CompletedFetch) -> bool:
        if fetch.is_empty:
            self._completed.popleft()
            fetch.state.consumed += 1
        return fetch.is_empty

    def close(self) -> None:
        self._is_closed = True
        self._validator.close()
        if self._retry_timer is not None:
            self._retry_timer.cancel()

    def _raise_error(self) -> None:
        while self._errors:
            state, generation, error = self._errors.popleft()
            if self._subscriptions.is_current(state, generation):
                raise error

    def _by_node(self) -> dict[int, list[TopicPartitionState]]:
        """The partitions to fetch by broker; no broker with a partition that has enough waiting."""
        now_ms = self._runtime.clock.monotonic_ms()
        by_node: dict[int, list[TopicPartitionState]] = {}
        busy: set[int] = set()
        doubtful: list[TopicPartitionState] = []
        retry_ms: int | None = None
        for state in list(self._subscriptions.assigned.values()):
            if state.position is None:
                continue
            if not self._validator.is_same_topic(state):
                if state.retry_at_ms <= now_ms:
                    self._validator.begin_again(state)
                    self.on_arrival()
                continue
            if state.is_paused:
                continue
            node_id = self._node_of(state)
            if node_id is None:
                self._metadata.request_update()
            elif state.buffered >= FETCHES_AHEAD:
                busy.add(node_id)
            elif state.retry_at_ms > now_ms:
                retry_ms = min(retry_ms or state.retry_at_ms, state.retry_at_ms)
            elif not self._validator.is_valid(state):
                doubtful.append(state)
            else:
                by_node.setdefault(node_id, []).append(state)
        # Buffered records are read first, so that the position is that of the application.
        must_wait = self._validator.ask([state for state in doubtful if not state.buffered])
        if must_wait:
            later_ms = now_ms + self._config.retry_backoff_ms
            retry_ms = min(retry_ms or later_ms, later_ms)
        if retry_ms is not None:
            self._retry_later(retry_ms - now_ms)
        # A broker would wait for records of its quiet partitions while the busy one is read.
        return {node_id: states for node_id, states in by_node.items() if node_id not in busy}

    def _node_of(self, state: TopicPartitionState) -> int | None:
        cluster = self._metadata.cluster
        if state.read_replica in cluster.nodes:
            return state.read_replica
        leader = cluster.leader(state.topic_partition)
        return leader if leader in cluster.nodes else None

    def _retry_later(self, delay_ms: int) -> None:
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        self._retry_timer = self._runtime.scheduler.call_later(delay_ms, self.send_fetches)

    def _ask(self, node_id: int, states: Iterable[TopicPartitionState]) -> None:
        id = connection_id(node_id, RequestKind.FETCH)
        connection = self._client.ready_now(id, self.send_fetches)
        if connection is None:
            if self._client.connection(id).is_backing_off:
                self._metadata.request_update()
            return
        wanted = {
            state.topic_partition: AskedPartition(
                state,
                state.generation,
                state.fetch_offset,
                self._metadata.cluster.leader_epoch(state.topic_partition),
            )
            for state in states
        }
        topic_ids = self._topic_ids(wanted)
        try:
            version = connection.version_of(
                FetchRequest,
                FIRST_VERSION_OF_CONSUMERS,
                LAST_VERSION_WITH_NAMES if topic_ids is None else HIGHEST_VERSION,
            )
            request = fetch_request(self._config, self._isolation, wanted, topic_ids)
            limit_ms = self._config.request_timeout_ms + self._config.fetch_max_wait_ms
            future = self._client.send_on(connection, request, version, limit_ms)
        except KafkaError as error:
            self._on_failure(wanted, error)
            return
        self._under_way.add(node_id)
        future.add_done_callback(partial(self._on_response, node_id, wanted, topic_ids or {}))

    def _topic_ids(self, wanted: Iterable[TopicPartition]) -> dict[str, UUID] | None:
        """The ids of all the topics, or None if the id of one is not known."""
        topics = self._metadata.cluster.topics
        ids = {name: topics[name].topic_id for name, _ in wanted if name in topics}
        return None if NO_UUID in ids.values() else ids

    def _on_response(
        self,
        node_id: int,
        wanted: dict[TopicPartition, AskedPartition],
        topic_ids: dict[str, UUID],
        future: asyncio.Future[Any],
    ) -> None:
        self._under_way.discard(node_id)
        if future.cancelled():
            return
        cause = future.exception()
        if self._is_closed:
            return
        if cause is None:
            response = cast(FetchResponse, future.result())
            if response.error_code:
                self._on_failure(wanted, KafkaError.of(response.error_code, f"fetch: {node_id}"))
            else:
                self._on_fetched(wanted, {id: name for name, id in topic_ids.items()}, response)
                if self.metrics is not None:
                    self.metrics.on_fetched(records_size(response))
        else:
            self._on_failure(wanted, cause)
        self.on_arrival()
        self.send_fetches()

    def _on_failure(
        self, wanted: dict[TopicPartition, AskedPartition], cause: BaseException
    ) -> None:
        """The whole fetch failed: fetch again, after fresh metadata and a pause."""
        if isinstance(cause, KafkaError):
            logger.debug("a fetch failed: %s", cause)
        else:
            logger.error("a fetch failed", exc_info=cause)
        self._metadata.request_update()
        is_final = isinstance(cause, KafkaError) and cause.error not in FETCH_AGAIN
        for state, generation, *_ in wanted.values():
            if self._subscriptions.is_current(state, generation):
                self._pause_fetching(state)
                if isinstance(cause, KafkaError):
                    self._client.troubles.failed(state.topic_partition, cause)
                if is_final and not self._errors:
                    self._tell(state, cast(KafkaError, cause))

    def _pause_fetching(self, state: TopicPartitionState) -> None:
        now_ms = self._runtime.clock.monotonic_ms()
        state.retry_at_ms = now_ms + self._config.retry_backoff_ms
        state.read_replica = NO_REPLICA

    def _on_fetched(
        self,
        wanted: dict[TopicPartition, AskedPartition],
        topic_names: dict[UUID, str],
        response: FetchResponse,
    ) -> None:
        left = dict(wanted)
        for topic in response.responses:
            name = topic.topic or topic_names.get(topic.topic_id, "")
            for data in topic.partitions:
                entry = left.pop(TopicPartition(name, data.partition_index), None)
                if entry is None:
                    continue  # not requested
                state, generation, offset, leader_epoch = entry
                is_current = self._subscriptions.is_current(state, generation)
                # A response of an older epoch may have records that the newer leader lacks.
                is_current = is_current and leader_epoch >= state.validated_epoch
                if is_current and state.fetch_offset == offset:
                    self._on_partition(state, leader_epoch, data)
        for state, generation, *_ in left.values():
            if self._subscriptions.is_current(state, generation):
                self._on_nothing_new(state, left_out("the partition").message)

    def _on_partition(
        self, state: TopicPartitionState, leader_epoch: int, data: PartitionData
    ) -> None:
        error = ErrorCode.of(data.error_code)
        if error is ErrorCode.NONE and data.diverging_epoch is not None:
            self._on_divergence(state, leader_epoch, data.diverging_epoch)
        elif error is ErrorCode.NONE:
            state.validate(leader_epoch)
            state.high_watermark = data.high_watermark
            state.last_stable_offset = data.last_stable_offset
            if data.preferred_read_replica != NO_REPLICA:
                self._prefer(state, data.preferred_read_replica)
            if data.records:
                self._on_records(state, data)
            else:
                self._client.troubles.worked(state.topic_partition)
        elif error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._on_out_of_range(state)
        elif error in FETCH_AGAIN:
            logger.debug("fetch of %s: %s", state.topic_partition, error.name)
            cause = KafkaError.of(error, error.sentence)
            self._client.troubles.failed(state.topic_partition, cause)
            self._pause_fetching(state)
            if error.refresh_metadata or error is ErrorCode.UNKNOWN_LEADER_EPOCH:
                self._metadata.request_update()
        else:
            self._pause_fetching(state)
            text = f"fetch of {state.topic_partition}: {error.sentence}"
            self._tell(state, KafkaError.of(error, text))

    def _on_nothing_new(self, state: TopicPartitionState, why: str) -> None:
        """Pause, as the next answer may be the same, and come at once."""
        self._pause_fetching(state)
        error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, why)
        self._client.troubles.failed(state.topic_partition, error)

    def _prefer(self, state: TopicPartitionState, broker_id: int) -> None:
        """Fetch from another replica than the leader, once the metadata have its broker (KIP-392).

        Until then fetching pauses: the leader would return the same replica again and again.
        """
        if broker_id in self._metadata.cluster.nodes:
            state.read_replica = broker_id
        else:
            self._pause_fetching(state)
            self._metadata.request_update()

    def _tell(self, state: TopicPartitionState, error: KafkaError) -> None:
        """Queue an error for the next poll: at most one for each partition and generation."""
        if not any((each, n) == (state, state.generation) for each, n, _ in self._errors):
            self._errors.append((state, state.generation, error))

    def _on_validation(self) -> None:
        self.on_arrival()
        self.send_fetches()

    def _on_divergence(
        self, state: TopicPartitionState, leader_epoch: int, found: DivergingEpoch
    ) -> None:
        parting = parting_of(found)
        if state.buffered:
            self._pause_fetching(state)  # buffered records come first; then it is detected again
        elif parting.offset is not None and parting.offset >= state.fetch_offset:
            # The log has all that was read, but not that epoch: its batches were compacted away.
            state.fetched_epoch = parting.epoch
        else:
            self._validator.diverge(state, parting, leader_epoch)

    def _on_records(self, state: TopicPartitionState, data: PartitionData) -> None:
        state.refused_in = None
        aborted = None
        if self._isolation is IsolationLevel.READ_COMMITTED:
            entries = [(t.producer_id, t.first_offset) for t in data.aborted_transactions or ()]
            aborted = AbortedTransactions(entries)
        found = split_batches(data.records)
        if found[0] and found[0][-1].next_offset <= state.fetch_offset:
            self._on_nothing_new(state, "all records of the answer are before the position")
        elif not any(found):
            self._on_nothing_new(state, "the answer ends within its first batch")
        else:
            self._client.troubles.worked(state.topic_partition)
        if found[0]:
            state.fetch_offset = max(found[0][-1].next_offset, state.fetch_offset)
            state.fetched_epoch = found[0][-1].partition_leader_epoch
        state.fetched += 1
        self._completed.append(CompletedFetch(state, found, self.decoding, aborted))

    def _on_out_of_range(self, state: TopicPartitionState) -> None:
        if state.buffered or state.read_replica != NO_REPLICA:
            # Buffered records are read first; then it is detected again. A follower may be behind.
            self._pause_fetching(state)
            return
        cluster = self._metadata.cluster
        if state.refused_in is None or state.refused_in is cluster:
            # A leader that is cut off may say so; newer metadata name its successor.
            state.refused_in = cluster
            self._pause_fetching(state)
            self._metadata.request_update()
            return
        reset = RESETS.get(self._config.auto_offset_reset)
        where = f"offset {state.fetch_offset} of {state.topic_partition}"
        text = f"{where} is not, or no longer, in the log"
        if reset is None:
            self._pause_fetching(state)
            error = KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{text}; seek to one that is")
            self._tell(state, error)
        else:
            logger.info("%s; going on at the %s one", text, self._config.auto_offset_reset)
            state.request_reset(reset)


def fetch_request(
    config: ConsumerConfig,
    isolation: IsolationLevel,
    wanted: dict[TopicPartition, AskedPartition],
    topic_ids: dict[str, UUID] | None,
) -> FetchRequest:
    """A request for the partitions, by the ids of their topics if there are any."""
    request = FetchRequest(
        max_wait_ms=config.fetch_max_wait_ms,
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_max_bytes,
        isolation_level=isolation,
        rack_id=config.client_rack,
    )
    topics: dict[str, FetchTopic] = {}
    for topic_partition, (state, _, offset, leader_epoch) in wanted.items():
        name, number = topic_partition
        if name not in topics:
            topics[name] = FetchTopic(topic=name)
            if topic_ids is not None:
                topics[name].topic_id = topic_ids[name]
            request.topics.append(topics[name])
        topics[name].partitions.append(
            FetchPartition(
                partition=number,
                current_leader_epoch=leader_epoch,
                fetch_offset=offset,
                last_fetched_epoch=last_fetched_epoch(state),
                partition_max_bytes=config.max_partition_fetch_bytes,
            )
        )
    return request


def records_size(response: FetchResponse) -> int:
    """The bytes of all records in an answer."""
    partitions = (data for topic in response.responses for data in topic.partitions)
    return sum(len(data.records) for data in partitions if data.records)


def last_fetched_epoch(state: TopicPartitionState) -> int:
    """The epoch by which a leader detects divergence; NO_EPOCH for a follower, which may lag."""
    return state.fetched_epoch if state.read_replica == NO_REPLICA else NO_EPOCH
