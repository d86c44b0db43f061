"""The active controller: one epoch, from the election to the resignation."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeVar

from ottla.config.broker_config import BrokerConfig
from ottla.controller.active_feature import ActiveFeature, NewFeature
from ottla.controller.broker_changes import BrokerChanges
from ottla.controller.controller_context import LOOKS_AT_ONCE, PartitionReplica
from ottla.controller.controller_core import ControllerCore
from ottla.controller.event_queue import EventQueue
from ottla.controller.fenced_registry import FencedRegistry
from ottla.controller.isr_changes import IsrChanges
from ottla.controller.leader_balance import LeaderBalance
from ottla.controller.leader_election import elect_offline
from ottla.controller.orders_to_brokers import OrdersToBrokers
from ottla.controller.topic_changes import TopicChanges
from ottla.errors import ErrorCode
from ottla.registry import paths
from ottla.registry.tree import Watch
from ottla.runtime import Runtime, Timer
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)

FIRST_REBALANCE_MS: Final = 5_000

Kind = TypeVar("Kind", bound=ActiveFeature)


class ActiveController:
    """The controller of one epoch: its context, its watches, and the parts that act on them.

    Invariant: the context is equal to the registry, and every broker was sent it, or will
    be at the end of the event. After `end` it writes nothing and sends nothing.
    """

    def __init__(
        self,
        runtime: Runtime,
        fenced: FencedRegistry,
        config: BrokerConfig,
        orders: OrdersToBrokers,
        queue: EventQueue,
        run: Callable[[ActiveController, Callable[[], Awaitable[object]]], Awaitable[object]],
        features: Iterable[NewFeature],
    ) -> None:
        self.epoch = fenced.epoch
        self._runtime = runtime
        self._queue = queue
        self._run = run
        self._watches: list[Watch] = []
        self._timer: Timer | None = None
        # Their answers are all heard, in order: what comes behind an error takes it back.
        self._with_errors: set[int] = set()
        self.core = core = ControllerCore(
            runtime,
            config,
            orders,
            fenced,
            self.enqueue_once,
            self._on_leader_and_isr,
            self._on_deleted,
        )
        self.context = core.context
        self.features = [new(core) for new in features]
        self.brokers = BrokerChanges(core, self.features)
        self.topics = TopicChanges(core)
        self.balance = LeaderBalance(core)
        self.isr = IsrChanges(core, self.brokers, self.features)

    def find(self, cls: type[Kind]) -> Kind:
        """The feature of this class."""
        return next(each for each in self.features if isinstance(each, cls))

    async def begin(self) -> None:
        """Take over from a predecessor: read everything, elect leaders, inform all brokers."""
        core, context = self.core, self.context
        self._watch()
        await self.brokers.load()
        self.watch_brokers()
        renewed = await self.topics.load()
        await core.partitions.load()
        await core.replicas.load()
        # In a batch of its own: a broker that is to coordinate transactions and groups has to know
        # all topics before, or it takes the last ones that a predecessor made for deleted.
        core.batch.add_full_metadata(context.brokers)
        await core.send()
        offline: list[PartitionReplica] = []
        async for part in core.slices.parts(list(context.replica_statuses), LOOKS_AT_ONCE):
            kept = [each for each in part if not context.is_to_be_deleted(each.topic_partition)]
            core.replicas.bring_online(each for each in kept if context.is_online(*each))
            offline += (each for each in kept if not context.is_online(*each))
        await core.partitions.bring_online(renewed, elect_offline)
        await self.topics.tell_of_new()
        await core.partitions.bring_back_online()
        await core.replicas.take_offline(offline)
        for feature in self.features:
            await feature.load()
        await core.deletion.resume()
        await self.balance.read_node()
        await self.brokers.read_log_dir_events()
        logger.info(
            "the controller of epoch %d knows %d topics and brokers %s",
            self.epoch.epoch,
            len(context.topics),
            list(context.brokers),
        )

    def end(self) -> None:
        """Resign. Safe to call twice; the second call also stops work started since the first."""
        self.core.batch.is_over = True
        self.core.deletion.abandon()
        for watch in self._watches:
            watch.cancel()
        self._watches.clear()
        self.topics.unwatch_all()
        self.brokers.unwatch_all()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for broker_id in self.context.brokers:
            self.core.orders.remove_broker(broker_id)

    async def after_event(self) -> None:
        """Send the decisions of the event, and adjust watches and timers to its changes.

        The event ends when the own broker has carried it out.
        """
        await self.core.send()
        if self.core.batch.is_over:  # it has resigned meanwhile
            return
        self.topics.unwatch_removed()
        self.watch_brokers()
        self.watch_balance()
        for feature in self.features:
            feature.after_event()
        await self.core.orders.settle()

    def enqueue_once(self, name: str, operation: Callable[[], Awaitable[object]]) -> None:
        """Queue it as an event; it is dropped if this controller has resigned by then."""
        self._queue.put_once(name, partial(self._run, self, operation))

    def _enqueue(self, name: str, operation: Callable[[], Awaitable[object]]) -> None:
        self._queue.put(name, partial(self._run, self, operation))

    def _watch(self) -> None:
        registry = self.core.fenced.registry
        for path, operation in (
            (paths.BROKER_IDS, self.brokers.refresh),
            (paths.TOPICS, self.topics.refresh),
            (paths.DELETE_TOPICS, self.topics.refresh_deletions),
            (paths.LOG_DIR_EVENTS, self.brokers.read_log_dir_events),
        ):
            callback = partial(self.enqueue_once, path, operation)
            self._watches.append(registry.watch_children(path, callback))
        nodes: dict[str, Callable[[], Awaitable[object]]] = {}
        for feature in self.features:
            nodes |= feature.nodes()
        nodes[paths.PREFERRED_REPLICA_ELECTION] = self.balance.read_node
        for path, read in nodes.items():
            callback = partial(self.enqueue_once, path, read)
            self._watches.append(registry.watch_data(path, callback))

    def watch_brokers(self) -> None:
        """Follow the node of each broker."""
        self.brokers.watch(partial(self.enqueue_once, paths.BROKER_IDS, self.brokers.refresh))

    def watch_balance(self) -> None:
        """Rebalance leaders periodically, unless the broker is alone: then it leads everything."""
        wanted = self.core.config.auto_leader_rebalance_enable and len(self.context.brokers) > 1
        if self._timer is None and wanted:
            self._timer = self._runtime.scheduler.call_later(FIRST_REBALANCE_MS, self._rebalance)
        elif self._timer is not None and not wanted:
            self._timer.cancel()
            self._timer = None

    def _rebalance(self) -> None:
        self.enqueue_once("leader rebalance", self.balance.rebalance)
        period_ms = 1000 * self.core.config.leader_imbalance_check_interval_seconds
        self._timer = self._runtime.scheduler.call_later(period_ms, self._rebalance)

    def _on_leader_and_isr(
        self, broker_id: int, answers: Mapping[TopicPartition, ErrorCode]
    ) -> None:
        if ErrorCode.KAFKA_STORAGE_ERROR in answers.values():
            self._with_errors.add(broker_id)
        if broker_id in self._with_errors:
            name = f"broker {broker_id} has answered LeaderAndIsr"
            self._enqueue(name, partial(self.brokers.on_answer, broker_id, answers))

    def _on_deleted(self, broker_id: int, answers: Mapping[TopicPartition, ErrorCode]) -> None:
        name = f"broker {broker_id} has answered StopReplica"
        self._enqueue(name, partial(self.core.deletion.on_answer, broker_id, answers))
