"""What takes minutes: run by `make soak`, not by the default tests."""

import os
from pathlib import Path

import pytest

SECONDS = int(os.environ.get("SOAK_SECONDS", "600"))


@pytest.fixture
def soak_seconds() -> int:
    """How long the load runs."""
    return SECONDS


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(2 * SECONDS + 1800))
