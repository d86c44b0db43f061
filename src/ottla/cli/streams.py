"""`ottla streams reset`: an application of the stream API starts from scratch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError
from ottla.cli.options import (
    add_bootstrap_server,
    add_command_config,
    add_flag,
    bootstrap_server,
    require,
)
from ottla.cli.property_files import command_settings
from ottla.streams.naming import STATE_DIR
from ottla.streams.reset import Reset

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from ottla.cli.terminal import Terminal

ACTIONS = ("reset",)


class StreamsCommand(Command):
    """Resets a stopped application: its offsets, its state and its output."""

    name = "streams"
    examples = (
        "ottla streams reset --bootstrap-server localhost:9092 --application-id word-count",
        "ottla streams reset --bootstrap-server localhost:9092 --application-id word-count "
        "--intermediate-topics words --dry-run",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("action", metavar="ACTION", choices=ACTIONS, help="`reset`.")
        add_bootstrap_server(parser)
        add_command_config(parser)
        parser.add_argument(
            "--application-id", metavar="ID", help="Required. The application; it must not run."
        )
        parser.add_argument(
            "--state-dir",
            metavar="DIR",
            default=STATE_DIR,
            help=f"Its folder for checkpoints and state. Default: {STATE_DIR}.",
        )
        parser.add_argument(
            "--intermediate-topics",
            metavar="TOPIC,...",
            help="Intermediate topics that only this application uses: all their records are "
            "deleted.",
        )
        add_flag(parser, "--dry-run", "Say what would be deleted, and delete nothing.")

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        require(arguments, "--application-id")
        servers = bootstrap_server(arguments)
        names = (arguments.intermediate_topics or "").split(",")
        intermediate = [name.strip() for name in names if name.strip()]
        with terminal.admin(servers, command_settings(arguments)) as admin:
            try:
                reset = Reset.plan(
                    admin, arguments.application_id, Path(arguments.state_dir), intermediate
                )
                if not arguments.dry_run:
                    reset.carry_out(admin)
            except ValueError as error:
                raise CommandError(str(error)) from None
        _show(reset, "would delete" if arguments.dry_run else "deleted", terminal)
        return 0


def _show(reset: Reset, verb: str, terminal: Terminal) -> None:
    lines = [f"the topic {name}" for name in reset.topics]
    lines += [f"the records of {name}" for name in reset.emptied_topics]
    lines += [f"the group {name}" for name in reset.groups]
    if reset.folder is not None:
        lines.append(str(reset.folder))
    for line in lines:
        terminal.print(f"{verb} {line}")
    if not lines:
        terminal.print("there is nothing to delete")
    for name, other in reset.left_topics.items():
        terminal.print(f"left the topic {name}: it may be of the application {other}")
