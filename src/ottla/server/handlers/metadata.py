"""Metadata (3), v0-13, DescribeCluster (60), v0-2 and DescribeTopicPartitions (75), v0.

Brokers, topics and the leaders of partitions.

Behaviour: an unknown topic that may be created is created first and answered with its leaders,
so that a new topic costs its first producer no retry. DescribeTopicPartitions lists topics by
name, at most `max.request.partition.size.limit` partitions in an answer, with a cursor.

Version notes: v0 no topics = all · v1 null = all, none = none · v4 the client may forbid automatic
creation · v5 offline replicas · v7 leader epochs · v8 authorized operations (KIP-430) · v9
flexible · v10 topic ids (KIP-516) · v11 cluster operations moved to DescribeCluster · v12 look-up
by topic id · v13 an error for the whole request (KIP-1102), which is never set. DescribeCluster
v1 the kind of endpoint (KIP-919) · v2 fenced brokers (KIP-1073): there are none.

Gaps: no eligible leader replicas (KIP-966): their lists are empty.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.protocol.metadata import (
    FIRST_VERSION_WITH_CREATION_FLAG,
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.structs import INTERNAL_TOPICS, NO_LEADER, NO_UUID, PartitionState, TopicMetadata

if TYPE_CHECKING:
    from ottla.network.request_context import RequestContext
    from ottla.runtime import Slices
    from ottla.server.api import Handler
    from ottla.server.metadata_cache import MetadataCache

FIRST_VERSION_WITH_NULL_FOR_ALL = 1
FIRST_VERSION_WITH_LISTENER_NOT_FOUND = 6
VERSIONS_WITH_UNUSED_IDS = (10, 11)
"""Their requests have the field of the id already, but their answers cannot go without a name."""
BROKER_ENDPOINT_TYPE = 1
SLICE_PARTITIONS = 1000
SLICE_TOPICS = 200
"""Of DescribeTopicPartitions, where each may have few partitions."""
MAX_CREATIONS_A_SECOND = 50
"""The topics that clients create by naming them: each takes files, and the registry's time."""

OPERATIONS_NOT_REQUESTED = -(2**31)

CreateTopic = Callable[[str], Coroutine[Any, Any, None]]
"""Creates a topic that a client named (auto.create.topics.enable)."""


class MetadataHandler:
    """Answers from the metadata cache."""

    def __init__(
        self,
        cache: MetadataCache,
        auto_create: bool,
        create_topic: CreateTopic,
        validate_name: Callable[[str], object],
        max_request_partitions: int,
        slices: Slices,
        until_told: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """`until_told` waits, for a limited time, for the first update of the cache."""
        self.cache = cache
        self.auto_create = auto_create
        self.create_topic = create_topic
        self.validate_name = validate_name
        # Clients that have lost a leader ask again and again, maybe for thousands of partitions.
        self._built: dict[tuple[str, str, bool], list[MetadataResponsePartition]] = {}
        self._built_after = cache.update_count
        self.max_request_partitions = max_request_partitions
        self._creation_second = self._creation_count = 0
        self._slices = slices
        self._until_told = until_told

    def apis(self) -> Mapping[ApiKey, Handler]:
        handlers: Mapping[ApiKey, Handler] = {
            ApiKey.METADATA: self.handle_metadata,
            ApiKey.DESCRIBE_CLUSTER: self.handle_describe_cluster,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS: self.handle_describe_topic_partitions,
        }
        return {key: self._when_told(handler) for key, handler in handlers.items()}

    def _when_told(self, handler: Handler) -> Handler:
        """A handler that waits until the controller has informed this broker of the cluster.

        A broker that has just started would say that there are no topics. A client takes that for
        a decision: it gives up its records, though the topics exist.
        """
        until_told = self._until_told
        if until_told is None:
            return handler

        async def wait(context: RequestContext, body: Any) -> Any:
            await until_told()
            answer = handler(context, body)
            return await answer if isawaitable(answer) else answer

        def handle(context: RequestContext, body: Any) -> Any:
            return handler(context, body) if self.cache.update_count else wait(context, body)

        return handle

    def handle_metadata(
        self, context: RequestContext, body: MetadataRequest
    ) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
        if is_too_old_for_ids(context, body):
            return refused(body)
        missing = self._creatable(context, body)
        if missing:
            return self._create_then_answer(context, body, missing)
        return self._answer(context, body, self._find_all(context, body, {}))

    def _find_all(
        self, context: RequestContext, body: MetadataRequest, errors: Mapping[str, ErrorCode]
    ) -> list[TopicMetadata | MetadataResponseTopic]:
        """The topics of a request: as the cache has them, or the answer why there is none."""
        if asks_for_all(context, body):
            return list(self.cache.topics())
        return [self._find(topic, errors) for topic in body.topics or ()]

    def _answer(
        self,
        context: RequestContext,
        body: MetadataRequest,
        found: list[TopicMetadata | MetadataResponseTopic],
    ) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
        """The answer of few partitions at once, that of many in slices."""
        if sum(len(topic.partitions) for topic in found) > SLICE_PARTITIONS:
            return self._answer_in_slices(context, body, found)
        operations = topic_operations(body.include_topic_authorized_operations)
        listener_name = context.listener_name
        is_old = context.api_version < FIRST_VERSION_WITH_LISTENER_NOT_FOUND
        topics = [
            topic
            if isinstance(topic, MetadataResponseTopic)
            else _known_topic(topic, self._partitions(topic, listener_name, is_old), operations)
            for topic in found
        ]
        return self._response(context, body, topics)

    async def _answer_in_slices(
        self,
        context: RequestContext,
        body: MetadataRequest,
        found: list[TopicMetadata | MetadataResponseTopic],
    ) -> MetadataResponse:
        operations = topic_operations(body.include_topic_authorized_operations)
        is_old = context.api_version < FIRST_VERSION_WITH_LISTENER_NOT_FOUND
        topics, count = [], 0
        for topic in found:
            if isinstance(topic, TopicMetadata):
                partitions = await self._build(topic, context.listener_name, is_old)
                topics.append(_known_topic(topic, partitions, operations))
                count += len(partitions)
            else:
                topics.append(topic)
            count += 1
            if count >= SLICE_PARTITIONS:
                count = 0
                await self._slices.pause()
        return self._response(context, body, topics)

    def _creatable(self, context: RequestContext, body: MetadataRequest) -> list[str]:
        allowed = self.auto_create and (
            body.allow_auto_topic_creation or context.api_version < FIRST_VERSION_WITH_CREATION_FLAG
        )
        if not allowed or not body.topics:
            return []
        names = {topic.name for topic in body.topics if topic.name and topic.topic_id == NO_UUID}
        missing = sorted(name for name in names if self.cache.topic(name) is None)
        return missing[: self._creations_left(context, len(missing))] if missing else missing

    def _creations_left(self, context: RequestContext, count: int) -> int:
        """How many of so many topics may be created now: clients ask again for the others."""
        second = context.received_ms // 1000
        if second != self._creation_second:
            self._creation_second, self._creation_count = second, 0
        left = MAX_CREATIONS_A_SECOND - self._creation_count
        self._creation_count += min(count, left)
        return left

    async def _create_then_answer(
        self, context: RequestContext, body: MetadataRequest, missing: list[str]
    ) -> MetadataResponse:
        errors: dict[str, ErrorCode] = {}
        for name in missing:
            try:
                await self.create_topic(name)
            except KafkaError as error:
                if error.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    errors[name] = error.error
        answer = self._answer(context, body, self._find_all(context, body, errors))
        return await answer if isinstance(answer, Coroutine) else answer

    def _response(
        self, context: RequestContext, body: MetadataRequest, topics: list[MetadataResponseTopic]
    ) -> MetadataResponse:
        """The topics, with the parts of the cluster that are known."""
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(
                    node_id=node.id, host=node.host, port=node.port, rack=node.rack
                )
                for node in self.cache.alive_brokers(context.listener_name)
            ],
            cluster_id=self.cache.cluster_id,
            controller_id=self.cache.controller_id,
            topics=topics,
            cluster_authorized_operations=cluster_operations(
                body.include_cluster_authorized_operations
            ),
        )

    def _find(
        self, wanted: MetadataRequestTopic, errors: Mapping[str, ErrorCode]
    ) -> TopicMetadata | MetadataResponseTopic:
        if wanted.topic_id != NO_UUID:
            name = self.cache.topic_name(wanted.topic_id)
            topic = self.cache.topic(name) if name is not None else None
            if topic is None:
                return MetadataResponseTopic(
                    error_code=int(ErrorCode.UNKNOWN_TOPIC_ID), name=None, topic_id=wanted.topic_id
                )
            return topic
        name = wanted.name or ""
        topic = self.cache.topic(name)
        if topic is not None:
            return topic
        return MetadataResponseTopic(error_code=int(self._why_missing(name, errors)), name=name)

    def _partitions(
        self, topic: TopicMetadata, listener_name: str, is_old: bool
    ) -> list[MetadataResponsePartition]:
        """The partitions of a topic by index; built once after each update of the metadata.

        An `is_old` client does not know the error LISTENER_NOT_FOUND.
        """
        if self._built_after != self.cache.update_count:
            self._built.clear()
            self._built_after = self.cache.update_count
        key = (topic.name, listener_name, is_old)
        found = self._built.get(key)
        if found is None:
            states = sorted(topic.partitions.items())
            found = self._built[key] = [
                self._partition(state, listener_name, is_old) for _, state in states
            ]
        return found

    async def _build(
        self, topic: TopicMetadata, listener_name: str, is_old: bool
    ) -> list[MetadataResponsePartition]:
        """The same in slices, of a topic that may have very many."""
        key = (topic.name, listener_name, is_old)
        built_after = self.cache.update_count
        if len(topic.partitions) < SLICE_PARTITIONS or (
            self._built_after == built_after and key in self._built
        ):
            return self._partitions(topic, listener_name, is_old)
        states = sorted(topic.partitions.items())
        built = [
            self._partition(state, listener_name, is_old)
            async for _, state in self._slices.over(states, SLICE_PARTITIONS)
        ]
        if self._built_after == built_after == self.cache.update_count:
            self._built[key] = built
        return built

    def _partition(
        self, state: PartitionState, listener_name: str, is_old: bool
    ) -> MetadataResponsePartition:
        """One partition; a leader that is dead, or lacks the listener, is none for this client."""
        leader, error = state.leader, ErrorCode.NONE
        brokers = self.cache.brokers
        if leader == NO_LEADER or self.cache.node(leader, listener_name) is None:
            is_dead = leader not in brokers
            error = (
                ErrorCode.LEADER_NOT_AVAILABLE
                if is_dead or is_old
                else ErrorCode.LISTENER_NOT_FOUND
            )
            leader = NO_LEADER
        offline = state.offline_replicas
        return MetadataResponsePartition(
            error_code=int(error),
            partition_index=state.topic_partition.partition,
            leader_id=leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=list(state.replicas),
            isr_nodes=list(state.leader_and_isr.isr),
            offline_replicas=[
                replica
                for replica in state.replicas
                if replica in offline or replica not in brokers
            ],
        )

    def _why_missing(self, name: str, errors: Mapping[str, ErrorCode]) -> ErrorCode:
        if name in errors:
            return errors[name]
        try:
            self.validate_name(name)
        except KafkaError as error:
            return error.error
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def handle_describe_cluster(
        self, context: RequestContext, body: DescribeClusterRequest
    ) -> DescribeClusterResponse:
        if body.endpoint_type != BROKER_ENDPOINT_TYPE:
            return DescribeClusterResponse(
                error_code=int(ErrorCode.MISMATCHED_ENDPOINT_TYPE),
                error_message=f"endpoint type {body.endpoint_type} was asked of a broker, "
                f"whose type is {BROKER_ENDPOINT_TYPE}",
            )
        brokers = [
            DescribeClusterBroker(broker_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in self.cache.alive_brokers(context.listener_name)
        ]
        is_asked = body.include_cluster_authorized_operations
        return DescribeClusterResponse(
            endpoint_type=BROKER_ENDPOINT_TYPE,
            cluster_id=self.cache.cluster_id,
            controller_id=self.cache.controller_id,
            brokers=brokers,
            cluster_authorized_operations=cluster_operations(is_asked),
        )

    async def handle_describe_topic_partitions(
        self, context: RequestContext, body: DescribeTopicPartitionsRequest
    ) -> DescribeTopicPartitionsResponse:
        cursor = body.cursor or Cursor(topic_name="", partition_index=0)
        named = {topic.name for topic in body.topics}
        is_listed = not named or body.cursor is None or cursor.topic_name in named
        if cursor.partition_index < 0 or not is_listed:
            return _refuse_topics(body)
        names = sorted(named) or [topic.name for topic in self.cache.topics()]
        response = DescribeTopicPartitionsResponse()
        left = max(1, min(self.max_request_partitions, body.response_partition_limit))
        for number, name in enumerate(names, 1):
            if name < cursor.topic_name:
                continue
            if not number % SLICE_TOPICS:
                await self._slices.pause()
            first = cursor.partition_index if name == cursor.topic_name else 0
            if not left:
                response.next_cursor = Cursor(topic_name=name, partition_index=first)
                break
            topic = await self._described_topic(name, first, left, context)
            response.topics.append(topic)
            left -= len(topic.partitions)
            known = self.cache.topic(name)
            end = first + len(topic.partitions)
            if known is not None and end < len(known.partitions):
                response.next_cursor = Cursor(topic_name=name, partition_index=end)
                break
        return response

    async def _described_topic(
        self, name: str, first: int, most: int, context: RequestContext
    ) -> DescribeTopicPartitionsResponseTopic:
        """A topic with at most so many partitions, from the `first` on; or why there are none."""
        topic = self.cache.topic(name)
        if topic is None:
            error = self._why_missing(name, {})
            return DescribeTopicPartitionsResponseTopic(
                error_code=int(error), name=name, is_internal=name in INTERNAL_TOPICS
            )
        states = sorted(topic.partitions.items())[first : first + most]
        partitions = [
            _with_eligible_leaders(self._partition(state, context.listener_name, is_old=False))
            async for _, state in self._slices.over(states, SLICE_PARTITIONS)
        ]
        return DescribeTopicPartitionsResponseTopic(
            name=name,
            topic_id=topic.topic_id,
            is_internal=name in INTERNAL_TOPICS,
            partitions=partitions,
            topic_authorized_operations=topic_operations(True),
        )


def is_too_old_for_ids(context: RequestContext, body: MetadataRequest) -> bool:
    """Whether a request asks by ids, or without a name, in a version that cannot be answered."""
    return context.api_version in VERSIONS_WITH_UNUSED_IDS and any(
        topic.name is None or topic.topic_id != NO_UUID for topic in body.topics or ()
    )


def refused(body: MetadataRequest) -> MetadataResponse:
    """The answer to an older request that asks by ids: INVALID_REQUEST for all of its topics."""
    error = int(ErrorCode.INVALID_REQUEST)
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(error_code=error, name=topic.name or "")
            for topic in body.topics or ()
        ]
    )


def _known_topic(
    topic: TopicMetadata, partitions: list[MetadataResponsePartition], operations: int
) -> MetadataResponseTopic:
    """A topic with its partitions: the leader of each, where the client can reach it."""
    return MetadataResponseTopic(
        error_code=int(ErrorCode.NONE),
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=operations,
    )


def asks_for_all(context: RequestContext, body: MetadataRequest) -> bool:
    """Whether a client wants to know of every topic."""
    is_old = context.api_version < FIRST_VERSION_WITH_NULL_FOR_ALL
    return body.topics is None or (is_old and not body.topics)


def _with_eligible_leaders(
    partition: MetadataResponsePartition,
) -> DescribeTopicPartitionsResponsePartition:
    """The same of a partition as in Metadata; only members of the ISR are eligible."""
    return DescribeTopicPartitionsResponsePartition(
        error_code=partition.error_code,
        partition_index=partition.partition_index,
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replica_nodes,
        isr_nodes=partition.isr_nodes,
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=partition.offline_replicas,
    )


def _refuse_topics(body: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """The cursor names a topic that was not asked for, or no partition: an error for each topic."""
    error = int(ErrorCode.INVALID_REQUEST)
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=error, name=topic.name)
            for topic in body.topics
        ]
    )


def topic_operations(is_asked: bool) -> int:
    """The operations of any client on a topic, as bits, where no authorizer is (KIP-430).

    The numbers come from the rights, which are imported only where a client wants to know.
    """
    if not is_asked:
        return OPERATIONS_NOT_REQUESTED
    from ottla.security.acls import TOPIC_OPERATIONS

    return TOPIC_OPERATIONS


def cluster_operations(is_asked: bool) -> int:
    """The operations on the cluster, as bits."""
    if not is_asked:
        return OPERATIONS_NOT_REQUESTED
    from ottla.security.acls import CLUSTER_OPERATIONS

    return CLUSTER_OPERATIONS
