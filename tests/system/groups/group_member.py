"""A member of a group in a process of its own, of the library that the first argument names.

It reads, says so, commits, says so. SIGUSR1 lets it stall while it has records in hand, until
SIGUSR2 comes; SIGTERM ends it without a word to the coordinator, if it is static
and speaks the classic protocol. In the other protocol a static member says that it will be back.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys

from ottla.testing import wait_until

CLIENT_ID = str(os.getpid())

is_to_stall = False
is_to_end = False


def say(what, value):
    print(json.dumps({what: value}), flush=True)


def stall(*_):
    global is_to_stall
    is_to_stall = True


def go_on(*_):
    global is_to_stall
    is_to_stall = False


def end(*_):
    global is_to_end
    is_to_end = True


def process(records):
    """Say which records are in hand, by partition and offset; stall with them if that is wanted."""
    say("read", records)
    if is_to_stall:
        wait_until(lambda: not is_to_stall, "SIGUSR2")
        say("stalled", len(records))


def after(records):
    """The offsets to commit behind records."""
    return {partition: offset + 1 for partition, offset in sorted(records)}


def run_confluent(servers, topic, group, session_ms, instance):
    settings = {
        "partition.assignment.strategy": "range",
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": 200,
    }
    read_with_confluent(servers, topic, group, session_ms, instance, settings)


def run_consumer_protocol(servers, topic, group, session_ms, instance):
    """librdkafka does not leave by itself then: it is silent until its session is over as well."""
    signal.signal(signal.SIGTERM, end)
    read_with_confluent(servers, topic, group, session_ms, instance, {"group.protocol": "consumer"})


def read_with_confluent(servers, topic, group, session_ms, instance, settings):
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    settings |= {
        "bootstrap.servers": servers,
        "client.id": CLIENT_ID,
        "group.id": group,
        "max.poll.interval.ms": session_ms,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    if instance:
        settings["group.instance.id"] = instance
    consumer = Consumer(settings)
    assigned = None
    consumer.subscribe([topic])
    while not is_to_end:
        messages = [m for m in consumer.consume(20, 0.1) if m.error() is None]
        if (now := {p.partition for p in consumer.assignment()}) != assigned:
            assigned = now
            say("assigned", len(assigned))
        if not messages:
            continue
        records = [(m.partition(), m.offset()) for m in messages]
        process(records)
        offsets = [TopicPartition(topic, p, o) for p, o in after(records).items()]
        try:
            results = consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            say("refused", str(error))
            continue
        say("committed", [record for record in records if not any(r.error for r in results)])
    consumer.close()


def kafka_python_settings(servers, group, session_ms, instance):
    """Those that kafka-python and aiokafka, which comes from it, have in common."""
    return {
        "bootstrap_servers": servers,
        "client_id": CLIENT_ID,
        "group_id": group,
        "group_instance_id": instance,
        "session_timeout_ms": session_ms,
        "max_poll_interval_ms": session_ms,
        "heartbeat_interval_ms": 200,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
    }


def run_kafka_python(servers, topic, group, session_ms, instance):
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

    consumer = KafkaConsumer(
        topic,
        partition_assignment_strategy=[RangePartitionAssignor],
        **kafka_python_settings(servers, group, session_ms, instance),
    )
    assigned = None
    while True:
        by_partition = consumer.poll(100, max_records=20)
        if consumer.assignment() != assigned:
            assigned = consumer.assignment()
            say("assigned", len(assigned))
        if not by_partition:
            continue
        records = [(r.partition, r.offset) for found in by_partition.values() for r in found]
        process(records)
        ends = {
            partition: OffsetAndMetadata(found[-1].offset + 1, "", -1)
            for partition, found in by_partition.items()
        }
        try:
            consumer.commit(ends)
        except KafkaError as error:
            say("refused", str(error))
            continue
        say("committed", records)


async def run_aiokafka(servers, topic, group, session_ms, instance):
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    consumer = AIOKafkaConsumer(
        topic,
        partition_assignment_strategy=[RangePartitionAssignor],
        **kafka_python_settings(servers, group, session_ms, instance),
    )
    await consumer.start()
    assigned = None
    while True:
        by_partition = await consumer.getmany(timeout_ms=100, max_records=20)
        if consumer.assignment() != assigned:
            assigned = consumer.assignment()
            say("assigned", len(assigned))
        if not by_partition:
            continue
        records = [(r.partition, r.offset) for found in by_partition.values() for r in found]
        process(records)
        ends = {partition: found[-1].offset + 1 for partition, found in by_partition.items()}
        try:
            await consumer.commit(ends)
        except KafkaError as error:
            say("refused", str(error))
            continue
        say("committed", records)


def main(library, servers, topic, group, session_ms, instance):
    signal.signal(signal.SIGUSR1, stall)
    signal.signal(signal.SIGUSR2, go_on)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if library == "confluent":
        run_confluent(servers, topic, group, int(session_ms), instance)
    elif library == "consumer-protocol":
        run_consumer_protocol(servers, topic, group, int(session_ms), instance)
    elif library == "kafka-python":
        run_kafka_python(servers, topic, group, int(session_ms), instance or None)
    else:
        asyncio.run(run_aiokafka(servers, topic, group, int(session_ms), instance or None))


if __name__ == "__main__":
    main(*sys.argv[1:])
