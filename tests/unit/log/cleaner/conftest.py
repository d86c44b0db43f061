"""Puts this folder and that of the log's tests on the path: the tests share `cleaner_world`."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from cleaner_world import CleanerWorld


@pytest.fixture
def world() -> CleanerWorld:
    """A broker with one compacted topic of small segments, compacted when it is told to be."""
    return CleanerWorld()
