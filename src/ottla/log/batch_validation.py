"""The checks that a leader makes of a batch that a producer sent, before it goes into the log.

`validate_batch` reads the header, and the bytes once for the CRC. `validate_records` goes through
all records, decompressed if need be. A flaw in the bytes on their way (length, magic, CRC) is
CORRUPT_MESSAGE, which makes a producer try again; a fault of the producer itself is
INVALID_RECORD, which does not.
"""

from __future__ import annotations

from ottla.errors import ErrorCode, KafkaError, RefusedRecordsError
from ottla.record import kernel
from ottla.record.compression import MAX_DECOMPRESSED_BYTES
from ottla.record.record import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    TRANSACTIONAL_FLAG,
    DecompressionLimitError,
    RecordSurvey,
)
from ottla.record.record_batch import BATCH_OVERHEAD, CorruptRecordError, RecordBatch
from ottla.structs import NO_PRODUCER_ID

# In a batch with more records than this, bad ones are counted and not named one by one.
MAX_NAMED_RECORDS = 100_000
_BROKER_FLAGS = CONTROL_FLAG | DELETE_HORIZON_FLAG


def validate_batch(batch: RecordBatch) -> None:
    """Raise KafkaError unless the batch is whole, and its header one that a client may send."""
    batch.verify_bytes()
    if batch.record_count < 1 or batch.last_offset_delta != batch.record_count - 1:
        raise _invalid_batch(
            batch,
            f"{batch.record_count} records do not fit last offset delta {batch.last_offset_delta}",
        )
    if batch.base_offset != 0:
        raise _invalid_batch(batch, "the offsets of a client's batch begin with 0")
    if batch.attributes & _BROKER_FLAGS:
        if batch.is_control:
            raise _invalid_batch(batch, "control batches are not for clients to send")
        raise _invalid_batch(batch, "only the log cleaner sets a delete horizon")
    if batch.producer_id != NO_PRODUCER_ID:
        _check_producer(batch)
    elif batch.attributes & TRANSACTIONAL_FLAG:
        raise _invalid_batch(batch, "a transactional batch needs a producer id")
    if batch.attributes & COMPRESSION_MASK:
        _ = batch.compression


def _check_producer(batch: RecordBatch) -> None:
    if batch.producer_id < 0:
        raise _invalid_batch(batch, f"producer id {batch.producer_id} is below {NO_PRODUCER_ID}")
    if batch.base_sequence < 0 or batch.producer_epoch < 0:
        raise _invalid_batch(
            batch,
            f"producer id {batch.producer_id} needs an epoch and a sequence number, "
            f"not {batch.producer_epoch} and {batch.base_sequence}",
        )


def validate_records(
    batch: RecordBatch, *, require_keys: bool = False, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> RecordSurvey:
    """Check every record, and with `require_keys` for a key; return a survey of them.

    The batch is alone in its buffer. Raises KafkaError, and DecompressionLimitError for a batch
    that would unpack to more than `max_bytes`.
    """
    try:
        if batch.attributes & COMPRESSION_MASK:
            survey = kernel.survey_records(batch, batch.payload(max_bytes))
        else:
            survey = kernel.survey_records(batch, batch.buffer, BATCH_OVERHEAD)
    except DecompressionLimitError:
        raise
    except CorruptRecordError as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, error.message) from None
    if require_keys and survey.null_key_count:
        raise _keyless(batch, survey.null_key_count)
    return survey


def _keyless(batch: RecordBatch, count: int) -> KafkaError:
    why = "it has no key, which a compacted topic needs"
    named = batch.records() if batch.record_count <= MAX_NAMED_RECORDS else ()
    return RefusedRecordsError(
        ErrorCode.INVALID_RECORD,
        f"{count} records without a key, which a compacted topic needs",
        {index: why for index, each in enumerate(named) if each.key is None},
    )


def _invalid_batch(batch: RecordBatch, what: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"the batch at offset {batch.base_offset}: {what}")
