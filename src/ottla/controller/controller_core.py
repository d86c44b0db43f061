"""The core of an active controller: one epoch's context, writes and state machines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ottla.config.broker_config import BrokerConfig
from ottla.controller.broker_request_batch import BrokerRequestBatch, OnBrokerAnswer
from ottla.controller.controller_context import ControllerContext
from ottla.controller.entity_configs import EntityConfigs
from ottla.controller.fenced_registry import FencedRegistry
from ottla.controller.orders_to_brokers import OrdersToBrokers
from ottla.controller.partition_state_machine import PartitionStateMachine
from ottla.controller.replica_state_machine import ReplicaStateMachine
from ottla.controller.stored_states import StoredStates
from ottla.controller.topic_deletion import TopicDeletion
from ottla.controller.topic_store import TopicStore
from ottla.runtime import Runtime


class ControllerCore:
    """The tools of one epoch.

    The context changes only within an event of the queue; the batch is sent at the event's end.
    `enqueue_once` queues something as an event of its own; of those with one name only one waits.
    """

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        orders: OrdersToBrokers,
        fenced: FencedRegistry,
        enqueue_once: Callable[[str, Callable[[], Awaitable[object]]], None],
        on_leader_and_isr: OnBrokerAnswer,
        on_deleted: OnBrokerAnswer,
    ) -> None:
        self.runtime = runtime
        self.config = config
        self.orders = orders
        self.fenced = fenced
        self.enqueue_once = enqueue_once
        self.context = context = ControllerContext(fenced.epoch.epoch)
        self.slices = runtime.slices
        self.store = TopicStore(fenced)
        self.configs = EntityConfigs(fenced.registry)
        self.states = StoredStates(context, self.store)
        self.batch = BrokerRequestBatch(
            context, orders, config.inter_broker_listener_name, on_leader_and_isr, on_deleted
        )
        self.partitions = PartitionStateMachine(
            context, self.states, self.configs, config, self.batch, self.slices
        )
        self.replicas = ReplicaStateMachine(context, self.states, self.batch, self.slices)
        self.deletion = TopicDeletion(
            context, self.store, self.configs, self.partitions, self.replicas, self.batch
        )

    async def send(self) -> None:
        """Send the batch, in slices."""
        await self.slices.do(self.batch.send())
