"""The base of all commands, and their table.

To add a command: write a `Command` in a module of its own and give it a row in `COMMAND_GROUPS`.
Its module is imported when the command is run. Its own `--help` needs no package that is optional:
those that need one, as all of Spark's do, are imported inside of functions. `python -m
ottla.cli.document` then puts the options into docs/use/commands.md, which a test demands.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Final

from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from ottla.cli.terminal import Terminal


class Command(ABC):
    """One subcommand: its name, its options, and its work."""

    name: ClassVar[str]
    examples: ClassVar[tuple[str, ...]] = ()
    default_log_level: ClassVar[str] = "WARN"

    @property
    def help(self) -> str:
        """One line about it."""
        return COMMANDS[self.name].help

    @abstractmethod
    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options; argparse keeps them under their names with underscores."""

    @abstractmethod
    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        """Do the work and return the exit status."""


class CommandEntry(NamedTuple):
    """Where a command is, as "module:Class", and the line of `ottla --help` about it."""

    place: str
    help: str


COMMAND_GROUPS: Final[dict[str, dict[str, CommandEntry]]] = {
    "Begin": {
        "demo": CommandEntry(
            "ottla.cli.demo:DemoCommand",
            "Run events through a broker and a Spark pipeline into a report.",
        ),
        "broker": CommandEntry(
            "ottla.cli.broker:BrokerCommand",
            "Start a broker and serve until SIGTERM or Ctrl-C; its data are in log.dirs.",
        ),
        "broker-stop": CommandEntry(
            "ottla.cli.local_servers:BrokerStopCommand",
            "Stop the brokers that this installation of Ottla runs on this machine.",
        ),
        "cluster": CommandEntry(
            "ottla.cli.cluster:ClusterCommand",
            "Start ZooKeeper (needs Java) and several brokers for "
            "development, until Ctrl-C or SIGTERM.",
        ),
        "topics": CommandEntry(
            "ottla.cli.topics:TopicsCommand",
            "Create, list, describe, copy, alter and delete topics.",
        ),
        "console-producer": CommandEntry(
            "ottla.cli.console_producer:ConsoleProducerCommand",
            "Send each line of standard input as a record.",
        ),
        "console-consumer": CommandEntry(
            "ottla.cli.console_consumer:ConsoleConsumerCommand",
            "Print the records of topics, a line each.",
        ),
        "tail": CommandEntry(
            "ottla.cli.tail:TailCommand",
            "Print the last records of a topic, and with -f those that follow.",
        ),
    },
    "Look after a cluster": {
        "lag": CommandEntry(
            "ottla.cli.lag:LagCommand",
            "Show how far consumer groups are behind, and explain why.",
        ),
        "consumer-groups": CommandEntry(
            "ottla.cli.consumer_groups:ConsumerGroupsCommand",
            "List, describe and delete consumer groups, and reset or delete their offsets.",
        ),
        "configs": CommandEntry(
            "ottla.cli.configs:ConfigsCommand",
            "Show and change settings of topics, brokers and groups, and quotas of clients.",
        ),
        "users": CommandEntry(
            "ottla.cli.users:UsersCommand",
            "Show, add and remove the users who log in by SCRAM.",
        ),
        "acls": CommandEntry(
            "ottla.cli.acls:AclsCommand",
            "List, add and remove access control lists; explain who may do what.",
        ),
        "delegation-tokens": CommandEntry(
            "ottla.cli.delegation_tokens:DelegationTokensCommand",
            "Make, renew, end and list delegation tokens.",
        ),
        "get-offsets": CommandEntry(
            "ottla.cli.get_offsets:GetOffsetsCommand",
            "Print the offsets of partitions: latest, earliest, or at a time.",
        ),
        "delete-records": CommandEntry(
            "ottla.cli.delete_records:DeleteRecordsCommand",
            "Delete the records of partitions below given offsets.",
        ),
        "log-dirs": CommandEntry(
            "ottla.cli.log_dirs:LogDirsCommand",
            "Print the log directories of brokers and the sizes of the partitions in them.",
        ),
        "transactions": CommandEntry(
            "ottla.cli.transactions:TransactionsCommand",
            "List and describe transactions and producers, and end transactions that hang.",
        ),
        "features": CommandEntry(
            "ottla.cli.features:FeaturesCommand",
            "Show which levels of features are in force in the cluster, and change them.",
        ),
        "reassign-partitions": CommandEntry(
            "ottla.cli.reassign_partitions:ReassignPartitionsCommand",
            "Move partitions between brokers, or change how many replicas they have.",
        ),
        "leader-election": CommandEntry(
            "ottla.cli.leader_election:LeaderElectionCommand",
            "Elect preferred leaders, or unclean leaders for partitions without one.",
        ),
        "preferred-replica-election": CommandEntry(
            "ottla.cli.leader_election:PreferredReplicaElectionCommand",
            "Elect the preferred leaders of partitions (older name of leader-election).",
        ),
        "broker-api-versions": CommandEntry(
            "ottla.cli.broker_api_versions:BrokerApiVersionsCommand",
            "Print which versions of each API the brokers speak.",
        ),
        "dump-log": CommandEntry(
            "ottla.cli.dump_log:DumpLogCommand",
            "Show what the files of a partition hold: segments, indexes, snapshots, checkpoints.",
        ),
        "doctor": CommandEntry(
            "ottla.cli.doctor:DoctorCommand",
            "Examine a host, a property file and a cluster: what will "
            "hurt, why, and what mends it.",
        ),
        "metrics": CommandEntry(
            "ottla.cli.metrics:MetricsCommand",
            "Look at a broker's metrics, by Kafka's names; watch those that change.",
        ),
        "console": CommandEntry(
            "ottla.cli.console:ConsoleCommand",
            "Look at a cluster in a browser: topics, records as they come, groups, brokers.",
        ),
    },
    "Bring data in and out": {
        "connect": CommandEntry(
            "ottla.cli.connect:ConnectCommand",
            "Try, run and look after connectors.",
        ),
        "connect-standalone": CommandEntry(
            "ottla.cli.connect:ConnectStandaloneCommand",
            "Run connectors in one process: files into topics, topics into files, and others.",
        ),
        "connect-distributed": CommandEntry(
            "ottla.cli.connect:ConnectDistributedCommand",
            "Run a worker of a group that shares connectors, and takes over when one dies.",
        ),
    },
    "Copy to other clusters": {
        "mirror": CommandEntry(
            "ottla.cli.mirror:MirrorCommand",
            "Copy topics, groups and settings between clusters, as Kafka's MirrorMaker 2 does.",
        ),
        "mirror-maker": CommandEntry(
            "ottla.cli.mirror:MirrorMakerCommand",
            "Copy topics from source clusters to a target, as Kafka's first MirrorMaker does.",
        ),
    },
    "Measure and verify": {
        "producer-perf-test": CommandEntry(
            "ottla.cli.producer_perf_test:ProducerPerfTestCommand",
            "Measure how fast records are produced, and how long each takes to be acknowledged.",
        ),
        "consumer-perf-test": CommandEntry(
            "ottla.cli.consumer_perf_test:ConsumerPerfTestCommand",
            "Measure how fast the records of a topic are consumed.",
        ),
        "e2e-latency": CommandEntry(
            "ottla.cli.end_to_end_latency:EndToEndLatencyCommand",
            "Measure how long a record takes from a producer to a consumer.",
        ),
        "verifiable-producer": CommandEntry(
            "ottla.cli.verifiable_clients:VerifiableProducerCommand",
            "Produce increasing numbers, and print as JSON which of them were acknowledged.",
        ),
        "verifiable-consumer": CommandEntry(
            "ottla.cli.verifiable_clients:VerifiableConsumerCommand",
            "Consume a topic in a group, and print assignments, records and commits as JSON.",
        ),
        "replica-verification": CommandEntry(
            "ottla.cli.replica_verification:ReplicaVerificationCommand",
            "Compare the replicas of partitions, batch by batch, until Ctrl-C.",
        ),
    },
    "Work with records": {
        "pipeline": CommandEntry(
            "ottla.cli.pipeline:PipelineCommand",
            "List, run and reset the data pipelines on Spark, and write one of your own.",
        ),
        "streams": CommandEntry(
            "ottla.cli.streams:StreamsCommand",
            "Reset an application of the stream API, so that it reads its input from the start.",
        ),
        "warehouse": CommandEntry(
            "ottla.cli.warehouse:WarehouseCommand",
            "Load topics into Delta tables (or Parquet), each record once; query and compact them.",
        ),
        "site": CommandEntry(
            "ottla.cli.site:SiteCommand",
            "Publish a site's activity once, for eight readers at the same time.",
        ),
    },
    "Test your own app": {
        "simulate": CommandEntry(
            "ottla.cli.simulate:SimulateCommand",
            "Run your own asyncio app in simulated clusters with faults, by seed.",
        ),
    },
    "ZooKeeper": {
        "zookeeper": CommandEntry(
            "ottla.cli.zookeeper:ZooKeeperCommand",
            "Start a ZooKeeper server (PySpark's own, needs Java) and serve until Ctrl-C.",
        ),
        "zookeeper-stop": CommandEntry(
            "ottla.cli.local_servers:ZooKeeperStopCommand",
            "Stop the ZooKeeper servers that `ottla zookeeper` runs on this machine.",
        ),
        "zookeeper-shell": CommandEntry(
            "ottla.cli.zookeeper_shell:ZooKeeperShellCommand",
            "Show and change what is in ZooKeeper: ls, get, set, create, "
            "delete, stat, ruok, mntr...",
        ),
    },
    "About ottla": {
        "config": CommandEntry(
            "ottla.cli.config_files:ConfigCommand",
            "Write the property files that come with Ottla: broker, ZooKeeper, Connect, mirror.",
        ),
        "run-class": CommandEntry(
            "ottla.cli.kafka_scripts:RunClassCommand",
            "Run the tool that a class of Kafka's names: kafka.tools.GetOffsetShell, ...",
        ),
        "completion": CommandEntry(
            "ottla.cli.completion:CompletionCommand",
            "Print a script that has bash, zsh or fish complete commands and options.",
        ),
        "version": CommandEntry(
            "ottla.cli.main:VersionCommand",
            "Print the version of Ottla.",
        ),
    },
}
"""The commands in the order in which `ottla --help` shows them; each is in one group."""

COMMANDS: Final[dict[str, CommandEntry]] = {
    name: entry for group in COMMAND_GROUPS.values() for name, entry in group.items()
}


def load_command(name: str) -> Command:
    """The command of this name; its module is imported now."""
    module_name, class_name = COMMANDS[name].place.split(":")
    command = getattr(import_module(module_name), class_name)()
    assert isinstance(command, Command)
    return command
