"""How messages are parcelled, compressed and partitioned."""

from __future__ import annotations

import pytest

from ottla.clients.legacy import DefaultPartitioner, Message, ProducerRequest
from ottla.clients.legacy.broker_clients import RECORD_OVERHEAD, Packing, message_sets
from ottla.clients.producer.partitioner import partition_for_key
from ottla.errors import KafkaError
from ottla.record.compression import CompressionType
from ottla.structs import TopicPartition


def test_requests_for_one_partition_are_put_together():
    """In their order, and beside those for others."""
    a, b, c = (Message(value) for value in (b"a", b"b", b"c"))
    requests = [
        ProducerRequest("t", 0, [a]),
        ProducerRequest("t", 1, [b]),
        ProducerRequest("t", 0, [c]),
    ]

    assert list(message_sets(requests, 1000)) == [
        {TopicPartition("t", 0): [a, c], TopicPartition("t", 1): [b]}
    ]


def test_a_parcel_holds_no_more_than_a_batch_may_have():
    """What does not fit comes in the next one; a message alone always fits."""
    messages = [Message(bytes(size)) for size in (10, 10, 10, 500)]
    limit = 2 * (10 + RECORD_OVERHEAD)

    requests = [ProducerRequest("t", 0, messages)]
    found = [sets[TopicPartition("t", 0)] for sets in message_sets(requests, limit)]

    assert found == [messages[:2], messages[2:3], messages[3:]]


def test_only_the_topics_named_are_compressed():
    """compressed.topics; none named means all."""
    some = Packing(codec=CompressionType.GZIP, compressed_topics=frozenset({"a"}))

    assert [some.codec_of(t) for t in "ab"] == [CompressionType.GZIP, CompressionType.NONE]
    assert Packing(codec=CompressionType.GZIP).codec_of("b") is CompressionType.GZIP


def test_a_message_that_is_too_large_is_refused():
    """The error names topic, size and limit."""
    packing = Packing(max_message_size=10)
    fitting = [ProducerRequest("t", 0, [Message(bytes(10))])]
    assert list(packing.message_sets(fitting, lambda topic: 0)) == [
        {TopicPartition("t", 0): [Message(bytes(10))]}
    ]
    too_large = [ProducerRequest("t", 0, [Message(b"a"), Message(bytes(11))])]
    with pytest.raises(KafkaError, match=r"11 bytes for topic t .*max\.message\.size=10"):
        list(packing.message_sets(too_large, lambda topic: 0))


def test_the_default_partitioner_is_the_same_everywhere():
    """Numbers are their own hash; text and bytes go where today's producers send them."""
    choose = DefaultPartitioner().partition

    assert [choose(key, 4) for key in (0, 5, -3)] == [0, 1, 3]
    assert choose("user-7", 10) == choose(b"user-7", 10) == partition_for_key(b"user-7", 10)
    with pytest.raises(KafkaError, match=r"partitioner\.class"):
        choose(1.5, 4)
