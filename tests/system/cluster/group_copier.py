"""A member of a group that copies a topic into another in transactions, until it is ended.

`library` is confluent or ottla, `protocol` the group's: classic or consumer. What it has to say
goes to stdout, a line of JSON each. About one transaction in ten it aborts, and does it again.
"""

import json
import random
import sys

LIMIT_SECONDS = 30
POLL_SECONDS = 0.2
TORN = b"aborted "
SESSION_MS = 3000
# librdkafka 2.16 keeps a coordinator of a group that metadata have stopped to list, and asks for
# another only when one of its connections comes or goes; without this that takes minutes
# (docs/concepts/compatibility.md).
CLOSE_IDLE = {"connections.max.idle.ms": 2000}
# Partitions may be taken away, or the coordinator may die, while the places to go back to are asked
# for; librdkafka calls none of these retriable.
PASSING = {"_STATE", "UNKNOWN_MEMBER_ID", "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"}
PASSING |= {"COORDINATOR_LOAD_IN_PROGRESS"}


def say(**what):
    print(json.dumps(what), flush=True)


def run_confluent(servers, source, target, name, size, protocol):
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

    client = {"reconnect.backoff.max.ms": 500, "bootstrap.servers": servers, "log_level": 0}
    producer = Producer({**client, **CLOSE_IDLE, "transactional.id": name, "linger.ms": 5})
    group = {"group.protocol": protocol}
    if protocol == "classic":
        group |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 500}
    consumer = Consumer(
        {
            **client,
            **group,
            "group.id": f"{source} copiers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )

    def copy(batch, aborts):
        producer.begin_transaction()
        after = {}
        for message in batch:
            value = TORN + message.value() if aborts else message.value()
            producer.produce(target, value, partition=message.partition())
            after[message.partition()] = message.offset() + 1
        offsets = [TopicPartition(source, index, offset) for index, offset in after.items()]
        membership = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction(offsets, membership, LIMIT_SECONDS)
        if aborts:
            producer.flush(LIMIT_SECONDS)
            producer.abort_transaction(LIMIT_SECONDS)
        else:
            producer.commit_transaction(LIMIT_SECONDS)

    def go_back():
        for place in consumer.committed(consumer.assignment(), LIMIT_SECONDS):
            consumer.seek(TopicPartition(source, place.partition, max(0, place.offset)))

    until_done(producer.init_transactions, KafkaException)
    say(ready=name)
    consumer.subscribe([source], on_assign=lambda _, given: say(assigned=len(given)))
    while True:
        batch = [m for m in consumer.consume(size, POLL_SECONDS) if m.error() is None]
        if not batch:
            continue
        aborts = random.random() < 0.1
        try:
            copy(batch, aborts)
            say(**{"aborted" if aborts else "copied": len(batch)})
        except KafkaException as failure:
            error = failure.args[0]
            say(refused=str(error))
            if not error.txn_requires_abort():
                raise
            until_done(producer.abort_transaction, KafkaException)
            aborts = True
        if aborts:
            until_done(lambda _: go_back(), KafkaException)


def until_done(call, error_type):
    """Call again what may be called again."""
    while True:
        try:
            return call(LIMIT_SECONDS)
        except error_type as failure:
            error = failure.args[0]
            say(refused=str(error))
            if not error.retriable() and error.name() not in PASSING:
                raise


def run_ottla(servers, source, target, name, size, protocol):
    from ottla import Consumer, KafkaError, Producer, RebalanceListener, TopicPartition
    from ottla.errors import ErrorCode

    class Journal(RebalanceListener):
        def on_partitions_assigned(self, partitions):
            say(assigned=len(partitions))

        def on_partitions_revoked(self, partitions):
            say(revoked=len(partitions))

    assert protocol == "classic", "ottla's own consumer knows no other"
    consumer = Consumer(
        servers,
        group_id=f"{source} copiers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        max_poll_records=size,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=500,
    )
    producer = Producer(servers, transactional_id=name, linger_ms=5)

    def copy(records, aborts):
        producer.begin_transaction()
        after = {}
        for record in records:
            value = TORN + record.value if aborts else record.value
            producer.send(target, value, partition=record.partition)
            after[TopicPartition(source, record.partition)] = record.offset + 1
        producer.send_offsets_to_transaction(after, consumer.group_metadata())
        if aborts:
            producer.flush()
            producer.abort_transaction()
        else:
            producer.commit_transaction()

    def go_back():
        partitions = consumer.assignment()
        found = consumer.committed(partitions)
        for partition in partitions:
            consumer.seek(partition, found[partition].offset if partition in found else 0)

    producer.init_transactions()
    say(ready=name)
    consumer.subscribe([source], listener=Journal())
    while True:
        records = consumer.poll(int(POLL_SECONDS * 1000))
        if not records:
            continue
        aborts = random.random() < 0.1
        try:
            copy(records, aborts)
            say(**{"aborted" if aborts else "copied": len(records)})
        except KafkaError as error:
            say(refused=str(error))
            if error.error in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
                raise
            producer.abort_transaction()
            aborts = True
        if aborts:
            go_back()


def main(library, servers, source, target, name, size, protocol):
    run = run_ottla if library == "ottla" else run_confluent
    run(servers, source, target, name, int(size), protocol)


if __name__ == "__main__":
    main(*sys.argv[1:])
