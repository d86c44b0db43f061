"""`ottla version`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ottla.cli.command import Command
from ottla.cli.terminal import Terminal
from ottla.version import __version__


class VersionCommand(Command):
    """Prints the version of Ottla."""

    name = "version"
    help = "Print the version of Ottla."

    def add_arguments(self, parser: ArgumentParser) -> None:
        pass

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        terminal.print(f"ottla {__version__}")
        return 0
