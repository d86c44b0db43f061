"""The rest of the cluster, for the replicas of one broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.replication.in_sync_replicas import AlterIsr
from ottla.structs import NamedTuple, Node

if TYPE_CHECKING:
    from ottla.network.node_connection import NodeConnection


class ClusterView(NamedTuple):
    """The rest of the cluster as one broker's replicas see it.

    `live_brokers` are those that the controller has named, by id; `broker_epoch` is that of this
    broker's own registration.
    """

    alter_isr: AlterIsr
    connect: Callable[[Node], NodeConnection]
    live_brokers: Callable[[], Mapping[int, Node]]
    broker_epoch: Callable[[], int]
