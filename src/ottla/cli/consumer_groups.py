"""`ottla consumer-groups`: lists groups, shows their topics and lag, and moves their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.cli.command import Command
from ottla.cli.command_error import UsageError
from ottla.cli.consumer_group_deletion import delete_groups, delete_offsets
from ottla.cli.consumer_group_description import describe_groups
from ottla.cli.consumer_group_listing import chosen_groups, list_groups
from ottla.cli.offset_reset import reset_offsets
from ottla.cli.options import (
    LARGEST_INT,
    add_bootstrap_server,
    add_command_config,
    add_flag,
    add_integer,
    add_repeated,
    add_unused_zookeeper,
    bootstrap_server,
    forbid_with,
    one_of,
    only_with,
    require,
)
from ottla.cli.property_files import command_settings
from ottla.cli.table import TEXT, add_format
from ottla.cli.times import duration_ms, timestamp_ms

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from ottla.cli.terminal import Terminal


ACTIONS: Final = ("--list", "--describe", "--delete", "--delete-offsets", "--reset-offsets")
SCENARIOS: Final = (
    "--to-datetime",
    "--by-duration",
    "--to-earliest",
    "--to-latest",
    "--shift-by",
    "--from-file",
    "--to-current",
    "--to-offset",
)


class ConsumerGroupsCommand(Command):
    """Lists, describes and deletes consumer groups, and resets or deletes their offsets."""

    name = "consumer-groups"
    examples = (
        "ottla consumer-groups --bootstrap-server localhost:9092 --list",
        "ottla consumer-groups --bootstrap-server localhost:9092 --describe --group my-group",
        "ottla consumer-groups --bootstrap-server localhost:9092 --reset-offsets --group my-group"
        " --topic test --to-earliest --execute",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_bootstrap_server(parser)
        add_unused_zookeeper(parser)
        add_command_config(parser)
        _add_actions(parser)
        _add_views(parser)
        _add_reset(parser)
        _add_scenarios(parser)

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        action = check(arguments)
        servers = bootstrap_server(arguments)
        settings = command_settings(arguments)
        if arguments.timeout is not None:
            settings["default.api.timeout.ms"] = str(arguments.timeout)
        with terminal.admin(servers, settings) as admin:
            if action == "--list":
                return list_groups(admin, arguments, terminal)
            if action == "--describe":
                return describe_groups(admin, arguments, terminal)
            if action == "--delete":
                return delete_groups(admin, arguments, terminal)
            if action == "--delete-offsets":
                return delete_offsets(admin, arguments, terminal)

            return reset_offsets(admin, chosen_groups(admin, arguments), arguments, terminal)


def _add_actions(parser: ArgumentParser) -> None:
    add_flag(parser, "--list", "List the groups, an id per line.")
    add_flag(
        parser,
        "--describe",
        "Show committed offsets, log ends and lag of a group; or see --members and --state.",
    )
    add_flag(parser, "--delete", "Delete groups that have no members, with offsets.")
    add_flag(
        parser,
        "--delete-offsets",
        "Have a group forget what it has committed for a --topic that it does not read now.",
    )
    add_flag(
        parser,
        "--reset-offsets",
        "Set the offsets of a group that has no members. Needs one of --to-datetime, "
        "--by-duration, --to-earliest, --to-latest, --shift-by, --from-file, --to-current and "
        "--to-offset, and the scope: --topic or --all-topics.",
    )
    add_format(parser)
    add_repeated(parser, "--group", "ID", "The group; may be repeated.")
    add_flag(parser, "--all-groups", "Every group there is.")
    add_integer(
        parser,
        "--timeout",
        "MS",
        "How long the tool may wait for answers, in place of default.api.timeout.ms.",
        least=0,
        most=LARGEST_INT,
    )


def _add_views(parser: ArgumentParser) -> None:
    add_flag(
        parser,
        "--offsets",
        "Describe the partitions with their offsets and lag; this is the default.",
    )
    add_flag(parser, "--members", "Describe the members of the group.")
    add_flag(
        parser,
        "--verbose",
        "Show which partitions each member has (--members), and epochs (also --state).",
    )
    parser.add_argument(
        "--state",
        metavar="STATE,...",
        nargs="?",
        const="",
        help="With --describe: the coordinator, assignor, state and number of members. With "
        "--list: the state of each group, or only groups in these states.",
    )
    parser.add_argument(
        "--type",
        metavar="TYPE,...",
        nargs="?",
        const="",
        help="With --list: the type of each group, or only groups of these types: classic, "
        "consumer.",
    )


def _add_reset(parser: ArgumentParser) -> None:
    add_repeated(
        parser,
        "--topic",
        "TOPIC[:P,P...]",
        "Reset, or delete the offsets of, this topic or these of its partitions; may be repeated.",
    )
    add_flag(parser, "--all-topics", "Reset every topic that the group has offsets of.")
    add_flag(parser, "--dry-run", "Only show what would be reset; the default.")
    add_flag(parser, "--execute", "Reset the offsets.")
    add_flag(
        parser,
        "--export",
        "Print the new offsets as CSV: topic,partition,offset, with the group in front "
        "where there are several. --from-file reads it.",
    )


def _add_scenarios(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--to-datetime",
        metavar="DATETIME",
        help="Reset to the first record since a moment, YYYY-MM-DDTHH:mm:SS.sss with an "
        "optional zone such as Z or +02:00; UTC without one.",
    )
    parser.add_argument(
        "--by-duration",
        metavar="DURATION",
        help="Reset to the first record since a duration ago, PnDTnHnMnS.",
    )
    add_flag(parser, "--to-earliest", "Reset to the earliest offset.")
    add_flag(parser, "--to-latest", "Reset to the log end.")
    add_integer(
        parser,
        "--shift-by",
        "N",
        "Move each committed offset by N, which may be negative; never out of the log.",
    )
    parser.add_argument("--from-file", metavar="FILE", help="Reset to the offsets of a CSV file.")
    add_flag(
        parser, "--to-current", "Reset to the committed offset, or the log end where there is none."
    )
    add_integer(parser, "--to-offset", "OFFSET", "Reset to an offset; never out of the log.")


def check(arguments: Namespace) -> str:
    """The action, once it is clear that the options fit it and each other."""
    action = one_of(arguments, ACTIONS)
    forbid_with(arguments, "--group", ("--all-groups", "--list"))
    if action != "--list" and not (arguments.group or arguments.all_groups):
        raise UsageError(f"option {action} needs --group or --all-groups")
    only_with(arguments, ("--members", "--offsets", "--verbose"), "--describe")
    only_with(arguments, ("--type",), "--list")
    for view in ("--members", "--offsets", "--state"):
        forbid_with(arguments, view, ("--members", "--offsets", "--state"))
    if action == "--describe" and arguments.state:
        raise UsageError(f"option --state takes no value with --describe, not '{arguments.state}'")
    forbid_with(arguments, "--state", ("--delete", "--delete-offsets", "--reset-offsets"))
    if arguments.format != TEXT and action in ("--delete", "--delete-offsets"):
        raise UsageError(f"--format {arguments.format} cannot be used with {action}")
    if arguments.format != TEXT and arguments.export:
        raise UsageError(f"--format {arguments.format} cannot be used with --export, which is CSV")
    if action == "--delete-offsets":
        require(arguments, "--group", "--topic")
    elif arguments.topic:
        only_with(arguments, ("--topic",), "--reset-offsets")
    reset_options = ("--all-topics", "--dry-run", "--execute", "--export", *SCENARIOS)
    only_with(arguments, reset_options, "--reset-offsets")
    if action == "--reset-offsets":
        _check_reset(arguments)
    return action


def _check_reset(arguments: Namespace) -> None:
    one_of(arguments, SCENARIOS)
    forbid_with(arguments, "--dry-run", ("--execute",))
    forbid_with(arguments, "--topic", ("--all-topics",))
    if not (arguments.topic or arguments.all_topics or arguments.from_file is not None):
        raise UsageError("--reset-offsets needs a scope: --topic or --all-topics")
    if arguments.to_datetime is not None:
        timestamp_ms(arguments.to_datetime)  # a mistake in it is reported before anything else
    if arguments.by_duration is not None:
        duration_ms(arguments.by_duration)
