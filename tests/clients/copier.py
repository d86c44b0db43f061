"""Copies a topic into another in transactions of 50 records, with the offsets; ends at the end."""

import sys

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

LIMIT_SECONDS = 100
POLL_SECONDS = 0.3
RECORDS = 50


def main(servers, source, target):
    # "none": when its only broker comes back, librdkafka 2.16 would begin anew, and its request to
    # the group coordinator would wait for the broker object that it has just thrown away.
    recovery = {"metadata.recovery.strategy": "none"}
    producer = Producer(
        {"bootstrap.servers": servers, "transactional.id": "copier", "linger.ms": 1, **recovery}
    )
    producer.init_transactions(LIMIT_SECONDS)
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "copiers",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            **recovery,
        }
    )
    partitions = consumer.list_topics(source, LIMIT_SECONDS).topics[source].partitions
    # Not as a member: one that was killed would have to be waited for.
    begin = consumer.committed([TopicPartition(source, p) for p in partitions], LIMIT_SECONDS)
    for partition in begin:
        partition.offset = max(0, partition.offset)
    consumer.assign(begin)
    at_end = set()
    while len(at_end) < len(partitions):
        batch = consumer.consume(RECORDS, POLL_SECONDS)
        errors = [(m.error().code(), m.partition()) for m in batch if m.error()]
        at_end |= {place for code, place in errors if code == KafkaError._PARTITION_EOF}
        copy([m for m in batch if not m.error()], producer, consumer, target)
    consumer.close()


def copy(batch, producer, consumer, target):
    if not batch:
        return
    producer.begin_transaction()
    for message in batch:
        producer.produce(target, message.value(), partition=message.partition())
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(
        [position for position in positions if position.offset >= 0],
        consumer.consumer_group_metadata(),
        LIMIT_SECONDS,
    )
    producer.commit_transaction(LIMIT_SECONDS)
    print(len(batch), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
