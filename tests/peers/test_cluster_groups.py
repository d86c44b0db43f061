"""Groups of the Java clients and of franz-go together, while each broker is killed and stopped."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from cluster_load import SteadyLoad
from member_process import MemberProcess

from ottla import Admin, ConfigResource
from ottla.testing import wait_until

PARTITIONS = 6
SESSION_TIMEOUT_MS = 45_000
"""Longer than a busy machine holds a member up: only the deaths of brokers are tried here."""
FRANZ, JAVA, OLD_JAVA = "franz-go", "java-4.1", "java-3.9"


class PeerGroup:
    """Members that share a topic."""

    def __init__(self, members: list[MemberProcess]) -> None:
        self.members = members

    def read(self, partition: int) -> list[int]:
        return [number for m in self.members for index, number in m.read if index == partition]

    def until_shared(self) -> None:
        """Each has something, and together they have all, each partition once."""

        def is_shared() -> bool:
            held = [member.partitions for member in self.members if member.is_alive()]
            assert len(held) == len(self.members), "a member has ended"
            return all(held) and sorted(n for each in held for n in each) == list(range(PARTITIONS))

        wait_until(is_shared, "the partitions are shared")

    def until_more(self, count: int = 50) -> None:
        """Each member reads so many records more."""
        wanted = [len(member.read) + count for member in self.members]

        def has_more() -> bool:
            return all(len(m.read) >= n for m, n in zip(self.members, wanted, strict=True))

        wait_until(
            has_more,
            "each member reads on",
            seen=lambda: [member.said[-3:] for member in self.members],
        )

    def until_all_read(self, load: SteadyLoad) -> None:
        def all_read() -> bool:
            return all(
                len(set(self.read(partition))) >= len(numbers)
                for partition, numbers in load.acknowledged.items()
            )

        wait_until(all_read, "all is read")


@pytest.fixture
def start_group(cluster):
    """Starts members of a group; all leave it in the end."""
    with ExitStack() as running:

        def start(names, topic, group, protocol) -> PeerGroup:
            members = [
                running.enter_context(
                    MemberProcess(name, cluster.bootstrap_servers, topic, group, protocol)
                )
                for name in names
            ]
            return PeerGroup(members)

        yield start


@pytest.mark.parametrize(
    ("protocol", "names"),
    [("classic", (JAVA, FRANZ, OLD_JAVA)), ("consumer", (JAVA, FRANZ, JAVA))],
)
def test_members_keep_their_partitions_though_brokers_die(
    cluster, view, unique, start_group, protocol, names
):
    """Each broker is killed, then each stopped: no partition moves, each record is read once."""
    topic = unique(f"shared-{protocol}")
    view.create(topic, PARTITIONS)
    with Admin(cluster.bootstrap_servers) as admin:
        group_settings = ConfigResource.group(topic)
        admin.alter_configs(
            {group_settings: {"consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS)}}
        )
    group = start_group(names, topic, topic, protocol)
    group.until_shared()
    with SteadyLoad(cluster.bootstrap_servers, topic, PARTITIONS) as load:
        group.until_more()
        told = [member.changes for member in group.members]
        for end in (cluster.kill_broker, cluster.stop_broker):
            for broker_id in cluster.brokers:
                end(broker_id)
                group.until_more()
                cluster.start_broker(broker_id)
                for each in (topic, "__consumer_offsets"):
                    view.until_all_in_sync(each, list(cluster.brokers))
        load.end()
    group.until_all_read(load)

    assert [member.changes for member in group.members] == told
    for partition, numbers in load.acknowledged.items():
        assert group.read(partition) == numbers
