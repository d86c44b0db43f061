"""A page as its reader meets it: the blocks on it, and a shell in which to type what they say."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from forked_process import ForkedProcess, run_forked

from ottla.runtime.free_port import free_port

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
WORDS = r"""(?: |[\w./:,=@%+-]|'[^']*'|"[^"$`\\]*")+"""
"""Words in which nothing is left to a shell."""
PLAIN = re.compile(f"(?:ottla|python -m trustme){WORDS}")
TYPED = re.compile(rf"""echo "([^"$`\\]*)" \| (ottla{WORDS})""")
"""A line that types something into a command."""
LIMIT_S = 240


class Page:
    """A page of Markdown, named by its place in the repository."""

    def __init__(self, name: str) -> None:
        self.path = ROOT / name
        self.text = self.path.read_text(encoding="utf-8")

    def blocks(self) -> list[tuple[str, str]]:
        """The language and the text of every block, in order."""
        return BLOCK.findall(self.text)

    def blocks_in(self, language: str) -> list[str]:
        return [text for name, text in self.blocks() if name == language]

    def conversations(self) -> list[tuple[str, list[str]]]:
        """The commands of all console blocks, each with what is shown below it."""
        return [pair for text in self.blocks_in("console") for pair in conversations(text)]

    def run_python(self, translated: Callable[[str], str]) -> int:
        """Run every Python block, as one program; a traceback has the lines of the page."""
        program: dict[str, object] = {}
        examples = self.blocks_in("python")
        for example in examples:
            lines_before = self.text.count("\n", 0, self.text.index(example))
            source = "\n" * lines_before + translated(example)
            exec(compile(source, str(self.path), "exec"), program)
        return len(examples)


class PageReader:
    """Somebody who does what a page says, in a folder and on ports of their own."""

    def __init__(self, folder: Path, *ports: str) -> None:
        self.folder = folder
        self.ports = {port: str(free_port("127.0.0.1")) for port in ports}
        self.shell = Shell(folder, self.translated)

    def translated(self, text: str) -> str:
        """The page's words with this reader's ports."""
        return re.sub(r"\b\d{4}\b", lambda match: self.ports.get(match[0], match[0]), text)

    def write(self, block: str) -> None:
        """A file that is named in the block's first line."""
        first, _, rest = block.partition("\n")
        if first.startswith("# "):
            (self.folder / first[2:]).write_text(self.translated(rest))

    def type(self, block: str) -> None:
        """Commands, each with what the page shows below it."""
        for command, shown in conversations(block):
            if command.endswith("&"):
                self.shell.start(command.rstrip("& "))
            else:
                assert self.shell.run(command) == shown, command


def conversations(text: str) -> list[tuple[str, list[str]]]:
    """The commands of a console block, each with the lines that are shown below it."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


class Shell:
    """A shell in a folder, which finds `ottla`; `translated` puts the test's names for the page's.

    What was started and is not over is killed by `close`, the last one first. A line that is only
    `ottla`, or `python -m trustme`, and its words needs no shell, and is forked.
    """

    def __init__(self, folder: Path | None, translated: Callable[[str], str]) -> None:
        self.folder = folder
        self.translated = translated
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = dict(os.environ, PATH=path, PYTHONUNBUFFERED="1")
        # A shell does not export it; a worker of pytest-xdist does, and `ps` cuts its lines there.
        self.environment.pop("COLUMNS", None)
        self.started: list[subprocess.Popen[str]] = []

    def run(self, command: str, typed: str = "") -> list[str]:
        """The lines that a command prints, which must end well; those of its errors last."""
        done = self.ended(command, typed)
        assert done.returncode == 0, (command, done.stderr)
        return (done.stdout + done.stderr).splitlines()

    def ended(self, command: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        """The outcome of a command."""
        line = self.translated(command)
        if match := TYPED.fullmatch(line):
            typed, line = f"{match[1]}\n", match[2]
        program = self.program(line)
        options = {"cwd": self.folder, "env": self.environment}
        return run_forked(program, input=typed, timeout=LIMIT_S, **options)

    def program(self, line: str) -> list[str]:
        """What runs this line."""
        if PLAIN.fullmatch(line):
            return [sys.executable, "-m", *shlex.split(line.removeprefix("python -m "))]
        return ["bash", "-c", line]

    def begin(self, command: str, *, stderr: int | None = None) -> subprocess.Popen[str]:
        """A command in a process group of its own, whose output can be read as it comes."""
        program = self.program(self.translated(command))
        if program[0] == "bash":
            program[-1] = f"exec env {program[-1]}"
        process = ForkedProcess(
            program,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            process_group=0,
        )
        self.started.append(process)
        return process

    def start(self, command: str) -> subprocess.Popen[str]:
        """A server in the background; returns when it is ready."""
        process = self.begin(command)
        assert process.stdout is not None
        assert any(" is ready at " in line for line in process.stdout), command
        return process

    def close(self) -> None:
        for process in reversed(self.started):
            # ZooKeeper's command ends the server that it watches; brokers need no farewell.
            if "zookeeper" in str(process.args):
                process.terminate()
            else:
                with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                    os.killpg(process.pid, signal.SIGKILL)  # a script may not be the program
            if process.stdout is not None and not process.stdout.closed:
                process.communicate()
