"""CreateTopics (19), DeleteTopics (20), DeleteRecords (21) and CreatePartitions (37).

Behaviour: each topic of a request succeeds or fails alone. An operation that takes longer than
the request's time limit is answered with REQUEST_TIMED_OUT and still carried out, as in Kafka; a
limit of 0 is never kept. Topics of the broker's own can be neither created, extended nor deleted.
Partitions that are created or deleted count against controller_mutation_rate (KIP-599).

Version notes: CreateTopics v1 validate only · v4 -1 for the broker's defaults (KIP-464) · v5
settings of the new topic (KIP-525) · v7 topic ids. DeleteTopics v3 TOPIC_DELETION_DISABLED · v6 by
topic id (KIP-516). CreateTopics v6, DeleteTopics v5 and CreatePartitions v3 can be refused with
THROTTLING_QUOTA_EXCEEDED; older versions are carried out, and throttled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar

from ottla.controller.controller import Controller
from ottla.controller.requested_topic import CreatedTopic, MorePartitions, RequestedTopic
from ottla.controller.topic_names import refuse_internal
from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError
from ottla.network.request_context import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.topic_name import validate_topic_name
from ottla.protocol.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.replication.replica_manager import ReplicaManager
from ottla.replication.replica_requests import DeleteRecordsResult
from ottla.runtime import Runtime
from ottla.runtime.scheduler import within
from ottla.server.api import Handler, error_code, error_message
from ottla.server.config_entries import DescribedConfig, topic_entries
from ottla.server.dynamic_config import DynamicConfig
from ottla.structs import NO_OFFSET, NO_UUID, TopicPartition, by_topic

FIRST_CREATE_VERSION_WITH_QUOTA = 6
FIRST_CREATE_PARTITIONS_VERSION_WITH_QUOTA = 3
FIRST_DELETE_VERSION_WITH_QUOTA = 5
FIRST_DELETE_VERSION_WITH_DISABLED_ERROR = 3
FIRST_DELETE_VERSION_WITH_IDS = 6

T = TypeVar("T")


class TopicsHandler:
    """Lets clients administer topics, through the controller; records through the replicas."""

    def __init__(
        self,
        runtime: Runtime,
        controller: Controller,
        replica_manager: ReplicaManager,
        dynamic_config: DynamicConfig,
    ) -> None:
        self.runtime = runtime
        self.controller = controller
        self.replica_manager = replica_manager
        self.dynamic_config = dynamic_config

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.CREATE_TOPICS: self.handle_create_topics,
            ApiKey.DELETE_TOPICS: self.handle_delete_topics,
            ApiKey.DELETE_RECORDS: self.handle_delete_records,
            ApiKey.CREATE_PARTITIONS: self.handle_create_partitions,
        }

    async def handle_create_topics(
        self, context: RequestContext, body: CreateTopicsRequest
    ) -> CreateTopicsResponse:
        outcomes = await self._within(
            body.timeout_ms,
            self.controller.create_topics(
                [new_topic(topic) for topic in body.topics],
                validate_only=body.validate_only,
                admit=mutations(context, FIRST_CREATE_VERSION_WITH_QUOTA),
            ),
            {topic.name for topic in body.topics},
        )
        return CreateTopicsResponse(
            topics=[self._created(name, outcome) for name, outcome in outcomes.items()]
        )

    def _created(self, name: str, outcome: CreatedTopic | KafkaError) -> CreatableTopicResult:
        if isinstance(outcome, KafkaError):
            return CreatableTopicResult(
                name=name,
                error_code=error_code(outcome),
                error_message=error_message(outcome),
                configs=[],
            )
        return CreatableTopicResult(
            name=name,
            topic_id=outcome.topic_id,
            num_partitions=outcome.num_partitions,
            replication_factor=outcome.replication_factor,
            error_message=None,
            configs=list(map(_shown, topic_entries(self.dynamic_config, outcome.config))),
        )

    async def handle_create_partitions(
        self, context: RequestContext, body: CreatePartitionsRequest
    ) -> CreatePartitionsResponse:
        outcomes = await self._within(
            body.timeout_ms,
            self.controller.create_partitions(
                [more_partitions(topic) for topic in body.topics],
                validate_only=body.validate_only,
                admit=mutations(context, FIRST_CREATE_PARTITIONS_VERSION_WITH_QUOTA),
            ),
            {topic.name for topic in body.topics},
        )
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(
                    name=name, error_code=error_code(outcome), error_message=error_message(outcome)
                )
                for name, outcome in outcomes.items()
            ]
        )

    async def handle_delete_topics(
        self, context: RequestContext, body: DeleteTopicsRequest
    ) -> DeleteTopicsResponse:
        wanted = wanted_topics(context, body)
        if not self.controller.is_active:
            return DeleteTopicsResponse(responses=[not_controller(topic) for topic in wanted])
        if any(map(self._is_unknown_id, wanted)):
            # A new controller may not have loaded this topic yet: it is not unknown.
            await self.controller.until_idle()
        results = [self._resolve(topic) for topic in wanted]
        names = [str(result.name) for result in results if not result.error_code]
        outcomes = await self._within(
            body.timeout_ms,
            self.controller.delete_topics(
                names, admit=mutations(context, FIRST_DELETE_VERSION_WITH_QUOTA)
            ),
            set(names),
        )
        for result in results:
            if not result.error_code:
                _set_outcome(result, outcomes[str(result.name)], context.api_version)
        return DeleteTopicsResponse(responses=results)

    def _is_unknown_id(self, topic: DeleteTopicState) -> bool:
        topic_id = topic.topic_id
        return topic_id != NO_UUID and self.controller.context.topic_name(topic_id) is None

    def _resolve(self, topic: DeleteTopicState) -> DeletableTopicResult:
        """A result with name and id, as far as they are known, and an error if that is too far."""
        known = self.controller.context
        result = DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_message=None)
        if topic.name is not None and topic.topic_id != NO_UUID:
            _fail(result, ErrorCode.INVALID_REQUEST, "give a topic's name or its id, not both")
        elif topic.name is not None:
            found = known.topics.get(topic.name)
            result.topic_id = found.topic_id if found is not None else NO_UUID
        elif topic.topic_id == NO_UUID:
            _fail(result, ErrorCode.INVALID_REQUEST, "give a topic's name or its id")
        else:
            result.name = known.topic_name(topic.topic_id)
            if result.name is None:
                _fail(result, ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
        return result

    def handle_delete_records(self, context: RequestContext, body: DeleteRecordsRequest) -> None:
        offsets: dict[TopicPartition, int] = {}
        refused: dict[TopicPartition, DeleteRecordsResult] = {}
        for topic in body.topics:
            refusal = _why_not_delete_records(topic.name)
            for partition in topic.partitions:
                topic_partition = TopicPartition(topic.name, partition.partition_index)
                if refusal is None:
                    offsets[topic_partition] = partition.offset
                else:
                    refused[topic_partition] = DeleteRecordsResult(NO_OFFSET, refusal)

        def respond(results: Mapping[TopicPartition, DeleteRecordsResult]) -> None:
            context.respond(_delete_records_response({**results, **refused}))

        context.wait_for(self.replica_manager.delete_records(body.timeout_ms, offsets, respond))

    async def _within(
        self,
        timeout_ms: int,
        operation: Coroutine[Any, Any, dict[str, T | KafkaError]],
        names: set[str],
    ) -> dict[str, T | KafkaError]:
        """The outcome for each name; if all fail together, or in time, the same for each."""
        task = self.runtime.scheduler.spawn(_caught(operation), "topics")
        try:
            outcome = await within(
                self.runtime.scheduler, max(timeout_ms, 0), asyncio.shield(task), "not done"
            )
        except KafkaTimeoutError:
            late = KafkaTimeoutError(f"it was not done within {timeout_ms} ms, but goes on")
            return dict.fromkeys(names, late)
        return dict.fromkeys(names, outcome) if isinstance(outcome, KafkaError) else outcome


async def _caught(operation: Coroutine[Any, Any, T]) -> T | KafkaError:
    try:
        return await operation
    except KafkaError as error:
        return error


def _shown(entry: DescribedConfig) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=int(entry.source),
        is_sensitive=entry.is_sensitive,
    )


def mutations(context: RequestContext, first_strict_version: int) -> Callable[[int], object]:
    """Charges the client's quota with the partitions that are about to be created or deleted."""
    is_strict = context.api_version >= first_strict_version
    return partial(context.quota.admit_mutations, is_strict=is_strict)


def wanted_topics(context: RequestContext, body: DeleteTopicsRequest) -> list[DeleteTopicState]:
    """The topics of a request, which has but names in its older versions."""
    if context.api_version < FIRST_DELETE_VERSION_WITH_IDS:
        return [DeleteTopicState(name=name) for name in body.topic_names]
    return body.topics


def not_controller(topic: DeleteTopicState) -> DeletableTopicResult:
    """The topic is not deleted here; only the controller knows which can be deleted."""
    return DeletableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=int(ErrorCode.NOT_CONTROLLER),
        error_message=None,
    )


def new_topic(topic: CreatableTopic) -> RequestedTopic:
    """A topic of a request, as the controller's type."""
    return RequestedTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        {entry.partition_index: tuple(entry.broker_ids) for entry in topic.assignments},
        {config.name: config.value for config in topic.configs},
    )


def more_partitions(topic: CreatePartitionsTopic) -> MorePartitions:
    """A topic of a request, as the controller's type; empty assignments count as null."""
    assignment = [tuple(entry.broker_ids) for entry in topic.assignments or ()]
    return MorePartitions(topic.name, topic.count, assignment or None)


def _fail(result: DeletableTopicResult, error: ErrorCode, message: str | None) -> None:
    result.error_code, result.error_message = int(error), message


def _set_outcome(
    result: DeletableTopicResult, outcome: KafkaError | None, api_version: int
) -> None:
    if outcome is None:
        return
    error = outcome.error
    disabled = error is ErrorCode.TOPIC_DELETION_DISABLED
    if disabled and api_version < FIRST_DELETE_VERSION_WITH_DISABLED_ERROR:
        error = ErrorCode.INVALID_REQUEST
    _fail(result, error, error_message(outcome))


def _why_not_delete_records(topic: str) -> ErrorCode | None:
    try:
        validate_topic_name(topic)
        refuse_internal(topic, "cut")
    except KafkaError as error:
        return error.error
    return None


def _delete_records_response(
    results: Mapping[TopicPartition, DeleteRecordsResult],
) -> DeleteRecordsResponse:
    topics = by_topic(
        (
            topic,
            DeleteRecordsPartitionResult(
                partition_index=partition,
                low_watermark=result.low_watermark,
                error_code=int(result.error),
            ),
        )
        for (topic, partition), result in results.items()
    )
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ]
    )
