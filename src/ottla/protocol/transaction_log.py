"""Records of `__transaction_state`: the state of each transactional id.

Key and value are stored with an int16 version in front; a null value forgets the id.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.protocol.message import Message
from ottla.protocol.types import Array, Int8, Int16, Int32, Int64, String, field


class TransactionLogKey(Message, versions="0"):
    """The transactional id."""

    transactional_id: str = field(String)


class PartitionsSchema(Message, versions="0-1", flexible="1+"):
    """Partitions of one topic that belong to the transaction.

    It has the versions of the value that it is part of, so that it can be encoded by itself.
    """

    topic: str = field(String)
    partition_ids: Sequence[int] = field(Array(Int32))


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    """A transaction's state; version 0 is written, as Kafka does before transaction.version 2.

    v1 flexible, with the ids before and after a change of the producer id (KIP-890).
    """

    producer_id: int = field(Int64)
    previous_producer_id: int = field(Int64, versions="1+", default=-1, tag=0, ignorable=True)
    next_producer_id: int = field(Int64, versions="1+", default=-1, tag=1, ignorable=True)
    producer_epoch: int = field(Int16)
    transaction_timeout_ms: int = field(Int32)
    transaction_status: int = field(Int8)
    transaction_partitions: list[PartitionsSchema] | None = field(
        Array(PartitionsSchema), nullable="0+"
    )
    transaction_last_update_timestamp_ms: int = field(Int64)
    transaction_start_timestamp_ms: int = field(Int64)
    client_transaction_version: int = field(Int16, versions="1+", tag=2, ignorable=True)
