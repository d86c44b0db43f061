"""Nodes of the registry as JSON, one at a time and read only: `/registry?path=/brokers/ids`.

It is there for ZooKeeper as well as for the registry that is embedded in a broker. Below the paths
that ZooKeeper shows to brokers alone, such as those of SCRAM credentials and of tokens, each value
is hidden. A listener that asks for no password shows the registry to its own machine alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from ottla.errors import KafkaError
from ottla.registry.shown_node import is_path, shown_node
from ottla.registry.tree import NoNodeError

if TYPE_CHECKING:
    from ottla.registry.tree import Registry


class RegistryPage:
    """The page; `registry` is None until the broker has one."""

    def __init__(self, is_for_all: bool) -> None:
        """`is_for_all` where others than this machine ask, and without a password."""
        self._is_for_all = is_for_all
        self.registry: Registry | None = None

    async def get(self, request: web.Request) -> web.Response:
        """A node with the names of its children; 404 where it is not there."""
        if self._is_for_all:
            reason = "the registry needs metrics.listener.username, or a loopback address"
            return web.json_response({"error": reason}, status=403)
        path = request.query.get("path", "/")
        if not is_path(path):
            reason = f"path: must be that of a node, as /brokers/ids, not {path[:100]!r}"
            return web.json_response({"error": reason}, status=400)
        if self.registry is None:
            return web.json_response({"error": "the broker starts"}, status=503)
        try:
            return web.json_response(await node_of(self.registry, path))
        except NoNodeError:
            return web.json_response({"error": f"there is no node {path}"}, status=404)
        except KafkaError as error:
            return web.json_response({"error": error.message}, status=503)


async def node_of(registry: Registry, path: str) -> dict[str, Any]:
    """A node as plain values."""
    data, stat = await registry.get(path)
    children = await registry.children(path)
    return shown_node(path, data, stat, children)
