"""Members of a group that read numbers while brokers come and go."""

from __future__ import annotations

import json
from itertools import chain

from cluster_load import LIMIT_S, QUIET, ClusterView, SteadyLoad
from confluent_kafka import Consumer, KafkaError, KafkaException
from coordinator_places import OFFSETS, coordinator

from ottla.testing import wait_until

SESSION_MS = 10_000


class Member:
    """A consumer, what it has read by partition, and how often it was told what is its own."""

    def __init__(self, servers: str, group: str, topic: str, protocol: str) -> None:
        settings = {"group.protocol": protocol}
        if protocol == "classic":
            settings |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 300}
        self.assignments: list[list[int]] = []
        self.read: list[tuple[int, int]] = []
        self.commit_error = ""
        self._statistics = ""
        self.consumer = Consumer(
            {
                "statistics.interval.ms": 1_000,
                "stats_cb": self._on_statistics,
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                # Questions that wait for a dead broker are given up long before the test is.
                "socket.timeout.ms": SESSION_MS,
                **settings,
                **QUIET,
            }
        )
        self.consumer.subscribe([topic], on_assign=self._on_assign)

    def _on_assign(self, _: Consumer, partitions) -> None:
        self.assignments.append(sorted(each.partition for each in partitions))

    def _on_statistics(self, text: str) -> None:
        self._statistics = text

    def states(self) -> list[str]:
        """How far librdkafka is with each partition that it reads, and what it waits for.

        The last line is the error of the last commit, if it had one.
        """
        topics = json.loads(self._statistics or '{"topics": {}}')["topics"].values()
        return [
            f"{number}: {each['fetch_state']} from {each['broker']} (leader {each['leader']}) at "
            f"{each['next_offset']}, epoch {each['leader_epoch']}, end {each['hi_offset']}"
            for topic in topics
            for number, each in topic["partitions"].items()
            if each["fetch_state"] != "none"
        ] + [self.commit_error] * bool(self.commit_error)

    def poll(self) -> None:
        for message in self.consumer.consume(500, 0.05):
            if message.error() is None:
                self.read.append((message.partition(), int(message.value())))

    def commit(self) -> bool:
        """Whether what was read is committed, now or by an earlier attempt."""
        try:
            self.consumer.commit(asynchronous=False)
        except KafkaException as error:
            self.commit_error = str(error)
            return error.args[0].code() == KafkaError._NO_OFFSET
        self.commit_error = ""
        return True


class LiveGroup:
    """Members of one group, polled in turn."""

    def __init__(self, view: ClusterView, group: str, topic: str, protocol: str = "classic"):
        self.group, self.topic, self.protocol = group, topic, protocol
        self.servers = view.bootstrap_servers
        self.members: list[Member] = []
        self.partitions: list[int] = []

        def has_partitions() -> list[int]:
            self.partitions = sorted(view.leaders(topic))
            return self.partitions

        wait_until(has_partitions, f"the broker that is asked has heard of {topic}")

    def __enter__(self) -> LiveGroup:
        return self

    def __exit__(self, *exc: object) -> None:
        for member in self.members:
            member.consumer.close()

    def join(self) -> Member:
        self.members.append(Member(self.servers, self.group, self.topic, self.protocol))
        return self.members[-1]

    def poll_until(self, condition, what: str, limit_s: float = LIMIT_S) -> None:
        """All members read until the condition holds."""

        def polled() -> bool:
            for member in self.members:
                member.poll()
            return condition()

        wait_until(polled, what, limit_s, seen=lambda: [each.states() for each in self.members])

    def until_shared(self) -> None:
        """Each member has partitions, and together they have each partition once."""

        def is_shared() -> bool:
            shares = [[p.partition for p in m.consumer.assignment()] for m in self.members]
            return all(shares) and sorted(chain(*shares)) == self.partitions

        self.poll_until(is_shared, "each member has partitions")

    def until_more(self, count: int = 50) -> None:
        """Each member reads so many numbers more."""
        wanted = [len(member.read) + count for member in self.members]

        def has_more() -> bool:
            return all(len(m.read) >= n for m, n in zip(self.members, wanted, strict=True))

        self.poll_until(has_more, "each member reads on")

    def read(self, partition: int) -> list[int]:
        """What the members have read of a partition, in order if it was nobody else's."""
        return [number for m in self.members for index, number in m.read if index == partition]


def wait_for_another(view: ClusterView, group: str, dead: int) -> None:
    wait_until(lambda: coordinator(view, OFFSETS, group) not in (dead, -1), "another coordinator")


def all_read(members: LiveGroup, load: SteadyLoad) -> bool:
    return all(
        len(set(members.read(partition))) == len(numbers)
        for partition, numbers in load.acknowledged.items()
    )
