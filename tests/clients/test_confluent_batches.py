"""Batches of librdkafka as they lie in the segment file: read here, and made here alike."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from records import CODECS

from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType
from ottla.record.memory_records import batches

SENT = [
    (1_700_000_000_000, b"key", b"value", (("h", b"1"), ("none", None))),
    (1_700_000_000_005, None, b"", ()),
    (1_699_999_999_999, b"", None, (("empty", b""),)),
    (1_700_000_900_000, b"k" * 300, b"v" * 20_000, ()),
]


def stored_batches(broker, topic, codec):
    """Produce the records in one batch; the batches of the segment file, and its bytes."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "compression.type": codec,
            "linger.ms": 500,
        }
    )
    for timestamp_ms, key, value, headers in SENT:
        producer.produce(
            topic, value, key, partition=0, timestamp=timestamp_ms, headers=list(headers)
        )
    assert producer.flush(60) == 0
    path = Path(broker.data_dir) / f"{topic}-0" / f"{0:020d}.log"
    data = path.read_bytes()
    return list(batches(data)), data


@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_librdkafka_are_read(broker, unique, codec):
    """Every field of every record comes out as it was sent, in each codec."""
    found, _ = stored_batches(broker, unique("batches"), codec)

    for batch in found:
        batch.verify()
    records = [record for batch in found for record in batch.records()]
    assert [tuple(record)[1:] for record in records] == SENT
    assert [record.offset for record in records] == [0, 1, 2, 3]


def test_the_same_records_make_the_same_bytes(broker, unique):
    """Without compression there is one way to write them: ours equals librdkafka's to the byte."""
    found, data = stored_batches(broker, unique("batches"), "none")

    ours = bytearray()
    for batch in found:  # mostly one; it is librdkafka that says when a batch is full
        sent = SENT[batch.base_offset : batch.next_offset]
        again = bytearray(build_batch(sent, CompressionType.NONE, base_offset=batch.base_offset))
        again[12:16] = data[len(ours) + 12 : len(ours) + 16]  # the epoch that the broker stamps
        ours += again

    assert sum(batch.record_count for batch in found) == len(SENT)
    assert bytes(ours) == data
