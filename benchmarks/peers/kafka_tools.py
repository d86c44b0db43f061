"""Apache Kafka's own command line tools, each run in a JVM of its own."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zipfile import ZipFile

TOOL_SECONDS = 240

# Small, short-lived JVMs: the second compiler would only cost time.
JVM_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

# Classes have moved from the broker's jar to the tools' jar over time.
CLASSES = {
    "acls": "AclCommand",
    "broker-api-versions": "BrokerApiVersionsCommand",
    "cluster": "ClusterTool",
    "configs": "ConfigCommand",
    "console-consumer": "ConsoleConsumer",
    "console-share-consumer": "ConsoleShareConsumer",
    "console-producer": "ConsoleProducer",
    "consumer-groups": "ConsumerGroupCommand",
    "consumer-perf-test": "ConsumerPerformance",
    "delete-records": "DeleteRecordsCommand",
    "dump-log": "DumpLogSegments",
    "end-to-end-latency": "EndToEndLatency",
    "features": "FeatureCommand",
    "get-offsets": "GetOffsetShell",
    "groups": "GroupsCommand",
    "leader-election": "LeaderElectionCommand",
    "log-dirs": "LogDirsCommand",
    "preferred-replica-election": "PreferredReplicaLeaderElectionCommand",
    "producer-perf-test": "ProducerPerformance",
    "reassign-partitions": "ReassignPartitionsCommand",
    "replica-verification": "ReplicaVerificationTool",
    "server-start": "Kafka",
    "storage": "StorageTool",
    "topics": "TopicCommand",
    "transactions": "TransactionsCommand",
    "verifiable-consumer": "VerifiableConsumer",
    "verifiable-producer": "VerifiableProducer",
    "zookeeper-shell": "ZooKeeperMain",
}


# Five seconds, its own limit, are too few for a new JVM on a busy machine.
PATIENCE = {"consumer-groups": ("--timeout", "60000")}


class KafkaTools:
    """The tools of one version of Apache Kafka."""

    def __init__(self, version: str, jars: Path) -> None:
        self.version = version
        self.jars = jars
        self._classes = self._find_classes()

    def _find_classes(self) -> dict[str, str]:
        stems = {stem: tool for tool, stem in CLASSES.items()}
        found = {}
        patterns = ("kafka_2*.jar", "kafka-tools-[0-9]*.jar", "zookeeper-[0-9]*.jar")
        for jar in [path for pattern in patterns for path in self.jars.glob(pattern)]:
            with ZipFile(jar) as archive:
                for name in archive.namelist():
                    stem = name.rpartition("/")[2].removesuffix(".class")
                    if stem in stems:
                        found[stems[stem]] = name.removesuffix(".class").replace("/", ".")
        return found

    def command(self, tool: str, *arguments: str, options: tuple[str, ...] = JVM_OPTIONS):
        """The command line that runs a tool."""
        path = f"{self.jars}/*"
        return [
            "java",
            *options,
            "-cp",
            path,
            self._classes[tool],
            *arguments,
            *PATIENCE.get(tool, ()),
        ]

    def run(self, tool: str, *arguments: str, stdin: str = "", status: int = 0) -> str:
        """What a tool prints; it must end with that status, and in time."""
        done = subprocess.run(
            self.command(tool, *arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TOOL_SECONDS,
            check=False,
        )
        said = f"{tool} {' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == status, said
        return done.stdout

    @contextmanager
    def running(self, tool: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A tool that goes on until it is killed, at the end of the block or when time is over."""
        with subprocess.Popen(
            self.command(tool, *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            killer = threading.Timer(TOOL_SECONDS, process.kill)
            killer.start()
            try:
                yield process
            finally:
                killer.cancel()
                process.kill()
