"""A group of confluent-kafka consumers changes its protocol, member by member, and back again."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from ottla import Admin, AlterConfigOp, ConfigResource, NewTopic
from ottla.testing import wait_until

LIMIT_SECONDS = 90
PARTITIONS = 6
ROUND = 10
CLASSIC = {"group.protocol": "classic", "session.timeout.ms": 30_000, "heartbeat.interval.ms": 100}
CONSUMER = {"group.protocol": "consumer"}


class Member:
    """A consumer that commits what it has read before it gives a partition up, or leaves.

    librdkafka ends the consumption before it says what is revoked if it is closed while an
    assignment waits to be told: there are no positions any more then. So one commits, and closes.
    """

    def __init__(self, servers: str, settings: dict) -> None:
        self.read: list[tuple[int, int]] = []
        self.held: set[int] = set()
        self.lost: list[KafkaException | int] = []
        self.is_closing = False
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "rolled",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings,
            }
        )
        self.consumer.subscribe(
            ["rolled"], on_assign=self._take, on_revoke=self._give, on_lost=self._lose
        )

    def _take(self, consumer, partitions):
        self.held |= {p.partition for p in partitions}

    def _give(self, consumer, partitions):
        mine = [p for p in consumer.position(partitions) if p.offset >= 0]
        if mine and not self.is_closing:
            try:
                consumer.commit(offsets=mine, asynchronous=False)
            except KafkaException as error:
                self.lost.append(error)
        self.held -= {p.partition for p in partitions}

    def _lose(self, consumer, partitions):
        self.lost += [p.partition for p in partitions]
        self.held -= {p.partition for p in partitions}

    def close(self) -> None:
        wait_until(
            lambda: not self.held or self._is_committed(),
            "its offsets to be committed",
            LIMIT_SECONDS,
            seen=lambda: sorted(self.held),
            meanwhile=self.poll,  # it may have to join again first
        )
        self.is_closing = True
        self.consumer.close()

    def _is_committed(self) -> bool:
        mine = [p for p in self.consumer.position(self.consumer.assignment()) if p.offset >= 0]
        try:
            return not mine or bool(self.consumer.commit(offsets=mine, asynchronous=False))
        except KafkaException:
            return False

    def poll(self) -> None:
        message = self.consumer.poll(0.01)
        if message is not None and message.error() is None:
            self.read.append((message.partition(), message.offset()))


class RollingGroup:
    """A topic that is written to, and the members that read it, those of the past as well."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.sent = 0
        self.members: list[Member] = []
        self.past: list[Member] = []
        with Admin(servers) as admin:
            admin.create_topics([NewTopic("rolled", PARTITIONS, 1)])
        self.producer = Producer({"bootstrap.servers": servers})

    def write(self) -> None:
        for number in range(ROUND * PARTITIONS):
            self.producer.produce("rolled", b"v", partition=number % PARTITIONS)
        assert self.producer.flush(LIMIT_SECONDS) == 0
        self.sent += ROUND

    def poll_until(self, condition, what) -> None:
        """No partition has two holders meanwhile."""

        def poll() -> None:
            for member in self.members:
                member.poll()
            held = Counter(partition for member in self.members for partition in member.held)
            assert not held or max(held.values()) == 1

        wait_until(
            condition,
            what,
            LIMIT_SECONDS,
            seen=lambda: [sorted(m.held) for m in self.members],
            meanwhile=poll,
        )

    def settle(self) -> None:
        """All partitions have holders, even shares, and everything has been read."""
        self.poll_until(
            lambda: (
                {len(m.held) for m in self.members} == {PARTITIONS // len(self.members)}
                and sum(self.read.values()) >= self.sent * PARTITIONS
            ),
            "even shares, and everything read",
        )

    @property
    def read(self) -> Counter:
        return Counter(record for member in [*self.members, *self.past] for record in member.read)

    def roll(self, settings: dict) -> None:
        """Replace each member by one with other settings, while records keep coming."""
        for member in list(self.members):
            self.write()
            self.members.remove(member)
            member.close()
            self.past.append(member)
            self.members.append(Member(self.servers, settings))
            self.write()
            self.settle()

    @property
    def type(self) -> str:
        with Admin(self.servers) as admin:
            (listed,) = [each for each in admin.list_groups() if each.group_id == "rolled"]
        return listed.type

    def close(self) -> None:
        for member in self.members:
            member.consumer.close()


@pytest.fixture
def group(start_broker):
    process = start_broker(
        group_consumer_min_heartbeat_interval_ms=100,
        group_initial_rebalance_delay_ms=0,
        offsets_topic_num_partitions=1,
    )
    group = RollingGroup(process.bootstrap_servers)
    resource = ConfigResource.group("rolled")
    key = "consumer.heartbeat.interval.ms"
    with Admin(group.servers) as admin:
        admin.incremental_alter_configs({resource: [AlterConfigOp(key, "100")]})
        assert admin.describe_configs([resource])[resource][key].value == "100"
    yield group
    group.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_rolling_upgrade_and_downgrade_deliver_each_record_once(group, strategy):
    """Three members change to the consumer protocol and back; nothing is lost or read twice."""
    classic = {**CLASSIC, "partition.assignment.strategy": strategy}
    group.members += [Member(group.servers, classic) for _ in range(3)]
    group.write()
    group.settle()
    assert group.type == "classic"

    group.roll(CONSUMER)
    assert group.type == "consumer"
    group.roll(classic)
    group.poll_until(lambda: group.type == "classic", "the group is a classic one")
    group.write()
    group.settle()

    everything = {(p, offset) for p in range(PARTITIONS) for offset in range(group.sent)}
    assert group.read == Counter(everything)
    assert [lost for member in [*group.members, *group.past] for lost in member.lost] == []
