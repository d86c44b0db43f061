"""A process that is forked is what one is that was started: this is what other tests rely on."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys

import pytest
from forked_process import ForkedProcess, run_forked

LIMIT_S = 60
OTTLA = (sys.executable, "-m", "ottla")
SAYS = """
import os, sys
print(os.getcwd(), os.environ["MINE"], os.getppid(), os.getpgid(0), *sys.argv[1:])
print(sys.stdin.read(), file=sys.stderr)
sys.exit(7)
"""
WAITS = "print('here', flush=True); input()"


@pytest.fixture
def module(tmp_path):
    """Writes a module; the arguments that run it in its folder."""

    def write(text: str) -> dict[str, object]:
        (tmp_path / "mine.py").write_text(text)
        return {"args": [sys.executable, "-m", "mine"], "cwd": tmp_path}

    return write


@pytest.mark.parametrize("kind", [ForkedProcess, subprocess.Popen])
def test_process_has_folder_environment_arguments_streams_and_status(module, tmp_path, kind):
    """A child of this process, in a group of its own, as one that was started."""
    given = module(SAYS)
    given["args"] += ["two words", "grün"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = kind(**given, **pipes, env=os.environ | {"MINE": "x"}, text=True, process_group=0)
    out, err = process.communicate("typed", LIMIT_S)

    assert out.split()[:2] == [str(tmp_path), "x"]
    assert out.split()[2:] == [str(os.getpid()), str(process.pid), "two", "words", "grün"]
    assert (err, process.returncode) == ("typed\n", 7)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_process_dies_of_a_signal(module, number):
    """Its status names the signal; `ps` has shown its own words until then."""
    process = ForkedProcess(**module(WAITS), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        assert process.stdout.readline() == b"here\n"
        with open(f"/proc/{process.pid}/cmdline", encoding="utf-8") as file:
            assert file.read().rstrip("\0").split("\0") == [sys.executable, "-m", "mine"]
        process.send_signal(number)
        assert process.wait(LIMIT_S) == -number


def test_commands_are_forked_from_one_process(monkeypatch):
    """Nothing is started for a command; a flag of the interpreter is a reason to start one."""
    assert run_forked([*OTTLA, "version"], timeout=LIMIT_S).stdout.startswith("ottla ")
    started = []
    execute = subprocess.Popen._execute_child

    @functools.wraps(execute)
    def noted(*given):
        started.append(given)
        execute(*given)

    monkeypatch.setattr(subprocess.Popen, "_execute_child", noted)
    assert run_forked([*OTTLA, "version"], timeout=LIMIT_S).returncode == 0
    assert started == []

    flag = os.environ | {"PYTHONHASHSEED": "0"}
    assert run_forked([*OTTLA, "version"], timeout=LIMIT_S, env=flag).returncode == 0
    assert len(started) == 1
