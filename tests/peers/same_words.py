"""The same command line for Kafka 2.3's tool on Kafka and for Ottla's on Ottla, and what they said.

In command lines and answers SERVERS stands for a cluster's brokers, ZK for its part of ZooKeeper.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers.kafka_tools import TOOL_SECONDS, KafkaTools
from kafka_cluster import KafkaCluster
from peer_cluster import PeerCluster

from ottla.testing import wait_until

BESIDE_THE_RESULT = re.compile(r"(log4j:|SLF4J|\[20).*\n|\tat .*\n")
"""What logging libraries say, and stack traces."""


class Said(NamedTuple):
    """What a tool printed, line by line, and its exit status."""

    lines: list[str]
    status: int


class Pair:
    """A cluster of Kafka 2.3 and one of Ottla, of the same shape."""

    def __init__(self, tools: KafkaTools, kafka: KafkaCluster, ottla: PeerCluster) -> None:
        self.tools = tools
        self.kafka = kafka
        self.ottla = ottla
        self.clusters = (kafka, ottla)

    def run(self, line: str) -> tuple[Said, Said]:
        """What Kafka's tool and Ottla's say to this line; a blank separates words."""
        tool, *words = line.split(" ")
        said = []
        for cluster in self.clusters:
            names = {"SERVERS": cluster.bootstrap_servers, "ZK": zookeeper_of(cluster)}
            mine = [names.get(word, word) for word in words]
            if isinstance(cluster, KafkaCluster):
                command = self.tools.command(tool, *mine)
            else:
                command = [sys.executable, "-m", "ottla", tool, *mine]
            said.append(run_to_its_end(command, cluster))
        return said[0], said[1]

    def same(self, line: str) -> list[str]:
        """The lines that both print, with the same status, once both clusters have settled."""
        said: list[Said] = []

        def is_same() -> bool:
            said[:] = self.run(line)
            return said[0] == said[1]

        wait_until(is_same, f"the same of Kafka and Ottla: {line}", seen=lambda: said)
        return said[1].lines

    def same_at_once(self, line: str) -> list[str]:
        """The lines that both print to what cannot be said twice."""
        kafka, ottla = self.run(line)
        assert kafka == ottla, f"{line}\nKafka: {kafka}\nOttla: {ottla}"
        return ottla.lines

    def with_the_tools_of_kafka(self, *lines: str) -> None:
        """The same business for both clusters by Kafka's tools, which write into ZooKeeper."""
        for line in lines:
            tool, *words = line.split(" ")
            for cluster in self.clusters:
                self.tools.run(tool, "--zookeeper", zookeeper_of(cluster), *words)

    def both_fail(self, line: str) -> str:
        """Both refuse it: Ottla's reason. Kafka's tools print theirs, and may still end with 0."""
        kafka, ottla = self.run(line)
        assert ottla.status == 1, f"{line}\nOttla: {ottla}"
        failure = kafka.status == 1 or any("failed" in each for each in kafka.lines)
        assert failure, f"{line}\nKafka: {kafka}"
        return ottla.lines[-1]


def zookeeper_of(cluster: KafkaCluster | PeerCluster) -> str:
    return cluster.zookeeper.connect + cluster.chroot


def run_to_its_end(command: list[str], cluster: KafkaCluster | PeerCluster) -> Said:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TOOL_SECONDS,
        check=False,
        env={**os.environ, "COLUMNS": "80"},
    )
    text = BESIDE_THE_RESULT.sub("", done.stdout + done.stderr)
    # Kafka's export has one line break too many.
    return Said(normal(text, cluster).rstrip("\n").splitlines(), done.returncode)


def normal(text: str, cluster: KafkaCluster | PeerCluster) -> str:
    """Without what differs from cluster to cluster, and what Java's hashes put in any order."""
    for number, server in enumerate(cluster.bootstrap_servers.split(","), 1):
        text = text.replace(server, f"BROKER{number}")
    text = text.replace(str(Path(cluster.data_dir)), "DATA")
    text = re.sub(r"(Configs:|are )(\S+=\S+)", _sorted_settings, text)
    # 2.3 has a blank at the end of this heading.
    return text.replace(
        "Status of partition reassignment: \n", "Status of partition reassignment:\n"
    )


def _sorted_settings(match: re.Match[str]) -> str:
    settings = re.split(r",(?=[a-z.]+=)", match[2])
    return match[1] + ",".join(sorted(settings))
