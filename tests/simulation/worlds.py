"""A Python in which worlds run: it has done its imports, and forks for each program.

Strings have the same hash each time there (PYTHONHASHSEED), and no program sees what another did.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import subprocess
import sys
import tempfile
import traceback
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from ottla.testing.simulation.stories import keep_garbage, tell

FOLDER = Path(__file__).parent
WARM_UP = 2
"""The seed that is told before the first program: codecs are made on first use."""


class Shown(NamedTuple):
    """What a program has printed, and how it has ended."""

    returncode: int
    stdout: str
    stderr: str


class Worlds:
    """The process, for the tests."""

    def __init__(self, **environment: str) -> None:
        self._environment = environment
        self._process = self._begin()

    def _begin(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, __file__],
            cwd=FOLDER,
            env={**os.environ, "PYTHONHASHSEED": "0", **self._environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, program: str) -> Shown:
        """Run a program in a fork of its own, to its end.

        Where that takes too long, another process follows: the late answer is not the next test's.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(program) + "\n")
        self._process.stdin.flush()
        try:
            return Shown(*json.loads(self._process.stdout.readline()))
        except BaseException:
            self._process.kill()
            self._process.communicate()
            self._process = self._begin()
            raise

    def close(self) -> None:
        """End it."""
        self._process.communicate()


def fork(program: str) -> Shown:
    """Run a program in a child, and wait for that."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if child == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            status = 1
            try:
                exec(compile(program, "<program>", "exec"), {"__name__": "program"})
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        _, status = os.waitpid(child, 0)
        texts = []
        for file in (out, errors):
            file.seek(0)
            texts.append(file.read())
        return Shown(os.waitstatus_to_exitcode(status), *texts)


def main() -> None:
    """Serve programs, one a line, until there are no more."""
    for name in ("apps", "planted_bugs"):
        import_module(name)
    logging.disable()
    tell(WARM_UP)
    logging.disable(logging.NOTSET)
    gc.collect()
    keep_garbage()  # also for the forks, which share what is there
    for line in sys.stdin:
        print(json.dumps(fork(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
