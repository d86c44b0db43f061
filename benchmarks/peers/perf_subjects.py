"""The systems that Kafka's performance tools are pointed at: Ottla, and Apache Kafka.

Where Ottla's core is compiled, it is there twice, from its source and compiled.

Each runs alone or as three brokers, with the same number of replicas and its own defaults for the
rest. Three brokers of Ottla need ZooKeeper, whose CPU time and memory count as theirs; in Kafka,
each broker is a controller of KRaft as well.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.bench_core import environment_of, source_of
from benchmarks.peers.comparison import cpu_seconds, resident_mb
from benchmarks.peers.downloads import kafka_jars
from benchmarks.peers.kafka_broker import KafkaBroker, QuorumKafkaBroker
from benchmarks.peers.kafka_tools import KafkaTools
from ottla.compiled import is_core_compiled
from ottla.runtime.free_port import free_port
from ottla.testing.processes import BrokerProcess, ZooKeeperProcess
from ottla.version import __version__

LIMIT_SECONDS = 180
KAFKA_VERSIONS = ("4.4",)
SOURCE, COMPILED = "ottla", "ottla-compiled"
"""The keys of Ottla; the second one is there where the core is compiled."""
PARTITIONS = 6
IDLE_SECONDS = 8
INTERNAL_TOPICS = {
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
}


class Subject:
    """One of the systems, with the brokers that it has."""

    def __init__(
        self,
        key: str,
        name: str,
        brokers: Sequence[BrokerProcess | KafkaBroker],
        zookeeper: ZooKeeperProcess | None = None,
    ) -> None:
        self.key = key
        self.name = name
        self.brokers = brokers
        self.zookeeper = zookeeper
        self.idle_share = 0.0
        """Of a core, while nobody asks it for anything."""
        self.filled = ""
        """The topic that readers read, once it is there."""

    @property
    def servers(self) -> str:
        return ",".join(each.bootstrap_servers for each in self.brokers)

    @property
    def replicas(self) -> int:
        return len(self.brokers)

    @property
    def pids(self) -> list[int]:
        found = [each.pid for each in self.brokers]
        return found if self.zookeeper is None else [*found, self.zookeeper.server_pid]

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    # -- life

    def start(self) -> None:
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.wait_until_ready()
        wait_for(lambda: len(self.admin.list_topics(timeout=30).brokers) == len(self.brokers))

    def end(self) -> None:
        for broker in self.brokers:
            if broker.process is not None:
                broker.kill()

    # -- what it has and takes

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pids)

    def resident_mb(self) -> float:
        return resident_mb(self.pids)

    def pin(self, cores: Iterable[int]) -> None:
        """Have all threads of its processes on those cores, and the threads that these start."""
        allowed = set(cores)
        for pid in self.pids:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(int(thread), allowed)

    # -- topics

    def create(self, topic: str, partitions: int = PARTITIONS, replicas: int = 1) -> str:
        """A new topic, when all of its replicas are in sync."""
        new = NewTopic(topic, partitions, replicas)
        self.admin.create_topics([new], operation_timeout=60)[topic].result(LIMIT_SECONDS)

        def is_in_sync() -> bool:
            found = self.admin.list_topics(topic, timeout=30).topics[topic].partitions.values()
            return len(found) == partitions and all(len(each.isrs) == replicas for each in found)

        wait_for(is_in_sync)
        return topic

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(LIMIT_SECONDS)


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so after {LIMIT_SECONDS} s")
        time.sleep(0.05)


def measure_idleness(subjects: Sequence[Subject]) -> None:
    """What each takes while nobody asks for anything, all at the same time."""
    time.sleep(IDLE_SECONDS)
    before = [each.cpu_seconds() for each in subjects]
    began = time.monotonic()
    time.sleep(IDLE_SECONDS)
    seconds = time.monotonic() - began
    for subject, used in zip(subjects, before, strict=True):
        subject.idle_share = (subject.cpu_seconds() - used) / seconds


def release_of(version: str) -> str:
    """The whole number of a version of Kafka that is pinned here, as 3.9.1."""
    (jar,) = kafka_jars(version).glob("kafka-clients-[0-9]*.jar")
    return jar.stem.removeprefix("kafka-clients-")


def names() -> dict[str, str]:
    """The subjects by their keys; Ottla is the first."""
    ottla = f"Ottla {__version__}"
    ottlas = {SOURCE: ottla}
    if is_core_compiled():
        ottlas = {SOURCE: f"{ottla}, source", COMPILED: f"{ottla}, compiled"}
    return ottlas | {f"kafka-{each}": f"Apache Kafka {release_of(each)}" for each in KAFKA_VERSIONS}


def subjects(
    folder: Path, count: int, start_zookeeper: Callable[[str], ZooKeeperProcess]
) -> list[Subject]:
    """All of them with so many brokers, not yet started; several of Ottla's need ZooKeeper."""
    settings = {
        **INTERNAL_TOPICS,
        "offsets.topic.replication.factor": count,
        "transaction.state.log.replication.factor": count,
        "auto.leader.rebalance.enable": "false",
    }
    found = []
    for key, name in names().items():
        if key in (SOURCE, COMPILED):
            zookeeper = start_zookeeper(key) if count > 1 else None
            brokers = _ottla(folder / key, key, count, settings, zookeeper)
            found.append(Subject(key, name, brokers, zookeeper))
        else:
            version = key.removeprefix("kafka-")
            found.append(Subject(key, name, _kafka(folder / key, version, count, settings)))
    return found


def _ottla(
    folder: Path,
    key: str,
    count: int,
    settings: dict[str, str | int],
    zookeeper: ZooKeeperProcess | None,
) -> list[BrokerProcess]:
    folder.mkdir()
    if zookeeper is None:
        brokers = [BrokerProcess(folder / "data", **settings)]
    else:
        settings = {**settings, "zookeeper.connect": zookeeper.connect}
        brokers = [
            BrokerProcess(folder / f"data-{id_}", broker_id=id_, **settings)
            for id_ in range(1, count + 1)
        ]
    if key == SOURCE and is_core_compiled():
        environment = environment_of("source", source_of(folder / "source"))
        for broker in brokers:
            broker.popen = partial(subprocess.Popen, env=environment)
    return brokers


def _kafka(
    folder: Path, version: str, count: int, settings: dict[str, str | int]
) -> list[KafkaBroker]:
    tools = KafkaTools(version, kafka_jars(version))
    controllers = {node: free_port("127.0.0.1") for node in range(1, count + 1)}
    folder.mkdir()
    return [
        QuorumKafkaBroker(tools, folder / f"node-{node}", node, controllers, **settings).format()
        for node in controllers
    ]
