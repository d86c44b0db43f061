"""A cluster in a thread of the test's own process, without ZooKeeper and Java.

The brokers share a loop, and a tree of znodes in memory in place of ZooKeeper.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from ottla.config.broker_config import BrokerConfig
from ottla.registry.session_tree import SessionTree
from ottla.runtime import SystemClock
from ottla.runtime.io_thread import IoThread
from ottla.server.broker import Broker
from ottla.server.broker_process import new_loop
from ottla.structs import OFFSETS_TOPIC, ElectionType, TopicPartition
from ottla.testing.in_process_broker import STOP_LIMIT_MS, broker_settings
from ottla.testing.live_brokers import (
    BrokerLife,
    CollectorPause,
    LiveBrokers,
    collect_young,
    is_controller,
)
from ottla.testing.memory_disk import MemoryDisk
from ottla.testing.waiting import LIMIT_S, wait_until_async

T = TypeVar("T")

CLUSTER_SETTINGS: Final[dict[str, str | int]] = {
    "zookeeper.connect": "in-process:2181",  # a name only: the registry is given
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "controlled.shutdown.retry.backoff.ms": 100,
    "replica.fetch.wait.max.ms": 25,  # a new partition is fetched when the wait for others is over
}
"""Those of each broker of a cluster, beside the replication factors."""


class InProcessCluster(LiveBrokers):
    """Brokers 1 to `brokers` in a thread of this process, without ZooKeeper and Java.

    They replicate, elect and move leaders as any brokers do. Each can be killed, stopped and
    started again; the session of a killed one is over at once, where a real one lasts until its
    timeout. Settings are those of all brokers, with underscores for dots; below `data_dir` each
    has a directory, else all are in memory.
    """

    def __init__(
        self, brokers: int = 3, data_dir: Path | str | None = None, **settings: str | int
    ) -> None:
        super().__init__()
        if not isinstance(brokers, int) or brokers < 1:
            raise TypeError(
                f"brokers={brokers!r}: must be a number of brokers, at least 1; settings are "
                "keywords, such as num_partitions=3"
            )
        factor = min(brokers, 3)
        self.settings: dict[str, str | int] = {
            **CLUSTER_SETTINGS,
            "default.replication.factor": factor,
            "offsets.topic.replication.factor": factor,
            "transaction.state.log.replication.factor": factor,
            "transaction.state.log.min.isr": min(2, factor),
            "min.insync.replicas": min(2, factor),
            **broker_settings(settings),
        }
        self.disks: dict[int, MemoryDisk | None] = {}
        """The disks of brokers in memory, with their faults."""
        self.ports: dict[int, int] = dict.fromkeys(range(1, brokers + 1), 0)
        self._dirs: dict[int, str] = {}
        for broker_id in self.ports:
            disk = self.disks[broker_id] = MemoryDisk() if data_dir is None else None
            if disk is not None:
                disk.make_dirs("/data")
            self._dirs[broker_id] = (
                "/data" if data_dir is None else str(Path(data_dir) / f"broker-{broker_id}")
            )
        self._tree = SessionTree(SystemClock())
        self._thread: IoThread | None = None
        self._lives: dict[int, BrokerLife] = {}

    @property
    def bootstrap_servers(self) -> str:
        """All brokers that were started, dead or alive."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values() if port)

    @property
    def live_brokers(self) -> list[int]:
        """The ids of the brokers that run."""
        return sorted(id_ for id_, life in self._lives.items() if not life.is_over)

    def broker(self, broker_id: int) -> Broker:
        """A broker itself; its state belongs to the cluster's thread, so use it within `run`."""
        return self._living(broker_id).broker

    # Life

    @CollectorPause()
    def start(self) -> Self:
        """Start all; the first one becomes the controller. Returns when all serve clients."""
        if self._thread is not None:
            raise RuntimeError("the cluster runs already")
        loop = partial(new_loop, BrokerConfig.parse(self.settings))
        thread = IoThread("ottla-cluster", is_started=False, new_loop=loop)
        thread.begin_with(self._start_all())
        self._thread = thread
        return self

    async def _start_all(self) -> None:
        try:
            await self._start_each()
        except BaseException:
            await _kill_all(self._lives)
            raise

    async def _start_each(self) -> None:
        first, *others = self.ports
        await self._start(first)
        await asyncio.gather(*map(self._start, others))
        cache = self._lives[first].broker.cache
        await wait_until_async(lambda: len(cache.brokers) == len(self.ports), "all brokers")
        self._lives[first].prepare_coordinators()

    async def _start(self, broker_id: int) -> None:
        listeners = str(self.settings.get("listeners", "PLAINTEXT://127.0.0.1:0"))
        if "," not in listeners:  # started again, it is where clients know it
            listeners = f"{listeners.rpartition(':')[0]}:{self.ports[broker_id]}"
        settings: dict[str, str | int] = {
            **self.settings,
            "listeners": listeners,
            "broker.id": broker_id,
            "log.dirs": self._dirs[broker_id],
        }
        life = BrokerLife(settings, self.disks[broker_id], self.faults, self._tree)
        self._lives[broker_id] = life
        await life.start()
        self.ports[broker_id] = life.broker.end_points[0].port

    def start_broker(self, broker_id: int) -> None:
        """Start a broker again, on its data; returns when it serves clients."""
        if broker_id in self.live_brokers:
            raise RuntimeError(f"broker {broker_id} runs already")
        self.run(self._start(broker_id))

    def stop_broker(self, broker_id: int) -> None:
        """A clean stop: its leaders move to other brokers first."""
        self.run(self._living(broker_id).stop())

    def kill_broker(self, broker_id: int) -> None:
        """End a broker at once, and its session; written bytes stay."""
        self.run(self._living(broker_id).kill())

    def expire_session(self, broker_id: int) -> None:
        """End the session of a broker, which lives: it is unknown until it has registered again."""
        self.run(self._expire(self._living(broker_id)))

    async def _expire(self, life: BrokerLife) -> None:
        assert life.registry is not None
        life.registry.expire()

    def stop(self) -> None:
        """Kill all that run: there is nothing left to hand over to."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.end_with(_kill_all(self._lives), STOP_LIMIT_MS)
            del thread
            collect_young()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Leaders

    def leader(self, topic: str, partition: int = 0, limit: float = LIMIT_S) -> int:
        """The id of the broker that leads a partition; waits for one that lives."""

        async def find() -> int:
            found = await wait_until_async(
                lambda: self._leaders(topic).get(partition),
                f"a leader of {topic}-{partition}",
                limit,
                seen=lambda: f"live brokers {self.live_brokers}",
            )
            return found.broker_id

        return self.run(find())

    def move_leader(
        self, topic: str, partition: int = 0, to: int | None = None, limit: float = LIMIT_S
    ) -> int:
        """Have another replica lead a partition, the broker `to` or the next one; returns its id.

        It must be in sync. The old leader lives, and refuses its clients as NOT_LEADER_OR_FOLLOWER.
        """
        return self.run(self._move_leader(TopicPartition(topic, partition), to, limit))

    def move_coordinator(self, group_id: str, to: int | None = None, limit: float = LIMIT_S) -> int:
        """Have another broker coordinate a group; returns its id."""

        async def move() -> int:
            groups = self._brokers()[0].coordinators.groups
            at = TopicPartition(OFFSETS_TOPIC, groups.partition_for(group_id))
            leader = await self._move_leader(at, to, limit)
            await wait_until_async(
                lambda: (one := self._coordinator_of(group_id)) and one.broker_id == leader,
                f"broker {leader} to coordinate group {group_id}",
                limit,
            )
            return leader

        return self.run(move())

    async def _move_leader(self, at: TopicPartition, to: int | None, limit: float) -> int:
        leader = await wait_until_async(
            lambda: self._leaders(at.topic).get(at.partition), f"a leader of {at}", limit
        )
        others = [each for each in leader.replicas if each != leader.broker_id]
        wanted = (
            next((each for each in others if each in self.live_brokers), -1) if to is None else to
        )
        if wanted not in others:
            raise ValueError(f"{at} cannot be led by broker {wanted}: {others} are its followers")
        await wait_until_async(
            lambda: leader.leadership is not None and wanted in leader.leadership.in_sync.committed,
            f"replica {wanted} of {at} in sync",
            limit,
        )
        broker = next(filter(is_controller, self._brokers()))
        replicas = [wanted, *(each for each in leader.replicas if each != wanted)]
        await broker.named("Moves").reassign({at: replicas})
        await broker.controller.elect_leaders(ElectionType.PREFERRED, [at])
        await wait_until_async(
            lambda: (one := self._leaders(at.topic).get(at.partition)) and one.broker_id == wanted,
            f"broker {wanted} to lead {at}",
            limit,
        )
        return wanted

    def coordinator(self, group_id: str, limit: float = LIMIT_S) -> int:
        """The id of the broker that coordinates a group; waits for one that lives."""

        async def find() -> int:
            found = await wait_until_async(
                lambda: self._coordinator_of(group_id),
                f"a coordinator of group {group_id}",
                limit,
            )
            return found.broker_id

        return self.run(find())

    def controller_id(self, limit: float = LIMIT_S) -> int:
        """The id of the broker that is the controller; waits for one that lives."""

        async def find() -> int:
            found = await wait_until_async(
                lambda: next(filter(is_controller, self._brokers()), None), "a controller", limit
            )
            return found.broker_id

        return self.run(find())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop of the brokers, and return its result."""
        if self._thread is None:
            coroutine.close()
            raise RuntimeError("the cluster is not running")
        return self._thread.run(coroutine)

    def _brokers(self) -> list[Broker]:
        if not self._lives:
            raise RuntimeError("the cluster is not running")
        return [self._lives[broker_id].broker for broker_id in self.live_brokers]

    def _living(self, broker_id: int) -> BrokerLife:
        life = self._lives.get(broker_id)
        if life is None or life.is_over:
            raise RuntimeError(f"broker {broker_id} is not running: {self.live_brokers} are")
        return life


async def _kill_all(lives: dict[int, BrokerLife]) -> None:
    """Kill those that run; the dict is empty then."""
    while lives:
        _, life = lives.popitem()
        await life.kill()
