"""What a leader refuses: lies in the header, and lies in the records."""

import pytest
from handmade import TWO_RECORDS, sealed

from ottla.errors import ErrorCode, KafkaError
from ottla.log.batch_validation import validate_batch, validate_records
from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType
from ottla.record.record_batch import RecordBatch

RECORD = bytes.fromhex("0c 00 00 00 01 01 00")


def test_a_good_batch_is_accepted():
    """Nothing is returned, nothing is raised."""
    assert validate_batch(RecordBatch(sealed(RECORD, 1))) is None
    first = {"producer_id": 0, "producer_epoch": 0, "base_sequence": 0}
    assert validate_batch(RecordBatch(sealed(RECORD, 1, **first))) is None


@pytest.mark.parametrize(
    ("data", "error", "why"),
    [
        (TWO_RECORDS[:-1] + b"\x00", ErrorCode.CORRUPT_MESSAGE, "CRC-32C"),
        (TWO_RECORDS[:-1], ErrorCode.CORRUPT_MESSAGE, "of its 88 bytes only 87"),
        (sealed(RECORD, 1, magic=1), ErrorCode.CORRUPT_MESSAGE, "magic 1"),
        (sealed(b"", 0, last_offset_delta=0), ErrorCode.INVALID_RECORD, "0 records"),
        (sealed(RECORD, 1, last_offset_delta=5), ErrorCode.INVALID_RECORD, "delta 5"),
        (sealed(RECORD, 1, attributes=5), ErrorCode.CORRUPT_MESSAGE, "unknown codec 5"),
        (sealed(RECORD, 1, attributes=0x30), ErrorCode.INVALID_RECORD, "control batches"),
        (sealed(RECORD, 1, base_offset=1), ErrorCode.INVALID_RECORD, "begin with 0"),
        (sealed(RECORD, 1, base_offset=-1), ErrorCode.INVALID_RECORD, "begin with 0"),
        (sealed(RECORD, 1, attributes=0x40), ErrorCode.INVALID_RECORD, "a delete horizon"),
        (sealed(RECORD, 1, attributes=0x10), ErrorCode.INVALID_RECORD, "needs a producer id"),
        (sealed(RECORD, 1, producer_id=-2), ErrorCode.INVALID_RECORD, "-2 is below -1"),
        (sealed(RECORD, 1, producer_id=7), ErrorCode.INVALID_RECORD, "producer id 7 needs"),
        (sealed(RECORD, 1, producer_id=7, producer_epoch=0), ErrorCode.INVALID_RECORD, "0 and -1"),
        (sealed(RECORD, 1, producer_id=7, base_sequence=0), ErrorCode.INVALID_RECORD, "-1 and 0"),
    ],
)
def test_a_bad_header_is_refused(data, error, why):
    """Each lie has its error code, and the text says what it is."""
    with pytest.raises(KafkaError, match=why) as caught:
        validate_batch(RecordBatch(data))

    assert caught.value.error is error


@pytest.mark.parametrize("codec", CompressionType, ids=lambda codec: codec.label)
def test_validate_records_goes_through_all(codec):
    """The survey of the records, whatever they are compressed with."""
    records = [(5, b"a", b"", ()), (9, b"b", b"", ()), (7, b"c", b"", ())]

    survey = validate_records(RecordBatch(build_batch(records, codec)), require_keys=True)

    assert survey.min_timestamp_ms == 5
    assert (survey.max_timestamp_ms, survey.offset_of_max_timestamp) == (9, 1)


def test_validate_records_requires_keys_if_asked():
    """A compacted topic has no use for a record without a key."""
    batch = RecordBatch(TWO_RECORDS)

    assert validate_records(batch).null_key_count == 1
    with pytest.raises(KafkaError, match="1 records without a key") as caught:
        validate_records(batch, require_keys=True)
    assert caught.value.error is ErrorCode.INVALID_RECORD


def test_validate_records_refuses_malformed_records():
    """A header in order says nothing about the records."""
    batch = RecordBatch(sealed(RECORD + b"\x00", 1))
    validate_batch(batch)

    with pytest.raises(KafkaError, match="1 bytes of garbage") as caught:
        validate_records(batch)
    assert caught.value.error is ErrorCode.INVALID_RECORD
