"""`ottla reassign-partitions`: plans, begins, watches and ends moves of partitions."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Mapping
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
    command_settings,
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
from ottla.cli.terminal import Terminal
from ottla.errors import ErrorCode
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from ottla import Admin
    from ottla.clients.admin.configs import LogDirs
    from ottla.clients.admin.descriptions import AlterConfigOp, ConfigResource
    from ottla.clients.admin.topics import PartitionReassignment


# Moves of replicas between log directories of a broker, for `reassign-partitions`.


Replica = tuple[TopicPartition, int]
TargetDirs = Mapping[Replica, str]


class ReplicaDirs:
    """The log directories that the replicas of a plan are in, and move to."""

    def __init__(self, admin: Admin) -> None:
        self.admin = admin

    def move(self, wanted: TargetDirs) -> list[str]:
        """Start the moves and return the names of the replicas that move.

        A replica that its broker does not have yet will be created in its directory.
        """
        from ottla.clients.admin.configs import TopicPartitionReplica

        targets = {
            TopicPartitionReplica(partition.topic, partition.partition, broker): path
            for (partition, broker), path in wanted.items()
        }
        outcomes = self.admin.alter_replica_log_dirs(targets)
        for replica, error in outcomes.items():
            if error is not None and error.error is not ErrorCode.REPLICA_NOT_AVAILABLE:
                raise CommandError(f"{replica} cannot move to {targets[replica]}: {error}")
        return sorted(str(replica) for replica, error in outcomes.items() if error is None)

    def current(self, replicas: Iterable[Replica]) -> dict[Replica, str]:
        """The directories that replicas are in now, of those that can be found."""
        wanted = set(replicas)
        return {
            (partition, broker): path
            for broker, log_dirs in self._described(wanted).items()
            for path, log_dir in log_dirs.items()
            for partition, replica in log_dir.replicas.items()
            if not replica.is_future and (partition, broker) in wanted
        }

    def statuses(self, wanted: TargetDirs) -> dict[str, str]:
        """The state of each replica's move, by the name of the replica."""
        described = self._described(wanted)
        return {
            f"{partition}-{broker}": _status(described.get(broker, {}), partition, path)
            for (partition, broker), path in sorted(wanted.items())
        }

    def _described(self, replicas: Iterable[Replica]) -> dict[int, LogDirs]:
        alive = {node.id for node in self.admin.describe_cluster().nodes}
        brokers = {broker for _, broker in replicas} & alive
        return self.admin.describe_log_dirs(sorted(brokers)) if brokers else {}


IN_PROGRESS = "is still in progress"
COMPLETED = "completed successfully"


def _status(log_dirs: LogDirs, partition: TopicPartition, path: str) -> str:
    found = {
        each: described.replicas[partition]
        for each, described in log_dirs.items()
        if partition in described.replicas
    }
    wanted = path.rstrip("/") or "/"
    if wanted in found:
        return IN_PROGRESS if found[wanted].is_future else COMPLETED
    return "failed"


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
    help = "Move partitions between brokers, or change how many replicas they have."
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
            "For --execute: the most bytes per second that a broker may move.",
        )
        add_integer(
            parser,
            "--replica-alter-log-dirs-throttle",
            "BYTES",
            "For --execute: the most bytes per second that a broker may copy between its own "
            "log directories.",
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
                    cancel(admin, wanted, terminal, keep_throttle=keep)
        return 0


def generate(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """Print the replicas of the topics as they are, and as they would be on those brokers."""
    from secrets import randbelow

    from ottla.controller.topic_assignment import assign_new_topic

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
    throttle, dir_throttle = arguments.throttle, arguments.replica_alter_log_dirs_throttle
    targets = {each: target_of(under_way[each]) for each in under_way}
    if not dirs and wanted.items() <= targets.items():
        terminal.print("There is an existing assignment running.")
        if throttle is not None:
            Throttle(admin).change_rate(throttle)
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
        Throttle(admin).limit_log_dirs(dir_throttle, {broker for _, broker in dirs})
        terminal.print(f"The replica-alter-dir throttle limit was set to {dir_throttle} B/s")
    # The directories come first, so that a new replica is created in its own.
    moving = replica_dirs.move(dirs) if dirs else []
    admin.alter_partition_reassignments(wanted)
    terminal.print("Successfully started reassignment of partitions.")
    if moving:
        terminal.print(f"Successfully started log directory moves for: {','.join(moving)}")


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
    Throttle(admin).limit(bytes_per_s, before, others | wanted)


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
    if is_done and not keep_throttle and Throttle(admin).remove(topics_of(wanted)):
        terminal.print("Throttle was removed.")


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


def cancel(admin: Admin, wanted: Assignment, terminal: Terminal, *, keep_throttle: bool) -> None:
    """Cancel those of the reassignments that are under way."""
    active = [each for each in sorted(admin.list_partition_reassignments()) if each in wanted]
    if active:
        admin.alter_partition_reassignments(dict.fromkeys(active))
        names = ",".join(map(str, active))
        terminal.print(f"Successfully cancelled partition reassignments for: {names}")
    else:
        terminal.print("None of the specified partition moves are active.")
    if not keep_throttle and Throttle(admin).remove(topics_of(wanted)):
        terminal.print("Throttle was removed.")


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


# The throttle of moves: settings of brokers and topics.


RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LOG_DIR_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"

LIMIT_S = 10.0
PAUSE_S = 0.02

ReplicasOf = Mapping[TopicPartition, Iterable[int]]


class Throttle:
    """Throttles the replicas that are read and those that are new; all brokers get the rate."""

    def __init__(self, admin: Admin) -> None:
        self.admin = admin

    def limit(self, bytes_per_s: int, before: ReplicasOf, after: ReplicasOf) -> None:
        """Limit the moves from `before` to `after` to this rate.

        The limit is in force on all brokers when this returns. Each applies changes in their
        order, so one that has the rate has the throttled replicas, too.
        """
        from ottla.clients.admin.descriptions import AlterConfigOp, ConfigResource

        changes: dict[ConfigResource, list[AlterConfigOp]] = {}
        for topic in sorted({partition.topic for partition in after}):
            mine = [partition for partition in sorted(after) if partition.topic == topic]
            new = {
                each: [broker for broker in after[each] if broker not in set(before[each])]
                for each in mine
            }
            changes[ConfigResource.topic(topic)] = [
                AlterConfigOp(LEADERS, _replica_list(mine, before)),
                AlterConfigOp(FOLLOWERS, _replica_list(mine, new)),
            ]
        self.admin.incremental_alter_configs(changes)
        self.change_rate(bytes_per_s)

    def change_rate(self, bytes_per_s: int) -> None:
        """Set the rate of the throttled replicas; it is in force when this returns."""
        from ottla.clients.admin.descriptions import AlterConfigOp

        rates = [AlterConfigOp(rate, str(bytes_per_s)) for rate in RATES]
        self.admin.incremental_alter_configs(dict.fromkeys(self._brokers(), rates))
        self._wait_for(str(bytes_per_s))

    def limit_log_dirs(self, bytes_per_s: int, brokers: Iterable[int]) -> None:
        """Limit what these brokers copy between their log directories."""
        from ottla.clients.admin.descriptions import AlterConfigOp, ConfigResource

        change = [AlterConfigOp(LOG_DIR_RATE, str(bytes_per_s))]
        changes = {ConfigResource.broker(broker): change for broker in brokers}
        if changes:
            self.admin.incremental_alter_configs(changes)

    def _wait_for(self, rate: str) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while True:
            described = self.admin.describe_configs(self._brokers())
            late = [
                broker.name
                for broker, entries in described.items()
                if any(entries[key].value != rate for key in RATES)
            ]
            if not late:
                return
            if time.monotonic() > deadline_s:
                raise CommandError(f"brokers {', '.join(late)} do not know of the throttle yet")
            time.sleep(PAUSE_S)

    def remove(self, topics: Iterable[str]) -> bool:
        """Remove the limit from these topics and all brokers; returns whether there was one."""
        from ottla.clients.admin.descriptions import AlterConfigOp, ConfigResource
        from ottla.protocol.configs import ConfigOperation

        existing = self.admin.list_topics()
        keys_of_brokers = (*RATES, LOG_DIR_RATE)
        names: dict[ConfigResource, tuple[str, ...]]
        names = dict.fromkeys(self._brokers(), keys_of_brokers)
        for topic in topics:
            if topic in existing:
                names[ConfigResource.topic(topic)] = (LEADERS, FOLLOWERS)
        described = self.admin.describe_configs(names)
        changes = {}
        for resource, keys in names.items():
            known = described[resource]
            own = [key for key in keys if key in known and not known[key].is_default]
            if own:
                removal = ConfigOperation.DELETE
                changes[resource] = [AlterConfigOp(key, None, removal) for key in own]
        if changes:
            self.admin.incremental_alter_configs(changes)
        return bool(changes)

    def _brokers(self) -> list[ConfigResource]:
        from ottla.clients.admin.descriptions import ConfigResource

        return [ConfigResource.broker(node.id) for node in self.admin.describe_cluster().nodes]


def _replica_list(partitions: Iterable[TopicPartition], replicas: ReplicasOf) -> str:
    """Replicas as the settings of throttled ones list them, partition:broker."""
    return ",".join(
        f"{each.partition}:{broker}" for each in partitions for broker in replicas[each]
    )
