"""A whole cluster as processes: a real ZooKeeper server and as many brokers as wanted."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from pathlib import Path

from ottla.testing.broker_process import BrokerProcess
from ottla.testing.zookeeper_process import ZooKeeperProcess

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
        """What all brokers have logged, one after the other."""
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
