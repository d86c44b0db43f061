"""`ottla simulate`: what it asks for, and what it says."""

from __future__ import annotations

import pytest

from ottla.cli import simulate
from ottla.cli.main import main

APP = """
import asyncio

async def main(servers):
    await asyncio.sleep(1)

def check(world):
    assert world.topics() == ["orders"]
"""


@pytest.fixture
def app(tmp_path):
    """An app that does nothing, and its check."""
    path = tmp_path / "my_app.py"
    path.write_text(APP)
    return path


def test_seed_that_passes(app, capsys):
    """A seed is told, and the status is 0; another fails without its topic."""
    assert main(["simulate", str(app), "--seed", "1", "--topic", "orders:2"]) == 0
    assert capsys.readouterr().out.startswith("seed 1: ")
    assert main(["simulate", str(app), "--seed", "1"]) == 1
    assert "VIOLATION AssertionError" in capsys.readouterr().out


@pytest.mark.wide
def test_first_seed_that_fails_may_end_the_search(app, capsys):
    """It is told, and no other; the last line has the whole command that tells it again."""
    words = ["simulate", str(app), "--seeds", "9", "--topic", "other:2", "--brokers", "1"]
    assert main([*words, "--fail-fast", "--jobs", "1"]) == 1
    shown = capsys.readouterr().out
    assert shown.count("VIOLATION") == 1
    assert "\n1 seeds, " in shown
    again = f"'ottla simulate {app} --topic other:2 --brokers 1 --seed 1'"
    assert shown.endswith(f"failed: 1; {again} repeats one\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.py"], "nowhere.py: there is no such file"),
        (["--seed", "1", "--seeds", "2"], "--seed and --seeds do not go together"),
        (["--topic", "orders"], "--topic orders: must be NAME:PARTITIONS, such as orders:3"),
    ],
)
def test_mistakes_are_named(app, capsys, words, message):
    """Each in one line on stderr."""
    given = words if words[0].endswith(".py") else [str(app), *words]
    assert main(["simulate", *given]) == 1
    assert message in capsys.readouterr().err


def test_file_without_an_app_is_refused(tmp_path, capsys):
    """The line says what the file should have."""
    (tmp_path / "empty.py").write_text("")
    assert main(["simulate", str(tmp_path / "empty.py")]) == 1
    assert "has neither a `scenario` nor a coroutine function `main`" in capsys.readouterr().err


def test_missing_aiokafka_is_named(app, capsys, monkeypatch):
    """The line names the extra that brings it."""
    monkeypatch.setattr(simulate, "find_spec", lambda name: None)
    assert main(["simulate", str(app)]) == 1
    assert "pip install 'ottla[simulate]'" in capsys.readouterr().err
