"""An Apache Kafka broker as a peer of Ottla: one node of KRaft in a JVM of its own, on loopback."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

from kafka_tools import KafkaTools

STARTUP_SECONDS = 60
SHUTDOWN_SECONDS = 60
CLUSTER_ID = "T3R0bGEtcGVlci10ZXN0MQ"
NODE_ID = 7
API_VERSIONS = 18


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody uses now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [open_socket.getsockname()[1] for open_socket in sockets]
    for open_socket in sockets:
        open_socket.close()
    return ports


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
        self.port, controller = free_ports(2)
        self.settings = {
            "process.roles": "broker,controller",
            "node.id": NODE_ID,
            "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": data_dir,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
        }
        self.settings |= {name.replace("_", "."): value for name, value in overrides.items()}
        self.properties = data_dir.with_name(data_dir.name + ".properties")
        self.log_path = data_dir.with_name(data_dir.name + ".kafka.log")
        self.process: subprocess.Popen[bytes] | None = None

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
        lines = (f"{name}={value}\n" for name, value in self.settings.items())
        self.properties.write_text("".join(lines))
        self.tools.run("storage", "format", "-t", CLUSTER_ID, "-c", str(self.properties))
        return self

    def start(self) -> KafkaBroker:
        """Start, and wait until a client is answered."""
        options = (*self.jvm_options, f"-Dkafka.logs.dir={self.data_dir.parent}")
        command = self.tools.command("server-start", str(self.properties), options=options)
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + STARTUP_SECONDS
        while time.monotonic() < deadline:
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
