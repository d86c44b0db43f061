"""The names of Kafka's scripts and tool classes, and the words of `ottla` that do the same.

`ottla kafka-topics.sh --list` is `ottla topics --list`; `ottla run-class kafka.admin.TopicCommand`
as well. The release archive has a link in `bin/` for each script whose command is there.
"""

from __future__ import annotations

from argparse import REMAINDER, ArgumentParser, Namespace
from typing import Final

from ottla.cli.command import COMMANDS, Command
from ottla.cli.command_error import UsageError
from ottla.cli.options import did_you_mean
from ottla.cli.terminal import Terminal

SCRIPTS: Final[dict[str, tuple[str, ...]]] = {
    "connect-mirror-maker.sh": ("mirror",),
    "connect-distributed.sh": ("connect-distributed",),
    "connect-standalone.sh": ("connect-standalone",),
    "kafka-acls.sh": ("acls",),
    "kafka-broker-api-versions.sh": ("broker-api-versions",),
    "kafka-configs.sh": ("configs",),
    "kafka-console-consumer.sh": ("console-consumer",),
    "kafka-console-producer.sh": ("console-producer",),
    "kafka-consumer-groups.sh": ("consumer-groups",),
    "kafka-consumer-perf-test.sh": ("consumer-perf-test",),
    "kafka-delegation-tokens.sh": ("delegation-tokens",),
    "kafka-delete-records.sh": ("delete-records",),
    "kafka-dump-log.sh": ("dump-log",),
    "kafka-e2e-latency.sh": ("e2e-latency",),
    "kafka-features.sh": ("features",),
    "kafka-get-offsets.sh": ("get-offsets",),
    "kafka-leader-election.sh": ("leader-election",),
    "kafka-log-dirs.sh": ("log-dirs",),
    "kafka-mirror-maker.sh": ("mirror-maker",),
    "kafka-preferred-replica-election.sh": ("preferred-replica-election",),
    "kafka-producer-perf-test.sh": ("producer-perf-test",),
    "kafka-reassign-partitions.sh": ("reassign-partitions",),
    "kafka-replica-verification.sh": ("replica-verification",),
    "kafka-run-class.sh": ("run-class",),
    "kafka-server-start.sh": ("broker",),
    "kafka-server-stop.sh": ("broker-stop",),
    "kafka-streams-application-reset.sh": ("streams", "reset"),
    "kafka-topics.sh": ("topics",),
    "kafka-transactions.sh": ("transactions",),
    "kafka-verifiable-consumer.sh": ("verifiable-consumer",),
    "kafka-verifiable-producer.sh": ("verifiable-producer",),
    "zookeeper-server-start.sh": ("zookeeper",),
    "zookeeper-server-stop.sh": ("zookeeper-stop",),
    "zookeeper-shell.sh": ("zookeeper-shell",),
}
"""Kafka's scripts by name. A row whose command is not in COMMANDS is not offered."""

CLASSES: Final[dict[str, str]] = {
    "AclCommand": "kafka-acls.sh",
    "BrokerApiVersionsCommand": "kafka-broker-api-versions.sh",
    "ConfigCommand": "kafka-configs.sh",
    "ConnectDistributed": "connect-distributed.sh",
    "ConnectStandalone": "connect-standalone.sh",
    "ConsoleConsumer": "kafka-console-consumer.sh",
    "ConsoleProducer": "kafka-console-producer.sh",
    "ConsumerGroupCommand": "kafka-consumer-groups.sh",
    "ConsumerPerformance": "kafka-consumer-perf-test.sh",
    "DelegationTokenCommand": "kafka-delegation-tokens.sh",
    "DeleteRecordsCommand": "kafka-delete-records.sh",
    "DumpLogSegments": "kafka-dump-log.sh",
    "EndToEndLatency": "kafka-e2e-latency.sh",
    "FeatureCommand": "kafka-features.sh",
    "GetOffsetShell": "kafka-get-offsets.sh",
    "Kafka": "kafka-server-start.sh",
    "LeaderElectionCommand": "kafka-leader-election.sh",
    "LogDirsCommand": "kafka-log-dirs.sh",
    "MirrorMaker": "kafka-mirror-maker.sh",
    "PreferredReplicaLeaderElectionCommand": "kafka-preferred-replica-election.sh",
    "ProducerPerformance": "kafka-producer-perf-test.sh",
    "QuorumPeerMain": "zookeeper-server-start.sh",
    "ReassignPartitionsCommand": "kafka-reassign-partitions.sh",
    "ReplicaVerificationTool": "kafka-replica-verification.sh",
    "StreamsResetter": "kafka-streams-application-reset.sh",
    "TopicCommand": "kafka-topics.sh",
    "TransactionsCommand": "kafka-transactions.sh",
    "VerifiableConsumer": "kafka-verifiable-consumer.sh",
    "VerifiableProducer": "kafka-verifiable-producer.sh",
    "ZooKeeperMain": "zookeeper-shell.sh",
}
"""The script of each tool's class. Packages do not count: Kafka has moved classes between them."""

NEED_NO_WORDS: Final = ("broker-stop", "zookeeper-stop")


def offered_scripts() -> list[str]:
    """The names of Kafka's scripts whose commands are there."""
    return sorted(name for name, words in SCRIPTS.items() if words[0] in COMMANDS)


def without_script_name(words: list[str]) -> list[str]:
    """The words of a command line with ottla's command in the place of a script or a class.

    A script without options shows its help, as Kafka's do.
    """
    command = SCRIPTS.get(words[0], (words[0],))
    if command == ("run-class",) and len(words) > 1 and class_command(words[1]):
        return [*class_command(words[1]), *words[2:]]
    if words[0] not in SCRIPTS or command[0] not in COMMANDS:
        return words
    if len(words) == 1 and command[0] not in NEED_NO_WORDS:
        return [*command, "--help"]
    return [*command, *words[1:]]


def class_command(class_name: str) -> tuple[str, ...]:
    """The words of `ottla` that stand for a class; none where there is no such command."""
    words = SCRIPTS.get(CLASSES.get(class_name.rpartition(".")[2], ""), ())
    return words if words and words[0] in COMMANDS else ()


class RunClassCommand(Command):
    """Names the classes that stand for commands; `without_script_name` has put in the command."""

    name = "run-class"
    examples = (
        "ottla run-class kafka.tools.GetOffsetShell --broker-list localhost:9092 --topic test",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "class_name", metavar="CLASS", help="The class; its package does not count."
        )
        parser.add_argument(
            "words", metavar="OPTIONS", nargs=REMAINDER, help="The options of its command."
        )

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        known = [name for name in CLASSES if class_command(name)]
        hint = did_you_mean(arguments.class_name.rpartition(".")[2], known)
        raise UsageError(f"no command stands for the class {arguments.class_name}{hint}")
