"""The Java client's consumers of KIP-848 share a group."""

from __future__ import annotations

import pytest
from peer_program import PeerProgram

from ottla import Admin, NewTopic

COUNT = 300
PARTITIONS = 3


@pytest.fixture
def servers(start_broker):
    """A broker with short heartbeats, so that members find their partitions soon."""
    process = start_broker(
        group_consumer_min_heartbeat_interval_ms=200, group_consumer_heartbeat_interval_ms=200
    )
    with Admin(process.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])
    return process.bootstrap_servers


@pytest.mark.parametrize("name", ["java-4.1"])
def test_two_members_share_and_go_on(servers, name):
    """Each record once, also after the members have been away."""
    peer = PeerProgram(name)
    for tag in ("first", "second"):
        with peer.consuming(servers, "t", "g", str(COUNT), "consumer") as received:
            peer.run("produce", servers, "t", "none", tag, str(COUNT))

        assert len(received) == COUNT
        assert {record["value"].split()[0] for record in received} == {tag}
    with Admin(servers) as admin:
        group = admin.describe_groups(["g"])["g"]
    assert (group.state, group.members) == ("Empty", [])
    assert group.group_epoch is not None
