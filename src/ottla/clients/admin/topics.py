"""Topics: create, delete, add partitions, describe, and delete records.

Of their partitions also the leaders and replicas: elections, and reassignment to other brokers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from ottla.clients.admin.admin_client import AdminClient
from ottla.clients.admin.descriptions import NewTopic, TopicDescription, TopicPartitionInfo
from ottla.clients.network_client import check_code, response_error
from ottla.errors import ErrorCode, KafkaError
from ottla.network.node_connection import NodeConnection
from ottla.protocol.metadata import (
    OPERATIONS_NOT_REQUESTED,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicPartitions,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.runtime.timing import Deadline
from ottla.structs import (
    BROKER_DEFAULT,
    NO_UUID,
    ElectionType,
    NamedTuple,
    TopicPartition,
    by_topic,
)

FIRST_VERSION_WITH_OPERATIONS = 8
FIRST_VERSION_WITHOUT_AUTO_CREATE = 4
FIRST_CREATE_WITH_DEFAULTS = 4
FIRST_DELETE_BY_STATE = 6


class TopicAdmin:
    """Requests about topics; changes go to the controller, records to the partitions' leaders."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def list_topics(self) -> set[str]:
        async def attempt(deadline: Deadline) -> MetadataResponse:
            return await self._fetch(None, False, deadline)

        response = await self._admin.until_done(attempt)
        return {topic.name or "" for topic in response.topics}

    async def describe_topics(
        self, names: Sequence[str] | None, include_authorized_operations: bool
    ) -> dict[str, TopicDescription | KafkaError]:
        async def attempt(
            pending: list[str], deadline: Deadline
        ) -> dict[str, TopicDescription | KafkaError]:
            response = await self._fetch(pending, include_authorized_operations, deadline)
            return {topic.name or "": description_of(topic) for topic in response.topics}

        wanted = await self.list_topics() if names is None else names
        return await self._admin.for_each(sorted(wanted) if names is None else wanted, attempt)

    async def create_topics(
        self, topics: Sequence[NewTopic], validate_only: bool
    ) -> dict[str, KafkaError | None]:
        by_name = {topic.name: topic for topic in topics}

        async def attempt(pending: list[str], deadline: Deadline) -> dict[str, KafkaError | None]:
            request = CreateTopicsRequest(
                topics=[creatable(by_name[name]) for name in pending],
                timeout_ms=self._admin.request_timeout_ms(deadline),
                validate_only=validate_only,
            )
            low = FIRST_CREATE_WITH_DEFAULTS if any(map(uses_default, topics)) else 0
            response = cast(
                CreateTopicsResponse, await self._admin.controller(request, deadline, low=low)
            )
            return _errors_of(response.topics)

        return await self._admin.for_each(by_name, attempt)

    async def delete_topics(self, names: Sequence[str]) -> dict[str, KafkaError | None]:
        async def attempt(pending: list[str], deadline: Deadline) -> dict[str, KafkaError | None]:
            cluster = self._admin.metadata.cluster
            if cluster.controller_id not in cluster.nodes:
                cluster = await self._admin.metadata.update(deadline)
            version = await self._admin.client.version_for(
                cluster.controller_id, DeleteTopicsRequest
            )
            request = DeleteTopicsRequest(timeout_ms=self._admin.request_timeout_ms(deadline))
            if version >= FIRST_DELETE_BY_STATE:
                request.topics = [DeleteTopicState(name=name) for name in pending]
            else:
                request.topic_names = pending
            response = cast(DeleteTopicsResponse, await self._admin.controller(request, deadline))
            return _errors_of(response.responses)

        return await self._admin.for_each(names, attempt)

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        assignments: Mapping[str, Sequence[Sequence[int]]] | None,
    ) -> dict[str, KafkaError | None]:
        async def attempt(pending: list[str], deadline: Deadline) -> dict[str, KafkaError | None]:
            request = CreatePartitionsRequest(timeout_ms=self._admin.request_timeout_ms(deadline))
            for name in pending:
                chosen = (assignments or {}).get(name)
                request.topics.append(
                    CreatePartitionsTopic(
                        name=name,
                        count=counts[name],
                        assignments=None
                        if chosen is None
                        else [CreatePartitionsAssignment(broker_ids=list(ids)) for ids in chosen],
                    )
                )
            response = cast(
                CreatePartitionsResponse, await self._admin.controller(request, deadline)
            )
            return _errors_of(response.results)

        return await self._admin.for_each(counts, attempt)

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | KafkaError]:
        async def attempt(
            pending: list[TopicPartition], deadline: Deadline
        ) -> dict[TopicPartition, int | KafkaError]:
            async def ask(
                leader: int, partitions: list[TopicPartition]
            ) -> dict[TopicPartition, int | KafkaError]:
                wanted = {partition: offsets[partition] for partition in partitions}
                return await self._delete_records(leader, wanted, deadline)

            return await self._admin.ask_leaders(pending, ask, deadline)

        return await self._admin.for_each(offsets, attempt)

    async def _delete_records(
        self, leader: int, offsets: Mapping[TopicPartition, int], deadline: Deadline
    ) -> dict[TopicPartition, int | KafkaError]:
        request = DeleteRecordsRequest(timeout_ms=self._admin.request_timeout_ms(deadline))
        for topic, partitions in by_topic(offsets).items():
            ends = [
                DeleteRecordsPartition(partition_index=p, offset=offsets[TopicPartition(topic, p)])
                for p in partitions
            ]
            request.topics.append(DeleteRecordsTopic(name=topic, partitions=ends))
        response = cast(DeleteRecordsResponse, await self._admin.client.send(leader, request))
        results: dict[TopicPartition, int | KafkaError] = {}
        for result in response.topics:
            for p in result.partitions:
                partition = TopicPartition(result.name, p.partition_index)
                error = response_error(p.error_code, f"records of {partition}")
                results[partition] = error or p.low_watermark
        return results

    async def _fetch(
        self, names: Sequence[str] | None, include_operations: bool, deadline: Deadline
    ) -> MetadataResponse:
        client = self._admin.client

        def ask(connection: NodeConnection) -> asyncio.Future[MetadataResponse]:
            topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
            request = MetadataRequest(topics=topics)
            version = connection.version_of(MetadataRequest, low=1)
            if version >= FIRST_VERSION_WITHOUT_AUTO_CREATE:
                request.allow_auto_topic_creation = False
            if version >= FIRST_VERSION_WITH_OPERATIONS:
                request.include_topic_authorized_operations = include_operations
            return client.send_on(connection, request, version)

        return await client.ask_any(ask, deadline)


def _errors_of(topics: Iterable[Any]) -> dict[str, KafkaError | None]:
    """The error, or None, of each topic in the response to a change."""
    return {
        each.name or "": response_error(each.error_code, f"topic {each.name}", each.error_message)
        for each in topics
    }


def _partition_info(partition: MetadataResponsePartition) -> TopicPartitionInfo:
    return TopicPartitionInfo(
        partition.partition_index,
        partition.leader_id,
        partition.leader_epoch,
        list(partition.replica_nodes),
        list(partition.isr_nodes),
        list(partition.offline_replicas),
    )


def description_of(topic: MetadataResponseTopic) -> TopicDescription | KafkaError:
    """The description of a topic from the metadata, or its error."""
    error = response_error(topic.error_code, f"topic {topic.name}")
    if error is not None and error.error is not ErrorCode.LEADER_NOT_AVAILABLE:
        return error
    partitions = sorted(topic.partitions, key=lambda p: p.partition_index)
    operations = topic.topic_authorized_operations
    return TopicDescription(
        topic.name or "",
        topic.topic_id or NO_UUID,
        topic.is_internal,
        list(map(_partition_info, partitions)),
        None if operations == OPERATIONS_NOT_REQUESTED else operations,
    )


def uses_default(topic: NewTopic) -> bool:
    """Whether a count is left to the broker, which brokers before 2.4 cannot do."""
    counts = (topic.num_partitions, topic.replication_factor)
    return topic.replica_assignment is None and BROKER_DEFAULT in counts


def creatable(topic: NewTopic) -> CreatableTopic:
    assignments = topic.replica_assignment
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.num_partitions if assignments is None else BROKER_DEFAULT,
        replication_factor=topic.replication_factor if assignments is None else BROKER_DEFAULT,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(broker_ids))
            for partition, broker_ids in (assignments or {}).items()
        ],
        configs=[
            CreatableTopicConfig(name=name, value=str(value))
            for name, value in topic.configs.items()
        ],
    )


FIRST_VERSION_WITH_TYPES = 1

Outcomes = dict[TopicPartition, KafkaError | None]


class PartitionReassignment(NamedTuple):
    """The replicas of a partition being moved, and which are being added and removed."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


class ReassignmentAdmin:
    """Requests about leaders and replicas; the controller decides."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def elect_leaders(
        self, election: ElectionType, partitions: Sequence[TopicPartition] | None
    ) -> Outcomes:
        async def attempt(deadline: Deadline) -> Outcomes:
            wanted = [
                ElectLeadersTopicPartitions(topic=topic, partitions=indexes)
                for topic, indexes in by_topic(partitions or ()).items()
            ]
            request = ElectLeadersRequest(
                topic_partitions=None if partitions is None else wanted,
                timeout_ms=self._admin.request_timeout_ms(deadline),
            )
            low = 0
            if election is not ElectionType.PREFERRED:
                request.election_type, low = int(election), FIRST_VERSION_WITH_TYPES
            response = cast(
                ElectLeadersResponse, await self._admin.controller(request, deadline, low=low)
            )
            check_code(response.error_code, "the election of leaders")
            return {
                (partition := TopicPartition(topic.topic, result.partition_id)): response_error(
                    result.error_code, str(partition), result.error_message
                )
                for topic in response.replica_election_results
                for result in topic.partition_result
            }

        return await self._admin.until_done(attempt)

    async def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Iterable[int] | None]
    ) -> Outcomes:
        async def attempt(deadline: Deadline) -> Outcomes:
            topics = by_topic(
                (topic, _reassignable(index, replicas))
                for (topic, index), replicas in targets.items()
            )
            request = AlterPartitionReassignmentsRequest(
                timeout_ms=self._admin.request_timeout_ms(deadline),
                topics=[
                    ReassignableTopic(name=name, partitions=rows) for name, rows in topics.items()
                ],
            )
            response = cast(
                AlterPartitionReassignmentsResponse,
                await self._admin.controller(request, deadline),
            )
            check_code(response.error_code, "the reassignment", response.error_message)
            return {
                (partition := TopicPartition(topic.name, row.partition_index)): response_error(
                    row.error_code, str(partition), row.error_message
                )
                for topic in response.responses
                for row in topic.partitions
            }

        return await self._admin.until_done(attempt)

    async def list_partition_reassignments(
        self, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, PartitionReassignment]:
        async def attempt(deadline: Deadline) -> dict[TopicPartition, PartitionReassignment]:
            request = ListPartitionReassignmentsRequest(
                timeout_ms=self._admin.request_timeout_ms(deadline),
                topics=None
                if partitions is None
                else [
                    ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
                    for name, indexes in by_topic(partitions).items()
                ],
            )
            response = cast(
                ListPartitionReassignmentsResponse,
                await self._admin.controller(request, deadline),
            )
            check_code(response.error_code, "the list of reassignments", response.error_message)
            return {
                TopicPartition(topic.name, row.partition_index): PartitionReassignment(
                    tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
                )
                for topic in response.topics
                for row in topic.partitions
            }

        return await self._admin.until_done(attempt)


def _reassignable(index: int, replicas: Iterable[int] | None) -> ReassignablePartition:
    wanted = None if replicas is None else list(replicas)
    return ReassignablePartition(partition_index=index, replicas=wanted)
