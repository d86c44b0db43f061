"""What of a node of the registry is shown to people: by brokers over HTTP, and by the console.

Below the paths that ZooKeeper shows to brokers alone, such as those of SCRAM credentials and of
tokens, each value is hidden; also where Kafka has its nodes below another one (`/kafka`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from ottla.registry.zookeeper_session import PRIVATE_PATHS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.registry.tree import Stat

HIDDEN: Final = "[hidden]"
LONGEST_PATH: Final = 1_000
LONGEST_DATA: Final = 64 * 1024
MOST_CHILDREN: Final = 1_000


def is_path(path: str) -> bool:
    """Whether a text is the path of a node."""
    names = path[1:].split("/")
    is_fine = len(path) <= LONGEST_PATH and "\0" not in path
    return path == "/" or (path.startswith("/") and is_fine and not {"", ".", ".."} & {*names})


def shown_node(path: str, data: bytes, stat: Stat, children: Sequence[str]) -> dict[str, Any]:
    """A node as plain values, with the first of its children."""
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
    return any(f"{each}/" in path for each in PRIVATE_PATHS)


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
