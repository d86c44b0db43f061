"""A process of its own for work that takes long: the pages stay quick, and its end is a kill.

It gets one job as JSON on its standard input, and writes lines of JSON: how far it is, and at last
its answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from asyncio.subprocess import PIPE
from typing import TYPE_CHECKING, Any, Final

from ottla.console.refusals import Refused
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

LONGEST_LINE: Final = 256 * 1024 * 1024
NICE: Final = 10


class WorkerProcess(NamedTuple):
    """The command of a worker, and how its last line is known."""

    words: tuple[str, ...]
    last: Collection[str]
    """Keys: the last line has one of them."""
    noun: str
    """Its work, in messages: `search`."""

    async def run(
        self,
        job: Mapping[str, Any],
        limit_s: float,
        on_progress: Callable[[dict[str, Any]], object] = lambda said: None,
    ) -> dict[str, Any]:
        """The last line that it writes; it ends with the task that waits for it.

        Raises TimeoutError after `limit_s`, and Refused where it ends without an answer.
        """
        worker = await asyncio.create_subprocess_exec(
            *self.words, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=LONGEST_LINE
        )
        try:
            async with asyncio.timeout(limit_s):
                return await self._answer(worker, job, on_progress)
        finally:
            if worker.returncode is None:
                worker.kill()
            await worker.wait()

    async def _answer(
        self,
        worker: asyncio.subprocess.Process,
        job: Mapping[str, Any],
        on_progress: Callable[[dict[str, Any]], object],
    ) -> dict[str, Any]:
        assert worker.stdin is not None, "it is a pipe"
        assert worker.stdout is not None, "it is a pipe"
        assert worker.stderr is not None, "it is a pipe"
        worker.stdin.write(json.dumps(job).encode())
        worker.stdin.close()
        while line := await worker.stdout.readline():
            said: dict[str, Any] = json.loads(line)
            if any(each in said for each in self.last):
                return said
            on_progress(said)
        words = (await worker.stderr.read()).decode("utf-8", "replace").strip().splitlines()
        reason = words[-1] if words else "it was stopped"
        raise Refused(f"The {self.noun} has ended early: {reason}", 500)


def module(name: str) -> tuple[str, ...]:
    """The command that runs a module of the console."""
    return (sys.executable, "-P", "-m", f"ottla.console.{name}")


def do_job(
    most_memory: int, work: Callable[[dict[str, Any], Callable[[Mapping[str, Any]], None]], object]
) -> None:
    """The whole of a worker: one job from standard input; its lines go to standard output."""
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_DATA, (most_memory, most_memory))

    def say(line: Mapping[str, Any]) -> None:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    work(json.load(sys.stdin), say)
    os._exit(0)  # at once: nothing is left to do, and libraries may wait for their threads
