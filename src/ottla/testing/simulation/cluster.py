"""A cluster in a simulated world: hosts with disks, and a broker's life on each."""

from __future__ import annotations

import random
import re
from collections import Counter
from functools import partial
from typing import Final

from ottla.config.broker_config import BrokerConfig
from ottla.server.broker import Broker
from ottla.structs import TopicPartition
from ottla.testing.memory_disk import MemoryDisk
from ottla.testing.simulation.flaky_disk import FlakyDisk
from ottla.testing.simulation.processor import SimulatedProcessor
from ottla.testing.simulation.world import SimulatedProcess, World
from ottla.testing.simulation.zookeeper import HOST, PORT, SimulatedRegistry, SimulatedZooKeeper

BROKER_PORT: Final = 9092
SESSION_TIMEOUT_MS: Final = 6_000
START_RETRY_MS: Final = 1_000
PERIOD_MS: Final = 5_000
# Clocks are wrong by an hour at most, so no data is ever old enough to be deleted for its age.
AGE_MS: Final = 3 * 3_600_000

_PERIOD = re.compile(r".*\.(?:check|checkpoint|cleanup)\.interval\.(ms|seconds)")
_AGE = re.compile(r".*\.(?:retention|expiration)\.(ms|minutes|hours)")
_UNIT_MS: Final = {"ms": 1, "seconds": 1_000, "minutes": 60_000, "hours": 3_600_000}


def shortened() -> dict[str, str | int]:
    """The periods and the ages in the broker's table of settings, for runs of some minutes."""
    return {
        name: length_ms // _UNIT_MS[match[1]]
        for name in BrokerConfig.keys
        for pattern, length_ms in ((_PERIOD, PERIOD_MS), (_AGE, AGE_MS))
        if (match := pattern.fullmatch(name))
    }


SETTINGS: Final[dict[str, str | int]] = {
    **shortened(),
    "log.dirs": "/data",
    "zookeeper.connect": f"{HOST}:{PORT}",
    "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
    "replica.lag.time.max.ms": 3_000,
    "controlled.shutdown.retry.backoff.ms": 500,
    "auto.leader.rebalance.enable": "true",
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 2,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.num.partitions": 2,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "group.initial.rebalance.delay.ms": 100,
    "group.consumer.session.timeout.ms": SESSION_TIMEOUT_MS,
    "group.consumer.min.session.timeout.ms": SESSION_TIMEOUT_MS,
    "group.consumer.heartbeat.interval.ms": 1_000,
    "group.consumer.min.heartbeat.interval.ms": 1_000,
    "log.segment.bytes": 8_192,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 2_000,
    "replica.high.watermark.checkpoint.interval.ms": 1_000,
}


class Host:
    """A machine: its disk outlives its broker processes."""

    def __init__(self, cluster: SimulatedCluster, broker_id: int) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.name = f"broker-{broker_id}"
        self.disk = FlakyDisk(random.Random(cluster.world.random.getrandbits(64)))
        for path in cluster.log_dirs:
            MemoryDisk.make_dirs(self.disk, path)
        self.disk.sync_all()
        self.process: SimulatedProcess | None = None
        self.broker: Broker | None = None
        self.is_serving = False
        self.is_wanted = False
        self.failure: BaseException | None = None
        self.control_delay_ms = 0
        """How late the broker takes the controller's requests, one request after the other."""
        self.forgotten: list[str] = []
        """The connections with a fetch that was not answered in time."""
        self.fetches: Counter[str] = Counter()
        """How often each connection has asked for records."""

    @property
    def has_failed_dir(self) -> bool:
        """Whether a log directory is out of service: for good, as far as this process goes."""
        logs = getattr(self.broker, "log_manager", None)
        return self.is_serving and logs is not None and len(logs.live_dirs) < len(logs.dirs)

    @property
    def is_running(self) -> bool:
        """Whether a process runs here: not paused, not dead, whether or not it serves yet."""
        return self.process is not None and self.process.is_running

    @property
    def is_alive(self) -> bool:
        """Whether there is a process, and be it paused."""
        return self.process is not None and self.process.is_alive

    def start(self) -> None:
        """Start a new process; one that fails to start, because of its predecessor, is retried."""
        process = self.process = SimulatedProcess(self.cluster.world, self.name, self.disk)
        process.background.job_ms = self.disk.job_ms
        self.fetches.clear()
        self.is_serving, self.is_wanted = False, True
        settings = {
            **SETTINGS,
            **self.cluster.settings,
            "broker.id": self.broker_id,
            "listeners": f"PLAINTEXT://{self.name}:{BROKER_PORT}",
        }
        if "broker.rack" in settings:  # each broker in its own rack
            settings["broker.rack"] = f"{settings['broker.rack']}-{self.broker_id}"
        broker = self.broker = Broker(
            BrokerConfig.parse(settings),
            process.runtime,
            registry=SimulatedRegistry(process, SESSION_TIMEOUT_MS),
            make_processor=partial(
                SimulatedProcessor,
                on_forgotten=self.forgotten.append,
                on_fetch=self._count_fetch,
                control_delay_ms=lambda: self.control_delay_ms,
            ),
        )
        broker.log_dir_failures.on_fatal = lambda: self._stop_for_good(process)
        process.spawn(self._serve(process, broker), f"start {self.name}")

    def _count_fetch(self, connection_id: str) -> None:
        self.fetches[connection_id] += 1

    async def _serve(self, process: SimulatedProcess, broker: Broker) -> None:
        try:
            await broker.startup()
        except Exception as error:
            self.failure = error
            self.cluster.world.loop.add_timer(START_RETRY_MS, lambda: self._start_again(process))
            raise
        self.failure = None
        self.is_serving = True
        self._restart_on_new_disk()
        if broker.log_dir_failures.is_fatal:  # while it started
            self._stop_for_good(process)

    def _start_again(self, process: SimulatedProcess) -> None:
        if process is self.process and process.is_alive:
            process.kill()
            self.start()

    def revive(self) -> None:
        """Let the broker run: resume it, start it, or start it again as soon as it has stopped."""
        self.is_wanted = True
        if self.process is None or not self.process.is_alive:
            self.start()
        else:
            self.process.resume()

    def kill(self) -> None:
        """Kill the process (kill -9): its writes stay in the page cache."""
        self.is_serving = self.is_wanted = False
        if self.process is not None:
            self.process.kill()

    def lose_power(self, chance: random.Random | None) -> None:
        """Lose changes that were not synced: all, or with `chance` a part."""
        self.is_serving = self.is_wanted = False
        if self.process is not None:
            self.process.lose_power(chance)

    def stop(self) -> None:
        """Shut the broker down (SIGTERM)."""
        process, broker = self.process, self.broker
        if process is None or broker is None or not self.is_serving:
            return
        self.is_serving = self.is_wanted = False

        async def end() -> None:
            await broker.shutdown()
            self.cluster.world.loop.call_soon(lambda: self._has_stopped(process))

        process.spawn(end(), f"stop {self.name}")

    def replace_disk(self) -> None:
        """Mend the disk, and start the broker again if it has given a directory up."""
        self.disk.mend()
        self._restart_on_new_disk()

    def _restart_on_new_disk(self) -> None:
        """A directory that was given up is used again by the next process only."""
        if self.disk.is_mended and self.has_failed_dir:
            self.stop()
            self.is_wanted = True

    def _stop_for_good(self, process: SimulatedProcess) -> None:
        """Stop a broker whose disk has failed; it is started again, as by a supervisor."""
        if process is self.process:
            self.stop()
            self.is_wanted = True

    def _has_stopped(self, process: SimulatedProcess) -> None:
        process.kill()
        if process is self.process and self.is_wanted:
            self.start()


class SimulatedCluster:
    """ZooKeeper and brokers 1 to n, started."""

    def __init__(self, world: World, broker_count: int = 3, **settings: str | int) -> None:
        self.world = world
        self.settings = {key.replace("_", "."): value for key, value in settings.items()}
        self.zookeeper = SimulatedZooKeeper(world)
        self.first_offsets: dict[TopicPartition, int] = {}
        """Where logs begin that were there before the cluster."""
        self.hosts = [Host(self, broker_id) for broker_id in range(1, broker_count + 1)]
        for host in self.hosts:
            host.start()

    @property
    def log_dirs(self) -> list[str]:
        """The log directories that each broker has."""
        return str(self.settings.get("log.dirs", SETTINGS["log.dirs"])).split(",")

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{host.name}:{BROKER_PORT}" for host in self.hosts)

    @property
    def is_serving(self) -> bool:
        """Whether every broker serves."""
        return all(host.is_serving for host in self.hosts)


def is_controller(host: Host) -> bool:
    """Whether the broker of a host runs, and is the controller as far as it knows."""
    controller = getattr(host.broker, "controller", None)
    return host.is_running and controller is not None and controller.is_active
