"""Batches of kafka-python and aiokafka are read here, and ours there, in every codec."""

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_python_records
import pytest

from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType
from ottla.record.record_batch import RecordBatch, set_log_append_time

NOW = 1_700_000_000_000
RECORDS = [
    (NOW, None, b"value", ()),
    (NOW - 7_000_000, b"", b"", (("header", b"x"), ("schlüssel", b"y"), ("null", None))),
    (NOW + 1, b"key" * 3000, None, ()),
    *((NOW + index, b"key-%d" % index, b"value " * index, ()) for index in range(300)),
]
CLIENTS = [kafka_python_records, aiokafka_records]


def name(value) -> str:
    return getattr(value, "label", None) or value.__name__.partition(".")[0]


@pytest.fixture(params=CLIENTS, ids=name)
def client(request):
    """A client's module with its reader and its builder of record batches."""
    return request.param


@pytest.fixture(params=CompressionType, ids=name)
def codec(request):
    """Every codec."""
    return request.param


def build_with(client, codec: CompressionType) -> bytes:
    builder = client.DefaultRecordBatchBuilder(2, codec, True, 4000, 3, 17, 10_000_000)
    for offset, (timestamp, key, value, headers) in enumerate(RECORDS):
        builder.append(offset, timestamp, key, value, list(headers))
    return bytes(builder.build())


def read_with(client, data: bytes):
    batch = client.DefaultRecordBatch(data)
    assert batch.validate_crc()
    return batch, [
        (record.timestamp, record.key, record.value, tuple(record.headers)) for record in batch
    ]


def test_their_batches_are_read(client, codec):
    """Header and records are what the client was given."""
    batch = RecordBatch(build_with(client, codec))
    batch.verify()

    assert batch.compression is codec
    assert batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4000, 3, 17)
    assert (batch.base_timestamp, batch.max_timestamp) == (NOW, NOW + 299)
    assert [tuple(record[1:]) for record in batch.records()] == RECORDS
    assert [record.offset for record in batch.records()] == list(range(len(RECORDS)))


def test_our_batches_are_read(client, codec):
    """The client finds the records that we were given."""
    data = build_batch(
        RECORDS, codec, base_offset=50, producer_id=4000, producer_epoch=3, base_sequence=17
    )
    batch, records = read_with(client, data)

    assert records == RECORDS
    assert (batch.base_offset, batch.next_offset) == (50, 50 + len(RECORDS))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4000, 3, 17)


def test_uncompressed_batches_are_equal_byte_for_byte(client):
    """There is only one way to write a batch without a codec."""
    ours = build_batch(
        RECORDS, producer_id=4000, producer_epoch=3, base_sequence=17, is_transactional=True
    )
    # The leader epoch, outside of the CRC, is 0 there; the broker decides it anyway.
    theirs = bytearray(build_with(client, CompressionType.NONE))
    theirs[12:16] = ours[12:16]

    assert theirs == ours


def test_log_append_time_is_understood(client):
    """After our stamp the client reads the broker's timestamp."""
    data = bytearray(build_batch(RECORDS))
    set_log_append_time(data, 0, NOW + 5000)
    batch, records = read_with(client, bytes(data))

    assert batch.timestamp_type == 1
    assert {timestamp for timestamp, *_ in records} == {NOW + 5000}
