"""Groups whose coordinator dies, or whose brokers are all restarted: members hardly notice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from cluster_load import ClusterView, SteadyLoad
from coordinator_places import OFFSETS, coordinator
from live_group import LiveGroup, all_read, wait_for_another

from ottla import Admin
from ottla.structs import replace

PARTITIONS = 4


def test_members_of_the_new_protocol_keep_their_epoch(cluster, view, unique):
    """Another broker coordinates them as they are: no partition moves, nothing is read twice."""
    topic, group = unique("numbers"), unique("group")
    view.create(topic, PARTITIONS)
    with (
        two_members(view, group, topic, "consumer") as members,
        SteadyLoad(cluster.bootstrap_servers, topic, PARTITIONS) as load,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        members.until_more()
        told = [len(member.assignments) for member in members.members]
        before = admin.describe_groups([group])[group]
        dead = coordinator(view, OFFSETS, group)
        cluster.kill_broker(dead)
        wait_for_another(view, group, dead)
        members.until_more()
        after = admin.describe_groups([group])[group]
        load.end()
        members.poll_until(lambda: all_read(members, load), "all is read")
        members.poll_until(lambda: all(m.commit() for m in members.members), "all is committed")

        assert after.coordinator != before.coordinator
        assert replace(after, coordinator=before.coordinator) == before
        assert [len(member.assignments) for member in members.members] == told
        for partition, numbers in load.acknowledged.items():
            assert members.read(partition) == numbers


@pytest.mark.wide
def test_rolling_restart_moves_no_partition_of_a_group(cluster, view, unique):
    """Each broker hands over and comes back; the members stay, with what they have."""
    topic, group = unique("numbers"), unique("group")
    view.create(topic, PARTITIONS)
    with (
        two_members(view, group, topic, "classic") as members,
        SteadyLoad(cluster.bootstrap_servers, topic, PARTITIONS) as load,
    ):
        members.until_more()
        told = [len(member.assignments) for member in members.members]
        for broker_id in cluster.brokers:
            assert cluster.stop_broker(broker_id) == 0
            members.until_more()
            cluster.start_broker(broker_id)
            view.until_all_in_sync(topic, list(cluster.brokers))
            view.until_all_in_sync(OFFSETS, list(cluster.brokers))
            members.until_more()
        load.end()
        members.poll_until(lambda: all_read(members, load), "all is read")

        assert [len(member.assignments) for member in members.members] == told
        for partition, numbers in load.acknowledged.items():
            assert members.read(partition) == numbers


@contextmanager
def two_members(view: ClusterView, group: str, topic: str, protocol: str) -> Iterator[LiveGroup]:
    """They share an empty topic: what they read afterwards is each one's own from the start."""
    with LiveGroup(view, group, topic, protocol) as members:
        members.join()
        members.join()
        members.until_shared()
        yield members
