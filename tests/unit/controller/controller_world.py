"""A controller over a registry in memory, and brokers whose orders are written down."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, ClassVar

from ottla.config.broker_config import BrokerConfig
from ottla.controller.active_feature import NewFeature
from ottla.controller.broker_registration import ensure_persistent_paths, register_broker
from ottla.controller.controller import Controller
from ottla.errors import ErrorCode, KafkaError
from ottla.registry import paths
from ottla.registry.embedded import EmbeddedRegistry
from ottla.structs import (
    NO_EPOCH,
    BrokerEndPoints,
    EndPoint,
    LeaderAndIsr,
    Node,
    PartitionState,
    TopicPartition,
)
from ottla.testing import mock_runtime


class RecordingOrders:
    """What each broker was told, in order."""

    def __init__(self) -> None:
        self.leader_and_isr_calls: list[tuple[int, list[PartitionState]]] = []
        self.stopped: list[tuple[int, TopicPartition, bool]] = []
        self.added: list[int] = []
        self.metadata: dict[TopicPartition, PartitionState] = {}
        self.brokers: list[BrokerEndPoints] = []
        self.deleted: list[str] = []
        self.full_updates = 0
        self.order: list[str] = []
        """What kind each request was, in order, with the number of its broker."""
        self.leaders: dict[int, list[Node]] = {}
        """Where the leaders are, as each broker was told last."""
        self.offline: dict[int, set[TopicPartition]] = {}
        self.silent: set[int] = set()
        self.refused: dict[int, ErrorCode] = {}

    def add_broker(self, broker):
        self.added.append(broker.id)

    def remove_broker(self, broker_id):
        if broker_id in self.added:
            self.added.remove(broker_id)

    def leader_and_isr(self, controller_epoch, broker_id, states, brokers, on_answer):
        self.leader_and_isr_calls.append((broker_id, list(states)))
        self.leaders[broker_id] = list(brokers)
        self.order.append(f"LeaderAndIsr {broker_id}")
        failed = self.offline.get(broker_id, set())
        on_answer(
            dict.fromkeys((state.topic_partition for state in states), ErrorCode.NONE)
            | dict.fromkeys(failed, ErrorCode.KAFKA_STORAGE_ERROR)
        )

    def stop_replica(self, controller_epoch, broker_id, partitions, on_answer):
        self.stopped += [(broker_id, each.topic_partition, each.delete) for each in partitions]
        if broker_id not in self.silent:
            error = self.refused.get(broker_id, ErrorCode.NONE)
            on_answer({each.topic_partition: error for each in partitions})

    async def settle(self):
        """Every order is carried out at once."""

    def update_metadata(self, controller_epoch, broker_ids, update):
        self.metadata |= {state.topic_partition: state for state in update.states}
        self.brokers = list(update.brokers)
        for broker_id in broker_ids:
            self.deleted += update.deleted_topics
            self.full_updates += update.is_full
            self.order.append(f"{'all' if update.is_full else 'changed'} metadata {broker_id}")


class ControllerWorld:
    """Some live brokers, the first of which is the controller; it can be restarted and crash."""

    features: ClassVar[list[NewFeature]] = []
    """What attaches to the controller while it is active."""

    def __init__(self, broker_count: int = 1, **settings: Any) -> None:
        self.runtime = mock_runtime()
        self.config = BrokerConfig(**settings)
        self.broker_count = broker_count
        self.start()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.runtime.scheduler.run(coroutine)

    def start(self) -> None:
        self.registry = EmbeddedRegistry(self.runtime, "/data/registry")
        self.orders = RecordingOrders()
        self.run(self._start())

    async def _start(self) -> None:
        await self.registry.start()
        await ensure_persistent_paths(self.registry)
        for broker_id in range(self.broker_count):
            end_point = EndPoint("PLAINTEXT", "PLAINTEXT", f"host-{broker_id}", 9092)
            await register_broker(self.registry, broker_id, [end_point], 0)
        self.controller = Controller(self.runtime, self.registry, self.config, self.orders, 0)
        self.controller.features += self.features
        await self.controller.startup()
        await self.settled()

    async def settled(self) -> None:
        """Everything is done that answers of brokers and watches have brought about."""
        for _ in range(5):
            if self.controller.is_active:
                await self.controller.until_idle()

    def settle(self) -> None:
        self.run(self.settled())

    def restart(self, broker_count: int | None = None) -> None:
        """End the process as kill -9 does, and start it again, maybe with fewer brokers alive."""
        self.runtime.disk.crash()
        self.broker_count = self.broker_count if broker_count is None else broker_count
        self.start()

    def create(self, *topics: Any, **options: Any) -> dict[str, Any]:
        return self.run(self.controller.create_topics(topics, **options))

    def kill(self, broker_id: int) -> None:
        """The broker's session has expired."""
        self.run(self.registry.delete(paths.broker(broker_id)))
        self.settle()

    def come(self, broker_id: int) -> None:
        """A broker registers, maybe again."""
        end_point = EndPoint("PLAINTEXT", "PLAINTEXT", f"host-{broker_id}", 9092)
        self.run(register_broker(self.registry, broker_id, [end_point], 0))
        self.settle()

    def write(self, path: str, data: bytes) -> None:
        """A tool asks for something by making a node."""
        self.run(self.registry.create(path, data))
        self.settle()

    def state(self, partition: TopicPartition) -> LeaderAndIsr:
        state = self.controller.context.state(partition)
        assert state is not None
        return state

    def report_in_sync(self, partition: TopicPartition, *isr: int) -> LeaderAndIsr | KafkaError:
        """The leader says who is in sync; the controller's answer."""
        wanted = self.state(partition)._replace(isr=isr)
        outcomes = self.run(
            self.controller.alter_partitions(wanted.leader, NO_EPOCH, {partition: wanted}, {})
        )
        self.settle()
        return outcomes[partition]

    def data(self, path: str) -> bytes:
        data, _ = self.run(self.registry.get(path))
        return data
