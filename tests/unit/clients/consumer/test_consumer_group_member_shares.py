"""`ottla.Consumer` with group.protocol=consumer (KIP-848), against a broker of its own."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from members import LIMIT_SECONDS, poll_until, shares

from ottla import Admin, AlterConfigOp, ConfigResource, Consumer, NewTopic, Producer, TopicPartition
from ottla.errors import ConfigError, KafkaError
from ottla.testing import wait_until

PARTITIONS = 6


pytestmark = pytest.mark.ottla_settings(
    group_consumer_min_heartbeat_interval_ms=50,
    group_consumer_heartbeat_interval_ms=50,
)


@pytest.fixture
def servers(ottla_fresh_broker):
    """The address of a broker whose groups send heartbeats often."""
    return ottla_fresh_broker.bootstrap_servers


class Member:
    """A consumer that commits what it has read before it gives a partition up; a listener."""

    def __init__(self, servers: str, **settings: object) -> None:
        self.read: list[tuple[int, int]] = []
        self.held: set[TopicPartition] = set()
        self.lost: list[TopicPartition] = []
        defaults = {
            "group_id": "g",
            "group_protocol": "consumer",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "metadata_max_age_ms": 500,
        }
        self.consumer = Consumer(servers, **{**defaults, **settings})
        self.consumer.subscribe(["t"], listener=self)

    def on_partitions_assigned(self, partitions):
        self.held |= set(partitions)

    def on_partitions_revoked(self, partitions):
        self.consumer.commit()
        self.held -= set(partitions)

    def on_partitions_lost(self, partitions):
        self.lost += partitions
        self.held -= set(partitions)

    def poll(self) -> None:
        for record in self.consumer.poll(20):
            assert TopicPartition(record.topic, record.partition) in self.held
            self.read.append((record.partition, record.offset))


def fill(servers: str, count: int, topic: str = "t") -> None:
    with Producer(servers) as producer:
        for number in range(count * PARTITIONS):
            producer.send(topic, b"v", partition=number % PARTITIONS)


def reads(members) -> Counter:
    return Counter(record for member in members for record in member.read)


def test_members_share_come_and_go(servers):
    """Each record is read once while one joins, one leaves and the topic grows."""
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])
    fill(servers, 10)
    a, b = Member(servers), Member(servers)
    poll_until([a], lambda: len(a.read) > 0, "all is read")
    poll_until([a, b], lambda: shares([a, b]) == [3, 3])
    fill(servers, 10)
    poll_until([a, b], lambda: sum(reads([a, b]).values()) == 20 * PARTITIONS, "all is read")

    b.consumer.commit()
    b.consumer.close()
    fill(servers, 10)
    poll_until([a], lambda: shares([a]) == [6] and len(a.read) + len(b.read) == 30 * PARTITIONS)
    assert set(reads([a, b]).values()) == {1}
    assert a.lost == b.lost == []

    with Admin(servers) as admin:
        admin.create_partitions({"t": PARTITIONS + 2})
    poll_until([a], lambda: shares([a]) == [8])
    a.consumer.close()


def test_classic_and_consumer_members_of_this_library_share_a_group(servers):
    """The group changes its protocol below them; each record is read once."""
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])
    fill(servers, 10)
    classic = {"group_protocol": "classic", "heartbeat_interval_ms": 100}
    old, new = Member(servers, **classic), Member(servers)
    poll_until([old], lambda: shares([old]) == [6])
    poll_until([old, new], lambda: shares([old, new]) == [3, 3])
    fill(servers, 10)
    poll_until(
        [old, new], lambda: sum(reads([old, new]).values()) == 20 * PARTITIONS, "all is read"
    )
    new.consumer.commit()
    new.consumer.close()
    poll_until([old], lambda: shares([old]) == [6])
    fill(servers, 10)
    poll_until([old], lambda: sum(reads([old, new]).values()) == 30 * PARTITIONS, "all is read")
    assert set(reads([old, new]).values()) == {1}
    old.consumer.close()


def test_static_member_keeps_its_partitions_over_a_restart(servers):
    """Nobody else gets them meanwhile, and offsets go on where they were committed."""
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])
        key = "consumer.session.timeout.ms"
        group = ConfigResource.group("g")
        admin.incremental_alter_configs({group: [AlterConfigOp(key, "50000")]})
    fill(servers, 5)
    a, b = (Member(servers, group_instance_id=name) for name in ("ia", "ib"))
    poll_until([a, b], lambda: shares([a, b]) == [3, 3] and sum(reads([a, b]).values()) == 30)
    held = set(b.held)
    b.consumer.commit()
    b.consumer.close()
    fill(servers, 5)
    c = Member(servers, group_instance_id="ib")
    poll_until([a, c], lambda: sum(reads([a, b, c]).values()) == 60, "all is read")

    assert c.held == held
    assert set(reads([a, b, c]).values()) == {1}
    for member in (a, c):
        member.consumer.close()


def test_member_that_polls_too_rarely_loses_its_partitions(servers):
    """Its listener hears that they are lost, its commit is refused, and it can go on."""
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])
    a, b = Member(servers, max_poll_interval_ms=3000), Member(servers)
    poll_until([a, b], lambda: shares([a, b]) == [3, 3])
    lost_before = len(a.lost)
    wait_until(
        lambda: len(b.held) == PARTITIONS,
        "all partitions for the member that polls",
        LIMIT_SECONDS,
        seen=lambda: b.held,
        meanwhile=b.poll,
    )
    with pytest.raises(KafkaError):
        a.consumer.commit({TopicPartition("t", 0): 0})

    poll_until([a], lambda: len(a.lost) == lost_before + 3, "the partitions are lost")
    poll_until([a, b], lambda: shares([a, b]) == [3, 3])
    for member in (a, b):
        member.consumer.close()


def test_pattern_follows_topics_that_come(servers):
    """The names that fit are sent to the broker as they become known."""
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("ta", 1, 1)])
        member = Member(servers)
        member.consumer.unsubscribe()
        member.consumer.subscribe(pattern=re.compile("t[ab]"), listener=member)
        poll_until([member], lambda: member.held == {TopicPartition("ta", 0)})
        admin.create_topics([NewTopic("tb", 1, 1), NewTopic("tc", 1, 1)])
        names = {TopicPartition("ta", 0), TopicPartition("tb", 0)}
        poll_until([member], lambda: member.held == names)
    member.consumer.close()


@pytest.mark.parametrize("key", ["session_timeout_ms", "heartbeat_interval_ms"])
def test_settings_of_the_classic_protocol_are_refused(key):
    """The broker decides about them, per group."""
    with pytest.raises(ConfigError, match=key.replace("_", ".")):
        Consumer("localhost:1", group_id="g", group_protocol="consumer", **{key: 9000})
