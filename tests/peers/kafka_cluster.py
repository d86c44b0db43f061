"""Three brokers of Apache Kafka 2.3 on ZooKeeper, in the shape of `PeerCluster`.

The tools of that version, and what the brokers leave in ZooKeeper, are what Ottla's are compared
with. Brokers and tools are JVMs of their own, on loopback.
"""

from __future__ import annotations

import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

from benchmarks.peers.kafka_broker import SHUTDOWN_SECONDS, STARTUP_SECONDS, answers
from benchmarks.peers.kafka_tools import KafkaTools

from ottla.runtime.free_port import free_port
from ottla.testing import wait_until
from ottla.testing.processes import SETTINGS, ZooKeeperProcess

JVM_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

PATIENT = {"zookeeper.session.timeout.ms": 10_000, "zookeeper.connection.timeout.ms": 30_000}
"""A JVM that starts on a busy machine is silent for more than two seconds."""

LOG4J = """\
log4j.rootLogger=WARN, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


class KafkaCluster:
    """Brokers 1 to 3 below a chroot of a ZooKeeper server that runs."""

    def __init__(
        self, tools: KafkaTools, data_dir: Path, zookeeper: ZooKeeperProcess, chroot: str
    ) -> None:
        self.tools = tools
        self.data_dir = data_dir
        self.zookeeper = zookeeper
        self.chroot = chroot
        self.ports = {broker_id: free_port("127.0.0.1") for broker_id in (1, 2, 3)}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        data_dir.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    @property
    def brokers(self) -> list[int]:
        return list(self.ports)

    @property
    def live_brokers(self) -> list[int]:
        return list(self.processes)

    def disks(self, broker_id: int) -> list[Path]:
        return [self.data_dir / f"broker-{broker_id}-{name}" for name in ("one", "two")]

    def settings(self, broker_id: int) -> dict[str, object]:
        return SETTINGS | {
            "broker.id": broker_id,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[broker_id]}",
            "log.dirs": ",".join(map(str, self.disks(broker_id))),
            "zookeeper.connect": self.zookeeper.connect + self.chroot,
            "group.initial.rebalance.delay.ms": 200,
            "group.min.session.timeout.ms": 1000,
            **PATIENT,
        }

    def start(self) -> KafkaCluster:
        """Start all, the first one alone: it becomes the controller."""
        with ExitStack() as undo:
            undo.callback(self.stop)
            self.start_broker(1)
            for broker_id in self.brokers[1:]:
                self._launch(broker_id)
            for broker_id in self.brokers[1:]:
                self._wait_until_ready(broker_id)
            undo.pop_all()
        return self

    def start_broker(self, broker_id: int) -> None:
        """Start a broker, or start it again; returns when it serves clients."""
        self._launch(broker_id)
        self._wait_until_ready(broker_id)

    def _launch(self, broker_id: int) -> None:
        properties = self.data_dir / f"broker-{broker_id}.properties"
        lines = (f"{name}={value}\n" for name, value in self.settings(broker_id).items())
        properties.write_text("".join(lines))
        log4j = self.data_dir / "log4j.properties"
        log4j.write_text(LOG4J)
        options = (*JVM_OPTIONS, f"-Dlog4j.configuration=file:{log4j}")
        command = self.tools.command("server-start", str(properties), options=options)
        with self._log_path(broker_id).open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        self.processes[broker_id] = process

    def _log_path(self, broker_id: int) -> Path:
        return self.data_dir / f"broker-{broker_id}.log"

    def _wait_until_ready(self, broker_id: int) -> None:
        def said() -> str:
            return self._log_path(broker_id).read_text(errors="replace")

        def is_ready() -> bool:
            ended = self.processes[broker_id].poll() is not None
            assert not ended, f"broker {broker_id} ended:\n{said()}"
            return answers(self.ports[broker_id])

        wait_until(is_ready, f"broker {broker_id} to be ready", STARTUP_SECONDS, seen=said)

    def stop_broker(self, broker_id: int) -> None:
        """A clean stop: others lead before it goes."""
        self._end(broker_id, signal.SIGTERM)

    def kill_broker(self, broker_id: int) -> None:
        self._end(broker_id, signal.SIGKILL)

    def _end(self, broker_id: int, how: signal.Signals) -> None:
        process = self.processes.pop(broker_id)
        process.send_signal(how)
        process.wait(SHUTDOWN_SECONDS)

    def stop(self) -> None:
        """Stop everything that runs; nothing is handed over any more."""
        for broker_id in self.live_brokers:
            self.kill_broker(broker_id)
