"""The table of handlers."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from unittest.mock import MagicMock

from ottla.replication.replica_manager import ReplicaManager
from ottla.server import handlers
from ottla.server.api import LateFamily
from ottla.server.fetch_session import FetchSessionCache
from ottla.testing import mock_runtime

SERVER = Path(handlers.__file__).parents[1]


class Replicas(ReplicaManager):
    """That of no broker: nothing is asked of it."""

    def __init__(self) -> None:
        self.partitions = {}


def families() -> set[str]:
    """The classes that say in `apis()` what they serve."""
    return {
        name
        for module in iter_modules(handlers.__path__, f"{handlers.__name__}.")
        for name, each in inspect.getmembers(import_module(module.name), inspect.isclass)
        if each.__module__ == module.name and hasattr(each, "apis")
    }


def test_each_family_of_handlers_is_made_once():
    """A family without a row in the table would be served by nobody."""
    calls = [
        ast.unparse(node.func)
        for path in SERVER.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    ]

    assert len(families()) > 15
    assert {name: calls.count(name) for name in families()} == dict.fromkeys(families(), 1)


def test_a_row_names_the_apis_of_its_family():
    """Else an API would be told and not served, or served and not told."""
    sessions = FetchSessionCache(mock_runtime(), 1, {}.get, {}.__contains__)
    own = {"fetch_sessions": sessions, "replica_manager": Replicas(), "config.fetch_max_bytes": 1}
    parts = MagicMock(**own)
    late = [each for each in handlers.families(parts) if isinstance(each, LateFamily)]

    assert len(late) > 12
    for family in late:
        assert family._make().apis().keys() == family.apis().keys()
