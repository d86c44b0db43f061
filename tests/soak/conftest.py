"""What takes minutes: run by `make soak`, not by the default tests."""

import os
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
for folder in (
    "property/log",
    "property/server",
    "unit/record",
    "unit/server/handlers",
    "unit/log",
    "unit/log/cleaner",
    "system/spark_sink",
    "system/warehouse",
    "soak",
):
    sys.path.insert(0, str(TESTS / folder))

SECONDS = int(os.environ.get("SOAK_SECONDS", "600"))


@pytest.fixture
def soak_seconds() -> int:
    """How long the load runs."""
    return SECONDS


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(SECONDS + 900))
