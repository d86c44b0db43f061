"""Transactional ids as records of `__transaction_state`, with Kafka's keys and values.

Version 1, which has fields for a new producer id, is written for ids whose producers follow
transaction.version 2; else version 0, as Kafka does up to transaction.version 0. A record without
a value deletes its id.
"""

from __future__ import annotations

from typing import Final

from ottla.coordinator.transaction.transaction import EPOCH_BUMP, Transaction, TransactionState
from ottla.coordinator.transaction.transaction_partitions import NO_PARTITIONS
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.message import decode_versioned, decode_versioned_in_slices, encode_versioned
from ottla.protocol.transaction_log import TransactionLogKey, TransactionLogValue
from ottla.protocol.wire import uvarint_bytes
from ottla.record.batch_builder import build_batch
from ottla.runtime.scheduler import Work

KEY_VERSION: Final = 0
FIRST_VALUE_VERSION: Final = 0
VALUE_VERSION_WITH_BUMP: Final = 1
PARTITIONS_AT: Final = 17
"""In both versions of the value: behind its version, producer id, epoch, timeout and state."""


def transaction_batch(transactional_id: str, transaction: Transaction, now_ms: int) -> bytes:
    """The batch with the state of an id; a tombstone if it is dead."""
    key = encode_versioned(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)
    return build_batch([(now_ms, key, encode_transaction(transaction), ())])


def encode_transaction(transaction: Transaction) -> bytes | None:
    """The value of an id's record; None for one that is dead.

    The partitions have been encoded as they were added, and are put in as they are.
    """
    if transaction.state is TransactionState.DEAD:
        return None
    bumps = transaction.client_version >= EPOCH_BUMP
    version = VALUE_VERSION_WITH_BUMP if bumps else FIRST_VALUE_VERSION
    value = encode_versioned(_stored(transaction), version)
    if not transaction.partitions:
        return value
    count, topics = transaction.partitions.encoded(version)
    length = uvarint_bytes(count + 1) if bumps else count.to_bytes(4, "big")
    rest = PARTITIONS_AT + (1 if bumps else 4)  # behind the length of an empty list
    return b"".join((value[:PARTITIONS_AT], length, topics, value[rest:]))


def read_transactional_id(key: bytes) -> str | None:
    """The id that a record is about; None if its key is of a newer kind."""
    if int.from_bytes(key[:2], "big", signed=True) not in TransactionLogKey.versions:
        return None
    return decode_versioned(TransactionLogKey, key).transactional_id


def read_transaction(value: bytes) -> Work[Transaction]:
    """The state that a record has; CORRUPT_MESSAGE if no coordinator can have written it."""
    stored = yield from decode_versioned_in_slices(TransactionLogValue, value)
    try:
        state = TransactionState(stored.transaction_status)
    except ValueError:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"{stored.transaction_status} is no state of a transaction"
        ) from None
    topics = stored.transaction_partitions or ()
    partitions = yield from NO_PARTITIONS.with_topics(
        (topic.topic, topic.partition_ids) for topic in topics
    )
    return Transaction(
        producer_id=stored.producer_id,
        producer_epoch=stored.producer_epoch,
        timeout_ms=stored.transaction_timeout_ms,
        state=state,
        partitions=partitions,
        start_ms=stored.transaction_start_timestamp_ms,
        updated_ms=stored.transaction_last_update_timestamp_ms,
        previous_producer_id=stored.previous_producer_id,
        next_producer_id=stored.next_producer_id,
        client_version=stored.client_transaction_version,
    )


def _stored(transaction: Transaction) -> TransactionLogValue:
    # Kafka has null where no transaction can be open.
    is_empty = transaction.state is TransactionState.EMPTY
    return TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        client_transaction_version=transaction.client_version,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        transaction_partitions=None if is_empty else [],
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
