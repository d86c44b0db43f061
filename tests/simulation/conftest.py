"""The Python in which the worlds of all tests here run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from worlds import Worlds

from ottla.compiled import is_core_compiled


@pytest.fixture(scope="session")
def worlds() -> Iterator[Worlds]:
    """It has its imports done, and forks for each program."""
    process = Worlds()
    yield process
    process.close()


@pytest.fixture(scope="session")
def source_worlds(worlds: Worlds) -> Iterator[Worlds]:
    """The same, of the core's source: a compiled function cannot be replaced by one with a bug."""
    if not is_core_compiled():
        yield worlds
        return
    process = Worlds(OTTLA_PURE="1")
    yield process
    process.close()
