"""`ottla reassign-partitions`: plans, begins, watches and ends moves of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.options import (
    add_bootstrap_server,
    add_command_config,
    add_flag,
    add_integer,
    add_zookeeper,
    bootstrap_server_or_zookeeper,
    check_brokers,
    forbid_with,
    integers,
    one_of,
    only_with,
    require,
)
from ottla.cli.partition_files import (
    Replicas,
    assignment_json,
    read_assignment,
    read_log_dirs,
    read_topics,
)
from ottla.cli.property_files import command_settings
from ottla.cli.reassignment_throttle import ReassignmentThrottle
from ottla.cli.replica_dirs import COMPLETED, IN_PROGRESS, ReplicaDirs, TargetDirs
from ottla.controller.topic_assignment import assign_new_topic
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Mapping

    from ottla import Admin
    from ottla.cli.terminal import Terminal
    from ottla.clients.admin.topics import PartitionReassignment


THROTTLE_WARNING = (
    "Warning: You must run Verify periodically, until the reassignment completes, to ensure the "
    "throttle is removed. You can also alter the throttle by rerunning the Execute command passing "
    "a new value."
)
ACTIONS = ("--generate", "--execute", "--verify", "--list", "--cancel")

Assignment = dict[TopicPartition, Replicas]


class ReassignPartitionsCommand(Command):
    """Moves replicas between brokers as JSON files say."""

    name = "reassign-partitions"
    examples = (
        "ottla reassign-partitions --bootstrap-server localhost:9092 "
        '--topics-to-move-json-file topics.json --broker-list "5,6" --generate',
        "ottla reassign-partitions --bootstrap-server localhost:9092 "
        "--reassignment-json-file plan.json --execute --throttle 50000000",
        "ottla reassign-partitions --bootstrap-server localhost:9092 "
        "--reassignment-json-file plan.json --verify",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        # Here --broker-list has a meaning of its own, as in Kafka's script.
        add_bootstrap_server(parser, older_names=())
        add_zookeeper(parser)
        add_command_config(parser)
        for option, text in (
            ("--generate", "Print a plan that spreads topics over brokers; nothing is moved."),
            ("--execute", "Begin to move partitions as the file says."),
            ("--verify", "Print the state of the moves; when all are done, remove the throttle."),
            ("--list", "Print what is being moved."),
            ("--cancel", "Cancel the moves that the file names; the replicas stay as they were."),
        ):
            add_flag(parser, option, text)
        parser.add_argument(
            "--reassignment-json-file",
            metavar="FILE",
            help='{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1], '
            '"log_dirs": ["any"]}]}; log_dirs may be left out, and may name a directory of each '
            "broker.",
        )
        parser.add_argument(
            "--topics-to-move-json-file",
            metavar="FILE",
            help='For --generate: {"topics": [{"topic": "t"}], "version": 1}.',
        )
        parser.add_argument(
            "--broker-list", metavar="IDS", help="For --generate: the brokers, as 0,1,2."
        )
        add_flag(
            parser, "--disable-rack-aware", "For --generate: do not spread replicas over racks."
        )
        add_integer(
            parser,
            "--throttle",
            "BYTES",
            "For --execute: the most bytes per second that a broker may move; -1 for no limit.",
            least=-1,
        )
        add_integer(
            parser,
            "--replica-alter-log-dirs-throttle",
            "BYTES",
            "For --execute: the most bytes per second that a broker may copy between its own "
            "log directories; -1 for no limit.",
            least=-1,
        )
        add_flag(
            parser,
            "--preserve-throttles",
            "For --verify and --cancel: leave the throttle as it is.",
        )

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        action = one_of(arguments, ACTIONS)
        if action == "--generate":
            require(arguments, "--topics-to-move-json-file", "--broker-list")
            forbid_with(arguments, "--generate", ("--reassignment-json-file", "--throttle"))
        elif action != "--list":
            require(arguments, "--reassignment-json-file")
            only_with(arguments, ("--throttle", "--replica-alter-log-dirs-throttle"), "--execute")
            only_with(arguments, ("--disable-rack-aware",), "--generate")
        settings = command_settings(arguments)
        # Kafka 2.3's tool has both: --zookeeper for the plan, the brokers for log directories.
        servers = arguments.bootstrap_server or bootstrap_server_or_zookeeper(arguments, settings)
        with terminal.admin(servers, settings) as admin:
            if action == "--generate":
                generate(admin, arguments, terminal)
            elif action == "--list":
                list_under_way(admin, terminal)
            else:
                path, keep = arguments.reassignment_json_file, arguments.preserve_throttles
                wanted, dirs = read_assignment(path), read_log_dirs(path)
                if action == "--execute":
                    execute(admin, wanted, dirs, arguments, terminal)
                elif action == "--verify":
                    verify(admin, wanted, dirs, terminal, keep_throttle=keep)
                else:
                    cancel(admin, wanted, dirs, terminal, keep_throttle=keep)
        return 0


def generate(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """Print the replicas of the topics as they are, and as they would be on those brokers."""
    from secrets import randbelow

    topics = read_topics(arguments.topics_to_move_json_file)
    brokers = integers(arguments.broker_list, "--broker-list")
    if len(set(brokers)) != len(brokers):
        raise UsageError("--broker-list names a broker twice")
    racks = {node.id: node.rack for node in admin.describe_cluster().nodes}
    check_brokers(brokers, racks)
    targets = {each: None if arguments.disable_rack_aware else racks[each] for each in brokers}
    current, proposed = current_assignment(admin, topics), Assignment()
    for topic in topics:
        mine = {each: replicas for each, replicas in current.items() if each.topic == topic}
        factor = len(mine[TopicPartition(topic, 0)])
        planned = assign_new_topic(targets, len(mine), factor, randbelow)
        proposed |= {TopicPartition(topic, index): each for index, each in planned.items()}
    terminal.print(f"Current partition replica assignment\n{assignment_json(current)}\n")
    terminal.print(f"Proposed partition reassignment configuration\n{assignment_json(proposed)}")


def execute(
    admin: Admin, wanted: Assignment, dirs: TargetDirs, arguments: Namespace, terminal: Terminal
) -> None:
    """Start the reassignment, and print the present replicas for a rollback.

    Where all of it is under way already, only the throttle is changed.
    """
    under_way = admin.list_partition_reassignments()
    throttle = _rate(arguments.throttle)
    dir_throttle = _rate(arguments.replica_alter_log_dirs_throttle)
    targets = {each: target_of(under_way[each]) for each in under_way}
    if not dirs and wanted.items() <= targets.items():
        terminal.print("There is an existing assignment running.")
        if throttle is not None:
            ReassignmentThrottle(admin).change_rate(throttle)
            terminal.print(rate_line(throttle))
        return
    current = _checked(admin, wanted)  # before anything is changed, also the throttle
    before = {each: current[each] for each in wanted}
    replica_dirs = ReplicaDirs(admin)
    dirs_before = replica_dirs.current(dirs) if dirs else {}
    terminal.print(
        f"Current partition replica assignment\n\n{assignment_json(before, dirs_before)}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback"
    )
    if throttle is not None or dir_throttle is not None:
        terminal.print(THROTTLE_WARNING)
    if throttle is not None:
        limit(admin, throttle, current, wanted, under_way)
        terminal.print(rate_line(throttle))
    if dir_throttle is not None:
        ReassignmentThrottle(admin).limit_log_dirs(dir_throttle, {broker for _, broker in dirs})
        terminal.print(f"The replica-alter-dir throttle limit was set to {dir_throttle} B/s")
    # The directories come first, so that a new replica is created in its own.
    moving = replica_dirs.move(dirs) if dirs else []
    admin.alter_partition_reassignments(wanted)
    terminal.print("Successfully started reassignment of partitions.")
    if moving:
        terminal.print(f"Successfully started log directory moves for: {','.join(moving)}")


def _rate(bytes_per_s: int | None) -> int | None:
    """The limit of an option; None for none, which Kafka's tool writes as -1 too."""
    return None if bytes_per_s is None or bytes_per_s < 0 else bytes_per_s


def _checked(admin: Admin, wanted: Assignment) -> Assignment:
    """The present replicas; CommandError for partitions and brokers that do not exist."""
    current = current_assignment(admin, topics_of(wanted))
    missing = [str(each) for each in wanted if each not in current]
    if missing:
        raise CommandError(f"there are no partitions {', '.join(missing)}")
    new = {broker for each in wanted for broker in wanted[each] if broker not in current[each]}
    check_brokers(sorted(new), {node.id for node in admin.describe_cluster().nodes})
    return current


def limit(
    admin: Admin,
    bytes_per_s: int,
    current: Assignment,
    wanted: Assignment,
    under_way: Mapping[TopicPartition, PartitionReassignment],
) -> None:
    """Throttle the wanted moves, and those under way in the same topics."""
    topics = topics_of(wanted)
    others = {each: target_of(under_way[each]) for each in under_way if each.topic in topics}
    before = current | {each: source_of(under_way[each]) for each in under_way}
    ReassignmentThrottle(admin).limit(bytes_per_s, before, others | wanted)


def rate_line(bytes_per_s: int) -> str:
    return f"The inter-broker throttle limit was set to {bytes_per_s} B/s"


def source_of(reassignment: PartitionReassignment) -> Replicas:
    """The replicas that a partition had before its reassignment."""
    return tuple(each for each in reassignment.replicas if each not in reassignment.adding_replicas)


def target_of(reassignment: PartitionReassignment) -> Replicas:
    """The replicas that a partition will have after its reassignment."""
    return tuple(
        each for each in reassignment.replicas if each not in reassignment.removing_replicas
    )


def verify(
    admin: Admin, wanted: Assignment, dirs: TargetDirs, terminal: Terminal, *, keep_throttle: bool
) -> None:
    """Print the state of each partition, and of each replica that changes its directory.

    All moves share the brokers' throttle, so it stays while another one is under way.
    """
    under_way = admin.list_partition_reassignments()
    existing = admin.list_topics()
    current = current_assignment(admin, [each for each in topics_of(wanted) if each in existing])
    terminal.print("Status of partition reassignment:")
    for partition, replicas in sorted(wanted.items()):
        status = COMPLETED if current.get(partition) == replicas else "failed"
        if partition in under_way:
            status = IN_PROGRESS
        terminal.print(f"Reassignment of partition {partition} {status}")
    statuses = ReplicaDirs(admin).statuses(dirs) if dirs else {}
    for replica, status in statuses.items():
        terminal.print(f"Reassignment of replica {replica} {status}")
    is_done = IN_PROGRESS not in statuses.values() and not under_way
    if is_done and not keep_throttle:
        remove_throttle(admin, wanted, terminal)


def list_under_way(admin: Admin, terminal: Terminal) -> None:
    """A line for each partition that is being moved."""
    under_way = admin.list_partition_reassignments()
    if not under_way:
        terminal.print("No partition reassignments found.")
        return
    terminal.print("Current partition reassignments:")
    for partition, reassignment in sorted(under_way.items()):
        line = f"{partition}: replicas: {_ids(reassignment.replicas)}."
        if reassignment.adding_replicas:
            line += f" adding: {_ids(reassignment.adding_replicas)}."
        if reassignment.removing_replicas:
            line += f" removing: {_ids(reassignment.removing_replicas)}."
        terminal.print(line)


def cancel(
    admin: Admin, wanted: Assignment, dirs: TargetDirs, terminal: Terminal, *, keep_throttle: bool
) -> None:
    """Cancel those of the reassignments, and of the moves to directories, that are under way."""
    active = [each for each in sorted(admin.list_partition_reassignments()) if each in wanted]
    if active:
        admin.alter_partition_reassignments(dict.fromkeys(active))
        names = ",".join(map(str, active))
        terminal.print(f"Successfully cancelled partition reassignments for: {names}")
    moving = ReplicaDirs(admin).cancel(dirs) if dirs else []
    if moving:
        terminal.print(f"Successfully cancelled log directory moves for: {','.join(moving)}")
    if not active and not moving:
        terminal.print("None of the specified partition moves are active.")
    if not keep_throttle:
        remove_throttle(admin, wanted, terminal)


def remove_throttle(admin: Admin, wanted: Assignment, terminal: Terminal) -> None:
    """Remove the throttle, and name the brokers of the plan that are away and keep theirs.

    The settings of a broker are changed by that broker alone.
    """
    if ReassignmentThrottle(admin).remove(topics_of(wanted)):
        terminal.print("Throttle was removed.")
    existing = admin.list_topics()
    current = current_assignment(admin, [each for each in topics_of(wanted) if each in existing])
    brokers = {broker for plan in (wanted, current) for each in plan.values() for broker in each}
    away = brokers - {node.id for node in admin.describe_cluster().nodes}
    if away:
        terminal.note(
            f"Brokers {_ids(sorted(away))} do not answer: a throttle that they have stays. Verify "
            "again once they are back."
        )


def current_assignment(admin: Admin, topics: Iterable[str]) -> Assignment:
    """The replicas as they are now."""
    described = admin.describe_topics(list(topics))
    return {
        TopicPartition(name, each.partition): tuple(each.replicas)
        for name, topic in described.items()
        for each in topic.partitions
    }


def topics_of(assignment: Mapping[TopicPartition, Replicas]) -> list[str]:
    return sorted({partition.topic for partition in assignment})


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
