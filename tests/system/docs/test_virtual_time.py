"""The examples of docs/virtual-time.md, as they stand there."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from page import Page

PAGE = Page("docs/virtual-time.md")


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


def test_commands_of_the_page_find_the_mistake(folder):
    """The seeds fail as the page says, and one of them tells its story, the same each time."""
    stories = []
    for command, _ in PAGE.conversations():
        done = run(*command.removesuffix(" || true").split(), folder=folder)
        assert done.returncode == 1, done.stderr
        stories.append(done.stdout)

    many, one = stories
    assert "8 seeds, " in many
    assert "--seed 8' repeats one" in many
    assert one in many
    assert "kill broker-2" in one
    assert "orders are gone" in one


def test_test_of_the_page_passes(folder):
    """The scenario of the page is found by pytest, and passes."""
    done = run("pytest", "-q", "-p", "no:cacheprovider", "test_shop.py", folder=folder)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
