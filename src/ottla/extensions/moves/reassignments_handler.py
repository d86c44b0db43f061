"""AlterPartitionReassignments (45) and ListPartitionReassignments (46).

Behaviour: each partition succeeds or fails alone; a broker that is not the controller answers
NOT_CONTROLLER. A reassignment is answered when it has begun.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.controller.controller import Controller
from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.moves.reassignment import alter_reassignments, list_reassignments
from ottla.network.request_context import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.server.api import Handler, error_code, error_message
from ottla.server.parts import Parts
from ottla.structs import TopicPartition, by_topic


class ReassignmentsHandler:
    """Brings the requests of administrators to the controller."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: self.handle_alter_partition_reassignments,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: self.handle_list_partition_reassignments,
        }

    async def handle_alter_partition_reassignments(
        self, context: RequestContext, body: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        wishes = {
            TopicPartition(topic.name, partition.partition_index): (
                None if partition.replicas is None else tuple(partition.replicas)
            )
            for topic in body.topics
            for partition in topic.partitions
        }
        refused: dict[TopicPartition, KafkaError] = {}
        if not body.allow_replication_factor_change:
            refused = self._changes_of_factor(wishes)
        outcomes = refused | await alter_reassignments(
            self.controller, {tp: replicas for tp, replicas in wishes.items() if tp not in refused}
        )
        topics = by_topic(
            (
                partition.topic,
                ReassignablePartitionResponse(
                    partition_index=partition.partition,
                    error_code=error_code(outcomes.get(partition)),
                    error_message=error_message(outcomes.get(partition)),
                ),
            )
            for partition in wishes
        )
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=body.allow_replication_factor_change,
            error_message=None,
            responses=[
                ReassignableTopicResponse(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )

    def _changes_of_factor(
        self, wishes: Mapping[TopicPartition, tuple[int, ...] | None]
    ) -> dict[TopicPartition, KafkaError]:
        """The requests for more or fewer replicas than the partition has."""
        refused = {}
        for topic_partition, replicas in wishes.items():
            topic = self.controller.context.topics.get(topic_partition.topic)
            present = topic.assignment.get(topic_partition.partition) if topic else None
            if replicas and present and len(replicas) != len(present):
                refused[topic_partition] = KafkaError(
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    f"{topic_partition}: {len(replicas)} replicas in the place of {len(present)}, "
                    "and the number may not change",
                )
        return refused

    async def handle_list_partition_reassignments(
        self, context: RequestContext, body: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        wanted = None
        if body.topics is not None:
            wanted = [
                TopicPartition(topic.name, index)
                for topic in body.topics
                for index in topic.partition_indexes
            ]
        found = await list_reassignments(self.controller, wanted)
        topics: dict[str, list[OngoingPartitionReassignment]] = {}
        for (name, index), ongoing in found.items():
            topics.setdefault(name, []).append(
                OngoingPartitionReassignment(
                    partition_index=index,
                    replicas=list(ongoing.replicas),
                    adding_replicas=list(ongoing.adding),
                    removing_replicas=list(ongoing.removing),
                )
            )
        return ListPartitionReassignmentsResponse(
            error_message=None,
            topics=[
                OngoingTopicReassignment(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )


def new_reassignments_handler(broker: Parts) -> ReassignmentsHandler:
    """The handlers of reassignments."""
    return ReassignmentsHandler(broker.controller)
