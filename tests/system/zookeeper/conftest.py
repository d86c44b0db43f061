"""A broker whose registry is a real ZooKeeper server, and a look at the server from beside."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from ottla.testing.processes import ZooKeeperProcess

LIMIT_S = 60.0


class Znodes:
    """Reads what is below a chroot, as any ZooKeeper client sees it."""

    def __init__(self, process: ZooKeeperProcess, chroot: str) -> None:
        self.connect = process.connect + chroot
        self.chroot = chroot
        self.client = KazooClient(process.connect)
        self.client.start(LIMIT_S)

    def get(self, path: str) -> tuple[Any, Any]:
        """Data and stat, or None for both where there is no node."""
        try:
            return self.client.get(self.chroot + path)
        except NoNodeError:
            return None, None

    def json(self, path: str) -> dict[str, Any]:
        return json.loads(self.get(path)[0])

    def is_led(self) -> bool:
        """Whether there is a controller."""
        return self.get("/controller")[0] is not None

    def names(self, path: str) -> list[str]:
        return sorted(self.client.get_children((self.chroot + path).rstrip("/")))

    def close(self) -> None:
        self.client.stop()
        self.client.close()


@pytest.fixture
def znodes(zookeeper: ZooKeeperProcess, unique: Callable[[str], str]) -> Iterator[Znodes]:
    """A chroot of the shared server for one test."""
    view = Znodes(zookeeper, f"/{unique('brokers')}/kafka")
    yield view
    view.close()
