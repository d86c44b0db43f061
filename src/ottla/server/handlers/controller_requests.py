"""ControlledShutdown (7) and AlterPartition (56): requests of brokers to the controller.

A broker that is not the controller answers NOT_CONTROLLER. This broker's own requests come here
as calls, when it is the controller itself.

Version notes: AlterPartition v2 topic ids in the place of names (KIP-841), v3 broker epochs of
the proposed replicas (KIP-903).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.controller_requests import (
    AlterPartitionPartitionData,
    AlterPartitionPartitionResult,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicData,
    AlterPartitionTopicResult,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from ottla.structs import NO_UUID, LeaderAndIsr, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.controller.controller import Controller
    from ottla.network.request_context import RequestContext
    from ottla.server.api import Handler


Outcomes = Mapping[TopicPartition, LeaderAndIsr | KafkaError]


class ControllerRequestsHandler:
    """Asks the controller of this broker."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.CONTROLLED_SHUTDOWN: self.handle_controlled_shutdown,
            ApiKey.ALTER_PARTITION: self.handle_alter_partition,
        }

    async def handle_controlled_shutdown(
        self, context: RequestContext, body: ControlledShutdownRequest
    ) -> ControlledShutdownResponse:
        return await self.controlled_shutdown(body)

    async def controlled_shutdown(
        self, body: ControlledShutdownRequest
    ) -> ControlledShutdownResponse:
        """Have other brokers lead the broker's partitions."""
        remaining = await self.controller.controlled_shutdown(body.broker_id, body.broker_epoch)
        return ControlledShutdownResponse(
            remaining_partitions=[
                RemainingPartition(topic_name=name, partition_index=index)
                for name, index in remaining
            ]
        )

    async def handle_alter_partition(
        self, context: RequestContext, body: AlterPartitionRequest
    ) -> AlterPartitionResponse:
        return await self.alter_partition(body)

    async def alter_partition(self, body: AlterPartitionRequest) -> AlterPartitionResponse:
        """Change in-sync replicas; each partition succeeds or fails alone."""
        if not self.controller.is_active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        if any(self._name(topic) is None for topic in body.topics):
            # A new controller may not have loaded this topic yet: it is not unknown.
            await self.controller.until_idle()
        changes: dict[TopicPartition, LeaderAndIsr] = {}
        epochs: dict[TopicPartition, dict[int, int]] = {}
        for topic in body.topics:
            name = self._name(topic)
            for partition in topic.partitions if name is not None else ():
                topic_partition = TopicPartition(name or "", partition.partition_index)
                changes[topic_partition] = proposal(body.broker_id, partition)
                epochs[topic_partition] = {
                    each.broker_id: each.broker_epoch for each in partition.new_isr_with_epochs
                }
        outcomes = await self.controller.alter_partitions(
            body.broker_id, body.broker_epoch, changes, epochs
        )
        return AlterPartitionResponse(
            topics=[self._result(topic, self._name(topic), outcomes) for topic in body.topics]
        )

    def _name(self, topic: AlterPartitionTopicData) -> str | None:
        if topic.topic_id == NO_UUID:
            return topic.topic_name
        return self.controller.context.topic_name(topic.topic_id)

    def _result(
        self, topic: AlterPartitionTopicData, name: str | None, outcomes: Outcomes
    ) -> AlterPartitionTopicResult:
        result = AlterPartitionTopicResult(topic_name=topic.topic_name, topic_id=topic.topic_id)
        for partition in topic.partitions:
            index = partition.partition_index
            outcome = outcomes.get(TopicPartition(name, index)) if name is not None else None
            result.partitions.append(partition_result(topic.topic_id, index, outcome))
        return result


def proposal(leader: int, partition: AlterPartitionPartitionData) -> LeaderAndIsr:
    """The state that the leader wants, whose version is the one that it replaces."""
    isr = [each.broker_id for each in partition.new_isr_with_epochs] or partition.new_isr
    return LeaderAndIsr(leader, partition.leader_epoch, tuple(isr), partition.partition_epoch)


def partition_result(
    topic_id: UUID, index: int, outcome: LeaderAndIsr | KafkaError | None
) -> AlterPartitionPartitionResult:
    """The state that is in force, or the error."""
    if isinstance(outcome, LeaderAndIsr):
        return AlterPartitionPartitionResult(
            partition_index=index,
            leader_id=outcome.leader,
            leader_epoch=outcome.leader_epoch,
            isr=list(outcome.isr),
            partition_epoch=outcome.version,
        )
    if outcome is None:
        known_by_id = topic_id != NO_UUID
        error = ErrorCode.UNKNOWN_TOPIC_ID if known_by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        error = outcome.error
    return AlterPartitionPartitionResult(partition_index=index, error_code=int(error))
