"""Which replica a consumer is to read from (KIP-392): the leader, or one in its own rack."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.replication.exchange import NO_REPLICA
from ottla.replication.partition_leader import PartitionLeader
from ottla.structs import Node


def replica_in_rack(
    leading: PartitionLeader, rack: str, fetch_offset: int, brokers: Mapping[int, Node]
) -> int:
    """The follower in a consumer's rack that has come furthest; -1 if the leader is as near.

    Only one in sync that has the wanted offset will do: its readers would fall behind with another.
    """
    leader = brokers.get(leading.broker_id)
    if not rack or (leader is not None and leader.rack == rack):
        return NO_REPLICA
    near = [
        replica
        for replica in leading.followers.values()
        if replica.broker_id in leading.in_sync.committed
        and replica.broker_id in brokers
        and brokers[replica.broker_id].rack == rack
        and replica.log_start_offset <= fetch_offset <= replica.log_end_offset
    ]
    if not near:
        return NO_REPLICA
    best = max(near, key=lambda each: (each.log_end_offset, each.last_caught_up_ms))
    return best.broker_id
