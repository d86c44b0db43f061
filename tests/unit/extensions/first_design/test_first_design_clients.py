"""The old clients on a broker of the first design, whose address they are given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from byte_logs_world import entry
from first_design_client import SETTINGS, RawClient, feature

from ottla.clients.legacy import (
    FetchRequest,
    Message,
    OffsetRequest,
    Producer,
    ProducerData,
    ProducerRequest,
    SimpleConsumer,
    StringEncoder,
    SyncProducer,
)
from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.protocol.metadata import MetadataRequest
from ottla.testing import InProcessBroker

VERSION = {"broker_version": "0.7"}


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    """A broker that shows each message at once."""
    with InProcessBroker(**SETTINGS, message_max_bytes=1000) as broker:
        yield broker


@pytest.fixture
def consumer(broker: InProcessBroker) -> Iterator[SimpleConsumer]:
    """One that fetches."""
    with SimpleConsumer(*feature(broker).listener.address, **VERSION) as consumer:
        yield consumer


@pytest.fixture
def producer(broker: InProcessBroker) -> Iterator[SyncProducer]:
    """One that sends, and waits until the broker has it."""
    with SyncProducer(*feature(broker).listener.address, **VERSION) as producer:
        yield producer


def read(consumer: SimpleConsumer, topic: str, count: int, partition: int = 0) -> list[bytes]:
    """So many messages, following from the first id on, in fetches that grow where they must."""
    found: list[bytes] = []
    position, size = 0, 100
    while len(found) < count:
        request = FetchRequest(topic, partition, position, size)
        messages = consumer.fetch(request, max_wait_ms=1000, min_bytes=1)
        try:
            found += [each.message.payload for each in messages]
        except KafkaError as error:
            if error.error is not ErrorCode.INVALID_FETCH_SIZE:
                raise
            size *= 2
        position = messages.next_offset
    return found


def test_simple_consumer_reads_what_a_sync_producer_has_sent(producer, consumer):
    """By positions of bytes, in fetches of a hundred of them."""
    texts = [b"%d" % number * 5 for number in range(20)]
    producer.send("pages", [Message(text) for text in texts], 0)

    assert read(consumer, "pages", 20) == texts
    end = consumer.get_offsets_before("pages", 0, OffsetRequest.LATEST_TIME, 10)
    assert end == [sum(len(entry(text, 1)) for text in texts), 0]
    assert consumer.get_offsets_before("pages", 0, OffsetRequest.EARLIEST_TIME, 1) == [0]


def test_multifetch_and_multi_send(producer, consumer):
    """Several partitions in one request; each set has its own error."""
    producer.multi_send(
        [ProducerRequest("m", 0, [Message(b"a")]), ProducerRequest("m", 1, [Message(b"b")])]
    )
    assert read(consumer, "m", 1, 1) == [b"b"]
    sets = consumer.multifetch(
        [FetchRequest("m", 0, 0), FetchRequest("m", 1, 0), FetchRequest("m", 1, 99)]
    )

    assert [[each.message.payload for each in found] for found in sets[:2]] == [[b"a"], [b"b"]]
    with pytest.raises(KafkaError) as refused:
        list(sets[2])
    assert refused.value.error is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("codec", ["gzip", "snappy"])
def test_compressed_messages_are_read_as_they_were_sent(broker, consumer, codec):
    """They are one message to the broker."""
    address = feature(broker).listener.address
    with SyncProducer(*address, compression=codec, **VERSION) as producer:
        producer.send(codec, [Message(b"%d" % number) for number in range(10)], 0)

    assert read(consumer, codec, 10) == [b"%d" % number for number in range(10)]


def test_message_that_the_broker_refuses_is_told_although_a_produce_has_no_answer(producer):
    """The request for offsets behind it has none, as the connection is closed."""
    with pytest.raises(KafkaError, match="its log says why"):
        producer.send("refused", [Message(b"x" * 873)], 0)
    with pytest.raises(KafkaError, match="its log says why"):
        producer.send("refused", [Message(b"x")], 2)
    producer.send("refused", [Message(b"x")], 0)


def test_producer_without_acks_does_not_wait(broker, consumer):
    """As that of 0.7: a failure is not noticed."""
    with SyncProducer(*feature(broker).listener.address, acks=0, **VERSION) as producer:
        producer.send("unheard", [Message(b"x" * 873)], 0)
        producer.send("unheard", [Message(b"a")], 0)


def test_request_of_today_is_refused_in_words(consumer):
    """There is none such in 0.7."""
    with pytest.raises(KafkaError, match=r"0\.7 has no MetadataRequest"):
        consumer.send(MetadataRequest())
    with pytest.raises(ConfigError, match=r"broker\.version=0\.6"):
        SimpleConsumer("localhost", 1, broker_version="0.6")


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_producer_with_a_list_of_brokers_leaves_the_partition_to_them(broker, consumer, kind):
    """Sent at once, or by the queue."""
    host, port = feature(broker).listener.address
    settings = {
        "broker.list": f"0:{host}:{port}",
        "broker.version": "0.7",
        "producer.type": kind,
        "serializer.class": StringEncoder,
        "compression.codec": "gzip",
    }
    topic = f"list-{kind}"
    with Producer(settings) as producer:
        producer.send(*(ProducerData(topic, None, [f"{number}"]) for number in range(20)))
    with RawClient(broker) as client:
        ends = [client.offsets(topic.encode(), number)[0] for number in (0, 1)]
    counts = [0, 0]
    for number in (0, 1):
        for found in consumer.fetch(FetchRequest(topic, number, 0)) if ends[number] else ():
            counts[number] += found.message.payload.decode().isdecimal()

    assert sum(counts) == 20
