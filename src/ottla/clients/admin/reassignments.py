"""Leaders and replicas: elections, and reassignment of partitions to other brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, cast

from ottla.clients.admin.admin_client import AdminClient
from ottla.clients.network_client import response_error
from ottla.errors import KafkaError
from ottla.network.timing import Deadline
from ottla.protocol.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectionType,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopicPartitions,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.structs import TopicPartition, by_topic

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
            _check(response.error_code, "the election of leaders")
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
            _check(response.error_code, "the reassignment", response.error_message)
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
            _check(response.error_code, "the list of reassignments", response.error_message)
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


def _check(code: int, what: str, message: str | None = None) -> None:
    error = response_error(code, what, message)
    if error is not None:
        raise error
