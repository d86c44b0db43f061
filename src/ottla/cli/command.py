"""The base of all commands, and their table.

To add a command: write a `Command` in a module of its own and give it a row in `COMMANDS`.
The module imports nothing heavy at its top, neither clients nor protocol nor log, but inside `run`,
since `ottla --help` imports all of them and must stay quick. `python -m ottla.cli.document` then
puts the options into docs/use/commands.md, which a test demands.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from ottla.cli.terminal import Terminal


class Command(ABC):
    """One subcommand: its name, one line of help, its options, and its work."""

    name: ClassVar[str]
    help: ClassVar[str]
    examples: ClassVar[tuple[str, ...]] = ()
    default_log_level: ClassVar[str] = "WARN"

    @abstractmethod
    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options; argparse keeps them under their names with underscores."""

    @abstractmethod
    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        """Do the work and return the exit status."""


COMMAND_GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "Begin": (
        "demo",
        "broker",
        "broker-stop",
        "cluster",
        "topics",
        "console-producer",
        "console-consumer",
        "tail",
    ),
    "Look after a cluster": (
        "lag",
        "consumer-groups",
        "configs",
        "users",
        "acls",
        "delegation-tokens",
        "get-offsets",
        "delete-records",
        "log-dirs",
        "transactions",
        "features",
        "reassign-partitions",
        "leader-election",
        "preferred-replica-election",
        "broker-api-versions",
        "dump-log",
        "doctor",
        "metrics",
        "console",
    ),
    "Bring data in and out": ("connect", "connect-standalone", "connect-distributed"),
    "Copy to other clusters": ("mirror", "mirror-maker"),
    "Measure and verify": (
        "producer-perf-test",
        "consumer-perf-test",
        "e2e-latency",
        "verifiable-producer",
        "verifiable-consumer",
        "replica-verification",
    ),
    "Work with records": ("pipeline", "streams", "warehouse", "site"),
    "Test your own app": ("simulate",),
    "ZooKeeper": ("zookeeper", "zookeeper-stop", "zookeeper-shell"),
    "About ottla": ("config", "run-class", "completion", "version"),
}
"""The commands in the order in which `ottla --help` shows them; each is in one group."""

COMMANDS: Final[dict[str, str]] = {
    "broker": "ottla.cli.broker:BrokerCommand",
    "broker-stop": "ottla.cli.local_servers:BrokerStopCommand",
    "cluster": "ottla.cli.cluster:ClusterCommand",
    "topics": "ottla.cli.topics:TopicsCommand",
    "console-producer": "ottla.cli.console_producer:ConsoleProducerCommand",
    "console-consumer": "ottla.cli.console_consumer:ConsoleConsumerCommand",
    "tail": "ottla.cli.tail:TailCommand",
    "consumer-groups": "ottla.cli.consumer_groups:ConsumerGroupsCommand",
    "lag": "ottla.cli.lag:LagCommand",
    "transactions": "ottla.cli.transactions:TransactionsCommand",
    "features": "ottla.cli.features:FeaturesCommand",
    "configs": "ottla.cli.configs:ConfigsCommand",
    "users": "ottla.cli.users:UsersCommand",
    "acls": "ottla.cli.acls:AclsCommand",
    "delegation-tokens": "ottla.cli.delegation_tokens:DelegationTokensCommand",
    "get-offsets": "ottla.cli.get_offsets:GetOffsetsCommand",
    "delete-records": "ottla.cli.delete_records:DeleteRecordsCommand",
    "log-dirs": "ottla.cli.log_dirs:LogDirsCommand",
    "reassign-partitions": "ottla.cli.reassign_partitions:ReassignPartitionsCommand",
    "leader-election": "ottla.cli.leader_election:LeaderElectionCommand",
    "preferred-replica-election": "ottla.cli.leader_election:PreferredReplicaElectionCommand",
    "dump-log": "ottla.cli.dump_log:DumpLogCommand",
    "metrics": "ottla.cli.metrics:MetricsCommand",
    "console": "ottla.cli.console:ConsoleCommand",
    "broker-api-versions": "ottla.cli.broker_api_versions:BrokerApiVersionsCommand",
    "mirror": "ottla.cli.mirror:MirrorCommand",
    "connect": "ottla.cli.connect:ConnectCommand",
    "connect-standalone": "ottla.cli.connect:ConnectStandaloneCommand",
    "connect-distributed": "ottla.cli.connect:ConnectDistributedCommand",
    "mirror-maker": "ottla.cli.mirror:MirrorMakerCommand",
    "doctor": "ottla.cli.doctor:DoctorCommand",
    "producer-perf-test": "ottla.cli.producer_perf_test:ProducerPerfTestCommand",
    "consumer-perf-test": "ottla.cli.consumer_perf_test:ConsumerPerfTestCommand",
    "e2e-latency": "ottla.cli.end_to_end_latency:EndToEndLatencyCommand",
    "replica-verification": "ottla.cli.replica_verification:ReplicaVerificationCommand",
    "verifiable-producer": "ottla.cli.verifiable_clients:VerifiableProducerCommand",
    "verifiable-consumer": "ottla.cli.verifiable_clients:VerifiableConsumerCommand",
    "zookeeper": "ottla.cli.zookeeper:ZooKeeperCommand",
    "zookeeper-stop": "ottla.cli.local_servers:ZooKeeperStopCommand",
    "zookeeper-shell": "ottla.cli.zookeeper_shell:ZooKeeperShellCommand",
    "demo": "ottla.cli.demo:DemoCommand",
    "pipeline": "ottla.cli.pipeline:PipelineCommand",
    "warehouse": "ottla.cli.warehouse:WarehouseCommand",
    "streams": "ottla.cli.streams:StreamsCommand",
    "site": "ottla.cli.site:SiteCommand",
    "simulate": "ottla.cli.simulate:SimulateCommand",
    "config": "ottla.cli.config_files:ConfigCommand",
    "run-class": "ottla.cli.kafka_scripts:RunClassCommand",
    "completion": "ottla.cli.completion:CompletionCommand",
    "version": "ottla.cli.main:VersionCommand",
}


def load_command(name: str) -> Command:
    """The command of this name; its module is imported now."""
    module_name, class_name = COMMANDS[name].split(":")
    command = getattr(import_module(module_name), class_name)()
    assert isinstance(command, Command)
    return command
