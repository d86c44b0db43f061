"""Each module of the broker is on the page that lists the core, or says that it is a wing."""

from __future__ import annotations

import ast
import re

from sources import ROOT, house

PAGE = ROOT / "docs" / "internals" / "reading.md"
ROOMS = {
    "runtime",
    "network",
    "security",
    "record",
    "log",
    "registry",
    "replication",
    "coordinator",
    "controller",
    "server",
    "metrics",
}
CORE = 92


def core() -> set[str]:
    """The modules that the page names; handlers are for looking up."""
    _, _, days = PAGE.read_text(encoding="utf-8").partition("## Two days: a record's way")
    links = re.findall(r"\]\(\.\./\.\./(src/ottla/[\w/]+\.py)\)", days)
    return {link for link in links if "/handlers/" not in link}


def test_core_is_bounded():
    """A reader has been promised so many files; one more takes the place of another."""
    assert len(core()) <= CORE


def test_every_module_of_the_broker_is_core_or_wing():
    """Handlers, messages and settings are for looking up: each family has a file."""
    modules = [
        source
        for source in house()
        if source.room in ROOMS
        and source.path.name != "__init__.py"
        and source.path.parent.name != "handlers"
    ]
    wings = {
        source.name
        for source in modules
        if "\nWing: attaches to " in (ast.get_docstring(source.tree) or "")
    }

    assert {source.name for source in modules} - core() == wings
