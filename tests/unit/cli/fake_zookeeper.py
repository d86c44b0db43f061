"""The tree of a ZooKeeper server in a dictionary, as far as commands with --zookeeper use it."""

from __future__ import annotations

from types import SimpleNamespace

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError


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
        return self.nodes[path], SimpleNamespace(version=len(self.nodes[path]))

    def set(self, path, data, version):
        if version != len(self.nodes[path]):
            raise BadVersionError
        self.nodes[path] = data

    def exists(self, path):
        return self.nodes.get(path)

    def create(self, path, data, makepath=False, sequence=False):
        if sequence:
            path += f"{len(self.nodes):010d}"
        if path in self.nodes:
            raise NodeExistsError
        self.nodes[path] = data

    def stop(self):
        self.stopped = True

    def close(self):
        assert self.stopped
