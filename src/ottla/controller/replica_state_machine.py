"""The states of replicas: moved from one to the next, and their brokers informed."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import chain, groupby
from operator import attrgetter

from ottla.controller.broker_request_batch import BrokerRequestBatch
from ottla.controller.controller_context import (
    LOOKS_AT_ONCE,
    PARTITIONS_AT_ONCE,
    ControllerContext,
    PartitionReplica,
)
from ottla.controller.leader_election import without_replica
from ottla.controller.statuses import REPLICA_PREDECESSORS, ReplicaStatus
from ottla.controller.stored_states import StoredStates
from ottla.runtime.scheduler import Slices
from ottla.structs import LeaderAndIsr, TopicPartition

logger = logging.getLogger(__name__)


class ReplicaStateMachine:
    """The only class that changes the statuses of replicas."""

    def __init__(
        self,
        context: ControllerContext,
        states: StoredStates,
        batch: BrokerRequestBatch,
        slices: Slices,
    ) -> None:
        self.context = context
        self.states = states
        self.batch = batch
        self.slices = slices

    async def load(self) -> None:
        """Set the statuses of all replicas, as a newly elected controller finds them.

        Those on dead brokers get a status that makes a deletion wait for them.
        """
        context = self.context
        async for partition in self.slices.over(context.all_partitions(), LOOKS_AT_ONCE):
            for replica in context.replicas_of((partition,)):
                is_online = context.is_online(*replica)
                context.replica_statuses[replica] = (
                    ReplicaStatus.ONLINE if is_online else ReplicaStatus.DELETION_INELIGIBLE
                )

    def start_new(self, replicas: Iterable[PartitionReplica]) -> None:
        """Create new replicas: they follow the leader, if there is one already."""
        for replica in self._move(replicas, ReplicaStatus.NEW):
            if self.context.state(replica.topic_partition) is not None:
                self.batch.add_leader_and_isr((replica.broker_id,), replica.topic_partition, True)

    def bring_online(self, replicas: Iterable[PartitionReplica]) -> None:
        """Their brokers live: they get the leader, unless they have just got it."""
        statuses, context = self.context.replica_statuses, self.context
        before = {replica: statuses.get(replica) for replica in replicas}
        for replica in self._move(before, ReplicaStatus.ONLINE):
            topic_partition, broker_id = replica
            if (
                before[replica] is not ReplicaStatus.NEW
                and context.state(topic_partition) is not None
                and not context.is_to_be_deleted(topic_partition)
            ):
                self.batch.add_leader_and_isr((broker_id,), topic_partition)

    async def take_offline(self, replicas: Iterable[PartitionReplica]) -> None:
        """Their brokers are dead or must give them up: they are no longer in sync.

        Those of one partition come one after the other, and leave the ISR together.
        """
        self.batch.add_metadata()
        together = (list(same) for _, same in groupby(replicas, attrgetter("topic_partition")))
        async for part in self.slices.parts(together, PARTITIONS_AT_ONCE):
            await self._take_offline(chain.from_iterable(part))

    async def _take_offline(self, replicas: Iterable[PartitionReplica]) -> None:
        context = self.context
        gone: dict[TopicPartition, list[int]] = {}
        for replica in self._move(replicas, ReplicaStatus.OFFLINE):
            self.batch.add_stop_replica(replica, delete=False)
            if not context.is_to_be_deleted(replica.topic_partition):
                gone.setdefault(replica.topic_partition, []).append(replica.broker_id)

        told = {partition: context.state(partition) for partition in gone}

        def shrink(partition: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr | None:
            changed, known = without_replica(state, gone[partition]), told[partition] or state
            is_same = (changed.leader, changed.isr) == (known.leader, known.isr)
            return None if is_same else changed

        for partition in await self.states.change(gone, shrink):
            others = [
                broker_id
                for broker_id in context.reachable_replicas(partition)
                if broker_id not in gone[partition]
            ]
            self.batch.add_leader_and_isr(others, partition)
        self.batch.add_metadata(gone)

    def start_deletion(self, replicas: Iterable[PartitionReplica]) -> None:
        """Tell their brokers to delete them."""
        for replica in self._move(replicas, ReplicaStatus.DELETION_STARTED):
            self.batch.add_stop_replica(replica, delete=True)

    def end_deletion(self, replicas: Iterable[PartitionReplica]) -> None:
        """Their brokers have deleted them."""
        self._move(replicas, ReplicaStatus.DELETION_SUCCESSFUL)

    def postpone_deletion(self, replicas: Iterable[PartitionReplica]) -> None:
        """Their brokers cannot delete them now."""
        self._move(replicas, ReplicaStatus.DELETION_INELIGIBLE)

    def forget(self, replicas: Iterable[PartitionReplica]) -> None:
        """They no longer exist."""
        for replica in self._move(replicas, ReplicaStatus.NON_EXISTENT):
            del self.context.replica_statuses[replica]

    def _move(
        self, replicas: Iterable[PartitionReplica], target: ReplicaStatus
    ) -> list[PartitionReplica]:
        """Change the status where the transition is allowed; returns those changed."""
        predecessors, statuses = REPLICA_PREDECESSORS[target], self.context.replica_statuses
        moved = []
        for replica in replicas:
            status = statuses.get(replica, ReplicaStatus.NON_EXISTENT)
            if status in predecessors:
                statuses[replica] = target
                moved.append(replica)
            else:
                logger.error(
                    "the replica of %s on broker %d is in %s and cannot go to %s",
                    *replica,
                    status,
                    target,
                )
        return moved
