"""InitProducerId (22), v0-5: an id for a producer that writes without duplicates.

Without a transactional id every producer gets an id of its own; nothing is bound to it. With one,
the transaction coordinator gives the id its next epoch, and fences all producers that have an older
one.

Version notes: v3 the producer may name the id and epoch that it has, to go on after an error that
it cannot place (KIP-360) · v4 PRODUCER_FENCED in the place of INVALID_PRODUCER_EPOCH (KIP-588).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.coordinator.transaction.producer_id_manager import ProducerIdManager
from ottla.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from ottla.errors import ErrorCode
from ottla.network.request_context import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.transactions import InitProducerIdRequest, InitProducerIdResponse
from ottla.server.api import Handler
from ottla.structs import NO_EPOCH, NO_PRODUCER_ID, TxnProducer

INIT_FENCED_VERSION: Final = 4


class ProducerIdHandlers:
    """Answers from the blocks of ids that this broker has claimed, and from the coordinator."""

    def __init__(
        self, producer_ids: ProducerIdManager, coordinator: TransactionCoordinator
    ) -> None:
        self.producer_ids = producer_ids
        self.coordinator = coordinator

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {ApiKey.INIT_PRODUCER_ID: self.handle_init_producer_id}

    async def handle_init_producer_id(
        self, context: RequestContext, body: InitProducerIdRequest
    ) -> InitProducerIdResponse | None:
        error = check_init_producer_id(body)
        if error:
            return InitProducerIdResponse(
                error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH
            )
        if body.transactional_id is None:
            producer_id = await self.producer_ids.generate_producer_id()
            return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)

        def respond(error: ErrorCode, producer_id: int, producer_epoch: int) -> None:
            if error is ErrorCode.PRODUCER_FENCED and context.api_version < INIT_FENCED_VERSION:
                error = ErrorCode.INVALID_PRODUCER_EPOCH
            context.respond(
                InitProducerIdResponse(
                    error_code=error, producer_id=producer_id, producer_epoch=producer_epoch
                )
            )

        producer = TxnProducer(body.transactional_id, body.producer_id, body.producer_epoch)
        await self.coordinator.init_producer_id(producer, body.transaction_timeout_ms, respond)
        return None


def check_init_producer_id(body: InitProducerIdRequest) -> ErrorCode:
    """Whether the request makes sense: id and epoch come together or not at all."""
    if (body.producer_id == NO_PRODUCER_ID) != (body.producer_epoch == NO_EPOCH):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.INVALID_REQUEST if body.transactional_id == "" else ErrorCode.NONE


def session_of(context: RequestContext) -> int:
    """The number of the connection that the request came by: later ones have larger numbers."""
    return int(context.connection.id.rpartition("-")[2])
