"""A group of the 0.7 design in a simulated world: rebalancers, and what they read."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ottla.clients.legacy.assignment import ConsumerThreadId, decide
from ottla.clients.legacy.consumer_connector import RebalanceLimits, ZooKeeperRebalancer
from ottla.clients.legacy.group_nodes import ConsumerNodes
from ottla.errors import KafkaError
from ottla.registry import paths
from ottla.registry.tree import Create, Delete, Operation, Set
from ottla.registry.znodes import STATIC, BrokerNode, ConsumerRegistration, TopicNode
from ottla.structs import Node, TopicPartition
from ottla.testing.simulation.world import SimulatedProcess, World
from ottla.testing.simulation.zookeeper import HOST, SimulatedRegistry, SimulatedZooKeeper

GROUP = "readers"
SESSION_TIMEOUT_MS = 3000
LIMITS = RebalanceLimits(4, 500, SESSION_TIMEOUT_MS)


class Member:
    """A consumer whose reading is only a note of which partitions it would read."""

    def __init__(self, cluster: ConnectorWorld, name: str, subscription: Mapping[str, int]) -> None:
        self.name = name
        self.reading: dict[TopicPartition, ConsumerThreadId] = {}
        self.released: list[TopicPartition] = []
        self.failure: BaseException | None = None
        self.process = SimulatedProcess(cluster.world, name)
        self.registry = SimulatedRegistry(self.process, SESSION_TIMEOUT_MS)
        self.nodes = ConsumerNodes(self.registry, GROUP, name)
        self.has_joined = False
        self.has_left = False
        self.rebalancer: ZooKeeperRebalancer | None = None
        self._registration = ConsumerRegistration(subscription, cluster.pattern)

    async def join(self) -> None:
        await self.registry.start()
        self.rebalancer = ZooKeeperRebalancer(
            self.process.runtime, self.nodes, self._registration, self, LIMITS
        )
        try:
            await self.rebalancer.start()
            self.has_joined = True
        except KafkaError as error:
            self.failure = error

    async def leave(self) -> None:
        if self.rebalancer is not None:
            await self.rebalancer.close()
        await self.registry.close()
        self.has_left = True

    async def release(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            if self.reading.pop(partition, None) is not None:
                self.released.append(partition)

    def take(
        self,
        owners: Mapping[TopicPartition, ConsumerThreadId],
        offsets: Mapping[TopicPartition, int],
        brokers: Mapping[int, Node],
    ) -> None:
        self.reading.update(owners)

    def on_brokers(self, brokers: Mapping[int, Node]) -> None:
        """It reads nothing from them."""

    def drop_all(self) -> None:
        self.reading.clear()


class ConnectorWorld:
    """ZooKeeper with brokers and topics in it, and members that come and go."""

    def __init__(self, seed: int, topics: Mapping[str, int], pattern: str = STATIC) -> None:
        self.world = World(seed)
        self.zookeeper = SimulatedZooKeeper(self.world)
        self.pattern = pattern
        self.members: list[Member] = []
        self.overlaps: list[str] = []
        group = f"{paths.CONSUMERS}/{GROUP}"
        for path in (*paths.PERSISTENT, f"{group}/ids", f"{group}/owners"):
            self._make(path)
        self.add_broker(0)
        for name, count in topics.items():
            self.make_topic(name, count)

    def add_broker(self, broker_id: int) -> None:
        node = BrokerNode(("PLAINTEXT://kafka:9092",), {"PLAINTEXT": "PLAINTEXT"}, "kafka", 9092, 0)
        self.write(Create(paths.broker(broker_id), node.encode()))

    def make_topic(self, name: str, count: int) -> None:
        node = TopicNode({index: (index % 2,) for index in range(count)})
        self.write(Create(paths.topic(name), node.encode()))

    def grow_topic(self, name: str, count: int) -> None:
        node = TopicNode({index: (index % 2,) for index in range(count)})
        self.write(Set(paths.topic(name), node.encode()))

    def delete_topic(self, name: str) -> None:
        self.write(Delete(paths.topic(name)))

    def write(self, *operations: Operation) -> None:
        """Change the tree as somebody else does, and tell who watches."""
        self.zookeeper.shared.write(operations)

    def join(self, name: str, subscription: Mapping[str, int]) -> Member:
        member = Member(self, name, subscription)
        self.members.append(member)
        member.process.spawn(member.join(), f"{name} joins")
        return member

    def leave(self, member: Member) -> None:
        member.process.spawn(member.leave(), f"{member.name} leaves")

    def kill(self, member: Member) -> None:
        member.process.kill()
        member.reading.clear()

    def cut_off(self, member: Member) -> None:
        self.world.network.cut(member.name, HOST)
        self.world.network.cut(HOST, member.name)

    @property
    def live(self) -> list[Member]:
        return [m for m in self.members if m.process.is_alive and not m.has_left]

    def readers(self) -> dict[TopicPartition, list[ConsumerThreadId]]:
        """Who reads each partition; more than one is what must never be."""
        found: dict[TopicPartition, list[ConsumerThreadId]] = {}
        for member in self.live:
            for partition, thread in member.reading.items():
                found.setdefault(partition, []).append(thread)
        return found

    def watch_for_overlaps(self) -> None:
        """Look after each step of the world."""

        def look() -> None:
            for partition, threads in self.readers().items():
                if len(threads) > 1:
                    self.overlaps.append(f"{partition}: {threads} at {self.world.now_ms} ms")

        self.world.after_step = look

    def owners(self) -> dict[TopicPartition, str]:
        """The owner nodes."""
        found = {}
        root = f"{paths.CONSUMERS}/{GROUP}/owners"
        tree = self.zookeeper.tree
        for topic, node in tree.find(root).children.items():
            for partition, owner in node.children.items():
                found[TopicPartition(topic, int(partition))] = owner.data.decode()
        return found

    def expected(self) -> dict[TopicPartition, ConsumerThreadId]:
        """Who should read what, after what is in the tree."""
        tree = self.zookeeper.tree
        topics = {
            name: TopicNode.decode(name, node.data).assignment
            for name, node in tree.find(paths.TOPICS).children.items()
        }
        registrations = {
            name: ConsumerRegistration.decode(name, node.data)
            for name, node in tree.find(paths.consumer_ids(GROUP)).children.items()
        }
        return decide(registrations, topics, list(topics))

    def is_settled(self) -> bool:
        """Every partition has the reader that it should have, and its owner node says so."""
        expected = self.expected()
        registered = {thread.consumer for thread in expected.values()}
        readers = {p: threads[0] for p, threads in self.readers().items()}
        owners = {p: str(thread) for p, thread in expected.items()}
        is_right = readers == expected and self.owners() == owners
        return bool(expected) and is_right and registered <= {m.name for m in self.live}

    def settle(self, limit_ms: int = 60_000) -> None:
        assert self.world.run_until(self.is_settled, limit_ms), (
            f"expected {self.expected()}, read {self.readers()}, owned {self.owners()}"
        )

    def _make(self, path: str) -> None:
        names = path.split("/")[1:]
        for depth in range(1, len(names) + 1):
            part = "/" + "/".join(names[:depth])
            if (
                names[depth - 1]
                not in self.zookeeper.tree.find(part.rpartition("/")[0] or "/").children
            ):
                self.write(Create(part, b""))
