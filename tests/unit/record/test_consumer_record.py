"""Records as consumers return them, of the plain and of the compiled kernel."""

import pytest
from handmade import sealed

from ottla.record.consumer_record import ConsumerRecord, TimestampType
from ottla.record.record import LOG_APPEND_TIME_FLAG
from ottla.record.record_batch import RecordBatch

RECORDS = [
    (1000, None, None, ()),
    (990, b"", b"", ()),
    (1005, b"key", b"v" * 70, (("h", b"x"), ("empty", b""), ("null", None))),
]


@pytest.mark.parametrize("is_append_time", [False, True])
def test_records_of_consumers_are_the_same_with_their_place(loops, is_append_time):
    """Topic, partition, leader epoch and the kind of the timestamp come from outside of them."""
    payload, base_timestamp, _ = loops.encode_records(RECORDS)
    attributes = LOG_APPEND_TIME_FLAG if is_append_time else 0
    header = {"base_timestamp": base_timestamp, "attributes": attributes, "leader_epoch": 3}
    batch = RecordBatch(sealed(bytes(payload), len(RECORDS), base_offset=7, **header))
    found = loops.decode_consumer_records(batch, batch.payload(), "pages", 5)

    kind = TimestampType(is_append_time)
    assert found == [
        ConsumerRecord("pages", 5, offset, time_ms, kind, key, value, headers, 3)
        for offset, time_ms, key, value, headers in loops.decode_records(batch, batch.payload())
    ]
    assert all(type(each) is ConsumerRecord for each in found)
