"""The states of partitions and replicas in the controller, and the transitions allowed.

The tables are Kafka's. A transition that is not in them is a fault of the controller: it is
refused, and reported, before anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class PartitionStatus(Enum):
    """The lifecycle of a partition."""

    NON_EXISTENT = "NonExistentPartition"
    NEW = "NewPartition"
    """It has replicas, and no leader yet."""
    ONLINE = "OnlinePartition"
    OFFLINE = "OfflinePartition"
    """Its leader is dead, and no other replica may lead."""


class ReplicaStatus(Enum):
    """The lifecycle of a replica."""

    NON_EXISTENT = "NonExistentReplica"
    NEW = "NewReplica"
    """Its broker is told that it follows; it cannot lead yet."""
    ONLINE = "OnlineReplica"
    OFFLINE = "OfflineReplica"
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"
    """Its broker is dead, or could not delete it."""


PARTITION_PREDECESSORS: Final[Mapping[PartitionStatus, frozenset[PartitionStatus]]] = {
    PartitionStatus.NON_EXISTENT: frozenset({PartitionStatus.OFFLINE}),
    PartitionStatus.NEW: frozenset({PartitionStatus.NON_EXISTENT}),
    PartitionStatus.ONLINE: frozenset(
        {PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}
    ),
    PartitionStatus.OFFLINE: frozenset(
        {PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}
    ),
}

REPLICA_PREDECESSORS: Final[Mapping[ReplicaStatus, frozenset[ReplicaStatus]]] = {
    ReplicaStatus.NEW: frozenset({ReplicaStatus.NON_EXISTENT}),
    ReplicaStatus.ONLINE: frozenset(
        {
            ReplicaStatus.NEW,
            ReplicaStatus.ONLINE,
            ReplicaStatus.OFFLINE,
            ReplicaStatus.DELETION_INELIGIBLE,
        }
    ),
    ReplicaStatus.OFFLINE: frozenset(
        {
            ReplicaStatus.NEW,
            ReplicaStatus.ONLINE,
            ReplicaStatus.OFFLINE,
            ReplicaStatus.DELETION_INELIGIBLE,
        }
    ),
    ReplicaStatus.DELETION_STARTED: frozenset({ReplicaStatus.OFFLINE}),
    ReplicaStatus.DELETION_SUCCESSFUL: frozenset({ReplicaStatus.DELETION_STARTED}),
    ReplicaStatus.DELETION_INELIGIBLE: frozenset(
        {ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_STARTED}
    ),
    ReplicaStatus.NON_EXISTENT: frozenset({ReplicaStatus.DELETION_SUCCESSFUL}),
}
