"""Processes of `python -m ottla` that start in milliseconds: forked, where Python can be told so.

A `ForkedProcess` is a `subprocess.Popen` in every way: a process of its own, a child of this one,
with its number, its signals, streams and status. Only what an interpreter does when it starts, and
the imports, have been done once by another process (`fork_server.py`), which saves some 0.3 s of a
core. What tests just these, or flags of the interpreter, starts a `subprocess.Popen`.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import inspect
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("fork_server.py")
PR_SET_CHILD_SUBREAPER = 36
PLACE_OF_ARGUMENTS = " " * 2000
"""Where the arguments of a forked process are shown."""


class ForkServer:
    """The process that forks for this one, and ends with it."""

    def __init__(self, python: str) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "this process cannot adopt orphans")
        self._asks, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        begin = f"import runpy; runpy.run_path({str(PROGRAM)!r}, run_name='__main__')"
        with asked:
            # By -c and not by its file: the first place to import from is the folder it is in.
            self._process = subprocess.Popen([python, "-c", begin, PLACE_OF_ARGUMENTS], stdin=asked)
        self._one_by_one = threading.Lock()
        atexit.register(self.close)

    def fork(self, job: Mapping[str, object], streams: list[int]) -> int:
        """Start a process, and return its number."""
        with self._one_by_one:
            socket.send_fds(self._asks, [json.dumps(job).encode()], streams)
            number = self._asks.recv(20)
        if not number:
            raise ChildProcessError("the fork server has ended")
        return int(number)

    def close(self) -> None:
        """End the server; what it has forked goes on."""
        self._asks.close()
        self._process.wait()


@functools.cache
def server_of(python: str) -> ForkServer:
    """The one that forks for this interpreter, started when it is first needed."""
    return ForkServer(python)


def flags(environment: Mapping[str, str]) -> dict[str, str]:
    """What an interpreter, or a module, reads but once; a buffer can be changed later."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(("PYTHON", "OTTLA_PURE")) and name != "PYTHONUNBUFFERED"
    }


FLAGS = flags(os.environ)
"""Those of the fork server, which tests may change for the processes after it."""


class ForkedProcess(subprocess.Popen):
    """A `subprocess.Popen` whose program, if it is `python -m` and a module, is forked.

    Other programs, flags of the interpreter, and what else only a new program can have, are
    started as ever.
    """

    def _execute_child(self, *arguments):
        names = inspect.signature(super()._execute_child).parameters
        given = dict(zip(names, arguments, strict=True))
        environment = os.environ if given["env"] is None else given["env"]
        if not can_be_forked(given, environment):
            super()._execute_child(*arguments)
            return
        python, _, *words = map(os.fsdecode, given["args"])
        job = {
            "words": words,
            "cwd": os.fspath(given["cwd"] or os.getcwd()),
            "env": dict(environment),
            "process_group": given["process_group"],
        }
        streams = [given["p2cread"], given["c2pwrite"], given["errwrite"]]
        streams = [number if each == -1 else each for number, each in enumerate(streams)]
        self.pid = server_of(python).fork(job, streams)
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in pipes))


def can_be_forked(given: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    """Whether these arguments of a Popen, as it has them by then, ask for nothing else."""
    words = given["args"]
    return (
        sys.platform == "linux"
        and not isinstance(words, str | bytes | os.PathLike)
        and list(words[1:2]) == ["-m"]  # with -P as well it is a program of its own
        and not given["shell"]
        and given["preexec_fn"] is None
        and not given["pass_fds"]
        and not given["start_new_session"]
        and flags(environment) == flags(os.environ) == FLAGS
    )


def run_forked(words: Sequence[object], **options: Any) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` with `text=True` and both outputs captured."""
    limit_s = options.pop("timeout")
    typed = options.pop("input", "")
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with ForkedProcess([*map(str, words)], text=True, **(pipes | options)) as process:
        try:
            out, err = process.communicate(typed, timeout=limit_s)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
