"""A real ZooKeeper server for the tests of the registry."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from ottla.pipelines.java import JavaMissingError, require_java
from ottla.testing.zookeeper_process import ZooKeeperProcess

_chroots = itertools.count()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    """One server that all tests share; each works below a chroot of its own."""
    try:
        require_java()
    except JavaMissingError as error:
        pytest.skip(str(error))
    process = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper") / "data").start()
    yield process
    assert process.stop() == 0, f"ZooKeeper ended badly:\n{process.log}"


@pytest.fixture
def chroot() -> Callable[[], str]:
    """Makes paths that no other test uses."""
    return lambda: f"/test-{next(_chroots)}"
