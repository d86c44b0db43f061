"""What the pages refer to is there: files, and what is said to be in them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from page import BLOCK, ROOT

PAGES = sorted(path.relative_to(ROOT) for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")))
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
FILE_AND_NAMES = re.compile(r"\]\(((?:\.\./)+[\w/]+\.py)\)((?:,? `[\w.]+`)+)")
HOP = re.compile(r"`((?:\w+/)+\w+)(?:\.py)?(?:\.(\w+))?`")
ROOMS = {path.name for path in (ROOT / "src" / "ottla").iterdir()}


def names_in(path: Path) -> set[str]:
    """The functions and classes of a module, and the methods of the classes as `Class.method`."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = [
                n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
            ]
            found |= {f"{node.name}.{method.name}" for method in methods}
    return found


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page):
    """Every file or folder that a page links to is there."""
    links = LINK.findall(BLOCK.sub("", (ROOT / page).read_text(encoding="utf-8")))

    assert not [link for link in links if not (ROOT / page.parent / link).exists()]


def test_names_of_the_tour_are_in_the_files():
    """Classes, functions and methods that stand behind a link are in the module."""
    path = ROOT / "docs" / "internals" / "reading.md"
    found = FILE_AND_NAMES.findall(path.read_text(encoding="utf-8"))
    missing = [
        f"{name} in {link}"
        for link, names in found
        for name in re.findall(r"`([\w.]+)`", names)
        if name not in names_in(path.parent / link)
    ]

    assert len(found) >= 38
    assert not missing


def test_hops_of_the_architecture_are_modules():
    """`room/module` is one of the house, and `room/module.name` has that name."""
    hops = HOP.findall((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    hops = [(place, name) for place, name in hops if place.split("/")[0] in ROOMS]
    missing = []
    for place, name in hops:
        path = ROOT / "src" / "ottla" / f"{place}.py"
        if name == "py":
            name = ""
        if not path.exists() and not path.with_suffix("").is_dir():
            missing.append(place)
        elif name and name not in {each.rpartition(".")[2] for each in names_in(path)}:
            missing.append(f"{place}.{name}")

    assert len(hops) > 25
    assert not missing


def test_index_and_site_list_every_page():
    """Each in its folder; the pages of settings have an index of their own."""
    index = ROOT / "docs" / "README.md"
    listed = {index.parent / link for link in LINK.findall(index.read_text(encoding="utf-8"))}
    settings = ROOT / "docs" / "operate" / "configuration"
    pages = {path for path in index.parent.rglob("*.md") if path.parent != settings}

    assert pages - {index} <= listed
    assert settings / "README.md" in listed
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    every = {str(path.relative_to(index.parent)) for path in index.parent.rglob("*.md")}
    assert set(re.findall(r"[\w/.-]+\.md$", site, re.MULTILINE)) == every
