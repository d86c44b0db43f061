"""Nodes of the registry as JSON, one at a time and read only: `/registry?path=/brokers/ids`.

It is there for ZooKeeper as well as for the registry that is embedded in a broker. Below the paths
that ZooKeeper shows to brokers alone, such as those of SCRAM credentials and of tokens, each value
is hidden. A listener that asks for no password shows the registry to its own machine alone.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from ottla.errors import KafkaError
from ottla.registry.tree import NoNodeError
from ottla.registry.zookeeper_session import PRIVATE_PATHS

if TYPE_CHECKING:
    from ottla.registry.tree import Registry, Stat

HIDDEN: Final = "[hidden]"
LONGEST_PATH: Final = 1_000
LONGEST_DATA: Final = 64 * 1024
MOST_CHILDREN: Final = 1_000


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


def is_path(path: str) -> bool:
    """Whether a text is the path of a node."""
    names = path[1:].split("/")
    is_fine = len(path) <= LONGEST_PATH and "\0" not in path
    return path == "/" or (path.startswith("/") and is_fine and not {"", ".", ".."} & {*names})


async def node_of(registry: Registry, path: str) -> dict[str, Any]:
    """A node as plain values."""
    data, stat = await registry.get(path)
    children = await registry.children(path)
    return {
        "path": path,
        "data": data_text(path, data),
        "is_hidden": is_private(path),
        **facts_of(stat),
        "children": children[:MOST_CHILDREN],
        "number_of_children": len(children),
    }


def facts_of(stat: Stat) -> dict[str, Any]:
    """The facts of a node that mean the same for every reader."""
    left_out = ("is_own",)
    return {name: value for name, value in stat._asdict().items() if name not in left_out}


def is_private(path: str) -> bool:
    """Whether a node is below one whose data brokers alone may read."""
    return any(path.startswith(f"{each}/") for each in PRIVATE_PATHS)


def data_text(path: str, data: bytes) -> str:
    """The data of a node as text, cut where it is long; without the values that are private."""
    text = data.decode("utf-8", "backslashreplace")
    if not is_private(path) or not text:
        return text[:LONGEST_DATA]
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return HIDDEN
    return json.dumps(hidden(found))[:LONGEST_DATA] if isinstance(found, dict) else HIDDEN


def hidden(found: dict[str, Any]) -> dict[str, Any]:
    """The names of fields; of their values only the version of the format."""
    return {
        name: value
        if name == "version" and isinstance(value, int)
        else hidden(value)
        if isinstance(value, dict)
        else HIDDEN
        for name, value in found.items()
    }
