"""`ottla simulate`: what it asks for, and what it says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli import simulate
from ottla.cli.main import main
from ottla.testing import wait_until

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
        (["--topic", "orders:0"], "orders: 0 partitions: must be at least 1"),
        (["--topic", "two words:1"], "'two words' cannot be a topic's name"),
        (["--seeds", "0"], "--seeds takes a number from 1 to 1000000, not '0'"),
        (["--seeds", "-3"], "--seeds takes a number from 1 to 1000000, not '-3'"),
        (["--jobs", "0"], "--jobs takes a number from 1 to 1000, not '0'"),
        (["--brokers", "0"], "--brokers takes a number from 1 to 100, not '0'"),
        (["--instances", "0"], "--instances takes a number from 1 to 1000, not '0'"),
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


def has_begun(pid: int) -> bool:
    """Whether a process has started one of a pool, in which Python has its handler of Ctrl-C."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        folder = Path("/proc") / child
        caught = re.search(r"SigCgt:\s*(\w+)", (folder / "status").read_text())
        is_of_pool = b"spawn_main" in (folder / "cmdline").read_bytes()
        if is_of_pool and caught and int(caught[1], 16) & 1 << signal.SIGINT - 1:
            return True
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_the_seeds_without_a_word(tmp_path, number):
    """Also while their processes begin: a terminal sends the signal to all of them."""
    (tmp_path / "app.py").write_text("async def main(servers):\n    pass\n")
    words = [sys.executable, "-m", "ottla", "simulate", str(tmp_path / "app.py")]
    process = subprocess.Popen(
        [*words, "--seeds", "5000", "--jobs", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        wait_until(lambda: has_begun(process.pid), "a process of the pool")
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (128 + number, b"", b"")
