"""LeaderAndIsr (4), StopReplica (5) and UpdateMetadata (6): what a controller elsewhere decides.

Behaviour: a controller whose epoch is not the highest known here is refused, and so are requests
for an older registration of this broker (KIP-380). A controller that has given up a connection
sends its orders again on another one: what arrives later on the old one is refused.

Version notes: see the messages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
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
from ottla.protocol.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from ottla.protocol.message import error_response
from ottla.protocol.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ottla.server.orders_to_cluster import (
    leader_nodes,
    metadata_update,
    ordered_states,
    stopped_partitions,
)
from ottla.structs import NO_EPOCH, NO_UUID, LeaderAndIsr, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.controller.controller import Controller
    from ottla.network.connection import RequestContext
    from ottla.server.apis import Handler
    from ottla.server.controller_orders import ControllerOrders, Errors

logger = logging.getLogger(__name__)

FIRST_VERSION_WITH_TOPIC_IDS = 5
OrderRequest = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest


class ControllerOrdersHandler:
    """Hands the orders on, unless they are stale."""

    def __init__(self, orders: ControllerOrders, broker_epoch: Callable[[], int]) -> None:
        self.orders = orders
        self.broker_epoch = broker_epoch
        # The controller, by its epoch, and the last of its connections.
        self._heard = (0, 0)

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.LEADER_AND_ISR: self.handle_leader_and_isr,
            ApiKey.STOP_REPLICA: self.handle_stop_replica,
            ApiKey.UPDATE_METADATA: self.handle_update_metadata,
        }

    def handle_leader_and_isr(self, context: RequestContext, body: LeaderAndIsrRequest) -> None:
        self._check(context, body)

        def respond(errors: Errors) -> None:
            if context.api_version < FIRST_VERSION_WITH_TOPIC_IDS:
                context.respond(LeaderAndIsrResponse(partition_errors=partition_errors(errors)))
                return
            ids = {topic.topic_name: topic.topic_id for topic in body.topic_states}
            context.respond(LeaderAndIsrResponse(topics=topic_errors(errors, ids)))

        self.orders.become_leader_or_follower(
            body.controller_epoch,
            ordered_states(body),
            leader_nodes(body),
            respond,
            partial(refuse, context, body),
        )

    def handle_stop_replica(self, context: RequestContext, body: StopReplicaRequest) -> None:
        self._check(context, body)

        def respond(errors: Errors) -> None:
            lines = [
                StopReplicaPartitionError(
                    topic_name=name, partition_index=index, error_code=int(error)
                )
                for (name, index), error in errors.items()
            ]
            context.respond(StopReplicaResponse(partition_errors=lines))

        self.orders.stop_replica(
            body.controller_epoch,
            stopped_partitions(body),
            respond,
            partial(refuse, context, body),
        )

    def handle_update_metadata(self, context: RequestContext, body: UpdateMetadataRequest) -> None:
        self._check(context, body)
        self.orders.update_metadata(
            body.controller_id,
            body.controller_epoch,
            metadata_update(body),
            lambda errors: context.respond(UpdateMetadataResponse()),
            partial(refuse, context, body),
        )

    def _check(self, context: RequestContext, body: OrderRequest) -> None:
        self._check_broker_epoch(body.broker_epoch)
        sender = body.controller_epoch, context.connection.number
        if sender < self._heard:
            raise KafkaError(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"the controller of epoch {sender[0]}, on connection {sender[1]}, was followed by "
                f"that of epoch {self._heard[0]} on connection {self._heard[1]}",
            )
        self._heard = sender

    def _check_broker_epoch(self, broker_epoch: int) -> None:
        """Refuse an older epoch; a newer one is valid: that of the registration under way."""
        known = self.broker_epoch()
        if broker_epoch != NO_EPOCH and broker_epoch < known:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"the request is for epoch {broker_epoch} of this broker, which has {known} now",
            )


def refuse(context: RequestContext, body: OrderRequest, error: Exception) -> None:
    """Answer for all partitions with what an order, maybe turns later, has ended with."""
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    if isinstance(error, KafkaError):
        code = error.error
    else:
        logger.error("%s failed: %r", type(body).__name__, error, exc_info=error)
    response = error_response(type(body), context.api_version, code)
    assert response is not None, "all three have a place for an error"
    context.respond(response)


def partition_errors(errors: Errors) -> list[LeaderAndIsrPartitionError]:
    """The results with the names of their topics, as before v5."""
    return [
        LeaderAndIsrPartitionError(topic_name=name, partition_index=index, error_code=int(error))
        for (name, index), error in errors.items()
    ]


def topic_errors(errors: Errors, ids: Mapping[str, UUID]) -> list[LeaderAndIsrTopicError]:
    """The results under the ids of their topics."""
    topics: dict[UUID, LeaderAndIsrTopicError] = {}
    for (name, index), error in errors.items():
        topic = topics.setdefault(ids[name], LeaderAndIsrTopicError(topic_id=ids[name]))
        topic.partition_errors.append(
            LeaderAndIsrPartitionError(partition_index=index, error_code=int(error))
        )
    return list(topics.values())


# ControlledShutdown (7) and AlterPartition (56): what brokers ask of the controller.
#
# A broker that is not the controller answers NOT_CONTROLLER. This broker's own requests come here
# as calls, when it is the controller itself.
#
# Version notes: AlterPartition v2 topic ids in the place of names (KIP-841), v3 broker epochs of
# the proposed replicas (KIP-903).


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
        """Have other brokers lead what the broker leads."""
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
