"""`PartitionReader` against a real broker."""

from __future__ import annotations

import pytest

from ottla import Admin, KafkaError, NewTopic, Producer, TopicPartition
from ottla.clients.partition_reader import PartitionReader
from ottla.errors import ErrorCode, KafkaTimeoutError
from ottla.record.memory_records import batches


@pytest.fixture
def partition(broker, unique) -> TopicPartition:
    """A partition of a thousand records in many small batches."""
    name = unique("ottla-reader")
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, 1, 1)])
    with Producer(broker.bootstrap_servers, batch_size=500) as producer:
        for number in range(1000):
            producer.send(name, f"{number}")
    return TopicPartition(name, 0)


def offsets(views) -> list[int]:
    """The offsets of all records in the views."""
    return [
        record.offset for view in views for batch in batches(view) for record in batch.records()
    ]


def test_reader_gives_whole_batches_that_cover_the_range(broker, partition):
    """The range is inside, cut at batches, over several fetches."""
    with PartitionReader(broker.bootstrap_servers, max_partition_fetch_bytes=4000) as reader:
        found = offsets(reader.read(partition, 100, 900))

    assert found == list(range(found[0], found[-1] + 1))
    assert 50 < found[0] <= 100
    assert 899 <= found[-1] < 950


def test_reader_reads_an_empty_range_without_asking(broker, partition):
    """An empty range has no records, and needs no request."""
    with PartitionReader(broker.bootstrap_servers) as reader:
        assert list(reader.read(partition, 5, 5)) == []


def test_reader_refuses_what_the_log_does_not_have(broker, partition):
    """OFFSET_OUT_OF_RANGE, and at the end of the log a time limit."""
    with (
        PartitionReader(broker.bootstrap_servers) as reader,
        pytest.raises(KafkaError) as caught,
    ):
        list(reader.read(partition, 5000, 5001))
    assert caught.value.error is ErrorCode.OFFSET_OUT_OF_RANGE
    with PartitionReader(broker.bootstrap_servers, default_api_timeout_ms=500) as reader:
        assert offsets(reader.read(partition, 999, 1000))[-1] == 999
        with pytest.raises(KafkaTimeoutError, match="nothing at offset 1000"):
            list(reader.read(partition, 999, 1001))


def test_reader_knows_no_unknown_topic(broker, unique):
    """A topic that does not exist is not created, and not waited for."""
    with (
        PartitionReader(broker.bootstrap_servers) as reader,
        pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"),
    ):
        list(reader.read(TopicPartition(unique("missing"), 0), 0, 1))


def test_reader_may_be_left_early(broker, partition):
    """Leaving the loop cancels the fetch that is ahead, and the reader can be used again."""
    with PartitionReader(broker.bootstrap_servers, max_partition_fetch_bytes=1000) as reader:
        for _ in reader.read(partition, 0, 1000):
            break
        assert len(offsets(reader.read(partition, 0, 10))) >= 10
