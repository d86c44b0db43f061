"""A million produced batches, nearly all of them damaged; clients read what was taken."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from produce_fuzzer import ProduceFuzzer

import ottla
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.record.record_batch import RecordBatch

SEEDS = range(10)
BATCHES_PER_SEED = 100_000
KEPT = 3_000
TOPIC = "fuzzed"
WAIT_S = 60


@pytest.mark.parametrize("seed", SEEDS)
def test_a_million_batches_raise_nothing(seed, caplog):
    """Each is answered, and moves the end of the log by the records that can be read of it."""
    caplog.set_level(logging.ERROR)
    fuzzer = ProduceFuzzer(seed)

    fuzzer.run(BATCHES_PER_SEED)

    print(f"\nseed {seed}: {dict(fuzzer.counts)}")
    assert not caplog.records


def has_readable_headers(data):
    """Whether all header keys are UTF-8: others are read with a replacement character."""
    headers = (header for record in RecordBatch(data).records() for header in record.headers)
    return all("\ufffd" not in key for key, _ in headers)


def produce(broker, batches):
    """Send each batch in a request of its own; returns how many records were taken."""
    count = 0
    with socket.create_connection(("127.0.0.1", broker.port), WAIT_S) as connection:
        answers = connection.makefile("rb")
        for data in batches:
            part = PartitionProduceData(index=0, records=data)
            topic = TopicProduceData(name=TOPIC, partition_data=[part])
            body = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])
            connection.sendall(encode_request(9, 1, "fuzzer", body))
            (size,) = struct.unpack(">i", answers.read(4))
            _, response = decode_response(ProduceRequest, 9, answers.read(size))
            if response.responses[0].partition_responses[0].error_code == 0:
                count += RecordBatch(data).record_count
    return count


def read_with_confluent(servers, count):
    settings = {"bootstrap.servers": servers, "group.id": "confluent", "check.crcs": True}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found = []
    while len(found) < count:
        messages = consumer.consume(1000, WAIT_S)
        assert messages, f"{len(found)} of {count}"
        for each in messages:
            assert each.error() is None, each.error()
            found.append((each.offset(), each.timestamp()[1], each.key(), each.value()))
    consumer.close()
    return found


def read_with_kafka_python(servers, count):
    consumer = kafka.KafkaConsumer(bootstrap_servers=servers, check_crcs=True)
    partition = kafka.TopicPartition(TOPIC, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning()
    found = []
    while len(found) < count:
        records = consumer.poll(WAIT_S * 1000).get(partition)
        assert records, f"{len(found)} of {count}"
        found += [(each.offset, each.timestamp, each.key, each.value) for each in records]
    consumer.close()
    return found


def read_with_aiokafka(servers, count):
    async def read():
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=servers)
        await consumer.start()
        try:
            partition = aiokafka.TopicPartition(TOPIC, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning()
            found = []
            while len(found) < count:
                each = await asyncio.wait_for(consumer.getone(), WAIT_S)
                found.append((each.offset, each.timestamp, each.key, each.value))
            return found
        finally:
            await consumer.stop()

    return asyncio.run(read())


def read_with_ottla(servers, count):
    with ottla.Consumer({"bootstrap.servers": servers}) as consumer:
        partition = ottla.TopicPartition(TOPIC, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning([partition])
        found = []
        while len(found) < count:
            records = consumer.poll(WAIT_S * 1000)
            assert records, f"{len(found)} of {count}"
            found += [(each.offset, each.timestamp_ms, each.key, each.value) for each in records]
        return found


@pytest.mark.usefixtures("sockets_left_open")
def test_four_clients_read_what_was_taken(start_broker):
    """What a fuzzer got in are records to each client library, and the same ones.

    Header keys that are not UTF-8, which brokers of Kafka take as well, are left out: kafka-python
    and aiokafka stop at them.
    """
    fuzzer = ProduceFuzzer(seed=77)
    fuzzer.run(60_000, keep=KEPT)
    broker = start_broker(log_retention_ms=-1)
    servers = broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(60)
    count = produce(broker, filter(has_readable_headers, fuzzer.taken))

    expected = read_with_ottla(servers, count)
    print(f"\n{count} records of {len(fuzzer.taken)} batches")
    assert [offset for offset, *_ in expected] == list(range(count))
    for read in (read_with_confluent, read_with_kafka_python, read_with_aiokafka):
        assert read(servers, count) == expected, read.__name__
