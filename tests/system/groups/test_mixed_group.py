"""Members of a group come and go: of three libraries together, and of the consumer protocol.

Those of KIP-848 are confluent-kafka's with `group.protocol=consumer`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from breadth import some

from ottla import (
    Admin,
    AlterConfigOp,
    ConfigResource,
    Consumer,
    NewTopic,
    Producer,
    TopicPartition,
)
from ottla.protocol.message import decode_versioned
from ottla.protocol.offsets_topic import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    decode_key,
)
from ottla.testing import wait_until

LIMIT_SECONDS = 90
MEMBER = Path(__file__).with_name("group_member.py")
LIBRARIES = ("confluent", "kafka-python", "aiokafka")
CONSUMER_PROTOCOL = ("consumer-protocol",) * 3
PARTITIONS = 6
SHORT_SESSION_MS, LONG_SESSION_MS = 1200, 30_000  # a member that is rolled has the long one's time


class Member:
    """A member's process, and what it has said so far."""

    def __init__(self, library: str, *words: str) -> None:
        self.said: list[dict] = []
        command = [sys.executable, str(MEMBER), library, *words]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            # The last line of a process that is killed may be half a line.
            if line.endswith("\n"):
                self.said.append(json.loads(line))

    def all(self, what: str) -> list:
        return [each[what] for each in list(self.said) if what in each]

    def records(self, what: str) -> list[tuple[int, int]]:
        return [tuple(record) for records in self.all(what) for record in records]

    def end(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        self.process.wait(LIMIT_SECONDS)
        self._reader.join(LIMIT_SECONDS)
        self.process.stdout.close()


class Group:
    """A topic that is written to while members of a group read it."""

    def __init__(self, broker, topic: str) -> None:
        self.broker = broker
        self.topic = topic
        self.sent = 0
        self.members: list[Member] = []
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
        self.producer = Producer(broker.bootstrap_servers)

    def give_sessions(self, session_ms: int) -> None:
        """The coordinator says how long those of members of the consumer protocol are."""
        settings = {
            "consumer.session.timeout.ms": session_ms,
            "consumer.heartbeat.interval.ms": 200,
        }
        changes = [AlterConfigOp(name, str(value)) for name, value in settings.items()]
        with Admin(self.broker.bootstrap_servers) as admin:
            admin.incremental_alter_configs({ConfigResource.group("mixed"): changes})

    def join(self, library: str, instance: str = "") -> Member:
        session_ms = LONG_SESSION_MS if instance else SHORT_SESSION_MS
        words = (self.broker.bootstrap_servers, self.topic, "mixed", str(session_ms), instance)
        self.members.append(Member(library, *words))
        return self.members[-1]

    def write_until(self, condition, what) -> None:
        """Go on writing to all partitions until the condition holds."""

        def written() -> object:
            if found := condition():
                return found
            for partition in range(PARTITIONS):
                self.producer.send(self.topic, b"v", partition=partition)
            self.producer.flush()
            self.sent += 1
            return None  # the pause leaves the processors to the members

        wait_until(written, what, LIMIT_SECONDS, seen=self.last_words)

    def wait(self, condition, what) -> None:
        wait_until(condition, what, LIMIT_SECONDS, seen=self.last_words)

    def last_words(self) -> list[list[dict]]:
        return [member.said[-3:] for member in self.members]

    @property
    def everything(self) -> set[tuple[int, int]]:
        return {(p, offset) for p in range(PARTITIONS) for offset in range(self.sent)}

    def stall(self, *members: Member) -> None:
        """Let members stall until the coordinator has given up on them."""
        for member in members:
            member.process.send_signal(signal.SIGUSR1)
        gone = {str(member.process.pid) for member in members}
        with Admin(self.broker.bootstrap_servers) as admin:
            self.write_until(
                lambda: gone.isdisjoint(
                    each.client_id for each in admin.describe_groups(["mixed"])["mixed"].members
                ),
                "the coordinator gives up on the members that stall",
            )
        for member in members:
            member.process.send_signal(signal.SIGUSR2)

    def read(self) -> set[tuple[int, int]]:
        return {record for member in self.members for record in member.records("read")}

    def committed(self) -> list[tuple[int, int]]:
        return [record for member in self.members for record in member.records("committed")]

    @property
    def generations(self) -> list[int]:
        """Those that the coordinator has written down, or epochs, in order."""
        partition = TopicPartition("__consumer_offsets", 0)
        with Consumer(self.broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([partition])
            (end,) = consumer.end_offsets([partition]).values()
            found = []
            while consumer.position(partition) < end:
                for record in consumer.poll(1000):
                    key = decode_key(record.key)
                    if record.value and isinstance(key, GroupMetadataKey):
                        found.append(decode_versioned(GroupMetadataValue, record.value).generation)
                    elif record.value and isinstance(key, ConsumerGroupMetadataKey):
                        value = decode_versioned(ConsumerGroupMetadataValue, record.value)
                        found.append(value.epoch)
        return found

    def close(self) -> None:
        for member in self.members:
            if member.process.poll() is None:
                member.end()
        self.producer.close()


@pytest.fixture
def group(start_broker):
    """With a broker of its own, whose groups may have short sessions."""
    broker = start_broker(
        group_min_session_timeout_ms=500,
        group_consumer_min_session_timeout_ms=500,
        group_consumer_min_heartbeat_interval_ms=200,
        offsets_topic_num_partitions=1,
    )
    group = Group(broker, "mixed")
    yield group
    group.close()


def works(member):
    """Whether a member has committed something since now."""
    before = len(member.all("committed"))
    return lambda: len(member.all("committed")) > before


@pytest.mark.parametrize("libraries", some([LIBRARIES, CONSUMER_PROTOCOL]))
def test_no_record_is_lost_or_committed_twice_while_members_come_and_go(group, libraries):
    """Each stalls until its group goes on without it, and one is killed."""
    group.give_sessions(SHORT_SESSION_MS)
    members = [group.join(library) for library in libraries]
    for member in members:
        group.write_until(works(member), "the member works")
    group.stall(*members[:2])
    for member in members[:2]:
        group.write_until(lambda member=member: member.all("refused"), "a refused commit")
        group.write_until(works(member), "the member works")
    members[0].end()
    members.append(group.join(libraries[0]))
    group.stall(members[2])
    group.write_until(lambda: members[2].all("refused"), "a refused commit")
    for member in members[1:]:
        group.write_until(works(member), "the member works")
    group.wait(lambda: group.read() >= group.everything, "all is read")
    committed = group.committed()

    assert group.read() == group.everything
    assert len(committed) == len(set(committed))
    generations = group.generations
    assert generations == sorted(generations)


@pytest.mark.parametrize("libraries", [LIBRARIES, CONSUMER_PROTOCOL])
def test_static_members_are_rolled_without_a_rebalance(group, libraries):
    """Each ends and comes back under its name: the generation stays, and so do all others."""
    group.give_sessions(LONG_SESSION_MS)
    names = [f"static-{number}" for number in range(len(libraries))]
    members = [group.join(*member) for member in zip(libraries, names, strict=True)]
    for member in members:
        group.write_until(works(member), "the member works")
    group.write_until(lambda: [shares(member) for member in members] == [2, 2, 2], "even shares")
    generation = group.generations[-1]
    for number, member in enumerate(members):
        member.end(signal.SIGTERM)
        members[number] = group.join(libraries[number], names[number])
        group.write_until(works(members[number]), "the member works")
    group.wait(lambda: group.read() >= group.everything, "all is read")

    assert group.generations[-1] == generation
    assert [shares(member) for member in members] == [2, 2, 2]
    committed = group.committed()
    assert len(committed) == len(set(committed))


def shares(member) -> int:
    """How many partitions a member has."""
    return member.all("assigned")[-1]
