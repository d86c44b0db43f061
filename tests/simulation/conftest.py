"""The Python in which the worlds of all tests here run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from worlds import Worlds


@pytest.fixture(scope="session")
def worlds() -> Iterator[Worlds]:
    """It has its imports done, and forks for each program."""
    process = Worlds()
    yield process
    process.close()
