"""What the parts of an active controller share: one epoch's context, writes and state machines."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ottla.config.broker_config import BrokerConfig
from ottla.controller.broker_request_batch import BrokerRequestBatch, OrdersToBrokers
from ottla.controller.controller_context import ControllerContext
from ottla.controller.fenced_registry import FencedRegistry
from ottla.controller.partition_state_machine import (
    PartitionStateMachine,
    ReplicaStateMachine,
    StoredStates,
)
from ottla.controller.topic_deletion import TopicDeletion
from ottla.controller.topic_store import EntityConfigs, TopicStore
from ottla.runtime import Runtime


@dataclass(frozen=True, slots=True)
class ControllerCore:
    """The tools of one epoch.

    The context changes only within an event of the queue; the batch is sent at the event's end.
    """

    runtime: Runtime
    config: BrokerConfig
    orders: OrdersToBrokers
    enqueue_once: Callable[[str, Callable[[], Awaitable[object]]], None]
    """Queue something as an event of its own; requests of one name that still wait are merged."""
    context: ControllerContext
    fenced: FencedRegistry
    store: TopicStore
    configs: EntityConfigs
    states: StoredStates
    batch: BrokerRequestBatch
    partitions: PartitionStateMachine
    replicas: ReplicaStateMachine
    deletion: TopicDeletion
