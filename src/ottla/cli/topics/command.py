"""`ottla topics`: the options, and which action they ask for."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from ottla.cli.command import Command
from ottla.cli.command_error import UsageError
from ottla.cli.options import (
    add_bootstrap_server,
    add_command_config,
    add_flag,
    add_integer,
    add_repeated,
    add_zookeeper,
    bootstrap_server_or_zookeeper,
    forbid_with,
    given,
    one_of,
    only_with,
    require,
)
from ottla.cli.properties import command_settings
from ottla.cli.table import TEXT, add_format
from ottla.cli.terminal import Terminal
from ottla.cli.zookeeper_session import session

if TYPE_CHECKING:
    from ottla import Admin
    from ottla.cli.zookeeper_nodes import ZooKeeperTopics

ACTIONS = ("--list", "--describe", "--create", "--copy", "--alter", "--delete")
ZOOKEEPER_ACTIONS = ("--list", "--describe", "--delete")
MIN_ISR_REPORTS = ("--under-min-isr-partitions", "--at-min-isr-partitions")
REPORTS = (
    "--under-replicated-partitions",
    "--unavailable-partitions",
    *MIN_ISR_REPORTS,
    "--topics-with-overrides",
)


class TopicsCommand(Command):
    """Creates, lists, describes, copies, alters and deletes topics."""

    name = "topics"
    help = "Create, list, describe, copy, alter and delete topics."
    examples = (
        "ottla topics --create --bootstrap-server localhost:9092 --partitions 3 --topic test",
        "ottla topics --list --bootstrap-server localhost:9092",
        "ottla topics --describe --bootstrap-server localhost:9092 --topic test",
        "ottla topics --copy --topic test --to test-copy",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_bootstrap_server(parser)
        add_zookeeper(parser)
        add_command_config(parser)
        _add_actions(parser)
        _add_settings(parser)
        _add_filters(parser)

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        action = check(arguments)
        if arguments.zookeeper and not arguments.bootstrap_server and action in ZOOKEEPER_ACTIONS:
            from ottla.cli.zookeeper_nodes import ZooKeeperTopics

            with session(arguments.zookeeper, arguments.log_level) as client:
                run_in_zookeeper(action, ZooKeeperTopics(client), arguments, terminal)
            return 0
        settings = command_settings(arguments)
        servers = bootstrap_server_or_zookeeper(arguments, settings)
        with terminal.admin(servers, settings) as admin:
            run_on_brokers(action, admin, arguments, terminal)
        return 0


def run_on_brokers(action: str, admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """Run an action through the brokers."""
    if action == "--create":
        from ottla.cli.topics.create import create_topic

        create_topic(admin, arguments, terminal)
    elif action == "--copy":
        from ottla.cli.topics.create import copy_topic

        copy_topic(admin, arguments, terminal)
    elif action in ("--list", "--describe") and arguments.format != TEXT:
        from ottla.cli.topics.overview import show_topics

        show_topics(admin, arguments, terminal)
    elif action == "--list":
        from ottla.cli.topics.describe import list_topics

        list_topics(admin, arguments, terminal)
    elif action == "--describe":
        from ottla.cli.topics.describe import describe_topics

        describe_topics(admin, arguments, terminal)
    elif action == "--alter":
        from ottla.cli.topics.create import alter_topics

        alter_topics(admin, arguments, terminal)
    else:
        from ottla.cli.topics.create import delete_topics

        delete_topics(admin, arguments, terminal)


def run_in_zookeeper(
    action: str, nodes: ZooKeeperTopics, arguments: Namespace, terminal: Terminal
) -> None:
    """Run an action on ZooKeeper's nodes; deletions are requested of the brokers."""
    if action == "--list":
        from ottla.cli.topics.describe import list_nodes

        list_nodes(nodes, arguments, terminal)
    elif action == "--describe":
        from ottla.cli.topics.describe import describe_nodes

        describe_nodes(nodes, arguments, terminal)
    else:
        from ottla.cli.topics.create import delete_nodes

        settings = command_settings(arguments)
        servers = bootstrap_server_or_zookeeper(arguments, settings)
        with terminal.admin(servers, settings) as admin:
            delete_nodes(admin, nodes, arguments, terminal)


def _add_actions(parser: ArgumentParser) -> None:
    add_flag(parser, "--list", "List the topics, a name per line.")
    add_flag(
        parser,
        "--describe",
        "Show each topic with its settings, and leader, replicas and in-sync replicas of "
        "each of its partitions. With --format table or json: offsets, bytes, records a second in "
        "the last minute (by their timestamps), and the groups with their lag.",
    )
    add_flag(parser, "--create", "Create a topic.")
    add_flag(
        parser,
        "--copy",
        "Create a topic like --topic under the name --to, with the records that --topic has now: "
        "partition, key, value, headers and timestamp stay, offsets may not. Records of "
        "transactions that are open or were aborted are left out.",
    )
    add_flag(parser, "--alter", "Add partitions to a topic, or change its settings.")
    add_flag(parser, "--delete", "Delete topics with their records.")
    parser.add_argument(
        "--topic",
        metavar="NAME",
        help="The topic. For every action but --create and --copy it may be a regular expression "
        "that matches whole names; a comma stands for 'or'.",
    )
    parser.add_argument("--to", metavar="NAME", help="The topic that --copy creates.")


def _add_settings(parser: ArgumentParser) -> None:
    add_integer(
        parser,
        "--partitions",
        "COUNT",
        "How many partitions the topic gets (--create), or has in total from now on "
        "(--alter). Default: num.partitions of the broker. Records with a key go to other "
        "partitions once their number has changed.",
    )
    add_integer(
        parser,
        "--replication-factor",
        "COUNT",
        "How many brokers keep each partition. Default: default.replication.factor.",
    )
    parser.add_argument(
        "--replica-assignment",
        metavar="B:B,B:B,...",
        help="The broker ids of the replicas, partition by partition, instead of --partitions "
        "and --replication-factor; the first of each is the preferred leader.",
    )
    add_repeated(
        parser,
        "--config",
        "KEY=VALUE",
        "A setting of the topic; may be repeated (--create, --alter).",
    )
    add_repeated(
        parser,
        "--delete-config",
        "KEY",
        "A setting that goes back to the default of the broker (--alter).",
    )
    add_flag(
        parser,
        "--if-exists",
        "No error where the topic does not exist (--alter, --delete, --describe).",
    )
    add_flag(parser, "--if-not-exists", "No error where the topic exists (--create).")
    add_flag(
        parser,
        "--disable-rack-aware",
        "Place replicas without regard to racks. The broker decides on the placement; "
        "accepted for older scripts.",
    )
    add_flag(
        parser,
        "--force",
        "Delete what a pattern matches without asking; without it a terminal is asked.",
    )


def _add_filters(parser: ArgumentParser) -> None:
    add_flag(
        parser,
        "--under-replicated-partitions",
        "Describe only partitions that have replicas out of sync.",
    )
    add_flag(parser, "--unavailable-partitions", "Describe only partitions without a live leader.")
    add_flag(
        parser,
        "--under-min-isr-partitions",
        "Describe only partitions with fewer replicas in sync than min.insync.replicas.",
    )
    add_flag(
        parser,
        "--at-min-isr-partitions",
        "Describe only partitions with exactly min.insync.replicas replicas in sync.",
    )
    add_flag(
        parser,
        "--topics-with-overrides",
        "Describe only topics that have settings of their own, without their partitions.",
    )
    add_format(parser)
    add_flag(
        parser,
        "--exclude-internal",
        "Leave out internal topics such as __consumer_offsets (--list, --describe).",
    )


def check(arguments: Namespace) -> str:
    """The action; raises UsageError where options do not fit it or each other."""
    action = one_of(arguments, ACTIONS)
    if action in ("--create", "--copy", "--alter", "--delete"):
        require(arguments, "--topic")
    only_with(arguments, ("--to",), "--copy")
    if action == "--copy":
        require(arguments, "--to")
    changes = ("--partitions", "--config", "--replica-assignment")
    for option in changes:
        forbid_with(arguments, option, ("--list", "--describe", "--copy", "--delete"))
    only_with(arguments, ("--delete-config",), "--alter")
    only_with(arguments, ("--replication-factor", "--if-not-exists"), "--create")
    forbid_with(arguments, "--if-exists", ("--list", "--create", "--copy"))
    forbid_with(arguments, "--exclude-internal", ("--create", "--copy", "--alter", "--delete"))
    forbid_with(arguments, "--copy", ("--zookeeper",))
    only_with(arguments, REPORTS, "--describe")
    for report in REPORTS:
        forbid_with(arguments, report, REPORTS)
    for report in MIN_ISR_REPORTS:  # ZooKeeper does not know the brokers' min.insync.replicas
        forbid_with(arguments, report, ("--zookeeper",))
    if arguments.format != TEXT:
        for option in (*REPORTS, "--zookeeper", "--create", "--copy", "--alter", "--delete"):
            if given(arguments, option):
                raise UsageError(f"--format {arguments.format} cannot be used with {option}")
    if action == "--create":
        forbid_with(arguments, "--replica-assignment", ("--partitions", "--replication-factor"))
    return action
