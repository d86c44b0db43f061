"""A broker whose logs are compacted when a test says so."""

import pytest
from cleaner_world import CleanerWorld


@pytest.fixture
def world() -> CleanerWorld:
    """A broker with one compacted topic of small segments, compacted when it is told to be."""
    return CleanerWorld()
