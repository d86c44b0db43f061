"""Copies whose topics, of either side, are deleted, made again, or other ones than before."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from first_design_client import LIMIT_S, SETTINGS, RawClient, feature

import ottla
from ottla.errors import ErrorCode
from ottla.extensions.first_design.topic_copies import PartitionCopy
from ottla.structs import TopicPartition
from ottla.testing import InProcessBroker, MemoryDisk, wait_until

FIRST = [b"first-%d" % number for number in range(4)]
SECOND = [b"second-%d" % number for number in range(4)]
OTHERS = [b"other-0", b"other-1"]


def copying(*copies: str, disk: MemoryDisk | None = None) -> InProcessBroker:
    return InProcessBroker(disk=disk, **SETTINGS, first_design_copied_topics=",".join(copies))


def send(broker: InProcessBroker, messages: list[bytes], topic: bytes = b"pages") -> None:
    with RawClient(broker) as client:
        client.produce(*messages, topic=topic)


def write(broker: InProcessBroker, topic: str, values: list[bytes]) -> None:
    """Records of others."""
    with ottla.Producer(broker.bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, value, partition=0).result(LIMIT_S)


def records(broker: InProcessBroker, topic: str, count: int) -> list[bytes]:
    """All records of a topic, once there are so many."""
    where = TopicPartition(topic, 0)
    found: list[bytes] = []

    def end() -> int:
        partition = broker.broker.replica_manager.partitions.get(where)
        return 0 if partition is None else partition.log.log_end_offset

    wait_until(lambda: end() >= count, f"{count} records of {topic}", LIMIT_S)
    with ottla.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([where])
        wait_until(
            lambda: consumer.position(where) >= end(),
            "the end",
            LIMIT_S,
            meanwhile=lambda: found.extend(each.value for each in consumer.poll(200)),
        )
    return found


def test_deleted_topic_of_today_is_made_again_before_another_message_comes():
    """A copy that has nothing to do notices it."""
    with copying("pages:today") as broker, ottla.Admin(broker.bootstrap_servers) as admin:
        send(broker, FIRST)
        records(broker, "today", len(FIRST))
        admin.delete_topics(["today"])
        assert records(broker, "today", len(FIRST)) == FIRST


@pytest.mark.parametrize("deleted", range(len(OTHERS) + 1))
@pytest.mark.parametrize("target", ["today", "tomorrow"])
def test_another_topic_of_today_gets_all_messages_behind_the_records_that_it_has(target, deleted):
    """What the checkpoint says is of the topic before it: also where retention was in this one."""
    broker = copying("pages:today")
    with broker:
        send(broker, FIRST)
        records(broker, "today", len(FIRST))
    broker = InProcessBroker(disk=broker.disk, **SETTINGS)
    with broker, ottla.Admin(broker.bootstrap_servers) as admin:
        admin.delete_topics(["today"])
        wait_until(lambda: "today" not in admin.list_topics(), "the deletion", LIMIT_S)
        write(broker, target, OTHERS)
        admin.delete_records({TopicPartition(target, 0): deleted})
    with copying(f"pages:{target}", disk=broker.disk) as broker:
        send(broker, SECOND)
        expected = [*OTHERS[deleted:], *FIRST, *SECOND]
        assert records(broker, target, len(OTHERS + FIRST + SECOND)) == expected


@pytest.mark.parametrize("count", [1, len(FIRST), 9])
@pytest.mark.parametrize("deleted", [0, len(FIRST)])
def test_log_that_was_made_again_is_copied_behind_the_records_of_the_earlier_one(
    count, deleted, caplog
):
    """Whether it is shorter, as long, or longer; and whether their headers are there or not."""
    broker = copying("pages:today")
    with broker, ottla.Admin(broker.bootstrap_servers) as admin:
        send(broker, FIRST)
        records(broker, "today", len(FIRST))
        admin.delete_records({TopicPartition("today", 0): deleted})
        directory = feature(broker).logs.logs["pages", 0].directory
    broker.disk.remove_tree(directory)
    again = [b"again-%d" % number for number in range(count)]
    with broker:
        send(broker, again)
        records(broker, "today", len(FIRST) + count)
    with broker:
        send(broker, SECOND)
        expected = FIRST[deleted:] + again + SECOND
        assert records(broker, "today", len(FIRST + SECOND) + count) == expected
    assert caplog.text.count("pages_0 was made again") == 1


def test_topic_whose_name_another_copy_has_is_not_copied_into_it(caplog):
    """Their ids would be taken for each other's."""
    with copying("*", "pages:clicks") as broker:
        for _ in range(2):
            send(broker, OTHERS, b"clicks")
            send(broker, FIRST)
        assert records(broker, "clicks", 2 * len(FIRST)) == 2 * FIRST
    assert caplog.text.count("clicks is not copied") == 1


@pytest.mark.parametrize("known", range(3))
def test_topic_is_not_left_to_others_while_its_followers_are_not_known(known):
    """The controller may know them already, and would let any of them lead."""
    made = []

    async def create_topic(name, assignment=None):
        made.append(assignment)

    broker = SimpleNamespace(
        broker_id=7,
        cache=SimpleNamespace(brokers=[7, *range(known)]),
        config=SimpleNamespace(default_replication_factor=3),
        create_topic=create_topic,
        link=SimpleNamespace(create_topic=create_topic),
    )
    source = SimpleNamespace(topic_partition=TopicPartition("pages", 0))
    logs = SimpleNamespace(partition_count=lambda topic: 2)
    copy = PartitionCopy(broker, logs, source, TopicPartition("today", 0), asyncio.Semaphore())
    if known < 2:
        with pytest.raises(ottla.KafkaError, match="needs 2 other brokers") as raised:
            asyncio.run(copy._make_topic())
        assert raised.value.error is ErrorCode.INVALID_REPLICATION_FACTOR
        assert not made
    else:
        asyncio.run(copy._make_topic())
        assert made == [{0: (7, 0, 1), 1: (7, 1, 0)}]
