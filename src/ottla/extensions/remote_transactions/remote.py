"""Attaches transactions whose partitions have leaders on several brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.server.extension import Extension

if TYPE_CHECKING:
    from ottla.coordinator.transaction.marker_sender import MarkersToLeaders
    from ottla.coordinator.transaction.transaction_verifier import AskCoordinator


class RemoteTransactions(Extension):
    """Has markers written, and partitions verified, by the brokers that are to do it.

    The code is imported and its objects made when the first transaction needs it.
    """

    def wrap(self) -> None:
        coordinators = self.broker.coordinators
        coordinators.new_verification = self._new_verification
        coordinators.new_marker_target = self._new_marker_target

    def _new_verification(self) -> AskCoordinator:
        from ottla.extensions.remote_transactions.cluster_transactions import (
            AskCoordinatorOnCluster,
        )

        broker, link = self.broker, self.broker.link
        assert link is not None, "zookeeper.connect is set"
        return AskCoordinatorOnCluster(
            broker.runtime, link.connections, broker.cache, broker.coordinators.transactions
        )

    def _new_marker_target(self) -> MarkersToLeaders:
        from ottla.extensions.remote_transactions.cluster_transactions import MarkersToCluster

        broker, link = self.broker, self.broker.link
        assert link is not None, "zookeeper.connect is set"
        return MarkersToCluster(
            broker.runtime, link.connections, broker.cache, broker.coordinators.markers
        )
