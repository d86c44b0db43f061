"""The tree of a ZooKeeper server in a dictionary, as far as commands with --zookeeper use it."""

from __future__ import annotations

from kazoo.exceptions import NodeExistsError, NoNodeError


class FakeZooKeeper:
    """A session; a node whose data are None has gone since its name was read."""

    def __init__(self) -> None:
        self.nodes: dict[str, bytes | None] = {}
        self.stopped = False

    def get_children(self, path):
        below = [name for name in self.nodes if name.startswith(f"{path}/")]
        if not below and path not in self.nodes:
            raise NoNodeError
        return list({name.removeprefix(f"{path}/").partition("/")[0]: None for name in below})

    def get(self, path):
        if self.nodes.get(path) is None:
            raise NoNodeError
        return self.nodes[path], None

    def exists(self, path):
        return self.nodes.get(path)

    def create(self, path, data):
        if path in self.nodes:
            raise NodeExistsError
        self.nodes[path] = data

    def stop(self):
        self.stopped = True

    def close(self):
        assert self.stopped
