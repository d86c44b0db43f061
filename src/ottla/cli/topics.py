"""`ottla topics`: the options, and the actions that change topics."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.console_consumer import partitions_of
from ottla.cli.options import (
    LARGEST_INT,
    LARGEST_SHORT,
    add_bootstrap_server,
    add_command_config,
    add_flag,
    add_integer,
    add_repeated,
    add_zookeeper,
    bootstrap_server,
    bootstrap_server_or_zookeeper,
    forbid_with,
    given,
    key_values,
    one_of,
    only_with,
    require,
)
from ottla.cli.property_files import command_settings
from ottla.cli.table import TEXT, add_format
from ottla.cli.tail import Tail
from ottla.cli.topic_views import (
    describe_nodes,
    describe_topics,
    existing_topics,
    list_nodes,
    list_topics,
    show_topics,
)
from ottla.cli.zookeeper_session import session
from ottla.cli.zookeeper_topics import ZooKeeperTopics
from ottla.clients.admin.descriptions import AlterConfigOp, ConfigResource, NewTopic
from ottla.config.whole_number import number_of
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import INTERNAL_TOPICS, ConfigSource

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Collection

    from ottla import Admin, Producer
    from ottla.cli.terminal import Progress, Terminal
    from ottla.clients.producer.producer_batch import RecordFuture


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
            with session(arguments.zookeeper, arguments.log_level) as client:
                run_in_zookeeper(action, ZooKeeperTopics(client), arguments, terminal)
            return 0
        settings = command_settings(arguments)
        servers = bootstrap_server_or_zookeeper(arguments, settings)
        with terminal.admin(servers, settings) as admin:
            return run_on_brokers(action, admin, arguments, terminal)


def run_on_brokers(action: str, admin: Admin, arguments: Namespace, terminal: Terminal) -> int:
    """Run an action through the brokers; 1 where a broker has not answered."""
    if action in ("--list", "--describe") and arguments.format != TEXT:
        return show_topics(admin, arguments, terminal)
    if action == "--create":
        create_topic(admin, arguments, terminal)
    elif action == "--copy":
        copy_topic(admin, arguments, terminal)
    elif action == "--list":
        list_topics(admin, arguments, terminal)
    elif action == "--describe":
        describe_topics(admin, arguments, terminal)
    elif action == "--alter":
        alter_topics(admin, arguments, terminal)
    else:
        delete_topics(admin, arguments, terminal)
    return 0


def run_in_zookeeper(
    action: str, nodes: ZooKeeperTopics, arguments: Namespace, terminal: Terminal
) -> None:
    """Run an action on ZooKeeper's nodes; deletions are requested of the brokers."""
    if action == "--list":
        list_nodes(nodes, arguments, terminal)
    elif action == "--describe":
        describe_nodes(nodes, arguments, terminal)
    else:
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
        least=1,
        most=LARGEST_INT,
    )
    add_integer(
        parser,
        "--replication-factor",
        "COUNT",
        "How many brokers keep each partition. Default: default.replication.factor.",
        least=1,
        most=LARGEST_SHORT,
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


COLLISION_WARNING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') "
    "could collide. To avoid issues it is best to use either, but not both."
)


def create_topic(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """Create the topic and say so."""
    name: str = arguments.topic
    if "." in name or "_" in name:
        terminal.print(COLLISION_WARNING)
    wanted = arguments.replica_assignment
    topic = NewTopic(
        name,
        num_partitions=_or_default(arguments.partitions),
        replication_factor=_or_default(arguments.replication_factor),
        replica_assignment=parse_assignment(wanted) if wanted else None,
        configs=topic_settings(arguments.config),
    )
    try:
        admin.create_topics([topic])
    except KafkaError as error:
        if error.error is ErrorCode.TOPIC_ALREADY_EXISTS and arguments.if_not_exists:
            return
        raise
    terminal.print(f"Created topic {name}.")


def topic_settings(pairs: list[str]) -> dict[str, str]:
    """The settings of `key=value` arguments; each must have a value."""
    for pair in pairs:
        if "=" not in pair:
            raise UsageError(f"--config takes key=value, not '{pair}'")
    return {key: value.strip() for key, value in key_values(pairs).items()}


def parse_assignment(text: str) -> dict[int, list[int]]:
    """`0:1,1:2` as the replicas of each partition, all partitions having as many."""
    assignment: dict[int, list[int]] = {}
    for partition, listed in enumerate(text.split(",")):
        ids = [number_of(broker.strip()) for broker in listed.split(":")]
        assignment[partition] = [broker for broker in ids if broker is not None]
        if None in ids:
            raise UsageError(f"--replica-assignment takes broker ids like 0:1,1:2, not '{text}'")
    for partition, brokers in assignment.items():
        if len(set(brokers)) != len(brokers):
            raise UsageError(f"partition {partition} names a broker twice: {brokers}")
        if len(brokers) != len(assignment[0]):
            raise UsageError(
                f"partition {partition} has {len(brokers)} replicas, partition 0 has "
                f"{len(assignment[0])}; all partitions need as many"
            )
    return assignment


def _or_default(count: int | None) -> int:
    """-1 leaves the choice to the broker (KIP-464)."""
    return -1 if count is None else count


READER_SETTINGS: Final = {
    "client.id": "topics-copy",
    "isolation.level": "read_committed",
    "enable.auto.commit": "false",
    "allow.auto.create.topics": "false",
}
WRITER_SETTINGS: Final = {"client.id": "topics-copy", "acks": "all", "linger.ms": "20"}
MAX_UNDER_WAY: Final = 10_000


def copy_topic(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """Create a topic like this one, and send it the records that this one has now.

    Partition, key, value, headers and timestamp stay. Offsets do not where the log has gaps: of
    compaction, markers, and aborted transactions.
    """
    source, target = arguments.topic, arguments.to
    settings, servers = command_settings(arguments), bootstrap_server(arguments)
    with terminal.clients.consumer(servers, settings | READER_SETTINGS) as consumer:
        tail = Tail(consumer, partitions_of(consumer, source))
        admin.create_topics([topic_like(admin, source, target)])
        with (
            terminal.clients.producer(servers, settings | WRITER_SETTINGS) as producer,
            terminal.progress(f"{source} to {target}") as progress,
        ):
            _send_copies(producer, target, tail, progress)
    terminal.print(f"Copied {progress.done} records of {source} to {target}.")


def topic_like(admin: Admin, source: str, target: str) -> NewTopic:
    """A topic with as many partitions and replicas, and the settings made for the source."""
    partitions = admin.describe_topics([source])[source].partitions
    resource = ConfigResource.topic(source)
    settings = admin.describe_configs([resource])[resource]
    own = {
        name: each.value
        for name, each in settings.items()
        if each.source is ConfigSource.DYNAMIC_TOPIC_CONFIG and each.value is not None
    }
    return NewTopic(target, len(partitions), len(partitions[0].replicas), configs=own)


def _send_copies(producer: Producer, target: str, tail: Tail, progress: Progress) -> None:
    """Send every record of the source; the first one that is refused ends it."""
    total = sum(end - tail.starts[each] for each, end in tail.ends.items())
    under_way: deque[RecordFuture] = deque()
    try:
        for record in tail.read(tail.starts):
            future = producer.send(
                target,
                record.value,
                key=record.key,
                headers=record.headers,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms if record.timestamp_ms >= 0 else None,
            )
            under_way.append(future)
            progress.advance(1, total)
            if len(under_way) > MAX_UNDER_WAY:
                under_way.popleft().result()
        producer.flush()
        for future in under_way:
            future.result()
    except KafkaError as error:
        raise CommandError(
            f"topic '{target}' is not complete, at most {progress.done} records were copied: "
            f"{error.message} ({error.error.name})"
        ) from error


def delete_topics(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """Delete the topics that match and print each; a person confirms the matches of a pattern."""
    names = chosen_topics(admin.list_topics(), arguments.topic, if_exists=arguments.if_exists)
    if not names:
        return
    if names != [arguments.topic]:
        confirm(names, arguments, terminal)
    failed: dict[str, KafkaError] = {}
    try:
        admin.delete_topics(names)
    except KafkaError as error:
        results = getattr(error, "results", {})
        failed = {name: each for name, each in results.items() if isinstance(each, KafkaError)}
        if len(names) == 1 or not failed:
            raise
    for name in names:
        if name not in failed:
            terminal.print(f"Deleted topic {name}.")
    for name, refusal in failed.items():
        terminal.note(f"Error: topic '{name}' was not deleted: {refusal.message}")
    if failed:
        raise CommandError(f"{len(failed)} of {len(names)} topics were not deleted")


def chosen_topics(topics: Collection[str], expression: str, *, if_exists: bool) -> list[str]:
    """The topics to delete; an internal one only where it is named itself."""
    matched = existing_topics(topics, expression, if_exists=if_exists)
    named = {part.strip(" \"'") for part in expression.split(",")}
    names = [name for name in matched if name not in INTERNAL_TOPICS or name in named]
    if matched and not names:
        raise CommandError(
            f"'{expression}' matches internal topics only, which a pattern does not delete: "
            f"{', '.join(matched)}"
        )
    return names


def confirm(names: list[str], arguments: Namespace, terminal: Terminal) -> None:
    """List the topics; on a terminal, without --force, their number has to be typed."""
    terminal.note(f"Topics that '{arguments.topic}' matches, to be deleted with their records:")
    for name in names:
        terminal.note(f"  {name}")
    if arguments.force or not terminal.can_ask:
        return
    answer = terminal.ask(f"Type their number, {len(names)}, to delete them: ")
    if answer != str(len(names)):
        raise CommandError(f"nothing was deleted: '{answer}' is not {len(names)}")


def delete_nodes(
    admin: Admin, nodes: ZooKeeperTopics, arguments: Namespace, terminal: Terminal
) -> None:
    """Delete topics through the brokers, with the output of Kafka's ZooKeeper tool."""
    marked = nodes.marked_for_deletion()
    names = chosen_topics(nodes.list_topics(), arguments.topic, if_exists=arguments.if_exists)
    if names and names != [arguments.topic]:
        confirm(names, arguments, terminal)
    for name in names:
        if name in marked:
            terminal.print(f"Topic {name} is already marked for deletion.")
            continue
        admin.delete_topics([name])
        terminal.print(
            f"Topic {name} is marked for deletion.\n"
            "Note: This will have no impact if delete.topic.enable is not set to true."
        )


CONFIGS_WARNING: Final = (
    "WARNING: Altering topic configuration from this script has been deprecated and may be "
    "removed in future releases.\n"
    "         Going forward, please use 'ottla configs' for this functionality"
)
KEYS_WARNING: Final = (
    "WARNING: If partitions are increased for a topic that has a key, the partition logic or "
    "ordering of the messages will be affected"
)
"""Kafka's tool says so where it changes the nodes itself, with --zookeeper."""


def alter_topics(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """Add partitions to the topics that match, and change their settings."""
    if not (arguments.partitions or arguments.config or arguments.delete_config):
        raise UsageError("--alter needs --partitions, --config or --delete-config")
    names = existing_topics(admin.list_topics(), arguments.topic, if_exists=arguments.if_exists)
    if arguments.config or arguments.delete_config:
        _change_settings(admin, names, arguments, terminal)
    if arguments.partitions:
        for name in names:
            _add_partitions(admin, name, arguments, terminal)


def _change_settings(
    admin: Admin, names: list[str], arguments: Namespace, terminal: Terminal
) -> None:
    settings = topic_settings(arguments.config)
    operations = [AlterConfigOp(key, value, "SET") for key, value in settings.items()]
    operations += [AlterConfigOp(key, None, "DELETE") for key in arguments.delete_config]
    for name in names:
        terminal.print(CONFIGS_WARNING)
        admin.incremental_alter_configs({ConfigResource.topic(name): operations})
        terminal.print(f"Updated config for topic {name}.")


def _add_partitions(admin: Admin, name: str, arguments: Namespace, terminal: Terminal) -> None:
    assignments = None
    if arguments.zookeeper:
        terminal.print(KEYS_WARNING)
    if arguments.replica_assignment:
        replicas = parse_assignment(arguments.replica_assignment)
        # The list covers all partitions, also those that exist; the broker wants the new ones.
        existing = len(admin.describe_topics([name])[name].partitions)
        assignments = {name: [replicas[p] for p in sorted(replicas)][existing:]}
    admin.create_partitions({name: arguments.partitions}, assignments)
    if arguments.zookeeper:
        terminal.print("Adding partitions succeeded!")
