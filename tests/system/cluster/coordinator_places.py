"""Which broker coordinates a group or a transactional id."""

from __future__ import annotations

from cluster_load import ClusterView

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


def java_partition(key: str, count: int) -> int:
    """Where Kafka keeps a group or a transactional id."""
    code = 0
    for character in key:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    signed = code - 2**32 if code >= 2**31 else code
    return abs(signed) % count


def coordinator(view: ClusterView, topic: str, key: str) -> int:
    """The broker that coordinates a group or an id, -1 while there is none."""
    leaders = view.leaders(topic)
    return leaders[java_partition(key, len(leaders))] if leaders else -1
