"""The cluster as a client knows it: brokers, topics, and the partitions' leaders.

The view is cached, and refreshed when it proves wrong, incomplete or old.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from ottla.clients.client_settings import retry_backoff
from ottla.clients.network_client import NetworkClient
from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError, UnusableConnectionError
from ottla.network.node_connection import NodeConnection
from ottla.protocol.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.topic_name import validate_topic_name
from ottla.runtime.scheduler import is_under_way, pause, within
from ottla.runtime.timing import Deadline
from ottla.structs import (
    NO_EPOCH,
    NO_LEADER,
    NO_UUID,
    NamedTuple,
    Node,
    TopicPartition,
    Value,
    field,
    is_topic_name,
    replace,
)

logger = logging.getLogger(__name__)

FIRST_VERSION_WITH_AUTO_CREATE = 4
REFRESH: Final = "the refresh of the metadata"
MOST_FORMER_IDS: Final = 10
"""How many ids of deleted topics of one name are remembered, to know outdated metadata."""


class Metadata:
    """Holds the newest `cluster`, and runs one refresh at a time.

    `topics` are the topics that the client needs, None for all. `on_update` is called after each
    refresh, on the loop.
    """

    def __init__(
        self,
        client: NetworkClient,
        *,
        allow_auto_topic_creation: bool = True,
        on_update: Callable[[Cluster], object] = lambda cluster: None,
    ) -> None:
        config, runtime = client.config, client.runtime
        self.cluster = Cluster()
        self.topics: set[str] | None = set()
        self.on_update = on_update
        self._client = client
        self._runtime = runtime
        self._max_age_ms = config.metadata_max_age_ms
        self._allow_auto_topic_creation = allow_auto_topic_creation
        self._backoff = retry_backoff(config, runtime)
        self._missing: dict[str, bool] = {}  # topics that there are not, and whether it was said
        self._failures = 0  # refreshes in a row that failed
        self._incomplete = 0  # refreshes in a row that lacked something
        self._refreshed_ms = -self._max_age_ms
        self._requested = 0
        self._completed = 0
        self._next_update: asyncio.Future[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._is_urgent = False
        self._is_closed = False
        self._age_timer = runtime.scheduler.call_later(self._max_age_ms, self.request_update)

    def request_update(self, *, is_urgent: bool = False) -> None:
        """Refresh in the background, as the cluster proved wrong or is old.

        Unless urgent, not sooner than retry.backoff.ms after the previous refresh: brokers need
        a moment to learn of a change, and many partitions fail at once.
        """
        if self._is_closed:
            return
        self._requested += 1
        self._is_urgent |= is_urgent
        if not is_under_way(self._refreshing):
            self._refreshing = self._runtime.scheduler.spawn(self._refresh(), "refresh metadata")

    def want(self, topics: Iterable[str]) -> None:
        """Add these topics to those of the metadata, and refresh if some are new."""
        wanted = set(topics)
        if self.topics is not None and not wanted <= self.topics:
            self.topics |= wanted
            self.request_update(is_urgent=True)

    def forget(self, topic: str) -> None:
        """Drop a topic that does not exist from those of the metadata."""
        if self.topics is not None:
            self.topics.discard(topic)

    def set_topics(self, topics: Collection[str] | None) -> None:
        """Set the topics of the metadata to exactly these, or to all (None)."""
        wanted = None if topics is None else set(topics)
        is_more = wanted is None or self.topics is None or not wanted <= self.topics
        self.topics = wanted
        if is_more:
            self.request_update(is_urgent=True)

    async def update(self, deadline: Deadline, *, is_urgent: bool = True) -> Cluster:
        """Wait for a refresh that begins now or later.

        Raises UnusableConnectionError if waiting is pointless.
        """
        if self._is_closed:
            raise RuntimeError("the client is closed")
        self.request_update(is_urgent=is_urgent)
        wanted = self._requested
        while self._completed < wanted:
            if deadline.has_passed:
                raise deadline.timeout(f"no metadata were received ({self._client.last_failure})")
            await self._wait_for_update(deadline)
        return self.cluster

    async def _wait_for_update(self, deadline: Deadline) -> None:
        if self._next_update is None:
            self._next_update = asyncio.get_running_loop().create_future()
        try:
            await within(
                self._runtime.scheduler, deadline.left_ms, asyncio.shield(self._next_update), ""
            )
        except KafkaTimeoutError:
            pass  # the caller checks the deadline, and reports its own reason to wait

    async def topic(self, name: str, deadline: Deadline) -> TopicInfo:
        """An existing topic; waits while it may be auto-created or lacks a leader."""
        validate_topic_name(name)
        self.want([name])
        failures = 0
        while True:
            info = self.cluster.topics.get(name)
            if info is not None and info.partitions and info.error is ErrorCode.NONE:
                return info
            error = self.cluster.error_of(name)
            if failures and info is not None and self._is_final(error):
                self.forget(name)
                raise KafkaError.of(error, f"topic {name}: {error.sentence}")
            if deadline.has_passed:
                raise deadline.timeout(f"topic {name} is not in the metadata ({error.name})")
            if failures:
                delay_ms = min(self._backoff.delay_ms(failures), deadline.left_ms)
                await pause(self._runtime.scheduler, delay_ms)
            failures += 1
            try:
                await self.update(deadline)
            except KafkaTimeoutError:
                if info is None:
                    raise  # no broker answers; otherwise the last answer is a better error

    async def ask_again(self, topics: Iterable[str], deadline: Deadline) -> None:
        """Refresh where a topic was refused, after retry.backoff.ms: rights come and go."""
        errors = map(self.cluster.error_of, set(topics))
        if any(error is not ErrorCode.NONE and not error.retriable for error in errors):
            await self.update(deadline, is_urgent=False)

    async def hear_of(self, topics: Iterable[str], deadline: Deadline) -> None:
        """Wait while the refresh under way is the first that tells of some of the topics."""
        if is_under_way(self._refreshing) and not self.cluster.topics.keys() >= set(topics):
            await self._wait_for_update(deadline)

    def _is_final(self, error: ErrorCode) -> bool:
        """Whether waiting will not resolve the error of a topic."""
        if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return not self._allow_auto_topic_creation
        return error is not ErrorCode.NONE and not error.retriable

    async def leader(self, topic_partition: TopicPartition, deadline: Deadline) -> int:
        """The node id of a partition's leader; waits until there is one."""
        failures = 0
        while True:
            topic = await self.topic(topic_partition.topic, deadline)
            if topic_partition.partition not in topic.partitions:
                raise KafkaError.of(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {topic.name} has {len(topic.partitions)} partitions, "
                    f"and none with the number {topic_partition.partition}",
                )
            leader = topic.partitions[topic_partition.partition].leader
            if leader in self.cluster.nodes:
                return leader
            if deadline.has_passed:
                raise deadline.timeout(f"partition {topic_partition} has no leader")
            failures += 1
            delay_ms = min(self._backoff.delay_ms(failures), deadline.left_ms)
            await pause(self._runtime.scheduler, delay_ms)
            await self.update(deadline)

    def close(self) -> None:
        self._is_closed = True
        self._age_timer.cancel()
        if self._refreshing is not None:
            self._refreshing.cancel()
        self._end_waits(RuntimeError("the client is closed"))

    def _end_waits(self, error: Exception) -> None:
        if self._next_update is not None:
            self._next_update.set_exception(error)
            self._next_update.exception()  # mark as retrieved: no call may be waiting
            self._next_update = None

    async def _refresh(self) -> None:
        try:
            while self._completed < self._requested:
                await pause(self._runtime.scheduler, self._wait_ms())
                self._is_urgent = False
                await self._try_to_refresh(self._requested)
        finally:
            self._refreshing = None

    def _wait_ms(self) -> int:
        if self._failures:
            return self._backoff.delay_ms(self._failures)
        if self._is_urgent:
            return 0
        since_ms = self._runtime.clock.monotonic_ms() - self._refreshed_ms
        return max(0, self._client.config.retry_backoff_ms - since_ms)

    async def _try_to_refresh(self, request: int) -> None:
        try:
            cluster = await self.fetch(self.topics)
        except KafkaError as error:
            self._failures += 1
            if not isinstance(error, KafkaTimeoutError):  # else the client has noted why
                self._client.last_failure = error.message
            logger.debug("metadata could not be refreshed: %s", error)
            self._client.troubles.failed(REFRESH, error)
            if isinstance(error, UnusableConnectionError):
                self._end_waits(error)
            return
        self._failures = 0
        self._client.troubles.worked(REFRESH)
        self._completed = request
        self._refreshed_ms = self._runtime.clock.monotonic_ms()
        self.cluster = cluster
        self._client.update_nodes(cluster.nodes)
        self._warn_of_missing(cluster)
        self._schedule_next()
        if self._next_update is not None:
            self._next_update.set_result(None)
            self._next_update = None
        self.on_update(cluster)

    def _warn_of_missing(self, cluster: Cluster) -> None:
        """Name each topic once that is asked for again and again, as it may be misspelt."""
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        missing = {each for each in self.topics or () if cluster.error_of(each) is unknown}
        for topic in sorted(missing & self._missing.keys()):
            if not self._missing[topic]:
                logger.warning("topic %s does not exist; it is waited for", topic)
        self._missing = {topic: topic in self._missing for topic in missing}

    def _schedule_next(self) -> None:
        """Refresh when the metadata are old, or soon while something wanted is missing."""
        self._incomplete = self._incomplete + 1 if self._is_incomplete() else 0
        delay_ms = self._max_age_ms
        if self._incomplete:
            delay_ms = min(delay_ms, self._backoff.delay_ms(self._incomplete))
        self._age_timer.cancel()
        self._age_timer = self._runtime.scheduler.call_later(delay_ms, self.request_update)

    def _is_incomplete(self) -> bool:
        """Whether a topic is still missing, or has a partition without a leader."""
        if any(self.cluster.error_of(topic).refresh_metadata for topic in self.topics or ()):
            return True
        topics = self.cluster.topics.values()
        return any(len(topic.available) < len(topic.partitions) for topic in topics)

    async def fetch(self, topics: Collection[str] | None) -> Cluster:
        """Fetch metadata of these topics (None: all) once, from any broker that can be reached.

        Names that no topic may have are not asked for, as some cannot be encoded: they are errors
        of their own in the result.
        """
        invalid = {name for name in topics or () if not is_topic_name(name)}
        wanted = None if topics is None else [name for name in topics if name not in invalid]

        def ask(connection: NodeConnection) -> asyncio.Future[MetadataResponse]:
            names = None if wanted is None else [MetadataRequestTopic(name=each) for each in wanted]
            request = MetadataRequest(topics=names)
            version = connection.version_of(MetadataRequest, low=1)
            if version >= FIRST_VERSION_WITH_AUTO_CREATE:
                request.allow_auto_topic_creation = self._allow_auto_topic_creation
            return self._client.send_on(connection, request, version)

        deadline = Deadline(self._runtime.clock, self._client.config.request_timeout_ms)
        answer = await self._client.ask_any(ask, deadline)
        if answer.error_code:
            raise KafkaError.of(ErrorCode.of(answer.error_code), "the cluster's metadata")
        return Cluster.of(answer, self.cluster).with_invalid(invalid)


class PartitionInfo(NamedTuple):
    """A partition and where its replicas are; `leader` is -1 while there is none."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


class TopicInfo(NamedTuple):
    """A topic as the metadata describe it; with an `error`, nothing else about it is known.

    `ids` are those that topics of this name have had, as far as the client saw, the newest last.
    """

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: Mapping[int, PartitionInfo]
    error: ErrorCode = ErrorCode.NONE
    ids: tuple[UUID, ...] = ()

    @property
    def available(self) -> list[int]:
        """The partitions that have a leader."""
        return [p.partition for p in self.partitions.values() if p.leader != NO_LEADER]


class Cluster(Value, frozen=True):
    """One broker's view of the cluster; it is replaced, never changed."""

    cluster_id: str | None = None
    controller_id: int = NO_LEADER
    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)

    def partition(self, topic_partition: TopicPartition) -> PartitionInfo | None:
        topic = self.topics.get(topic_partition.topic)
        return None if topic is None else topic.partitions.get(topic_partition.partition)

    def partitions_for_topic(self, topic: str) -> list[PartitionInfo]:
        """The partitions of a topic by number; none if the topic is not known."""
        info = self.topics.get(topic)
        return [] if info is None else [info.partitions[index] for index in sorted(info.partitions)]

    def available_partitions_for_topic(self, topic: str) -> list[PartitionInfo]:
        """The partitions of a topic that currently have a leader."""
        return [each for each in self.partitions_for_topic(topic) if each.leader != NO_LEADER]

    def partition_count_for_topic(self, topic: str) -> int:
        """How many partitions a topic has; 0 if it is not known."""
        return len(self.partitions_for_topic(topic))

    def leader(self, topic_partition: TopicPartition) -> int:
        """The id of the leader's node, -1 if there is none or it is not known."""
        partition = self.partition(topic_partition)
        return NO_LEADER if partition is None else partition.leader

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        """The epoch of the leader, -1 if that is not known."""
        partition = self.partition(topic_partition)
        return NO_EPOCH if partition is None else partition.leader_epoch

    def error_of(self, topic: str) -> ErrorCode:
        """Why nothing is known about a topic; NONE if something is."""
        info = self.topics.get(topic)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if info is None else info.error

    def topic_id(self, topic: str) -> UUID | None:
        """The id of a topic; None if the brokers know of no such topic."""
        info = self.topics.get(topic)
        if info is None or info.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        return info.topic_id

    def partition_counts(self, topics: Sequence[str]) -> dict[str, int]:
        """How many partitions each of the topics has; those without partitions are left out."""
        known = {topic: self.topics[topic] for topic in topics if topic in self.topics}
        return {topic: len(info.partitions) for topic, info in known.items() if info.partitions}

    @classmethod
    def of(cls, response: MetadataResponse, before: Cluster) -> Cluster:
        """The cluster of a response; it never goes back to an older leader epoch, or topic id.

        Brokers learn of a change one after the other, so a slow one may be outdated (KIP-320): it
        may also describe a topic that was deleted, and created again under another id (KIP-516).
        """
        topics = {}
        for topic in response.topics:
            name = topic.name or ""
            known = before.topics.get(name)
            if known is not None and topic.topic_id in known.ids[:-1]:
                topics[name] = known
            else:
                topics[name] = _topic_info(name, topic, known)
        nodes = {n.node_id: Node(n.node_id, n.host, n.port, n.rack) for n in response.brokers}
        return cls(response.cluster_id, response.controller_id, nodes, topics)

    def with_invalid(self, names: Iterable[str]) -> Cluster:
        """The same with an error for each of these names, which no topic may have."""
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
        invalid = {name: TopicInfo(name, NO_UUID, False, {}, error) for name in names}
        return replace(self, topics={**self.topics, **invalid}) if invalid else self


def _topic_info(name: str, topic: MetadataResponseTopic, known: TopicInfo | None) -> TopicInfo:
    topic_id = topic.topic_id or NO_UUID
    ids = () if known is None else known.ids
    if topic_id not in (NO_UUID, *ids[-1:]):
        ids = (*ids[-MOST_FORMER_IDS:], topic_id)
    same = known.partitions if known is not None and known.topic_id == topic_id else {}
    return TopicInfo(
        name,
        topic_id,
        topic.is_internal,
        {
            p.partition_index: _newer(same.get(p.partition_index), _partition_info(name, p))
            for p in sorted(topic.partitions, key=lambda p: p.partition_index)
        },
        ErrorCode.of(topic.error_code),
        ids,
    )


def _partition_info(topic: str, partition: MetadataResponsePartition) -> PartitionInfo:
    return PartitionInfo(
        topic,
        partition.partition_index,
        partition.leader_id,
        partition.leader_epoch,
        tuple(partition.replica_nodes),
        tuple(partition.isr_nodes),
        tuple(partition.offline_replicas),
    )


def _newer(known: PartitionInfo | None, told: PartitionInfo) -> PartitionInfo:
    if known is None or told.leader_epoch == NO_EPOCH or told.leader_epoch >= known.leader_epoch:
        return told
    return known
