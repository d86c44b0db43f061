"""`ottla leader-election`, and its older form `ottla preferred-replica-election`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.options import (
    LARGEST_INT,
    add_bootstrap_server,
    add_flag,
    add_integer,
    add_zookeeper,
    bootstrap_server,
    one_of,
    require,
)
from ottla.cli.partition_files import read_partitions
from ottla.cli.property_files import settings_in
from ottla.cli.zookeeper_election import start_preferred_election
from ottla.errors import ErrorCode
from ottla.structs import ElectionType, NamedTuple, TopicPartition

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Sequence

    from ottla import Admin
    from ottla.cli.terminal import Terminal


class LeaderElectionCommand(Command):
    """Elects preferred leaders, or unclean ones where no in-sync replica is alive."""

    name = "leader-election"
    examples = (
        "ottla leader-election --bootstrap-server localhost:9092 --election-type preferred "
        "--all-topic-partitions",
        "ottla leader-election --bootstrap-server localhost:9092 --election-type unclean "
        "--topic test --partition 0",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_bootstrap_server(parser)
        parser.add_argument(
            "--election-type",
            metavar="TYPE",
            type=str.lower,
            choices=("preferred", "unclean"),
            help="Required: preferred or unclean.",
        )
        parser.add_argument("--topic", metavar="NAME", help="Elect in this topic's --partition.")
        add_integer(
            parser, "--partition", "N", "The partition of --topic.", least=0, most=LARGEST_INT
        )
        add_flag(parser, "--all-topic-partitions", "Elect leaders of all partitions that need it.")
        add_partition_file(parser)
        add_admin_config(parser)

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        servers = bootstrap_server(arguments)
        require(arguments, "--election-type")
        action = one_of(arguments, ("--topic", "--all-topic-partitions", FILE_OPTION))
        if (arguments.topic is None) != (arguments.partition is None):
            raise UsageError("--topic and --partition are used together")
        partitions: list[TopicPartition] | None = None
        if action == "--topic":
            partitions = [TopicPartition(arguments.topic, arguments.partition)]
        elif action == FILE_OPTION:
            partitions = read_partitions(arguments.path_to_json_file)
        election = ElectionType[arguments.election_type.upper()]
        words = Wording(
            f"Successfully completed leader election ({election.name}) for partitions",
            "Valid replica already elected for partitions",
            f"Error completing leader election ({election.name}) for partition:",
            "replica(s) could not be elected",
        )
        return elect(servers, arguments, terminal, election, partitions, words)


class PreferredReplicaElectionCommand(Command):
    """Elects preferred leaders, with the options of the older tool."""

    name = "preferred-replica-election"
    examples = (
        "ottla preferred-replica-election --bootstrap-server localhost:9092",
        "ottla preferred-replica-election --zookeeper localhost:2181/kafka",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_bootstrap_server(parser)
        add_zookeeper(parser)
        add_partition_file(parser)
        add_admin_config(parser)

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        path = arguments.path_to_json_file
        if arguments.zookeeper and not arguments.bootstrap_server:
            partitions = None if path is None else read_partitions(path)
            start_preferred_election(arguments.zookeeper, arguments.log_level, partitions, terminal)
            return 0
        servers = bootstrap_server(arguments)
        partitions = None if path is None else read_partitions(path)
        return elect(servers, arguments, terminal, ElectionType.PREFERRED, partitions, PREFERRED)


FILE_OPTION = "--path-to-json-file"


class Wording(NamedTuple):
    """The texts of a tool's report: partitions follow; `failures` follows a number."""

    done: str
    not_needed: str | None
    """None for the tool that reports a leader that was right already as elected."""
    failed: str
    failures: str


PREFERRED = Wording(
    "Successfully completed preferred replica election for partitions",
    None,
    "Error completing preferred replica election for partition",
    "preferred replica(s) could not be elected",
)


def add_partition_file(parser: ArgumentParser) -> None:
    parser.add_argument(
        FILE_OPTION,
        metavar="FILE",
        help='Elect in these: {"partitions": [{"topic": "t", "partition": 0}]}.',
    )


def add_admin_config(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--admin.config",
        dest="admin_config",
        metavar="FILE",
        help="Property file with settings for the tool's own client.",
    )


def admin_settings(arguments: Namespace) -> dict[str, str]:
    """The settings of the file that --admin.config names; none without it."""
    return settings_in(arguments.admin_config)


def elect(
    servers: str,
    arguments: Namespace,
    terminal: Terminal,
    election: ElectionType,
    partitions: Sequence[TopicPartition] | None,
    words: Wording,
) -> int:
    """Elect leaders and print each outcome; raises CommandError if some failed."""
    with terminal.admin(servers, admin_settings(arguments)) as admin:
        if partitions is None and words.not_needed is None:
            partitions = all_partitions(admin)
        outcomes = admin.elect_leaders(election, partitions)
    done: list[str] = []
    not_needed = done if words.not_needed is None else []
    failed = []
    for partition, error in sorted(outcomes.items()):
        if error is None:
            done.append(str(partition))
        elif error.error is ErrorCode.ELECTION_NOT_NEEDED:
            not_needed.append(str(partition))
        else:
            failed.append((partition, error))
    if done:
        terminal.print(f"{words.done} {', '.join(done)}")
    if not_needed and words.not_needed is not None:
        terminal.print(f"{words.not_needed} {', '.join(not_needed)}")
    for partition, error in failed:
        terminal.print(f"{words.failed} {partition}: {error}")
    if failed:
        raise CommandError(f"{len(failed)} {words.failures}")
    if not outcomes:
        terminal.remark("no partition needed an election")
    return 0


def all_partitions(admin: Admin) -> list[TopicPartition]:
    """Every partition of the cluster, also of internal topics."""
    return [
        TopicPartition(name, each.partition)
        for name, topic in admin.describe_topics(sorted(admin.list_topics())).items()
        for each in topic.partitions
    ]
