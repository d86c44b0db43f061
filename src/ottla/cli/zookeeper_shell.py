"""`ottla zookeeper-shell`: shows the nodes of a cluster in ZooKeeper, and changes them.

For a broker with the embedded registry it shows the files of that, and changes nothing.
"""

from __future__ import annotations

import os
import re
from argparse import REMAINDER, ArgumentParser, Namespace
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError
from ottla.cli.four_letter_words import WORDS, ask
from ottla.cli.registry_files import RegistryFiles
from ottla.cli.znode_commands import ZnodeCommands
from ottla.cli.zookeeper_session import address, connect, reachable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.cli.terminal import Terminal

WORD: Final = re.compile(r"\"(.*?)\"|'(.*?)'|(\S+)")
"""As in zkCli: quotes group only a word that begins with one, so JSON needs none."""


class ZooKeeperShellCommand(Command):
    """Runs one command, or commands from stdin, one on a line."""

    name = "zookeeper-shell"
    examples = (
        "ottla zookeeper-shell localhost:2181",
        "ottla zookeeper-shell localhost:2181 ls /brokers/ids",
        "ottla zookeeper-shell localhost:2181/kafka get -s /brokers/ids/0",
        "ottla zookeeper-shell localhost:2181 mntr",
        "ottla zookeeper-shell /tmp/ottla-logs ls /brokers/ids",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "server",
            metavar="HOST:PORT[/PATH]",
            help="The server, and the path that stands for /; or the data directory of a broker "
            "without ZooKeeper, whose registry is shown.",
        )
        parser.add_argument(
            "command",
            metavar="COMMAND",
            nargs=REMAINDER,
            help="What to do; without it commands are read from stdin. 'help' lists them.",
        )

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        if os.path.isdir(arguments.server):
            return self._show_files(arguments, terminal)

        servers, chroot = address(arguments.server)
        host, port = reachable(servers)
        terminal.note(f"Connecting to {arguments.server}")
        if len(arguments.command) == 1 and arguments.command[0] in WORDS:
            # This needs no session: a server that refuses sessions still answers these words.
            terminal.print(ask(host, port, arguments.command[0]).rstrip("\n"))
            return 0
        client = connect(servers, chroot, arguments.log_level)
        try:
            commands = ZnodeCommands(client, partial(ask, host, port))
            run(commands, arguments.command, terminal, f"{host}:{port}{chroot}")
        finally:
            client.stop()
            client.close()
        return 0

    def _show_files(self, arguments: Namespace, terminal: Terminal) -> int:
        files = RegistryFiles(arguments.server)
        commands = ZnodeCommands(files, files.ask)
        run(commands, arguments.command, terminal, files.directory)
        return 0


def run(commands: ZnodeCommands, words: Sequence[str], terminal: Terminal, server: str) -> None:
    """Run one command, or without words those of stdin."""
    if words:
        for line in commands.run(words):
            terminal.print(line)
    else:
        converse(commands, terminal, server)


def converse(commands: ZnodeCommands, terminal: Terminal, server: str) -> None:
    """Run each line until `quit` or the end; a mistake is reported, and the next line is read."""
    terminal.print("Welcome to ZooKeeper!")
    for line in _lines(terminal, server):
        words = [next(filter(None, groups), "") for groups in WORD.findall(line)]
        if not words:
            continue
        if words[0] in ("quit", "close", "exit"):
            return
        try:
            for result in commands.run(words):
                terminal.print(result)
        except CommandError as error:
            terminal.note(str(error))
        terminal.out.flush()


def _lines(terminal: Terminal, server: str) -> Iterator[str]:
    """The lines of stdin; with a prompt where it is a terminal."""
    if not terminal.source.isatty():
        for line in terminal.source:
            yield line.decode("utf-8", "replace")
        return
    import readline  # noqa: F401 - gives `input` its history and its keys

    count = 0
    while True:
        try:
            yield input(f"[zk: {server}(CONNECTED) {count}] ")
        except EOFError:
            return
        count += 1
