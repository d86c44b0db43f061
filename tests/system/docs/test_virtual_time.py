"""The examples of docs/use/virtual-time.md, as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from page import Page

PAGE = Page("docs/use/virtual-time.md")


def run(*words: str, folder) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.fixture
def folder(tmp_path):
    """A folder with the page's app and the page's test."""
    app, test = PAGE.blocks_in("python")
    (tmp_path / "my_app.py").write_text(app, encoding="utf-8")
    (tmp_path / "test_shop.py").write_text(test, encoding="utf-8")
    return tmp_path


@pytest.mark.wide
def test_command_of_the_page_finds_the_mistake(folder):
    """One of the first seeds fails as the page says, and its own command tells the same story."""
    ((command, _),) = PAGE.conversations()
    found = run(*command.removesuffix(" || true").split(), folder=folder)
    assert found.returncode == 1, found.stderr
    assert re.search("VIOLATION .*(orders are gone|Unable to bootstrap)", found.stdout)
    last = re.search(r"seeds, .*\nfailed: (\d+); '(.*)' repeats one\n$", found.stdout)
    assert last is not None, found.stdout

    again = run(*last[2].split(), folder=folder)
    assert f"--seed {last[1]}" in last[2]
    assert again.stdout in found.stdout
    assert again.stdout.startswith(f"seed {last[1]}: ")


def test_test_of_the_page_passes(folder):
    """The scenario of the page is found by pytest, and passes."""
    done = run("pytest", "-q", "-p", "no:cacheprovider", "test_shop.py", folder=folder)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
