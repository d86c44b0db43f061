"""Carries out the requests that the controller sends to this broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from ottla.controller.broker_request_batch import OnAnswer
from ottla.errors import ErrorCode, KafkaError
from ottla.replication.replica_manager import ReplicaManager
from ottla.server.coordinators import Coordinators
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import (
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

Errors = dict[TopicPartition, ErrorCode]


class ControllerOrders:
    """Carries out LeaderAndIsr, StopReplica and UpdateMetadata.

    Invariant: after a request of one controller epoch, requests of older epochs are refused.
    """

    def __init__(
        self,
        replica_manager: ReplicaManager,
        cache: MetadataCache,
        coordinators: Coordinators,
    ) -> None:
        self.replica_manager = replica_manager
        self.cache = cache
        self.controller_epoch = 0
        self._coordinators = coordinators
        # The leader epoch of each partition that a coordinator took over: each is passed on once.
        self._elected: dict[TopicPartition, int] = {}

    def become_leader_or_follower(
        self, controller_epoch: int, states: Sequence[PartitionState], brokers: Sequence[Node]
    ) -> Errors:
        """Lead or follow these partitions as they say; one result for each of them."""
        self._check_epoch(controller_epoch)
        nodes = {node.id: node for node in brokers}
        errors = self.replica_manager.become_leader_or_follower(states, nodes)
        for state in states:
            if state.topic_partition.topic in INTERNAL_TOPICS:
                self._tell_coordinator(state, errors.get(state.topic_partition, ErrorCode.NONE))
        return errors

    def stop_replica(
        self,
        controller_epoch: int,
        partitions: Sequence[StopReplicaPartition],
        on_done: Callable[[Errors], object],
    ) -> None:
        """Give these partitions up; one result for each of them.

        `on_done` is called when topics of the same names can be created: nothing on disk would be
        mistaken for theirs.
        """
        self._check_epoch(controller_epoch)
        errors = self._stop(partitions)
        self.replica_manager.log_manager.when_deletions_are_noted(partial(on_done, errors))

    def update_metadata(
        self, controller_id: int, controller_epoch: int, update: MetadataUpdate
    ) -> None:
        """Update the metadata for clients; topics that are gone are removed from it.

        A full update removes topics that it does not name: an earlier controller may have deleted
        them, and died before it sent that.
        """
        self._check_epoch(controller_epoch)
        gone = list(update.deleted_topics)
        if update.is_full:
            gone += self.cache.topics_beside(update.states)
            self._give_strays_up(update.states)
        self.cache.update(update.states, update.brokers, gone)
        self.cache.is_complete |= update.is_full
        self.cache.controller_id = controller_id
        self._coordinators.on_topics_deleted(gone, is_full=update.is_full)

    def _stop(self, partitions: Sequence[StopReplicaPartition]) -> Errors:
        errors = self.replica_manager.stop_replica(partitions)
        for topic_partition, error in errors.items():
            if topic_partition.topic in INTERNAL_TOPICS and not error:
                self._resign(topic_partition)
        return errors

    def _give_strays_up(self, states: Iterable[PartitionState]) -> None:
        """Delete replicas that were moved elsewhere, which nobody has told this broker.

        It was down meanwhile, or the controller died before it could send that.
        """
        logs = self.replica_manager.log_manager
        strays = [
            StopReplicaPartition(state.topic_partition, state.leader_epoch, True)
            for state in states
            if self.replica_manager.broker_id not in state.replicas
            and (log := logs.get_log(state.topic_partition))
            and log.topic_id == state.topic_id != NO_UUID
        ]
        if strays:
            logger.warning("%s: their replicas are elsewhere now", [each[0] for each in strays])
            self._stop(strays)

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
    """Carries LeaderAndIsr, StopReplica and UpdateMetadata out on this broker, at once."""

    def __init__(self, orders: ControllerOrders, broker_id: int) -> None:
        self.orders = orders
        self.broker_id = broker_id

    def add_broker(self, broker: BrokerEndPoints) -> None:
        """This broker needs no connection."""

    def remove_broker(self, broker_id: int) -> None:
        """This broker needs no connection."""

    def leader_and_isr(
        self,
        controller_epoch: int,
        broker_id: int,
        states: Sequence[PartitionState],
        brokers: Sequence[Node],
        on_answer: OnAnswer,
    ) -> None:
        asked = [state.topic_partition for state in states]
        with self._obeying(asked, on_answer):
            on_answer(self.orders.become_leader_or_follower(controller_epoch, states, brokers))

    def stop_replica(
        self,
        controller_epoch: int,
        broker_id: int,
        partitions: Sequence[StopReplicaPartition],
        on_answer: OnAnswer,
    ) -> None:
        asked = [stopped.topic_partition for stopped in partitions]
        with self._obeying(asked, on_answer):
            self.orders.stop_replica(controller_epoch, partitions, on_answer)

    def update_metadata(
        self, controller_epoch: int, broker_id: int, update: MetadataUpdate
    ) -> None:
        with self._obeying((), lambda errors: None):
            self.orders.update_metadata(self.broker_id, controller_epoch, update)

    @contextmanager
    def _obeying(self, asked: Iterable[TopicPartition], on_answer: OnAnswer) -> Iterator[None]:
        """Log requests that are refused because a newer controller is known.

        Any other failure is one of each partition, as if another broker had answered: it must not
        end the event of the controller that this request is a part of.
        """
        try:
            yield
        except KafkaError as error:
            if error.error is ErrorCode.STALE_CONTROLLER_EPOCH:
                logger.warning("this broker obeys a newer controller than its own: %s", error)
            else:
                logger.error("this broker refuses its controller's request: %s", error)
                on_answer(dict.fromkeys(asked, error.error))
        except Exception:
            logger.exception("this broker fails to carry out its controller's request")
            on_answer(dict.fromkeys(asked, ErrorCode.UNKNOWN_SERVER_ERROR))
