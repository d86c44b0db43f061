"""`ottla site`: one stream of activity, and every reader of it at the same time."""

from __future__ import annotations

import shutil
import threading
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError, require_packages
from ottla.cli.console_process import ConsoleProcess, add_console_of_run
from ottla.cli.options import add_integer
from ottla.cli.terminal import Terminal, interruptible
from ottla.pipelines.access_log import AccessLog, LogError
from ottla.pipelines.site_traffic import DEFAULT_SEED

if TYPE_CHECKING:
    from ottla.site.ledger import Entry

DEFAULT_OUTPUT = "site-output"
DEFAULT_SECONDS, DEFAULT_RATE, DEFAULT_SPEED = 180, 100, 60
CLUSTER_SIZES = (1, 3)


class SiteCommand(Command):
    """Publishes the activity of a site once, has all its readers read it, and counts."""

    name = "site"
    examples = (
        "ottla site --duration 60",
        "ottla site --cluster 3 --incidents",
        "ottla site --log access.log --speed 3600",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_integer(
            parser,
            "--duration",
            "SECONDS",
            f"Make activity up for so long. Default: {DEFAULT_SECONDS}.",
            least=1,
        )
        add_integer(
            parser,
            "--rate",
            "N",
            f"Make up so many events a second. Default: {DEFAULT_RATE}.",
            least=1,
        )
        add_integer(
            parser,
            "--seed",
            "S",
            "Make up other activity: the same seed makes the same. Default: 2011.",
        )
        parser.add_argument("--log", metavar="PATH", help="Replay this access log instead.")
        add_integer(
            parser,
            "--speed",
            "N",
            f"Replay the log N times as fast as it was written. Default: {DEFAULT_SPEED}.",
            least=1,
        )
        add_integer(
            parser,
            "--cluster",
            "N",
            "Start so many brokers: 1, or 3 with the ZooKeeper of PySpark. Default: 1.",
        )
        parser.add_argument(
            "--incidents",
            action="store_true",
            help="In the middle, kill the readers and, of a cluster, a broker.",
        )
        parser.add_argument(
            "--master",
            default="local[2]",
            metavar="URL",
            help="Where Spark runs. Default: local[2].",
        )
        add_console_of_run(parser)
        parser.add_argument(
            "--output",
            metavar="DIR",
            default=DEFAULT_OUTPUT,
            help="Folder for the page site.html, the readers' results and the brokers' data; what "
            f"a former run left in it is replaced. Default: {DEFAULT_OUTPUT}.",
        )

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        _check(arguments)
        require_packages("deltalake")
        from ottla.site.readers import PAGE
        from ottla.site.whole_site import SiteError, SiteOptions, WholeSite

        folder = Path(arguments.output)
        _make_empty(folder, PAGE)
        options = SiteOptions(
            folder=folder,
            seconds=arguments.duration or DEFAULT_SECONDS,
            rate=arguments.rate or DEFAULT_RATE,
            seed=DEFAULT_SEED if arguments.seed is None else arguments.seed,
            log=None if arguments.log is None else Path(arguments.log),
            speed=arguments.speed or DEFAULT_SPEED,
            brokers=arguments.cluster or 1,
            master=arguments.master,
            with_incidents=arguments.incidents,
            has_progress=arguments.console,
        )
        over = threading.Event()
        status = 0
        with ConsoleProcess(terminal) as console:
            site = WholeSite(options, terminal.print)

            def at_start(servers: str) -> None:
                if arguments.console:
                    console.start(servers, site.page)

            def at_end(entries: list[Entry]) -> None:
                nonlocal status
                status = conclude(entries, site.page, terminal)
                if not over.is_set():
                    console.stay()

            try:
                with interruptible(over):
                    site.run(over.is_set, at_start, at_end)
            except SiteError as error:
                raise CommandError(str(error)) from error
        return status


def conclude(entries: list[Entry], page: Path, terminal: Terminal) -> int:
    """Print the ledger; the exit status is 1 where it does not balance."""
    terminal.print()
    for entry in entries:
        terminal.print(
            f"{entry.reader:<16} {entry.published:>8,} {entry.topic:<13} "
            f"{entry.found:>9,} of {entry.expected:,} {entry.what}: "
            f"{entry.lost} lost, {entry.doubled} doubled"
        )
    lost = sum(entry.lost for entry in entries)
    doubled = sum(entry.doubled for entry in entries)
    terminal.print(f"site: {len(entries)} readers, {lost} lost, {doubled} doubled; {page}")
    return int(not all(entry.is_right for entry in entries))


def _check(arguments: Namespace) -> None:
    """Refuse options that contradict each other, before anything is started."""
    made_up = {"--duration": arguments.duration, "--rate": arguments.rate, "--seed": arguments.seed}
    if arguments.log is not None:
        for name, value in made_up.items():
            if value is not None:
                raise UsageError(f"{name} goes with made-up activity, not with --log")
        if not Path(arguments.log).is_file():
            raise CommandError(f"--log {arguments.log}: there is no such file")
        try:
            AccessLog(Path(arguments.log))
        except LogError as error:
            raise CommandError(f"--log {error}") from None
    elif arguments.speed is not None:
        raise UsageError("--speed goes with --log; made-up activity has a --rate")
    if arguments.cluster is not None and arguments.cluster not in CLUSTER_SIZES:
        raise UsageError(f"--cluster {arguments.cluster}: must be 1 or 3")


def _make_empty(folder: Path, page: str) -> None:
    """Remove a former run; a folder that is none of ours is left alone."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / page).exists() and not (folder / "brokers").exists():
            raise CommandError(f"--output {folder}: has other files in it; name an empty folder")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
