"""InitProducerId (22), v0-5: an id for a producer that writes without duplicates.

Version notes: v3 the producer may name the id and epoch that it has, to go on after an error that
it cannot place (KIP-360). Without a transactional id nothing is bound to the old id, so that
producer simply gets a new one, as in Kafka.
Left out: transactional ids. They need the transaction coordinator, which is not built yet.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from ottla.coordinator.transaction.producer_id_manager import ProducerIdManager
from ottla.errors import ErrorCode
from ottla.network.request import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.transactions import InitProducerIdRequest, InitProducerIdResponse
from ottla.server.apis import Handler
from ottla.structs import NO_EPOCH, NO_PRODUCER_ID

logger = logging.getLogger(__name__)

# Of the errors that this API has, the one at which every client gives up at once.
TRANSACTIONS_REFUSED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class ProducerIdHandlers:
    """Answers from the blocks of ids that this broker has claimed."""

    def __init__(self, producer_ids: ProducerIdManager) -> None:
        self.producer_ids = producer_ids

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {ApiKey.INIT_PRODUCER_ID: self.handle_init_producer_id}

    async def handle_init_producer_id(
        self, context: RequestContext, body: InitProducerIdRequest
    ) -> InitProducerIdResponse:
        error = check_init_producer_id(body)
        if error:
            logger.info(
                "InitProducerId of client %r with transactional id %r is refused: %s",
                context.client_id,
                body.transactional_id,
                error.name,
            )
            return InitProducerIdResponse(
                error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH
            )
        producer_id = await self.producer_ids.generate_producer_id()
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def check_init_producer_id(body: InitProducerIdRequest) -> ErrorCode:
    """Whether the request makes sense: id and epoch come together or not at all."""
    if (body.producer_id == NO_PRODUCER_ID) != (body.producer_epoch == NO_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if body.transactional_id is None:
        return ErrorCode.NONE
    return TRANSACTIONS_REFUSED if body.transactional_id else ErrorCode.INVALID_REQUEST
