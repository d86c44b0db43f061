"""Transactions of `ottla.Producer`, read by `ottla.Consumer`, against a real broker."""

from __future__ import annotations

import threading

import pytest
from consumers import poll_until, read

from ottla import Admin, Consumer, KafkaError, NewTopic, Producer, TopicPartition
from ottla.clients.committed_offsets import ConsumerGroupMetadata, GroupMembership
from ottla.errors import ErrorCode

LIMIT_SECONDS = 100
LONGER_THAN_A_RESTART_MS = 600_000
COPIED = 3000
SHARED = 8_000
GROUP_MOVED_ON = {
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
}


def create(broker, topic, partitions=1) -> str:
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, partitions, 1)])
    return topic


def new_producer(broker, transactional_id, **settings) -> Producer:
    """A producer that is ready for its first transaction."""
    settings = {"linger_ms": 0, "transaction_timeout_ms": LONGER_THAN_A_RESTART_MS} | settings
    producer = Producer(broker.bootstrap_servers, transactional_id=transactional_id, **settings)
    producer.init_transactions(LIMIT_SECONDS)
    return producer


def read_all(broker, topic, isolation="read_committed") -> list[str]:
    """Every value, by partition, that a reader of this isolation level sees before the end."""
    settings = {"isolation_level": isolation, "auto_offset_reset": "earliest"}
    with Consumer(broker.bootstrap_servers, **settings) as consumer:
        partitions = [TopicPartition(topic, p.partition) for p in consumer.partitions_for(topic)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        records = []
        poll_until(
            [],
            lambda: (
                records.extend(consumer.poll(50))
                or all(consumer.position(p) >= end for p, end in ends.items())
            ),
        )
    records.sort(key=lambda record: (record.partition, record.offset))
    return [record.value.decode() for record in records]


def committed(broker, group, topic) -> int | None:
    settings = {"group_id": group, "isolation_level": "read_committed"}
    with Consumer(broker.bootstrap_servers, **settings) as consumer:
        partition = TopicPartition(topic, 0)
        found = consumer.committed([partition]).get(partition)
        return None if found is None else found.offset


def test_committed_records_are_read_and_aborted_ones_are_not(broker, unique):
    """Whoever does not ask for committed records alone sees the aborted ones as well."""
    topic = create(broker, unique("txn"), 2)
    with new_producer(broker, topic) as producer:
        for number in range(5):
            producer.begin_transaction()
            for partition in (0, 1):
                producer.send(topic, f"{partition} {number}", partition=partition)
                producer.flush()
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()

    assert read_all(broker, topic) == ["0 0", "0 2", "0 4", "1 0", "1 2", "1 4"]
    assert len(read_all(broker, topic, "read_uncommitted")) == 10


def test_open_transaction_holds_back_the_readers_of_committed_records(broker, unique):
    """Readers do not get records behind it either, even if these are in no transaction."""
    topic = create(broker, unique("open"))
    with Producer(broker.bootstrap_servers) as plain, new_producer(broker, topic) as producer:
        plain.send(topic, "before").result(LIMIT_SECONDS)
        producer.begin_transaction()
        producer.send(topic, "within").result(LIMIT_SECONDS)
        plain.send(topic, "behind").result(LIMIT_SECONDS)

        assert read_all(broker, topic) == ["before"]
        producer.commit_transaction()
        assert read_all(broker, topic) == ["before", "within", "behind"]


def test_interleaved_transactions_are_told_apart(broker, unique):
    """The end of one producer's transaction says nothing of another's in the same partition."""
    topic = create(broker, unique("interleaved"))
    with new_producer(broker, f"{topic}-a") as left, new_producer(broker, f"{topic}-b") as right:
        for number in range(4):
            left.begin_transaction()
            right.begin_transaction()
            for producer, name in ((left, "left"), (right, "right"), (left, "left again")):
                producer.send(topic, f"{name} {number}").result(LIMIT_SECONDS)
            left.abort_transaction()
            right.commit_transaction()

    assert read_all(broker, topic) == [f"right {number}" for number in range(4)]


def fail_within_a_transaction(producer, topic):
    with producer.transaction():
        producer.send(topic, "dropped")
        producer.flush()
        raise ZeroDivisionError


def test_block_commits_at_its_end_and_aborts_when_it_raises(broker, unique):
    """The error of the block goes on; records that were not sent yet fail."""
    topic = create(broker, unique("block"))
    with new_producer(broker, topic) as producer:
        with producer.transaction():
            producer.send(topic, "kept")
        with pytest.raises(ZeroDivisionError):
            fail_within_a_transaction(producer, topic)
        with producer.transaction():
            producer.send(topic, "kept too")

    assert read_all(broker, topic) == ["kept", "kept too"]


def test_transaction_without_records_is_committed_and_aborted(broker, unique):
    """The coordinator never hears of it."""
    with new_producer(broker, unique("empty")) as producer:
        for _ in range(2):
            with producer.transaction():
                pass
            producer.begin_transaction()
            producer.abort_transaction()


def test_closing_aborts_what_is_open(broker, unique):
    """Readers need not wait until the time of the transaction is over."""
    topic = create(broker, unique("close"))
    with new_producer(broker, topic) as producer:
        producer.begin_transaction()
        producer.send(topic, "left behind").result(LIMIT_SECONDS)
    with Producer(broker.bootstrap_servers) as plain:
        plain.send(topic, "after").result(LIMIT_SECONDS)

    assert read_all(broker, topic) == ["after"]


def test_second_producer_with_the_id_fences_the_first(broker, unique):
    """What the first had begun is aborted, and it can do nothing more but close."""
    topic = create(broker, unique("fence"))
    with new_producer(broker, topic) as zombie:
        zombie.begin_transaction()
        zombie.send(topic, "from the zombie").result(LIMIT_SECONDS)
        with new_producer(broker, topic) as successor, successor.transaction():
            successor.send(topic, "from the successor")
        late = zombie.send(topic, "late")
        errors = []
        for call in (zombie.commit_transaction, zombie.abort_transaction, zombie.begin_transaction):
            with pytest.raises(KafkaError, match="taken over") as caught:
                call()
            errors.append(caught.value.error)

        assert errors == [ErrorCode.PRODUCER_FENCED] * 3
        assert late.exception(LIMIT_SECONDS) is not None
    assert read_all(broker, topic) == ["from the successor"]


def test_offsets_count_with_their_transaction(broker, unique):
    """An abort leaves the group where it was."""
    topic, group = create(broker, unique("offsets")), unique("copiers")
    partition = TopicPartition(topic, 0)
    with new_producer(broker, group) as producer:
        for offset, commit in ((5, True), (9, False)):
            producer.begin_transaction()
            producer.send_offsets_to_transaction({partition: offset}, group)
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
            assert committed(broker, group, topic) == 5


def test_member_of_an_older_generation_cannot_commit_in_a_transaction(broker, unique):
    """Its partitions may be another's by now (KIP-447); after the abort all is well again."""
    topic, group = create(broker, unique("stale")), unique("stale-copiers")
    partition = TopicPartition(topic, 0)
    settings = {"group_id": group, "topics": [topic], "enable_auto_commit": False}
    with (
        Consumer(broker.bootstrap_servers, **settings) as consumer,
        new_producer(broker, group) as producer,
    ):
        poll_until([consumer], consumer.assignment)
        metadata = consumer.group_metadata()
        generation, *member = metadata.membership
        older = ConsumerGroupMetadata(group, GroupMembership(generation - 1, *member))
        producer.begin_transaction()
        with pytest.raises(KafkaError) as caught:
            producer.send_offsets_to_transaction({partition: 5}, older)
        with pytest.raises(KafkaError, match="must be aborted"):
            producer.commit_transaction()
        producer.abort_transaction()
        assert committed(broker, group, topic) is None
        with producer.transaction():
            producer.send_offsets_to_transaction({partition: 7}, metadata)

    assert caught.value.error is ErrorCode.ILLEGAL_GENERATION
    assert committed(broker, group, topic) == 7


def test_record_that_is_refused_makes_the_transaction_abortable(broker, unique):
    """After the abort the producer goes on, in an epoch of its own (KIP-360)."""
    topic = unique("small")
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, 1, 1, configs={"max.message.bytes": "1000"})])
    with new_producer(broker, topic) as producer:
        producer.begin_transaction()
        producer.send(topic, "fits").result(LIMIT_SECONDS)
        producer.send(topic, "x" * 5000)
        with pytest.raises(KafkaError, match="must be aborted") as caught:
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, "fits too")

    assert caught.value.error is ErrorCode.MESSAGE_TOO_LARGE
    assert read_all(broker, topic) == ["fits too"]


@pytest.mark.parametrize(
    ("record", "error"),
    [
        ({"topic": "no such topic"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"partition": 77}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"value": "x" * 3_000_000}, ErrorCode.MESSAGE_TOO_LARGE),
        ({"timestamp_ms": -5}, ErrorCode.INVALID_TIMESTAMP),
        ({"headers": [(b"not text", b"")]}, ErrorCode.INVALID_RECORD),
    ],
)
def test_transaction_whose_record_was_refused_at_once_is_not_committed(
    broker, unique, record, error
):
    """Whoever passes over the error would commit the records beside it, as if they were all."""
    topic = create(broker, unique("refused"))
    with new_producer(broker, topic) as producer:
        producer.begin_transaction()
        producer.send(topic, "beside it")
        with pytest.raises(KafkaError) as refused:
            producer.send(**{"topic": topic, "value": "b"} | record)
        with pytest.raises(KafkaError, match="must be aborted") as caught:
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, "taken")

    assert (refused.value.error, caught.value.error) == (error, error)
    assert read_all(broker, topic) == ["taken"]


def test_record_that_is_refused_outside_a_transaction_harms_none(broker, unique):
    """It belongs to none."""
    topic = create(broker, unique("outside"))
    with new_producer(broker, topic) as producer:
        with pytest.raises(KafkaError):
            producer.send(topic, "no transaction")
        with producer.transaction():
            producer.send(topic, "taken")

    assert read_all(broker, topic) == ["taken"]


@pytest.mark.ottla_settings(transaction_abort_timed_out_transaction_cleanup_interval_ms=100)
def test_transaction_whose_time_is_over_is_aborted_by_the_broker(ottla_fresh_broker):
    """The producer hears of it when it wants to go on."""
    broker = ottla_fresh_broker
    create(broker, "late")
    with new_producer(broker, "late", transaction_timeout_ms=1000) as producer:
        producer.begin_transaction()
        producer.send("late", "nobody commits this").result(LIMIT_SECONDS)
        partition = TopicPartition("late", 0)
        with Consumer(broker.bootstrap_servers, isolation_level="read_committed") as consumer:
            poll_until([], lambda: consumer.end_offsets([partition])[partition] == 2, "the marker")
        with pytest.raises(KafkaError) as caught:
            producer.commit_transaction()

    assert caught.value.error is ErrorCode.PRODUCER_FENCED
    assert read_all(broker, "late") == []


def copy(consumer, producer, crash=None) -> int:
    """Copy what one poll returns, in one transaction; how many records that was."""
    records = consumer.poll(1000)
    if not records:
        return 0
    with producer.transaction():
        for record in records:
            producer.send("target", record.value, partition=record.partition)
        if crash is not None:
            crash()
        offsets = {TopicPartition(r.topic, r.partition): r.offset + 1 for r in records}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
    return len(records)


@pytest.mark.wide
def test_copy_survives_crashes_of_the_broker(ottla_fresh_broker):
    """Killed within a transaction, and while one after the other runs: output equals input."""
    broker = ottla_fresh_broker
    create(broker, "source", 2)
    create(broker, "target", 2)
    values = [f"{number:05d}" for number in range(COPIED)]
    with Producer(broker.bootstrap_servers) as plain:
        for value in values:
            plain.send("source", value, partition=int(value) % 2)

    def crash():
        broker.kill()
        broker.start()

    restart = threading.Thread(target=crash)
    crashes = {500: crash, 1500: restart.start}
    settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    settings |= {"group_id": "copiers", "max_poll_records": 50}
    with (
        Consumer(broker.bootstrap_servers, **settings) as consumer,
        new_producer(broker, "copier") as producer,
    ):
        consumer.assign([TopicPartition("source", 0), TopicPartition("source", 1)])
        copied = 0
        while copied < COPIED:
            due = next((limit for limit in crashes if copied >= limit), None)
            copied += copy(consumer, producer, crashes.pop(due, None))
    restart.join(LIMIT_SECONDS)

    assert read_all(broker, "target") == values[0::2] + values[1::2]
    assert committed(broker, "copiers", "source") == COPIED // 2


def member_of_copiers(broker, number, is_over, failures) -> None:
    """Copy as a member of a group, going back to what is committed after each abort."""
    settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    settings |= {"enable_auto_commit": False, "heartbeat_interval_ms": 100, "max_poll_records": 50}
    try:
        with (
            Consumer(
                broker.bootstrap_servers, group_id="copiers", topics=["source"], **settings
            ) as consumer,
            new_producer(broker, f"copier-{number}") as producer,
        ):
            while not is_over.is_set():
                try:
                    copy(consumer, producer)
                except KafkaError as error:
                    if error.error not in GROUP_MOVED_ON:
                        raise
                    partitions = consumer.assignment()
                    found = consumer.committed(partitions)
                    for partition in partitions:
                        consumer.seek(
                            partition, found[partition].offset if partition in found else 0
                        )
    except Exception as failure:
        failures.append(failure)


@pytest.mark.wide
def test_copiers_share_the_work_through_a_rebalance_and_a_crash(ottla_fresh_broker):
    """Whoever has lost its partitions cannot commit them, so nothing is copied twice."""
    broker = ottla_fresh_broker
    create(broker, "source", 4)
    create(broker, "target", 4)
    with Producer(broker.bootstrap_servers) as plain:
        for number in range(SHARED):
            plain.send("source", str(number), partition=number % 4)
    is_over, failures = threading.Event(), []
    copiers = [
        threading.Thread(target=member_of_copiers, args=(broker, number, is_over, failures))
        for number in range(2)
    ]
    with Consumer(
        broker.bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as reader:
        reader.assign([TopicPartition("target", partition) for partition in range(4)])
        copiers[0].start()
        copied = read(reader, 500)
        copiers[1].start()
        copied += read(reader, 2000)
        broker.kill()
        broker.start()
        copied += read(reader, SHARED - len(copied))
        is_over.set()
        for copier in copiers:
            copier.join(LIMIT_SECONDS)
        copied += reader.poll(500)

    assert failures == []
    assert sorted(int(record.value) for record in copied) == list(range(SHARED))
