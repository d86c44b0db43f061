"""Apache Kafka brokers as peers of Ottla, each in a JVM of its own, on loopback.

One alone is a node of KRaft; several are a quorum of KRaft, or share a ZooKeeper server.
"""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.peers.kafka_tools import KafkaTools
from ottla.runtime.free_port import free_port

STARTUP_SECONDS = 180
SHUTDOWN_SECONDS = 60
CLUSTER_ID = "T3R0bGEtcGVlci10ZXN0MQ"
NODE_ID = 7
API_VERSIONS = 18


def answers(port: int) -> bool:
    """Whether a broker answers the question which APIs it serves; waits a moment if none is."""
    question = struct.pack(">ihhih", 10, API_VERSIONS, 0, 1, -1)
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.settimeout(STARTUP_SECONDS)
            connection.sendall(question)
            return bool(connection.recv(4))
    except ConnectionError:
        time.sleep(0.01)
        return False


class KafkaBroker:
    """Apache Kafka with the defaults of its own package, broker and controller in one process."""

    jvm_options = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-Xshare:auto")

    def __init__(self, tools: KafkaTools, data_dir: Path, **overrides: str | int) -> None:
        self.tools = tools
        self.data_dir = data_dir
        self.port = free_port("127.0.0.1")
        self.settings = {
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": data_dir,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            **self.role_settings(),
        }
        self.settings |= {name.replace("_", "."): value for name, value in overrides.items()}
        self.properties = data_dir.with_name(data_dir.name + ".properties")
        self.log_path = data_dir.with_name(data_dir.name + ".kafka.log")
        self.process: subprocess.Popen[bytes] | None = None

    def role_settings(self) -> dict[str, str | int]:
        """Who it is, and who decides."""
        controller = free_port("127.0.0.1")
        return {
            "process.roles": "broker,controller",
            "node.id": NODE_ID,
            "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    @property
    def pid(self) -> int:
        assert self.process is not None, "the broker was not started"
        return self.process.pid

    def format(self) -> KafkaBroker:
        """Make the data directory."""
        self.write_settings()
        self.tools.run("storage", "format", "-t", CLUSTER_ID, "-c", str(self.properties))
        return self

    def write_settings(self) -> None:
        lines = (f"{name}={value}\n" for name, value in self.settings.items())
        self.properties.write_text("".join(lines))

    def start(self) -> KafkaBroker:
        """Start, and wait until a client is answered."""
        return self.launch().wait_until_ready()

    def launch(self) -> KafkaBroker:
        """Start, and do not wait: several get ready together."""
        options = (*self.jvm_options, f"-Dkafka.logs.dir={self.data_dir.parent}")
        command = self.tools.command("server-start", str(self.properties), options=options)
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        return self

    def wait_until_ready(self) -> KafkaBroker:
        """Wait for one that was launched."""
        deadline = time.monotonic() + STARTUP_SECONDS
        while time.monotonic() < deadline:
            assert self.process is not None, "the broker was not started"
            assert self.process.poll() is None, f"Kafka ended:\n{self.log}"
            if answers(self.port):
                return self
        self.kill()
        raise RuntimeError(f"Kafka did not become ready; it logged:\n{self.log}")

    def stop(self) -> None:
        """A clean stop."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(SHUTDOWN_SECONDS)
            self.process = None

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(SHUTDOWN_SECONDS)
            self.process = None


class QuorumKafkaBroker(KafkaBroker):
    """One of several nodes of KRaft, each of which is a broker and a controller."""

    def __init__(
        self,
        tools: KafkaTools,
        data_dir: Path,
        node_id: int,
        controllers: Mapping[int, int],
        **overrides: str | int,
    ) -> None:
        self.node_id = node_id
        self.controllers = controllers
        """The port of each node's controller, by the node's id."""
        super().__init__(tools, data_dir, **overrides)

    def role_settings(self) -> dict[str, str | int]:
        voters = (f"{node}@127.0.0.1:{port}" for node, port in self.controllers.items())
        controller = f"CONTROLLER://127.0.0.1:{self.controllers[self.node_id]}"
        return super().role_settings() | {
            "node.id": self.node_id,
            "controller.quorum.voters": ",".join(voters),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},{controller}",
        }


class ZooKeeperKafkaBroker(KafkaBroker):
    """A broker of a cluster whose members and controller are found in ZooKeeper."""

    def __init__(
        self,
        tools: KafkaTools,
        data_dir: Path,
        broker_id: int,
        connect: str,
        **overrides: str | int,
    ) -> None:
        self.broker_id = broker_id
        self.connect = connect
        super().__init__(tools, data_dir, **overrides)
        self.write_settings()

    def role_settings(self) -> dict[str, str | int]:
        return {
            "broker.id": self.broker_id,
            "zookeeper.connect": self.connect,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
        }
