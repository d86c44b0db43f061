"""Each module of the broker is on the page that lists the core, or says that it is a wing."""

from __future__ import annotations

import ast
import re

from sources import ROOT, Source, house

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
CORE_LINES = 37_100
TIES = 59
"""Import statements of the core that name a wing; the number may only go down."""


def core() -> set[str]:
    """The modules that the page names; handlers are for looking up."""
    _, _, days = PAGE.read_text(encoding="utf-8").partition("## Two days: a record's way")
    links = re.findall(r"\]\(\.\./\.\./(src/ottla/[\w/]+\.py)\)", days)
    return {link for link in links if "/handlers/" not in link}


def modules() -> list[Source]:
    """The modules of the broker; handlers, messages and settings are for looking up."""
    return [
        source
        for source in house()
        if source.room in ROOMS
        and source.path.name != "__init__.py"
        and source.path.parent.name != "handlers"
    ]


def wings() -> set[str]:
    """The modules whose heads say that they are wings."""
    return {
        source.name
        for source in modules()
        if "\nWing: attaches to " in (ast.get_docstring(source.tree) or "")
    }


def test_core_is_bounded():
    """A reader has been promised so many lines; a file for each noun makes them no more."""
    assert sum(len((ROOT / name).read_text().splitlines()) for name in core()) <= CORE_LINES


def test_every_module_of_the_broker_is_core_or_wing():
    """Handlers, messages and settings are for looking up: each family has a file."""
    assert {source.name for source in modules()} - core() == wings()


def test_core_comes_to_know_no_more_wings():
    """A wing that the core does not name can become a folder of `extensions/`."""
    names = {name.removeprefix("src/").removesuffix(".py").replace("/", ".") for name in wings()}
    ties = [
        f"{source.name}:{node.lineno}"
        for source in modules()
        if source.name in core()
        for node in source.nodes
        if isinstance(node, ast.ImportFrom) and node.module
        if names & {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    ]

    assert len(ties) <= TIES, ties
