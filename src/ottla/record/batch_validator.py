"""What a leader checks of a batch that a producer sent, before it goes into the log.

`validate_batch` reads nothing but the header, and the bytes once for the CRC. `validate_records`
goes through the records, decompressed if need be, for the topics that ask for it.
"""

from __future__ import annotations

from ottla.errors import ErrorCode, KafkaError, RefusedRecordsError
from ottla.record import kernel
from ottla.record.compression import MAX_DECOMPRESSED_BYTES
from ottla.record.plain_kernel import RecordSurvey
from ottla.record.record_batch import NO_SEQUENCE, RecordBatch
from ottla.structs import NO_PRODUCER_ID


def validate_batch(batch: RecordBatch) -> None:
    """Raise KafkaError unless the batch is whole, of a known codec, and one a client may send."""
    batch.verify()
    if batch.record_count < 1 or batch.last_offset_delta != batch.record_count - 1:
        raise _invalid(
            batch,
            f"{batch.record_count} records do not fit last offset delta {batch.last_offset_delta}",
        )
    if batch.is_control:
        raise _invalid(batch, "control batches are not for clients to send")
    if batch.producer_id != NO_PRODUCER_ID and batch.base_sequence <= NO_SEQUENCE:
        raise _invalid(
            batch,
            f"producer id {batch.producer_id} needs a sequence number, not {batch.base_sequence}",
        )
    _ = batch.compression


def validate_records(
    batch: RecordBatch, *, require_keys: bool = False, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> RecordSurvey:
    """Check every record, and with `require_keys` for a key; return what they sum up to."""
    survey = kernel.survey_records(batch, batch.payload(max_bytes))
    if require_keys and survey.null_key_count:
        why = "it has no key, which a compacted topic needs"
        raise RefusedRecordsError(
            ErrorCode.INVALID_RECORD,
            f"{survey.null_key_count} records without a key, which a compacted topic needs",
            {index: why for index, each in enumerate(batch.records()) if each.key is None},
        )
    return survey


def _invalid(batch: RecordBatch, what: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"the batch at offset {batch.base_offset}: {what}")
