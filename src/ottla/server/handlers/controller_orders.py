"""LeaderAndIsr (4), StopReplica (5) and UpdateMetadata (6): the orders of a controller elsewhere.

Behaviour: a controller whose epoch is not the highest known here is refused, and so are requests
for an older registration of this broker (KIP-380). A controller that has given up a connection
sends its orders again on another one: an order that arrives later on the old one is refused.

Version notes: see the messages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey
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
from ottla.server.order_messages import (
    leader_nodes,
    metadata_update,
    ordered_states,
    stopped_partitions,
)
from ottla.structs import NO_EPOCH

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.network.request_context import RequestContext
    from ottla.server.api import Handler
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
            partial(refuse, context, LeaderAndIsrRequest),
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
            partial(refuse, context, StopReplicaRequest),
        )

    def handle_update_metadata(self, context: RequestContext, body: UpdateMetadataRequest) -> None:
        self._check(context, body)
        self.orders.update_metadata(
            body.controller_id,
            body.controller_epoch,
            metadata_update(body),
            lambda errors: context.respond(UpdateMetadataResponse()),
            partial(refuse, context, UpdateMetadataRequest),
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


def refuse(context: RequestContext, request: type[OrderRequest], error: Exception) -> None:
    """Answer for all partitions with the outcome of an order, maybe turns later."""
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    if isinstance(error, KafkaError):
        code = error.error
    else:
        logger.error("%s failed: %r", request.__name__, error, exc_info=error)
    response = error_response(request, context.api_version, code)
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
