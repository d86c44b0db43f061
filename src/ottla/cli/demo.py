"""`ottla demo`: events through a broker and a Spark pipeline into a report, in one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.command import Command
from ottla.cli.command_error import require_packages
from ottla.cli.console_process import add_console_of_run
from ottla.cli.options import add_integer
from ottla.runtime.own_folder import own_folder

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from ottla.cli.terminal import Terminal

DEFAULT_OUTPUT = "demo-output"


class DemoCommand(Command):
    """Starts a broker, publishes web-site events, runs a pipeline, checks and reports."""

    name = "demo"
    examples = ("ottla demo --events 20000", "ottla demo --log access.log --output report")

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--log",
            metavar="PATH",
            help="Replay this access log, also from gzip or zstd. Default: generated events.",
        )
        add_integer(parser, "--events", "N", "Generate so many events. Default: 100000.", least=1)
        add_integer(
            parser,
            "--seed",
            "S",
            "Generate other events: the same seed makes the same ones. Default: 2011.",
        )
        parser.add_argument(
            "--output",
            metavar="DIR",
            default=DEFAULT_OUTPUT,
            help="Folder for the Parquet tables and report.html; what a former run left in it is "
            f"replaced. Default: {DEFAULT_OUTPUT}.",
        )
        add_console_of_run(parser)

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        require_packages()
        from ottla.cli.demo_run import event_source, run_demo  # PySpark

        source = event_source(arguments)
        with own_folder("ottla-demo-") as folder:
            output = Path(arguments.output)
            return run_demo(terminal, source, output, folder, has_console=arguments.console)
