"""Servers in processes of their own, as a person starts them on the command line.

One server, a broker, ZooKeeper, or a whole cluster of brokers: for tests and for benchmarks.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar, Self

from ottla.runtime.child_process import ending_with_parent
from ottla.runtime.free_port import free_port

STARTUP_SECONDS = 120
SHUTDOWN_SECONDS = 120
"""A server that takes longer hangs; on a busy machine a start may take half a minute."""


class ServerProcess(ABC):
    """One command of `ottla` that serves; its port, at first any free one, outlives restarts.

    The data are in a folder, and the log is in a file beside that.
    """

    command: ClassVar[str]
    title: ClassVar[str]
    """The name of the server in errors."""
    ready: ClassVar[re.Pattern[str]]
    """The line it prints when it serves; the first group is its address."""
    popen: ClassVar[type[subprocess.Popen[str]]] = subprocess.Popen
    """The command line of the process."""
    ends_with_parent = False
    """Whether it is killed when the thread ends that has started it, however that ends."""

    def __init__(self, data_dir: Path, overrides: Mapping[str, str]) -> None:
        self.data_dir = data_dir
        self.overrides = dict(overrides)
        self.options: tuple[str, ...] = ()
        """Arguments of the command line besides the settings."""
        self.log_path = data_dir.with_name(f"{data_dir.name}.{self.command}.log")
        self.port = 0
        self.module = "ottla"
        self.process: subprocess.Popen[str] | None = None
        self._log_start = 0

    @property
    def log(self) -> str:
        """Everything that the server has logged, over all its starts."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    @property
    @abstractmethod
    def address_settings(self) -> dict[str, str]:
        """The settings that make it listen on its port, unless the overrides set another."""

    def start(self) -> Self:
        """Start and wait until the server says that it is ready."""
        return self.launch().wait_until_ready()

    def launch(self) -> Self:
        """Start without waiting, so that several servers can get ready together."""
        self.port = self.port or free_port("127.0.0.1")
        command = [sys.executable, "-m", self.module, self.command, *self.options]
        for name, value in {**self.address_settings, **self.overrides}.items():
            command += ["--override", f"{name}={value}"]
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            # In a process group of its own: Ctrl-C in a terminal reaches only the program that
            # started it, which then stops it.
            self.process = self.popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                process_group=0,
                preexec_fn=ending_with_parent() if self.ends_with_parent else None,
            )
        return self

    def wait_until_ready(self) -> Self:
        """Wait for a launched server; RuntimeError if it ends instead."""
        process = self.running
        killer = threading.Timer(STARTUP_SECONDS, process.kill)
        killer.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if match := self.ready.search(line):
                    self.take(match)
                    return self
        finally:
            killer.cancel()
        self._reap()
        raise RuntimeError(f"{self.title} did not become ready; it logged:\n{self.last_log}")

    @property
    def last_log(self) -> str:
        """The log of the server since its last start."""
        return self.log_path.read_bytes()[self._log_start :].decode("utf-8", "replace")

    def take(self, ready: re.Match[str]) -> None:
        """Take the address from the line that the server printed."""
        self.port = int(ready[1].rpartition(":")[2])

    def kill(self) -> None:
        """The process ends at once, as by kill -9."""
        self.running.kill()
        self._reap()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """A clean stop; returns the exit status."""
        if self.process is None:
            return 0
        self.process.send_signal(number)
        try:
            return self._reap()
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    @property
    def running(self) -> subprocess.Popen[str]:
        """The process, which must have been started."""
        assert self.process is not None, f"{self.title} was not started"
        return self.process

    def _reap(self) -> int:
        process = self.running
        status = process.wait(SHUTDOWN_SECONDS)
        if process.stdout is not None:
            process.stdout.close()
        self.process = None
        return status


class BrokerProcess(ServerProcess):
    """`ottla broker` on a free loopback port; the port stays the same over restarts."""

    command = "broker"
    title = "the broker"
    ready = re.compile(r"ready at (\S+)")

    def __init__(self, data_dir: Path, **overrides: str | int) -> None:
        settings = {
            "broker.id": "0",
            "log.dirs": str(data_dir),
            # Not Kafka's 3 s, to be quick; not 0, which kafka-python's first join does not expect:
            # it may then share out topics whose metadata it has not got yet.
            "group.initial.rebalance.delay.ms": "200",
        }
        given = {name.replace("_", "."): str(value) for name, value in overrides.items()}
        super().__init__(data_dir, settings | given)

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self.running.pid

    @property
    def address_settings(self) -> dict[str, str]:
        return {"listeners": f"PLAINTEXT://127.0.0.1:{self.port}"}


class ZooKeeperProcess(ServerProcess):
    """`ottla zookeeper` on a free loopback port; the port stays the same over restarts.

    Needs Java and PySpark's jars. Settings are ZooKeeper's own, as `tickTime=500`.
    """

    command = "zookeeper"
    title = "ZooKeeper"
    ready = re.compile(r"ready at (\S+) \(process (\d+)\)")

    def __init__(self, data_dir: Path, **overrides: str | int) -> None:
        settings = {
            "dataDir": str(data_dir),
            "clientPortAddress": "127.0.0.1",
            "tickTime": "500",
        }
        given = {name: str(value) for name, value in overrides.items()}
        super().__init__(data_dir, settings | given)
        self.server_pid = 0

    @property
    def connect(self) -> str:
        """The value for `zookeeper.connect`; a chroot may follow."""
        return f"127.0.0.1:{self.port}"

    @property
    def address_settings(self) -> dict[str, str]:
        return {"clientPort": str(self.port)}

    def take(self, ready: re.Match[str]) -> None:
        super().take(ready)
        self.server_pid = int(ready[2])

    def pause(self) -> None:
        """Pause the server: it answers no request until `resume`, as if the machine hung."""
        os.kill(self.server_pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume the server; it continues where it was."""
        os.kill(self.server_pid, signal.SIGCONT)

    def kill(self) -> None:
        """The server ends at once, as by kill -9."""
        assert self.process is not None, "ZooKeeper was not started"
        # The server is the child of the process that watches it, which ends when the server does.
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.kill(self.server_pid, signal.SIGKILL)
        self._reap()


SETTINGS = {
    "zookeeper.session.timeout.ms": "2000",
    "zookeeper.connection.timeout.ms": "10000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "controlled.shutdown.retry.backoff.ms": "500",
    "auto.leader.rebalance.enable": "false",
}
"""Small and quick: the session of a killed broker expires after two seconds. Leaders stay where a
test has them: the balance of leaders, every five minutes, would come at any moment of it."""


class ClusterProcess:
    """Brokers 1 to `broker_count` and their ZooKeeper; each can be killed, stopped and started.

    The data are below `data_dir`, and so are the logs of all processes. Ports are free ones on the
    loopback interface, and stay the same over restarts. With a `zookeeper` that runs already the
    cluster lives below the `chroot` there, and leaves the server running when it stops.
    """

    def __init__(
        self,
        data_dir: Path,
        broker_count: int = 3,
        *,
        zookeeper: ZooKeeperProcess | None = None,
        chroot: str = "",
        **overrides: str | int,
    ) -> None:
        data_dir.mkdir(parents=True, exist_ok=True)
        self.data_dir = data_dir
        self.chroot = chroot
        self._owns_zookeeper = zookeeper is None
        self.zookeeper = zookeeper or ZooKeeperProcess(data_dir / "zookeeper")
        self.brokers: dict[int, BrokerProcess] = {}
        self.settings = SETTINGS | {
            name.replace("_", "."): str(value) for name, value in overrides.items()
        }
        for broker_id in range(1, broker_count + 1):
            self.add(broker_id)

    @property
    def bootstrap_servers(self) -> str:
        """All brokers that were started, dead or alive."""
        started = [broker.bootstrap_servers for broker in self.brokers.values() if broker.port]
        return ",".join(started)

    @property
    def live_brokers(self) -> list[int]:
        """The ids of the brokers whose processes run."""
        return [id_ for id_, broker in self.brokers.items() if broker.process is not None]

    @property
    def log(self) -> str:
        """The logs of all brokers, one after the other."""
        return "".join(_log_of(id_, broker) for id_, broker in self.brokers.items())

    def add(self, broker_id: int, **overrides: str | int) -> BrokerProcess:
        """One more broker, not yet started; its settings may differ from those of the others."""
        settings: dict[str, str | int] = {**self.settings, "broker.id": broker_id}
        settings |= {name.replace("_", "."): value for name, value in overrides.items()}
        broker = BrokerProcess(self.data_dir / f"broker-{broker_id}", **settings)
        self.brokers[broker_id] = broker
        return broker

    def start(self) -> ClusterProcess:
        """Start ZooKeeper, where it is the cluster's own, and the brokers."""
        with ExitStack() as undo:
            undo.callback(self.stop)
            if self._owns_zookeeper:
                self.zookeeper.start()
            self.start_brokers()
            undo.pop_all()
        return self

    def start_brokers(self) -> None:
        """Start all: the first one, which thus becomes the controller, then the others at once."""
        first, *others = self.brokers
        self.start_broker(first)
        for broker_id in others:
            self._launch(broker_id)
        for broker_id in others:
            self.brokers[broker_id].wait_until_ready()

    def start_broker(self, broker_id: int) -> BrokerProcess:
        """Start a broker, or start it again; returns when it serves clients."""
        return self._launch(broker_id).wait_until_ready()

    def zookeeper_connect(self, broker_id: int) -> str:
        """Where this broker finds ZooKeeper."""
        return self.zookeeper.connect + self.chroot

    def _launch(self, broker_id: int) -> BrokerProcess:
        broker = self.brokers[broker_id]
        broker.overrides["zookeeper.connect"] = self.zookeeper_connect(broker_id)
        return broker.launch()

    def kill_broker(self, broker_id: int) -> None:
        """The broker ends at once, as by kill -9; it is registered until its session expires."""
        self.brokers[broker_id].kill()

    def stop_broker(self, broker_id: int) -> int:
        """A clean stop: leadership moves to other brokers first; returns the exit status."""
        return self.brokers[broker_id].stop()

    def pause_broker(self, broker_id: int) -> None:
        """The broker does nothing until it is resumed, as if its machine hung."""
        os.kill(self.brokers[broker_id].pid, signal.SIGSTOP)

    def resume_broker(self, broker_id: int) -> None:
        """The broker continues where it was, and does not know that time has passed."""
        os.kill(self.brokers[broker_id].pid, signal.SIGCONT)

    def mend(self) -> None:
        """Every broker serves again: paused ones are resumed, ended ones are started."""
        for broker_id in self.brokers:
            if broker_id in self.live_brokers:
                self.resume_broker(broker_id)
            else:
                self.start_broker(broker_id)

    def stop(self) -> None:
        """Stop everything that runs: brokers first, all of them even if one fails to."""
        with ExitStack() as all_of_it:
            if self._owns_zookeeper:
                all_of_it.callback(self.zookeeper.stop)
            for broker_id in self.live_brokers:
                all_of_it.callback(self._end_broker, broker_id)

    def _end_broker(self, broker_id: int) -> None:
        """Kill the broker: nothing is left to hand over, so no controlled shutdown is needed."""
        if self.brokers[broker_id].process is not None:
            self.resume_broker(broker_id)
            self.kill_broker(broker_id)


def _log_of(broker_id: int, broker: BrokerProcess) -> str:
    return f"--- broker {broker_id}\n{broker.log}" if broker.log_path.exists() else ""
