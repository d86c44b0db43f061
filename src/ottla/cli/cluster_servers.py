"""The servers of a cluster on one machine: the files of each, and its process."""

from __future__ import annotations

import fcntl
from typing import IO, TYPE_CHECKING, Final

from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.local_ports import require_free
from ottla.config.broker_config import BrokerConfig
from ottla.errors import ConfigError
from ottla.runtime.disk import claim_folder
from ottla.runtime.free_port import free_port
from ottla.structs import Value

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


HOST: Final = "127.0.0.1"
TICK_MS: Final = 500
CLUSTER_LOCK: Final = ".lock"
OWN_KEYS: Final = (
    "broker.id",
    "listeners",
    "advertised.listeners",
    "log.dirs",
    "zookeeper.connect",
)
MAX_REPLICAS: Final = 3
MAX_BROKERS: Final = 100
MAX_PORT: Final = (1 << 16) - 1


class Server(Value, frozen=True):
    """One process of the cluster: its command, its address and its files."""

    name: str
    command: str
    port: int
    properties: Path
    settings: Mapping[str, str]

    @property
    def log(self) -> Path:
        return self.properties.with_suffix(".log")

    def write(self) -> None:
        """Rewrite the property file, for this user alone: the latest settings may be secrets."""
        lines = [f"{key}={value}\n".replace("\\", "\\\\") for key, value in self.settings.items()]
        self.properties.touch(0o600)
        self.properties.chmod(0o600)
        self.properties.write_text("".join(lines), encoding="utf-8")


class ClusterLayout:
    """ZooKeeper and brokers 0, 1, 2, ...; each may also be started by hand from its file.

    <data dir>/zookeeper.properties, zookeeper.log, zookeeper/
    <data dir>/server-<id>.properties, server-<id>.log, server-<id>/
    """

    def __init__(
        self,
        data_dir: Path,
        broker_count: int,
        base_port: int,
        zookeeper_port: int,
        overrides: Mapping[str, str],
    ) -> None:
        for key in OWN_KEYS:
            if key in overrides:
                raise UsageError(f"--override {key}: the cluster gives each broker its own")
        if not 0 <= base_port <= MAX_PORT - broker_count or not 0 <= zookeeper_port <= MAX_PORT:
            raise UsageError(
                f"--base-port {base_port}, --zookeeper-port {zookeeper_port}: no ports"
            )
        self.data_dir = data_dir
        self.zookeeper = self._zookeeper(zookeeper_port or free_port(HOST))
        self.brokers = [
            self._broker(broker_id, base_port and base_port + broker_id, broker_count, overrides)
            for broker_id in range(broker_count)
        ]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{broker.port}" for broker in self.brokers)

    def _zookeeper(self, port: int) -> Server:
        settings = {
            "dataDir": str(self.data_dir / "zookeeper"),
            "clientPort": str(port),
            "clientPortAddress": HOST,
            "tickTime": str(TICK_MS),
            "maxClientCnxns": "0",
        }
        return Server(
            "ZooKeeper", "zookeeper", port, self.data_dir / "zookeeper.properties", settings
        )

    def _broker(
        self, broker_id: int, port: int, count: int, overrides: Mapping[str, str]
    ) -> Server:
        port = port or free_port(HOST)
        name = f"server-{broker_id}"
        settings = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{HOST}:{port}",
            "log.dirs": str(self.data_dir / name),
            "zookeeper.connect": f"{HOST}:{self.zookeeper.port}",
            "zookeeper.session.timeout.ms": "6000",
            # Replicas of internal topics are left alone: a topic made while a broker is dead gets
            # by with fewer, and a group's first member does not wait for that broker.
            "default.replication.factor": str(min(MAX_REPLICAS, count)),
            "group.initial.rebalance.delay.ms": "0",
            "controlled.shutdown.retry.backoff.ms": "500",
            **overrides,
        }
        return Server(
            f"broker {broker_id}", "broker", port, self.data_dir / f"{name}.properties", settings
        )

    def write(self) -> None:
        """Check that the servers can run as they are set up, and write their property files."""
        for broker in self.brokers:
            BrokerConfig.parse(broker.settings)
        for server in (self.zookeeper, *self.brokers):
            require_free(HOST, server.port)
            server.write()


def lock(data_dir: Path) -> IO[str]:
    """Held while the cluster runs: two ZooKeepers on one directory would ruin it."""
    try:
        claim_folder(str(data_dir), "--data-dir")
        file = (data_dir / CLUSTER_LOCK).open("w", encoding="utf-8")
    except ConfigError as error:
        raise CommandError(error.message) from None
    except OSError as error:
        raise CommandError(f"--data-dir {data_dir}: {error.strerror}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise CommandError(f"--data-dir {data_dir}: another cluster runs on it") from error
    return file
