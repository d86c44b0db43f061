"""`ottla transactions` against a cluster of the test's own."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

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
