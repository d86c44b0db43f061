"""librdkafka's consumers with `group.protocol=consumer` (KIP-848) against a broker of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from members import LIMIT_SECONDS, poll_until, shares

from ottla import Admin, NewTopic, OffsetAndMetadata, TopicPartition

PARTITIONS = 6
RECORDS = 20


@pytest.fixture
def servers(start_broker):
    """A broker whose members hear soon what is new."""
    process = start_broker(
        group_consumer_min_heartbeat_interval_ms=100,
        group_consumer_heartbeat_interval_ms=100,
        offsets_topic_num_partitions=1,
    )
    return process.bootstrap_servers


class Member:
    """A consumer that notes what it reads, and what it may read."""

    def __init__(self, servers: str, group: str, *topics: str, **settings: object) -> None:
        self.read: list[tuple[str, int, int]] = []
        self.held: set[tuple[str, int]] = set()
        self.errors: list[KafkaError] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 500,
                **settings,
            }
        )
        self.consumer.subscribe(
            list(topics), on_assign=self._take, on_revoke=self._give, on_lost=self._give
        )

    def _take(self, consumer, partitions):
        self.held |= {(p.topic, p.partition) for p in partitions}

    def _give(self, consumer, partitions):
        """What has been read is committed before somebody else goes on."""
        mine = [p for p in consumer.position(partitions) if p.offset >= 0]
        if mine:
            try:
                consumer.commit(offsets=mine, asynchronous=False)
            except Exception as error:
                self.errors.append(error.args[0])
        self.held -= {(p.topic, p.partition) for p in partitions}

    def poll(self) -> None:
        message = self.consumer.poll(0.02)
        if message is None:
            return
        if message.error():
            self.errors.append(message.error())
            return
        place = (message.topic(), message.partition())
        assert place in self.held, f"{place} is not this member's"
        self.read.append((*place, message.offset()))


@pytest.fixture
def join(servers) -> Iterator[Callable[..., Member]]:
    """Makes members, and closes them while their broker is still there, also after a failure."""
    joined: list[Member] = []

    def join(group: str, *topics: str, **settings: object) -> Member:
        joined.append(Member(servers, group, *topics, **settings))
        return joined[-1]

    yield join
    for member in joined:
        member.consumer.close()


def fill(servers: str, *topics: str, partitions: int = PARTITIONS) -> None:
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(topic, partitions, 1) for topic in topics])
    producer = Producer({"bootstrap.servers": servers})
    for topic in topics:
        for number in range(RECORDS * partitions):
            producer.produce(topic, str(number), partition=number % partitions)
    assert producer.flush(LIMIT_SECONDS) == 0


def commit_beginnings(servers: str, group: str, topic: str) -> None:
    """Tell the group where the partitions begin.

    librdkafka asks for the beginning, and again if it is told of a rebalance before the answer is
    there; the timer of the answer that comes too late takes it back there half a second later.
    """
    beginnings = {
        TopicPartition(topic, number): OffsetAndMetadata(0) for number in range(PARTITIONS)
    }
    with Admin(servers) as admin:
        admin.alter_group_offsets(group, beginnings)


def everything_read(members) -> Counter:
    return Counter(record for member in members for record in member.read)


def test_members_share_topics_old_and_new(servers, join):
    """Three join one after another, topics appear, and each record is read once."""
    fill(servers, "first")
    commit_beginnings(servers, "g", "first")
    members = [join("g", "^first$", "^later.*") for _ in range(3)]
    poll_until(members, lambda: shares(members) == [2, 2, 2])

    fill(servers, "later-1", partitions=3)
    poll_until(members, lambda: shares(members) == [3, 3, 3])
    count = RECORDS * (PARTITIONS + 3)
    poll_until(members, lambda: sum(len(member.read) for member in members) >= count, "all is read")

    assert set(everything_read(members).values()) == {1}
    with Admin(servers) as admin:
        # The broker has yet to hear that the members have taken what they were given.
        poll_until(
            members,
            lambda: admin.describe_groups(["g"])["g"].state == "Stable",
            "the group is stable",
        )
        group = admin.describe_groups(["g"])["g"]
        (listed,) = admin.list_groups(types=["consumer"])
    assert (listed.group_id, listed.state) == ("g", "Stable")
    assert sum(len(member.assignment) for member in group.members) == PARTITIONS + 3
    for member in members:
        member.consumer.close()
    assert [member.errors for member in members] == [[], [], []]


def test_classic_group_goes_on_as_a_consumer_group_when_it_is_empty(servers, join):
    """Nothing is read twice: the committed offsets stay."""
    fill(servers, "t")
    classic = join("g", "t", **{"group.protocol": "classic"})
    poll_until([classic], lambda: len(classic.read) == RECORDS * PARTITIONS, "all is read")
    classic.consumer.close()
    producer = Producer({"bootstrap.servers": servers})
    producer.produce("t", "new", partition=0)
    producer.flush(LIMIT_SECONDS)

    member = join("g", "t")
    poll_until([member], lambda: bool(member.read), "all is read")

    assert member.read == [("t", 0, RECORDS)]
