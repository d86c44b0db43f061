"""Moves partitions and replicas from state to state: written first, then sent to brokers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from ottla.config.broker_config import BrokerConfig
from ottla.config.config_type import INT_MAX
from ottla.controller.broker_request_batch import BrokerRequestBatch
from ottla.controller.controller_context import (
    PARTITION_PREDECESSORS,
    REPLICA_PREDECESSORS,
    ControllerContext,
    PartitionReplica,
    PartitionStatus,
    ReplicaStatus,
)
from ottla.controller.fenced_registry import ControllerMovedError
from ottla.controller.topic_store import TOPICS, EntityConfigs, TopicStore
from ottla.errors import KafkaError
from ottla.registry.tree import RegistryFailedError
from ottla.structs import NO_LEADER, LeaderAndIsr, TopicPartition

logger = logging.getLogger(__name__)


# The states of partitions: changed in the registry first, then in the context.


MAX_ATTEMPTS: Final = 5

Change = Callable[[TopicPartition, LeaderAndIsr], LeaderAndIsr | None]
"""From the state of a partition to the next one; None for no change."""


class StoredStates:
    """Invariant: the context has what the registry has, with the version that it has there."""

    def __init__(self, context: ControllerContext, store: TopicStore) -> None:
        self.context = context
        self.store = store

    async def create(self, states: Mapping[TopicPartition, LeaderAndIsr]) -> None:
        """Write first states. Where the registry has one already, that one is taken."""
        created = await self.store.create_states(states)
        for partition, state in created.items():
            self.context.set_state(partition, state)
        await self.read_again([partition for partition in states if partition not in created])

    async def change(
        self, partitions: Iterable[TopicPartition], change: Change
    ) -> list[TopicPartition]:
        """Change the states for which `change` returns a new one; returns those changed.

        A state that was written by others meanwhile is read again, and changed again.
        """
        done: list[TopicPartition] = []
        pending = list(partitions)
        for _ in range(MAX_ATTEMPTS):
            wanted = {}
            for partition in pending:
                state = self.context.state(partition)
                changed = None if state is None else change(partition, state)
                if changed is not None:
                    wanted[partition] = changed
            written, refused = await self.store.write_states(wanted)
            for partition, state in written.items():
                self.context.set_state(partition, state)
            done += written
            if not refused:
                return done
            await self.read_again(refused)
            pending = refused
        logger.error("%s: somebody else writes their states again and again", pending)
        return done

    async def read_again(self, partitions: Iterable[TopicPartition]) -> None:
        """Take what the registry has; ControllerMovedError if a successor wrote it."""
        for partition, stored in (await self.store.read_states(partitions)).items():
            if stored.controller_epoch > self.context.epoch:
                raise ControllerMovedError(self.context.epoch)
            self.context.set_state(partition, stored.state)


# Who leads a partition: functions of its replicas, those in sync, and those that live.
#
# Each takes the partition as the controller knows it and returns the state in the next epoch, or
# None where no replica can lead. Replicas are tried in the order of the assignment.


class Candidates(NamedTuple):
    """What an election looks at.

    `live` are the brokers whose replica of the partition can be used; `leaving` are those of them
    that are shutting down. `targets` are the replicas after a reassignment.
    """

    state: LeaderAndIsr
    replicas: tuple[int, ...]
    live: Collection[int]
    leaving: Collection[int] = ()
    targets: tuple[int, ...] = ()
    unclean_allowed: bool = False


LeaderElection = Callable[[Candidates], LeaderAndIsr | None]


def initial_state(replicas: tuple[int, ...], live: Collection[int]) -> LeaderAndIsr | None:
    """The first state of a partition: every live replica is in sync; None if none lives."""
    isr = tuple(replica for replica in replicas if replica in live)
    return LeaderAndIsr(isr[0], 0, isr) if isr else None


def elect_offline(candidates: Candidates) -> LeaderAndIsr | None:
    """The leader is dead: the first live replica in sync leads.

    With `unclean_allowed`, and no live replica in sync, the first live one leads, alone in sync;
    the records that it lacks are lost.
    """
    state, replicas, live, *_ = candidates
    elected = _first(replicas, live, state.isr)
    if elected is not None:
        return _led_by(elected, state, [replica for replica in state.isr if replica in live])
    if candidates.unclean_allowed:
        survivor = _first(replicas, live)
        if survivor is not None:
            return _led_by(survivor, state, [survivor])
    return None


def elect_unclean(candidates: Candidates) -> LeaderAndIsr | None:
    """As `elect_offline` where an unclean election is allowed."""
    return elect_offline(candidates._replace(unclean_allowed=True))


def elect_preferred(candidates: Candidates) -> LeaderAndIsr | None:
    """The first replica of the assignment leads, if it lives and is in sync."""
    state, replicas, live, *_ = candidates
    elected = _first(replicas[:1], live, state.isr)
    return None if elected is None else _led_by(elected, state, state.isr)


def elect_reassigned(candidates: Candidates) -> LeaderAndIsr | None:
    """One of the replicas that stay after the reassignment leads."""
    state = candidates.state
    elected = _first(candidates.targets, candidates.live, state.isr)
    return None if elected is None else _led_by(elected, state, state.isr)


def elect_for_shutdown(candidates: Candidates) -> LeaderAndIsr | None:
    """A replica leads whose broker is not shutting down; those shutting down leave the ISR."""
    state, replicas, live, leaving, *_ = candidates
    staying = [replica for replica in state.isr if replica not in leaving]
    elected = _first(replicas, live, staying)
    return None if elected is None else _led_by(elected, state, staying)


def in_next_epoch(state: LeaderAndIsr) -> LeaderAndIsr:
    """The next epoch with the same leader: something else has changed for the replicas."""
    return state._replace(leader_epoch=min(state.leader_epoch + 1, INT_MAX))


def without_replica(state: LeaderAndIsr, gone: Collection[int]) -> LeaderAndIsr:
    """The next epoch without those replicas in the ISR; a leader among them no longer leads.

    An ISR that would become empty is kept: one of its members may lead later.
    """
    isr = tuple(replica for replica in state.isr if replica not in gone)
    leader = NO_LEADER if state.leader in gone else state.leader
    epoch = min(state.leader_epoch + 1, INT_MAX)
    return LeaderAndIsr(leader, epoch, isr or state.isr, state.version)


def _first(replicas: Collection[int], *conditions: Collection[int]) -> int | None:
    return next(
        (replica for replica in replicas if all(replica in allowed for allowed in conditions)),
        None,
    )


def _led_by(leader: int, state: LeaderAndIsr, isr: Collection[int]) -> LeaderAndIsr | None:
    """The state after an election; None where no epoch is left: leaders would share the last."""
    if state.leader_epoch >= INT_MAX:
        logger.error("no leader epoch is left after %d, so broker %d cannot lead", INT_MAX, leader)
        return None
    return LeaderAndIsr(leader, state.leader_epoch + 1, tuple(isr), state.version)


UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"


class PartitionStateMachine:
    """The only class that changes the statuses of partitions and gives them leaders."""

    def __init__(
        self,
        context: ControllerContext,
        states: StoredStates,
        configs: EntityConfigs,
        config: BrokerConfig,
        batch: BrokerRequestBatch,
    ) -> None:
        self.context = context
        self.states = states
        self.configs = configs
        self.config = config
        self.batch = batch
        self.unclean_elections = 0
        """How many partitions got a leader that was not in sync."""

    def load(self) -> None:
        """Set the statuses of all partitions, as a newly elected controller finds them."""
        context = self.context
        for partition in context.all_partitions():
            if context.state(partition) is None:
                status = PartitionStatus.NEW
            elif context.has_live_leader(partition):
                status = PartitionStatus.ONLINE
            else:
                status = PartitionStatus.OFFLINE
            context.partition_statuses[partition] = status

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """They exist now, without a leader."""
        self._move(partitions, PartitionStatus.NEW)

    def take_offline(self, partitions: Iterable[TopicPartition]) -> None:
        """Their leaders are dead."""
        self._move(partitions, PartitionStatus.OFFLINE)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """They are being deleted."""
        self._move(partitions, PartitionStatus.NON_EXISTENT)

    async def bring_online(
        self, partitions: Iterable[TopicPartition], elect: LeaderElection
    ) -> list[TopicPartition]:
        """Give each a leader, the first one or the next; returns those that got none."""
        allowed = self._allowed(partitions, PartitionStatus.ONLINE)
        statuses = self.context.partition_statuses
        new = [each for each in allowed if statuses[each] is PartitionStatus.NEW]
        others = [each for each in allowed if statuses[each] is not PartitionStatus.NEW]
        return [*await self._start(new), *await self._elect(others, elect)]

    async def bring_back_online(self) -> list[TopicPartition]:
        """Try every partition that has no leader: brokers may have come that can lead."""
        context = self.context
        return await self.bring_online(
            [
                partition
                for partition, status in context.partition_statuses.items()
                if status in (PartitionStatus.NEW, PartitionStatus.OFFLINE)
                and not context.is_to_be_deleted(partition)
            ],
            elect_offline,
        )

    async def _start(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Write first states, where a replica lives; the replicas are told that they are new."""
        context = self.context
        wanted = {}
        for partition in partitions:
            replicas = context.assignment(partition).replicas
            state = initial_state(replicas, context.live_replicas(partition))
            if state is not None:
                wanted[partition] = state
        if wanted:
            await self.states.create(wanted)
        for partition in wanted:
            if context.state(partition) is not None:
                self._lead(partition, is_new=True)
        return [partition for partition in partitions if partition not in wanted]

    async def _elect(
        self, partitions: list[TopicPartition], elect: LeaderElection
    ) -> list[TopicPartition]:
        failed: list[TopicPartition] = []
        unclean: dict[str, bool] = {}
        uncleanly: set[TopicPartition] = set()
        for topic in sorted({each.topic for each in partitions if self._lacks_isr(each)}):
            unclean[topic] = elect is elect_offline and await self._unclean_allowed(topic)

        def choose(partition: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr | None:
            candidates = self._candidates(partition, state)
            uncleanly.discard(partition)
            elected = elect(candidates)
            if elected is None and unclean.get(partition.topic):
                elected = elect_unclean(candidates)
                uncleanly.add(partition)
            if elected is None:
                failed.append(partition)
            return elected

        for partition in await self.states.change(partitions, choose):
            self._lead(partition)
            self.unclean_elections += partition in uncleanly
        return failed

    def _candidates(self, partition: TopicPartition, state: LeaderAndIsr) -> Candidates:
        assignment = self.context.assignment(partition)
        return Candidates(
            state,
            assignment.replicas,
            self.context.live_replicas(partition),
            sorted(self.context.shutting_down),
            assignment.target,
        )

    def _lacks_isr(self, partition: TopicPartition) -> bool:
        state = self.context.state(partition)
        live = self.context.live_replicas(partition)
        return state is not None and not any(replica in live for replica in state.isr)

    def _lead(self, partition: TopicPartition, is_new: bool = False) -> None:
        self.context.partition_statuses[partition] = PartitionStatus.ONLINE
        self.batch.add_leader_and_isr(self.context.reachable_replicas(partition), partition, is_new)

    async def _unclean_allowed(self, topic: str) -> bool:
        """What the topic's overrides or else the broker's settings say.

        Overrides that cannot be read may forbid it: better no leader than records lost.
        """
        try:
            overrides = await self.configs.read(TOPICS, topic)
        except RegistryFailedError:
            raise
        except KafkaError as error:
            logger.error("there will be no unclean leader of %s: %s", topic, error)
            return False
        if UNCLEAN_ELECTION in overrides:
            return overrides[UNCLEAN_ELECTION].lower() == "true"
        return self.config.unclean_leader_election_enable

    def _move(self, partitions: Iterable[TopicPartition], target: PartitionStatus) -> None:
        for partition in self._allowed(partitions, target):
            self.context.partition_statuses[partition] = target

    def _allowed(
        self, partitions: Iterable[TopicPartition], target: PartitionStatus
    ) -> list[TopicPartition]:
        predecessors = PARTITION_PREDECESSORS[target]
        allowed = []
        for partition in partitions:
            status = self.context.partition_statuses.get(partition, PartitionStatus.NON_EXISTENT)
            if status in predecessors:
                allowed.append(partition)
            else:
                logger.error("%s is in %s and cannot go to %s", partition, status, target)
        return allowed


# Moves replicas from state to state, and tells their brokers what to do.


class ReplicaStateMachine:
    """The only class that changes the statuses of replicas."""

    def __init__(
        self, context: ControllerContext, states: StoredStates, batch: BrokerRequestBatch
    ) -> None:
        self.context = context
        self.states = states
        self.batch = batch

    def load(self) -> None:
        """Set the statuses of all replicas, as a newly elected controller finds them.

        Those on dead brokers get a status that makes a deletion wait for them.
        """
        context = self.context
        for replica in context.replicas_of(context.all_partitions()):
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
        """Their brokers live: they are told who leads, unless they have just been told."""
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
        """Their brokers are dead or must give them up: they are no longer in sync."""
        context = self.context
        gone: dict[TopicPartition, list[int]] = {}
        for replica in self._move(replicas, ReplicaStatus.OFFLINE):
            self.batch.add_stop_replica(replica, delete=False)
            if not context.is_to_be_deleted(replica.topic_partition):
                gone.setdefault(replica.topic_partition, []).append(replica.broker_id)

        def shrink(partition: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr | None:
            changed = without_replica(state, gone[partition])
            is_same = (changed.leader, changed.isr) == (state.leader, state.isr)
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
