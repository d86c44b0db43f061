"""Carries out the requests that the controller sends to this broker."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from ottla.controller.broker_request_batch import in_parts
from ottla.controller.orders_to_brokers import OnAnswer
from ottla.errors import ErrorCode, KafkaError
from ottla.replication.replica_manager import ReplicaManager
from ottla.runtime import Scheduler
from ottla.runtime.scheduler import Work
from ottla.server.coordinators import Coordinators
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import (
    EPOCH_DURING_DELETE,
    INTERNAL_TOPICS,
    NO_UUID,
    BrokerEndPoints,
    MetadataUpdate,
    Node,
    PartitionState,
    StopReplicaPartition,
    TopicPartition,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")
Errors = dict[TopicPartition, ErrorCode]
OnDone = Callable[[Errors], object]
OnFailure = Callable[[Exception], object]
Order = Iterator[None]
"""The work of one order, with a pause behind each slice of it."""

# How many partitions are in a slice: one that is new here gets a directory with files.
PARTITIONS_AT_ONCE: Final = 640
COST_OF_NEW: Final = 64
COST_OF_DELETED: Final = 16


class OrderQueue:
    """Carries orders out, one after the other: of a long one a slice in each turn of the loop.

    An order that finds nothing before it is begun at once, so that a short one has been carried out
    when `put` returns.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._orders: deque[tuple[Order, OnFailure]] = deque()
        self._waiting: list[asyncio.Future[None]] = []

    def put(self, order: Order, on_failure: OnFailure) -> None:
        """Carry it out behind all others; `on_failure` is called with its exception."""
        self._orders.append((order, on_failure))
        if len(self._orders) == 1:
            self._work()

    async def settle(self) -> None:
        """Wait until all orders have been carried out."""
        if self._orders:
            settled = asyncio.get_running_loop().create_future()
            self._waiting.append(settled)
            await settled

    def _work(self) -> None:
        """Do one slice."""
        order, on_failure = self._orders[0]
        try:
            for _ in order:
                self._scheduler.call_soon(self._work)
                return
        except Exception as error:
            on_failure(error)
        self._orders.popleft()
        if self._orders:
            self._scheduler.call_soon(self._work)
            return
        waiting, self._waiting = self._waiting, []
        for settled in waiting:
            if not settled.done():
                settled.set_result(None)


def slices(items: Sequence[T], cost: Callable[[T], int]) -> Iterator[list[T]]:
    """The items in parts that each cost no more than a slice may."""
    part: list[T] = []
    room = PARTITIONS_AT_ONCE
    for item in items:
        room -= cost(item)
        if room < 0 and part:
            yield part
            part, room = [], PARTITIONS_AT_ONCE - cost(item)
        part.append(item)
    yield part


class ControllerOrders:
    """Carries out LeaderAndIsr, StopReplica and UpdateMetadata, in the order in which they come.

    Invariant: after a request of one controller epoch, requests of older epochs are refused.
    """

    def __init__(
        self,
        replica_manager: ReplicaManager,
        cache: MetadataCache,
        coordinators: Coordinators,
        scheduler: Scheduler,
    ) -> None:
        self.replica_manager = replica_manager
        self.cache = cache
        self.controller_epoch = 0
        self.queue = OrderQueue(scheduler)
        self._coordinators = coordinators
        # The leader epoch of each partition that a coordinator took over: each is passed on once.
        self._elected: dict[TopicPartition, int] = {}

    def become_leader_or_follower(
        self,
        controller_epoch: int,
        states: Sequence[PartitionState],
        brokers: Sequence[Node],
        on_done: OnDone,
        on_failure: OnFailure,
    ) -> None:
        """Lead or follow these partitions as they say; one result for each of them.

        A partition that is new here is unknown until the slice with it was done.
        """
        self.queue.put(self._take_roles(controller_epoch, states, brokers, on_done), on_failure)

    def stop_replica(
        self,
        controller_epoch: int,
        partitions: Sequence[StopReplicaPartition],
        on_done: OnDone,
        on_failure: OnFailure,
    ) -> None:
        """Give these partitions up; one result for each of them.

        `on_done` is called when topics of the same names can be created: nothing on disk would be
        mistaken for theirs.
        """
        self.queue.put(self._stop_all(controller_epoch, partitions, on_done), on_failure)

    def update_metadata(
        self,
        controller_id: int,
        controller_epoch: int,
        update: MetadataUpdate | Work[MetadataUpdate],
        on_done: OnDone,
        on_failure: OnFailure,
    ) -> None:
        """Update the metadata for clients; topics that are gone are removed from it.

        A full update removes topics that it does not name: an earlier controller may have deleted
        them, and died before it sent that. It may still have to be read, when its turn comes.
        """
        order = self._tell_clients(controller_id, controller_epoch, update, on_done)
        self.queue.put(order, on_failure)

    def _take_roles(
        self,
        controller_epoch: int,
        states: Sequence[PartitionState],
        brokers: Sequence[Node],
        on_done: OnDone,
    ) -> Order:
        self._check_epoch(controller_epoch)
        nodes = {node.id: self._reached(node) for node in brokers}
        known = self.replica_manager.partitions
        errors: Errors = {}

        def cost(state: PartitionState) -> int:
            return 1 if state.topic_partition in known else COST_OF_NEW

        for part in slices(states, cost):
            if errors:
                yield
            self._check_not_stopping()
            results = self.replica_manager.become_leader_or_follower(part, nodes)
            for state in part:
                if state.topic_partition.topic in INTERNAL_TOPICS:
                    error = results.get(state.topic_partition, ErrorCode.NONE)
                    self._tell_coordinator(state, error)
            errors |= results
        on_done(errors)

    def _reached(self, node: Node) -> Node:
        """Where this broker reaches another: the controller may use another listener yet."""
        broker = self.cache.brokers.get(node.id)
        named = [(each.host, each.port) for each in broker.endpoints] if broker else []
        if broker is None or (node.host, node.port) not in named:
            return node
        return broker.node(self.replica_manager.config.inter_broker_listener_name) or node

    def _stop_all(
        self, controller_epoch: int, partitions: Sequence[StopReplicaPartition], on_done: OnDone
    ) -> Order:
        self._check_epoch(controller_epoch)
        errors: Errors = {}
        for part in slices(partitions, lambda each: COST_OF_DELETED if each.delete else 1):
            if errors:
                yield
            self._check_not_stopping()
            errors |= self._stop(part)
        self.replica_manager.log_manager.when_deletions_are_noted(partial(on_done, errors))

    def _tell_clients(
        self,
        controller_id: int,
        controller_epoch: int,
        update: MetadataUpdate | Work[MetadataUpdate],
        on_done: OnDone,
    ) -> Order:
        """A topic is never seen in part: a slice ends with a topic."""
        self._check_epoch(controller_epoch)
        if not isinstance(update, MetadataUpdate):
            update = yield from update
        parts = yield from in_parts(update.states)
        lived = self.cache.brokers.keys()
        gone = list(update.deleted_topics)
        self._delete_without_a_role(gone)
        if update.is_full:
            beside = frozenset(self.cache.topics_beside(update.states))
            logs = self.replica_manager.log_manager.all_logs() if beside else ()
            for log in (each for each in logs if each.topic_partition.topic in beside):
                self._put_away(log.topic_partition, None)
            gone += beside
        for number, part in enumerate(parts):
            if number:
                yield
            self._show(part, update, () if number else gone)
        self.cache.is_complete |= update.is_full
        self.cache.controller_id = controller_id
        if self.cache.brokers.keys() != lived:
            self.replica_manager.on_brokers_changed()
        self._coordinators.on_topics_deleted(gone, is_full=update.is_full)
        on_done({})

    def _show(
        self, states: Sequence[PartitionState], update: MetadataUpdate, gone: Iterable[str]
    ) -> None:
        self._give_strays_up(states, update.is_full)
        self.cache.update(states, update.brokers, gone)

    def _check_not_stopping(self) -> None:
        """The rest of an order is not done when the logs are being closed."""
        if self.replica_manager.log_manager.is_stopping:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the broker is stopping")

    def _stop(self, partitions: Sequence[StopReplicaPartition]) -> Errors:
        errors = self.replica_manager.stop_replica(partitions)
        for topic_partition, error in errors.items():
            if topic_partition.topic in INTERNAL_TOPICS and not error:
                self._resign(topic_partition)
        return errors

    def _delete_without_a_role(self, deleted_topics: Iterable[str]) -> None:
        """Delete the logs of deleted topics of which this broker has no replica to give up.

        They were moved elsewhere while it was down: the controller has those deleted alone that are
        assigned, and waits for the answers of those that are offline.
        """
        deleted, manager = frozenset(deleted_topics), self.replica_manager
        if deleted:
            logs = (log.topic_partition for log in manager.log_manager.all_logs())
            found = {each for each in logs if each.topic in deleted}
            left = sorted(found - manager.partitions.keys() - manager.offline_partitions)
            self._stop([StopReplicaPartition(each, EPOCH_DURING_DELETE, True) for each in left])

    def _give_strays_up(self, states: Iterable[PartitionState], is_full: bool) -> None:
        """Delete replicas that were moved elsewhere, without an order to this broker.

        It was down or cut off, or the controller died before it could send that; a full update says
        so for certain, also of an empty log without a topic id: its creation was cut short. What is
        of a topic that was deleted since then, and made again elsewhere, is put away.
        """
        logs, hosted = self.replica_manager.log_manager, self.replica_manager.partitions
        strays = []
        for state in states:
            tp, log = state.topic_partition, logs.get_log(state.topic_partition)
            if log is None or self.replica_manager.broker_id in state.replicas:
                continue
            is_unused = log.topic_id == NO_UUID and not log.log_end_offset
            if is_unused or log.topic_id == state.topic_id != NO_UUID:
                if is_full:
                    strays.append(StopReplicaPartition(tp, state.leader_epoch, True))
            elif NO_UUID not in (log.topic_id, state.topic_id) and (is_full or tp not in hosted):
                self._put_away(tp, state.topic_id)
        if strays:
            logger.warning("%s: their replicas are elsewhere now", [each[0] for each in strays])
            self._stop(strays)

    def _put_away(self, topic_partition: TopicPartition, topic_id: UUID | None) -> None:
        """Lead and follow no longer what is of a topic that is gone: this broker was cut off."""
        if topic_partition in self.replica_manager.partitions:
            self._stop([StopReplicaPartition(topic_partition, EPOCH_DURING_DELETE, False)])
        try:
            self.replica_manager.log_manager.put_stray_away(topic_partition, topic_id)
        except KafkaError as error:
            logger.error("%s cannot be put away: %s", topic_partition, error)

    def _check_epoch(self, controller_epoch: int) -> None:
        if controller_epoch < self.controller_epoch:
            raise KafkaError(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"the controller has epoch {controller_epoch}; one of epoch "
                f"{self.controller_epoch} is known here",
            )
        if controller_epoch > self.controller_epoch:
            self.cache.is_complete = False
        self.controller_epoch = controller_epoch

    def _tell_coordinator(self, state: PartitionState, error: ErrorCode) -> None:
        if error and error is not ErrorCode.KAFKA_STORAGE_ERROR:
            return  # refused: the previous state stays in force
        topic_partition = state.topic_partition
        if error or state.leader != self.replica_manager.broker_id:
            self._resign(topic_partition)
        elif self._elected.get(topic_partition) != state.leader_epoch:
            self._elected[topic_partition] = state.leader_epoch
            self._coordinators.coordinator(topic_partition.topic).on_election(
                topic_partition.partition
            )

    def _resign(self, topic_partition: TopicPartition) -> None:
        self._elected.pop(topic_partition, None)
        self._coordinators.coordinator(topic_partition.topic).on_resignation(
            topic_partition.partition
        )


class OrdersToOwnBroker:
    """Carries LeaderAndIsr, StopReplica and UpdateMetadata out on this broker: short ones at once.

    An order that is refused because a newer controller is known is logged, and not answered. Any
    other failure is one of each partition, as if another broker had answered: it must not end the
    event of the controller that the order is a part of.
    """

    def __init__(self, orders: ControllerOrders, broker_id: int) -> None:
        self.orders = orders
        self.broker_id = broker_id

    def add_broker(self, broker: BrokerEndPoints) -> None:
        """This broker needs no connection."""

    def remove_broker(self, broker_id: int) -> None:
        """This broker needs no connection."""

    async def settle(self) -> None:
        """Wait until this broker has carried out its orders."""
        await self.orders.queue.settle()

    def leader_and_isr(
        self,
        controller_epoch: int,
        broker_id: int,
        states: Sequence[PartitionState],
        brokers: Sequence[Node],
        on_answer: OnAnswer,
    ) -> None:
        failed = partial(_note_failure, [state.topic_partition for state in states], on_answer)
        self.orders.become_leader_or_follower(controller_epoch, states, brokers, on_answer, failed)

    def stop_replica(
        self,
        controller_epoch: int,
        broker_id: int,
        partitions: Sequence[StopReplicaPartition],
        on_answer: OnAnswer,
    ) -> None:
        asked = [each.topic_partition for each in partitions]
        on_failure = partial(_note_failure, asked, on_answer)
        self.orders.stop_replica(controller_epoch, partitions, on_answer, on_failure)

    def update_metadata(
        self, controller_epoch: int, broker_ids: Sequence[int], update: MetadataUpdate
    ) -> None:
        on_failure = partial(_note_failure, (), _ignore)
        self.orders.update_metadata(self.broker_id, controller_epoch, update, _ignore, on_failure)


def _ignore(errors: object) -> None:
    """UpdateMetadata has no answer for its partitions."""


def _note_failure(asked: Iterable[TopicPartition], on_answer: OnAnswer, error: Exception) -> None:
    if not isinstance(error, KafkaError):
        logger.error("this broker fails to carry out its controller's request", exc_info=error)
        on_answer(dict.fromkeys(asked, ErrorCode.UNKNOWN_SERVER_ERROR))
    elif error.error is ErrorCode.STALE_CONTROLLER_EPOCH:
        logger.warning("this broker obeys a newer controller than its own: %s", error)
    else:
        logger.error("this broker refuses its controller's request: %s", error)
        on_answer(dict.fromkeys(asked, error.error))
