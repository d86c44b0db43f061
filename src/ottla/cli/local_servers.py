"""The servers of this machine: `ottla broker-stop` and `ottla zookeeper-stop`, and their ports."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import socket
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar, Final

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.kafka_scripts import SCRIPTS
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
    help = "Stop the brokers that this installation of Ottla runs on this machine."
    examples = ("ottla broker-stop",)
    server = "broker"
    missing = "No kafka server to stop"


class ZooKeeperStopCommand(StopCommand):
    """Stops the ZooKeeper servers that `ottla zookeeper` runs."""

    name = "zookeeper-stop"
    help = "Stop the ZooKeeper servers that `ottla zookeeper` runs on this machine."
    examples = ("ottla zookeeper-stop",)
    server = "zookeeper"
    missing = "No zookeeper server to stop"


# Ports of this machine, and the error for one that is taken.


PORT: Final = r":(\d+):"
LISTENING = "0A"  # the state in /proc/net/tcp


def require_free(host: str, port: int) -> None:
    """Raise CommandError unless a server could listen here."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.closing(socket.socket(family)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise CommandError(f"cannot listen on {host}:{port}: {error.strerror}") from error


def in_use(error: OSError) -> CommandError:
    """The error for a port that is taken; it names the process that listens there."""
    text = error.strerror or str(error)
    port = re.search(PORT, text)
    owner = listener(int(port[1])) if port and error.errno == errno.EADDRINUSE else None
    return CommandError(f"{text} by {owner}" if owner else text)


def listener(port: int) -> str | None:
    """The process that listens on a port, as `ottla broker (process 71)`.

    None where that cannot be found out: another user's process, or no /proc.
    """
    wanted = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    for process in Path("/proc").glob("[0-9]*") if wanted else ():
        with contextlib.suppress(OSError):
            if any(os.readlink(fd) in wanted for fd in (process / "fd").iterdir()):
                words = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                name = " ".join(filter(None, words))[:80]
                return f"{name} (process {process.name})"
    return None


def _listening_inodes(port: int) -> set[str]:
    found = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(fields[9])
    return found
