"""`ottla transactions` against a cluster of the test's own."""

import pytest
from transaction_cluster import TransactionCluster


@pytest.fixture
def cluster(clients):
    """The cluster that the commands of a test talk to."""
    clients.client = TransactionCluster()
    return clients.client


@pytest.fixture
def transactions(tool, cluster):
    """Run `ottla transactions` with these words."""
    return lambda *words: tool("transactions", *words)
