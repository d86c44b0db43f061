"""The calls of `ottla.Admin` about transactions, against a real broker."""

from __future__ import annotations

import pytest

from ottla import Admin, KafkaError, NewTopic, Producer, TopicPartition
from ottla.clients.admin.transactions import (
    HangingTransaction,
    OpenTransaction,
    ProducerDescription,
    TransactionDescription,
)
from ottla.errors import ErrorCode


@pytest.fixture
def admin(broker):
    """An admin client of the shared broker."""
    with Admin(broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def partition(admin, unique):
    """The first partition of a topic with two."""
    name = unique("admin-transactions")
    admin.create_topics([NewTopic(name, 2, 1)])
    return TopicPartition(name, 0)


@pytest.fixture
def producer(broker, partition):
    """A producer with an open transaction: a record in the partition."""
    with Producer(broker.bootstrap_servers, transactional_id=f"id-{partition.topic}") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(partition.topic, b"v", partition=0).result(60)
        yield producer


def stable_offset(admin, partition):
    """Up to where readers of committed data see."""
    return admin.list_offsets({partition: -1}, "read_committed")[partition].offset


def test_open_transaction_is_listed_and_described(admin, partition, producer):
    """Each filter finds it, at its coordinator and at the partition's leader."""
    name = f"id-{partition.topic}"
    (described,) = admin.describe_transactions([name]).values()
    (writer,) = admin.describe_producers([partition])[partition]

    listed = admin.list_transactions(id_pattern=f"{name}")
    assert [(each.transactional_id, each.state) for each in listed] == [(name, "Ongoing")]
    assert admin.list_transactions(producer_ids=[described.producer_id]) == listed
    assert not admin.list_transactions(["Empty"], id_pattern=name)
    assert not admin.list_transactions(longer_than_ms=10**9)
    assert (described.state, described.partitions) == ("Ongoing", {partition})
    assert described.start_ms
    assert writer[:2] == (described.producer_id, described.producer_epoch)
    assert writer.transaction_start_offset == 0
    assert admin.describe_producers([partition], 0)[partition] == [writer]


def test_open_transaction_is_that_of_its_coordinator_only_with_its_partition():
    """It hangs where the coordinator knows none, or one in other partitions."""
    written = TopicPartition("t", 0)
    found = OpenTransaction(written, ProducerDescription(7, 0, 0, 0, 0, 0))
    other, same = (
        TransactionDescription(1, "Ongoing", 7, 0, 60_000, 0, frozenset({TopicPartition("t", n)}))
        for n in (1, 0)
    )

    assert not found.is_of(None)
    assert not found.is_of(other)
    assert found.is_of(same)


def test_ids_and_partitions_that_do_not_exist_are_refused(admin, partition):
    """Each with Kafka's error."""
    with pytest.raises(KafkaError) as unknown:
        admin.describe_transactions(["nobody"])
    assert unknown.value.error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    with pytest.raises(KafkaError) as missing:
        admin.describe_producers([TopicPartition(partition.topic, 9)])
    assert missing.value.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError) as invalid:
        admin.list_transactions(id_pattern="(")
    assert invalid.value.error is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_transaction_is_aborted_without_its_coordinator(admin, partition, producer):
    """A marker in the partition lets readers of committed data go on."""
    assert stable_offset(admin, partition) == 0
    (writer,) = admin.describe_producers([partition])[partition]
    epoch = writer.coordinator_epoch
    with pytest.raises(KafkaError) as fenced:
        admin.abort_transaction(HangingTransaction(partition, writer.producer_id, -1, epoch))
    assert fenced.value.error is ErrorCode.INVALID_PRODUCER_EPOCH
    admin.abort_transaction(HangingTransaction(partition, *writer[:2], epoch))

    assert stable_offset(admin, partition) == 2
    (writer,) = admin.describe_producers([partition])[partition]
    assert writer.transaction_start_offset is None


def test_fenced_producer_cannot_commit_any_more(admin, partition, producer):
    """Its open transaction is aborted."""
    name = f"id-{partition.topic}"
    ((producer_id, epoch),) = admin.fence_producers([name]).values()

    described = admin.describe_transactions([name])[name]
    assert (described.producer_id, described.producer_epoch) == (producer_id, epoch)
    assert described.state == "Empty"
    with pytest.raises(KafkaError) as fenced:
        producer.commit_transaction()
    assert fenced.value.error is ErrorCode.PRODUCER_FENCED
    assert stable_offset(admin, partition) == 2


def test_group_forgets_committed_offsets(admin, partition):
    """Some of them; partitions that were not committed do not matter."""
    second = TopicPartition(partition.topic, 1)
    group = f"group-{partition.topic}"
    admin.alter_group_offsets(group, {partition: 3, second: 4})
    admin.delete_group_offsets(group, [partition])

    assert {tp: each.offset for tp, each in admin.list_group_offsets(group).items()} == {second: 4}
    with pytest.raises(KafkaError) as unknown:
        admin.delete_group_offsets("nobody", [partition])
    assert unknown.value.error is ErrorCode.GROUP_ID_NOT_FOUND
