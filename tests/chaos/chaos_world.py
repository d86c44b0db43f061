"""Three brokers on a ZooKeeper server, with a network in between that can be cut."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path
from typing import Any
from uuid import UUID

from broker_requests import check_answers
from cut_network import CutNetwork
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError

from ottla.runtime.free_port import free_port
from ottla.structs import decode_uuid
from ottla.testing import wait_until
from ottla.testing.processes import BrokerProcess, ClusterProcess, ZooKeeperProcess

ZOOKEEPER = "zookeeper"
BROKERS = (1, 2, 3)
SESSION_S = 2.0
LAG_S = 3.0
SETTINGS = {
    "listener.security.protocol.map": "REPLICATION:PLAINTEXT,CLIENTS:PLAINTEXT",
    "inter.broker.listener.name": "REPLICATION",
    "replica.lag.time.max.ms": str(int(LAG_S * 1000)),
    "zookeeper.session.timeout.ms": str(int(SESSION_S * 1000)),
    # On a busy machine ZooKeeper's disk makes it wait.
    "zookeeper.connection.timeout.ms": "25000",
}
LIMIT_S = 60.0
MAX_RESIDENT_MB = 200
MAX_FILES = 1000
JAVA_LCG, JAVA_INCREMENT, JAVA_MASK = 0x5DEECE66D, 0xB, (1 << 48) - 1
PASSWORD_SECRET = 0xB3415C00
PASSWORD_LENGTH = 16


def end(broker_id: int) -> str:
    """The name of a broker as an end of the network."""
    return f"broker-{broker_id}"


class ChaosWorld(ClusterProcess):
    """A cluster whose state is read from ZooKeeper itself, past all cuts."""

    def __init__(self, data_dir: Path, zookeeper: ZooKeeperProcess, chroot: str) -> None:
        self.network = CutNetwork()
        self.network.pids = self._ends
        self._registry_ports: dict[int, int] = {}
        self.ports: dict[int, int] = {}
        """Where brokers listen to clients, past the proxies."""
        self.own_ports: dict[int, int] = {}
        """Where they listen to each other."""
        super().__init__(data_dir, 0, zookeeper=zookeeper, chroot=chroot)
        self.settings |= SETTINGS
        for broker_id in BROKERS:
            self.add(broker_id)
        self.client = KazooClient(zookeeper.connect, timeout=10)
        self.client.start(LIMIT_S)

    def add(self, broker_id: int, **overrides: str | int) -> BrokerProcess:
        """One more broker; others and clients reach it through proxies, and so it ZooKeeper."""
        own, clients = free_port("127.0.0.1"), free_port("127.0.0.1")
        name = end(broker_id)
        self.own_ports[broker_id], self.ports[broker_id] = own, clients
        proxies = [self.network.proxy(name, lambda port=port: port) for port in (own, clients)]
        self._registry_ports[broker_id] = self.network.proxy(
            ZOOKEEPER, lambda: self.zookeeper.port, name
        )
        listeners = "REPLICATION://127.0.0.1:{},CLIENTS://127.0.0.1:{}"
        return super().add(
            broker_id,
            listeners=listeners.format(own, clients),
            advertised_listeners=listeners.format(*proxies),
            **overrides,
        )

    def launch_broker(self, broker_id: int) -> None:
        """Start a broker, and do not wait until it serves."""
        self._launch(broker_id)

    def _launch(self, broker_id: int) -> BrokerProcess:
        """Another server of this machine may have taken a port while the broker was dead."""
        for port in (self.own_ports[broker_id], self.ports[broker_id]):
            wait_until(lambda port=port: is_free(port), f"port {port} is free again", LIMIT_S)
        return super()._launch(broker_id)

    def zookeeper_connect(self, broker_id: int) -> str:
        return f"127.0.0.1:{self._registry_ports[broker_id]}{self.chroot}"

    def _ends(self) -> dict[int, str]:
        processes = [(each, broker.process) for each, broker in self.brokers.items()]
        return {process.pid: end(each) for each, process in processes if process is not None}

    def recover(self) -> None:
        """Whatever was done to it: everything runs again, and all can reach each other."""
        self.network.heal()
        self.recover_zookeeper()
        for broker_id in self.brokers:
            if broker_id in self.live_brokers:
                self.resume_broker(broker_id)
            else:
                self.start_broker(broker_id)

    def recover_zookeeper(self) -> None:
        """ZooKeeper runs again, if it was killed or paused."""
        if self.zookeeper.process is None:
            self.zookeeper.start()
        self.zookeeper.resume()

    def close(self) -> None:
        """Nothing runs any more but ZooKeeper."""
        with contextlib.suppress(Exception):
            self.client.stop()
            self.client.close()
        self.stop()
        self.network.close()

    def znode(self, path: str) -> Any:
        """The JSON of a node; None where there is none."""
        try:
            data, _ = self.client.retry(self.client.get, self.chroot + path)
        except NoNodeError:
            return None
        return json.loads(data)

    def state(self, topic: str, partition: int = 0) -> dict[str, Any]:
        """Who leads a partition, and who is in sync."""
        found: dict[str, Any] | None = self.znode(
            f"/brokers/topics/{topic}/partitions/{partition}/state"
        )
        return found or {"leader": -1, "isr": [], "leader_epoch": -1, "controller_epoch": -1}

    def topic_id(self, topic: str) -> UUID | None:
        """The id that tells a topic from others of its name; None where there is none."""
        found = self.znode(f"/brokers/topics/{topic}")
        return None if found is None else decode_uuid(found["topic_id"])

    def leader(self, topic: str, partition: int = 0) -> int:
        return int(self.state(topic, partition)["leader"])

    def in_sync(self, topic: str, partition: int = 0) -> set[int]:
        return set(self.state(topic, partition)["isr"])

    @property
    def controller(self) -> int:
        """The controller's id; -1 while there is none."""
        found = self.znode("/controller")
        return -1 if found is None else int(found["brokerid"])

    def registration(self, broker_id: int) -> int:
        """The number of a broker's registration, its epoch; 0 where it is not registered."""
        stat = self.client.retry(self.client.exists, f"{self.chroot}/brokers/ids/{broker_id}")
        return 0 if stat is None else int(stat.czxid)

    def until_registered(self) -> None:
        wait_until(
            lambda: all(map(self.registration, self.live_brokers)), "all are registered", LIMIT_S
        )

    def expire(self, broker_id: int) -> None:
        """End a broker's session from beside: another client takes it over and closes it."""
        session = self._session(broker_id)
        assert session, f"broker {broker_id} is not registered"

        def has_ended() -> bool:
            if self._session(broker_id) != session:
                return True
            self._close_session(session)
            return False

        wait_until(has_ended, f"session {session:#x} has ended", LIMIT_S)

    def expire_soon(self, broker_id: int) -> None:
        """Try once to end a broker's session, if it has one: the broker may be quicker."""
        if session := self._session(broker_id):
            self._close_session(session)

    def _session(self, broker_id: int) -> int:
        """The session of a broker's registration; 0 where it is not registered."""
        stat = self.client.retry(self.client.exists, f"{self.chroot}/brokers/ids/{broker_id}")
        return 0 if stat is None else int(stat.ephemeralOwner)

    def _close_session(self, session: int) -> None:
        """It may fail: the broker takes its session back as soon as it can."""
        identity = session, session_password(session)
        twin = KazooClient(self.zookeeper.connect, timeout=10, client_id=identity)
        with contextlib.suppress(KazooException, twin.handler.timeout_exception):
            twin.start(10)
        twin.stop()
        twin.close()

    def footprint(self) -> str:
        """The most memory and the most open files that a broker has; AssertionError beyond bounds.

        All that it has seen are some hundred small partitions and a few clients.
        """
        pids = [self.brokers[each].pid for each in self.live_brokers]
        resident_mb = max(map(resident_bytes, pids)) >> 20
        files = max(sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()) for pid in pids)
        assert resident_mb < MAX_RESIDENT_MB, f"a broker has {resident_mb} MB"
        assert files < MAX_FILES, f"a broker has {files} open files"
        return f"rss_mb={resident_mb} files={files}"

    def check_answers(self) -> None:
        """Each broker answers a new client within five seconds."""
        for broker_id in self.live_brokers:
            check_answers(self.ports[broker_id])

    def kill_all(self, *broker_ids: int) -> None:
        """They end at once: nobody sees another one die."""
        for broker_id in broker_ids:
            self.pause_broker(broker_id)
        for broker_id in broker_ids:
            self.kill_broker(broker_id)

    def changes(self, topic: str, partition: int) -> int:
        """How often the state of a partition has been written."""
        path = f"{self.chroot}/brokers/topics/{topic}/partitions/{partition}/state"
        return int(self.client.retry(self.client.get, path)[1].version)

    def log_bytes(self, broker_id: int, topic: str, partition: int) -> bytes:
        """All record batches of a replica, wherever its segments begin."""
        folder = self.brokers[broker_id].data_dir / f"{topic}-{partition}"
        return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def is_free(port: int) -> bool:
    """Whether nobody listens there."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def resident_bytes(pid: int) -> int:
    """The memory that a process has."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def session_password(session: int) -> bytes:
    """The password that ZooKeeper derives from a session's id: 16 bytes of Java's Random."""
    seed = ((session ^ PASSWORD_SECRET) ^ JAVA_LCG) & JAVA_MASK
    password = b""
    while len(password) < PASSWORD_LENGTH:
        seed = (seed * JAVA_LCG + JAVA_INCREMENT) & JAVA_MASK
        password += (seed >> 16).to_bytes(4, "little")
    return password
