"""The health of a broker: whether it serves its partitions."""

from __future__ import annotations

from ottla.server.membership import BrokerState
from ottla.server.parts import Parts


def why_not_ready(broker: Parts) -> str | None:
    """Why the broker is not ready for clients; None if it is.

    It is ready while it runs, is registered, and leads its partitions of the cluster's metadata.
    """
    if broker.state is not BrokerState.RUNNING:
        doing = "starting" if broker.state < BrokerState.RUNNING else "stopping"
        return f"the broker is {doing} ({broker.state.name})"
    if not broker.membership.is_registered:
        return "the broker is not registered: it has no session at the registry"
    partitions = broker.replica_manager.partitions
    for topic in broker.cache.topics():
        for state in topic.partitions.values():
            if state.leader == broker.broker_id:
                partition = partitions.get(state.topic_partition)
                if partition is None or not partition.is_leader:
                    return f"{state.topic_partition} should be led by this broker and is not"
    return None
