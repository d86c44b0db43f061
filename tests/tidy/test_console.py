"""The console's files: those of others are as they were published, and pages run only our own."""

from __future__ import annotations

import hashlib
import re

from sources import ROOT, house

CONSOLE = ROOT / "src/ottla/console"
VENDOR = CONSOLE / "static/vendor"
SCRIPT_LINES = 600
ROW = re.compile(r"^\| `([\w.-]+)` \| [^|]+ \| ([\d.]+) \| ([\w-]+) \| ([0-9a-f]{64}) \|$", re.M)
INLINE = re.compile(
    r"<style|<script(?![^>]*\ssrc=)|\sstyle=|\son\w+=|javascript:|\|\s*safe\b", re.I
)
"""Style and script in a page, which its policy forbids; and values that are not escaped."""
HEAVY = {"starlette", "uvicorn", "jinja2", "markupsafe"}


def test_files_of_others_are_those_of_the_table():
    """Each has its version, its licence and its hash."""
    rows = ROW.findall((VENDOR / "README.md").read_text(encoding="utf-8"))
    table = {name: digest for name, _version, _licence, digest in rows}
    files = {each.name: each for each in VENDOR.iterdir() if each.name != "README.md"}

    assert files.keys() == table.keys()
    for name, path in files.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == table[name], name


def test_pages_have_no_script_or_style_of_their_own():
    """Nor a value that is not escaped."""
    assert INLINE.search('<p onclick="x">')
    assert INLINE.search("<script>")
    assert INLINE.search("{{ value | safe }}")
    assert not [
        f"{path.name}: {found[0]}"
        for path in (CONSOLE / "templates").iterdir()
        if (found := INLINE.search(path.read_text(encoding="utf-8")))
    ]


def test_own_script_is_small():
    """The server does the work."""
    scripts = (CONSOLE / "static").glob("*.js")
    assert sum(len(each.read_text().splitlines()) for each in scripts) <= SCRIPT_LINES


def test_only_the_console_needs_its_packages():
    """The broker and the other commands start without them."""
    found = re.compile(rf"^\s*(?:from|import) ({'|'.join(HEAVY)})\b", re.MULTILINE)
    others = [each for each in house() if each.room not in ("console", "pipelines", "site")]

    assert not [each.name for each in others if found.search(each.text)]
