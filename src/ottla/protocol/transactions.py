"""InitProducerId (22): the identity under which a producer's batches are told apart."""

from __future__ import annotations

from ottla.protocol.message import Request, Response
from ottla.protocol.types import Int16, Int32, Int64, String, field


class InitProducerIdRequest(Request, api_key=22, versions="0-5", flexible="2+"):
    """Ask for a producer id; with a transactional id it is always the same one (KIP-98).

    v2 flexible · v3 the present id and epoch, to have the epoch raised (KIP-360) · v4
    PRODUCER_FENCED possible · v5 TRANSACTION_ABORTABLE possible (KIP-890).
    """

    transactional_id: str | None = field(String, nullable="0+")
    transaction_timeout_ms: int = field(Int32)
    producer_id: int = field(Int64, versions="3+", default=-1)
    producer_epoch: int = field(Int16, versions="3+", default=-1)


class InitProducerIdResponse(Response, api_key=22, versions="0-5", flexible="2+"):
    """The id and the epoch to write with. v2 flexible."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    producer_id: int = field(Int64, default=-1)
    producer_epoch: int = field(Int16)
