"""A broker of a cluster asks others about transactions, and one that is alone asks itself."""

from __future__ import annotations

import pytest
from broker_world import BrokerWorld

from ottla.extensions.remote_transactions.cluster_transactions import (
    AskCoordinatorOnCluster,
    MarkersToCluster,
)
from ottla.server.own_transactions import AskOwnCoordinator, MarkersToOwnBroker

IN_CLUSTER = {"zookeeper_connect": "here:2181", "broker_id": 0}


@pytest.mark.parametrize(
    ("settings", "kinds"),
    [
        (IN_CLUSTER, (AskCoordinatorOnCluster, MarkersToCluster)),
        ({}, (AskOwnCoordinator, MarkersToOwnBroker)),
    ],
    ids=["cluster", "alone"],
)
def test_transactions_reach_as_far_as_the_cluster(settings, kinds):
    """What does it is made when it is needed."""
    coordinators = BrokerWorld(**settings).start().broker.coordinators
    found = coordinators.new_verification(), coordinators.new_marker_target()

    assert tuple(map(type, found)) == kinds
