"""A broker with a compacted topic for the tests of the cleaner."""

import pytest
from cleaner_world import CleanerWorld


@pytest.fixture
def compacted() -> CleanerWorld:
    """A broker with one compacted topic of small segments, compacted when it is told to be."""
    return CleanerWorld()
