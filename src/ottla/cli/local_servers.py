"""The servers of this machine: `ottla broker-stop` and `ottla zookeeper-stop`, and their ports."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from ottla.cli.command import Command
from ottla.cli.command_error import UsageError
from ottla.cli.kafka_scripts import SCRIPTS

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterator

    from ottla.cli.terminal import Terminal

PROC: Final = Path("/proc")
SIGNAL_VARIABLE: Final = "SIGNAL"
"""Kafka's stop scripts take the signal's name from here, TERM by default."""


def server_processes(command: str, proc: Path, folder: str, user: int) -> Iterator[int]:
    """The processes of a user that run this command by a Python of this folder."""
    names = {command, *(script for script, words in SCRIPTS.items() if words == (command,))}
    for entry in sorted(proc.glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            if entry.stat().st_uid != user:
                continue
            words = (entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:  # it has just ended
            continue
        # python -P -m ottla broker ..., or python .../bin/ottla broker ...
        words = [words[0], *(word for word in words[1:3] if word not in ("-P", "-m")), *words[3:]]
        first = words[1:3]
        is_ottla = len(first) == 2 and first[0].rpartition("/")[2] == "ottla"
        if is_ottla and first[1] in names and os.path.dirname(words[0]) == folder:
            yield int(entry.name)


class StopCommand(Command):
    """Sends a signal to the servers of one kind; servers of other installations are left alone."""

    server: ClassVar[str]
    missing: ClassVar[str]

    def __init__(self, proc: Path = PROC, kill: Callable[[int, int], object] = os.kill) -> None:
        self.proc = proc
        self.kill = kill

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--signal",
            metavar="NAME",
            default=os.environ.get(SIGNAL_VARIABLE, "TERM"),
            help=f"The signal. Default: ${SIGNAL_VARIABLE}, else TERM.",
        )

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        try:
            number = signal.Signals[f"SIG{arguments.signal.upper().removeprefix('SIG')}"]
        except KeyError:
            raise UsageError(f"there is no signal {arguments.signal}") from None
        folder = os.path.dirname(sys.executable)
        found = list(server_processes(self.server, self.proc, folder, os.getuid()))
        for process in found:
            self.kill(process, number)
        if not found:
            terminal.print(self.missing)
        return 0 if found else 1


class BrokerStopCommand(StopCommand):
    """Stops brokers in order: leadership is handed over, logs are flushed."""

    name = "broker-stop"
    examples = ("ottla broker-stop",)
    server = "broker"
    missing = "No kafka server to stop"


class ZooKeeperStopCommand(StopCommand):
    """Stops the ZooKeeper servers that `ottla zookeeper` runs."""

    name = "zookeeper-stop"
    examples = ("ottla zookeeper-stop",)
    server = "zookeeper"
    missing = "No zookeeper server to stop"
