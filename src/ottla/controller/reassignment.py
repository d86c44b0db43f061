"""Moves partitions to other replicas: old and new ones together until the new ones are in sync.

replicas = target + those to be removed      written, sent to all of them (KIP-455)
every target replica is in sync  ->  a target leads, the others are deleted,
                                     replicas = target

Leaders are moved back to preferred replicas: by elections on request, and periodic ones.

Wing: attaches to `active_controller`, for partitions that move; the core works without it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from ottla.controller.controller_context import PartitionReplica, ReplicaAssignment
from ottla.controller.controller_core import ControllerCore
from ottla.controller.partition_state_machine import (
    Candidates,
    elect_offline,
    elect_preferred,
    elect_reassigned,
    elect_unclean,
    in_next_epoch,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.registry import paths
from ottla.registry.tree import Delete, NoNodeError, RegistryError, RegistryFailedError, Set
from ottla.registry.znodes import (
    decode_preferred_elections,
    decode_reassignments,
    encode_reassignments,
)
from ottla.structs import ElectionType, LeaderAndIsr, TopicPartition

logger = logging.getLogger(__name__)


class PartitionReassigner:
    """Begins, continues, completes and cancels reassignments.

    Which partitions are being reassigned is in their topics' nodes; /admin/reassign_partitions
    is the older way to ask for it, and names a partition until its reassignment has ended.
    """

    def __init__(self, core: ControllerCore) -> None:
        self.core = core
        self.context = core.context
        self._asked_by_node: dict[TopicPartition, tuple[int, ...]] = {}

    def under_way(self) -> dict[TopicPartition, ReplicaAssignment]:
        """The reassignments under way; a topic being deleted has none: all its replicas go."""
        return {
            TopicPartition(topic.name, index): topic.full_assignment(index)
            for topic in self.context.topics.values()
            if topic.name not in self.context.topics_to_delete
            for index in sorted({*topic.adding, *topic.removing})
        }

    async def load(self) -> None:
        """Continue what a predecessor began."""
        for partition in self.under_way():
            await self._advance(partition)
        await self.read_node()

    async def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Continue these: their brokers have come, or their ISR has changed."""
        under_way = self.under_way()
        for partition in partitions:
            if partition in under_way:
                await self._advance(partition)

    async def complete(self, partitions: Iterable[TopicPartition]) -> None:
        """The ISR of these has changed: end the reassignments that are complete."""
        await self.resume([each for each in partitions if self._is_complete(each)])

    async def alter(
        self, targets: Mapping[TopicPartition, tuple[int, ...] | None]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Give partitions these replicas; None cancels the reassignment under way."""
        results: dict[TopicPartition, KafkaError | None] = {}
        for partition, target in targets.items():
            try:
                assignment = self._plan(partition, target)
            except KafkaError as error:
                results[partition] = error
                continue
            await self._forget_request(partition)
            results[partition] = await self._begin(partition, assignment)
        return results

    async def read_node(self) -> None:
        """Begin what a tool has written to /admin/reassign_partitions."""
        found = await self.core.fenced.read_wish(paths.REASSIGN_PARTITIONS)
        if found is None:
            return
        data, stat = found
        try:
            targets = decode_reassignments(data)
        except KafkaError as error:
            logger.error("%s is removed: %s", paths.REASSIGN_PARTITIONS, error)
            await self.core.fenced.write(Delete(paths.REASSIGN_PARTITIONS, stat.version))
            return
        for partition, target in targets.items():
            if self._asked_by_node.get(partition) == target:
                continue
            self._asked_by_node[partition] = target
            if self._is_on_the_way(partition, target):
                continue  # a predecessor has begun with it
            refusal: KafkaError | None
            try:
                assignment = self._plan(partition, target)
            except KafkaError as error:
                refusal = error
            else:
                refusal = await self._begin(partition, assignment)
            if refusal is not None:
                logger.error("%s is not reassigned to %s: %s", partition, target, refusal)
                await self._forget_request(partition)
        if not targets:
            await self.core.fenced.write(Delete(paths.REASSIGN_PARTITIONS, stat.version))

    def _is_on_the_way(self, partition: TopicPartition, target: tuple[int, ...]) -> bool:
        under_way = self.under_way().get(partition)
        return under_way is not None and under_way.target == target

    @property
    def deleted(self) -> list[TopicPartition]:
        """Partitions named in /admin/reassign_partitions whose topics are being deleted."""
        return [partition for partition in self._asked_by_node if not self._exists(partition)]

    async def forget_deleted(self) -> None:
        """Drop the requests for partitions that are being deleted."""
        for partition in self.deleted:
            await self._forget_request(partition)

    def _exists(self, partition: TopicPartition) -> bool:
        return self.context.contains(partition) and not self.context.is_to_be_deleted(partition)

    def _plan(self, partition: TopicPartition, target: tuple[int, ...] | None) -> ReplicaAssignment:
        """The assignment on the way to the target; KafkaError if the target is not possible."""
        context = self.context
        if not self._exists(partition):
            raise KafkaError.of(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}"
            )
        current = context.assignment(partition)
        if target is None:
            if not current.is_being_reassigned:
                raise KafkaError.of(
                    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{partition} is not being reassigned"
                )
            planned = ReplicaAssignment(current.origin)
        else:
            _check_target(partition, target)
            planned = current.reassign_to(target)
            unknown = [broker for broker in planned.adding if broker not in context.brokers]
            if unknown:
                raise _bad_target(partition, target, f"brokers {unknown} do not live")
        self._keep_a_replica_in_sync(partition, planned)
        return planned

    def _keep_a_replica_in_sync(
        self, partition: TopicPartition, planned: ReplicaAssignment
    ) -> None:
        """Refuse to drop every replica in sync: those being added may be the only ones."""
        state = self.context.state(partition)
        if state is not None and not set(state.isr) & set(planned.replicas):
            raise _bad_target(
                partition, planned.target, f"only replicas {list(state.isr)} are in sync"
            )

    async def _begin(
        self, partition: TopicPartition, assignment: ReplicaAssignment
    ) -> RegistryError | None:
        """Write the assignment and begin. If it cannot be written, nothing changes; returns why.

        For instance, the topic's node would be too large: ZooKeeper takes 1 MB.
        """
        context = self.context
        previous, topic = context.assignment(partition), context.topics[partition.topic]
        if previous != assignment and assignment.is_being_reassigned:
            try:
                await self._write(partition, assignment)
            except RegistryFailedError:
                raise
            except RegistryError as error:
                topic.set_assignment(partition.partition, previous)
                return error
        topic.set_assignment(partition.partition, assignment)
        logger.info("%s: reassigned from %s to %s", partition, previous, assignment)
        unneeded = [each for each in previous.replicas if each not in assignment.replicas]
        state = context.state(partition)
        if state is not None and state.leader in unneeded:
            await self.core.partitions.bring_online((partition,), _elect_remaining)
        await self._drop(partition, unneeded)
        await self._advance(partition)
        return None

    async def _advance(self, partition: TopicPartition) -> None:
        assignment = self.context.assignment(partition)
        if self._is_complete(partition):
            await self._end(partition, assignment)
            return
        await self._raise_epoch(partition)
        adding = [PartitionReplica(partition, broker_id) for broker_id in assignment.adding]
        self.core.replicas.start_new(
            replica for replica in adding if replica not in self.context.replica_statuses
        )

    def _is_complete(self, partition: TopicPartition) -> bool:
        assignment, state = self.context.assignment(partition), self.context.state(partition)
        if not assignment.is_being_reassigned:
            return True
        return state is not None and set(assignment.target) <= set(state.isr)

    async def _end(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        core, context = self.core, self.context
        core.replicas.bring_online(
            PartitionReplica(partition, broker_id) for broker_id in assignment.adding
        )
        final = ReplicaAssignment(assignment.target)
        context.topics[partition.topic].set_assignment(partition.partition, final)
        state = context.state(partition)
        if state is not None and (
            state.leader not in final.replicas or not context.has_live_leader(partition)
        ):
            await core.partitions.bring_online((partition,), elect_reassigned)
        else:
            await self._raise_epoch(partition)
        await self._drop(partition, assignment.removing)
        await self._write(partition, final)
        await self._forget_request(partition)
        core.batch.add_metadata((partition,))
        logger.info("%s: its replicas are %s now", partition, list(final.replicas))

    async def _raise_epoch(self, partition: TopicPartition) -> None:
        """Raise the leader epoch, so that all replicas, and the leader, learn the new replicas."""

        def change(_: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr:
            return in_next_epoch(state)

        for changed in await self.core.states.change((partition,), change):
            self.core.batch.add_leader_and_isr(self.context.reachable_replicas(changed), changed)

    async def _drop(self, partition: TopicPartition, brokers: Iterable[int]) -> None:
        """Remove the replicas on these brokers. A dead broker keeps a log that is never read."""
        replicas = [
            replica
            for broker_id in brokers
            if (replica := PartitionReplica(partition, broker_id)) in self.context.replica_statuses
        ]
        if replicas:
            machine = self.core.replicas
            await machine.take_offline(replicas)
            machine.start_deletion(replicas)
            machine.end_deletion(replicas)
            machine.forget(replicas)

    async def _write(self, partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        topic = self.context.topics[partition.topic]
        topic.set_assignment(partition.partition, assignment)
        await self.core.store.update(topic.name, topic.node())

    async def _forget_request(self, partition: TopicPartition) -> None:
        """Remove it from /admin/reassign_partitions: tools wait for that node to be empty."""
        if self._asked_by_node.pop(partition, None) is None:
            return
        registry = self.core.fenced.registry
        try:
            data, stat = await registry.get(paths.REASSIGN_PARTITIONS)
            left = decode_reassignments(data)
        except NoNodeError:
            return
        left.pop(partition, None)
        path, version = paths.REASSIGN_PARTITIONS, stat.version
        write = Set(path, encode_reassignments(left), version) if left else Delete(path, version)
        await self.core.fenced.write(write)


def _elect_remaining(candidates: Candidates) -> LeaderAndIsr | None:
    """Elect one of the remaining in-sync replicas; never an unclean leader."""
    return elect_offline(candidates._replace(unclean_allowed=False))


def _check_target(partition: TopicPartition, target: tuple[int, ...]) -> None:
    if not target:
        raise _bad_target(partition, target, "there must be at least one replica")
    if len(set(target)) != len(target):
        raise _bad_target(partition, target, "each replica must be on a broker of its own")
    if min(target) < 0:
        raise _bad_target(partition, target, "ids of brokers are not negative")


def _bad_target(partition: TopicPartition, target: tuple[int, ...], reason: str) -> KafkaError:
    return KafkaError.of(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"{partition} cannot get the replicas {list(target)}: {reason}",
    )


class LeaderBalance:
    """Elects preferred leaders, and unclean ones where an operator asks for them."""

    def __init__(self, core: ControllerCore) -> None:
        self.core = core
        self.context = core.context

    async def elect(
        self, election: ElectionType, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect, and return each result; None means all partitions that need such an election."""
        context = self.context
        wanted = list(context.all_partitions()) if partitions is None else partitions
        results: dict[TopicPartition, KafkaError | None] = {}
        for partition in wanted:
            results[partition] = self._why_not(election, partition)
        if partitions is None:
            results = {each: error for each, error in results.items() if error is None}
        needed = [partition for partition, error in results.items() if error is None]
        elect = elect_preferred if election is ElectionType.PREFERRED else elect_unclean
        for partition in await self.core.partitions.bring_online(needed, elect):
            results[partition] = _not_available(election, partition)
        return results

    def _why_not(self, election: ElectionType, partition: TopicPartition) -> KafkaError | None:
        context = self.context
        if not context.contains(partition) or context.is_to_be_deleted(partition):
            return KafkaError.of(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}"
            )
        state = context.state(partition)
        if state is None:
            return _not_available(election, partition)
        if election is ElectionType.PREFERRED:
            is_needed = state.leader != context.assignment(partition).replicas[0]
        else:
            is_needed = not context.has_live_leader(partition)
        if is_needed:
            return None
        return KafkaError.of(
            ErrorCode.ELECTION_NOT_NEEDED, f"{partition} is led by broker {state.leader} already"
        )

    async def read_node(self) -> None:
        """A tool has written /admin/preferred_replica_election: elect, and remove the node."""
        found = await self.core.fenced.read_wish(paths.PREFERRED_REPLICA_ELECTION)
        if found is None:
            return
        data, stat = found
        try:
            partitions = decode_preferred_elections(data)
        except KafkaError as error:
            logger.error("%s is removed: %s", paths.PREFERRED_REPLICA_ELECTION, error)
            partitions = []
        results = await self.elect(ElectionType.PREFERRED, partitions)
        for partition, refusal in results.items():
            if refusal is not None and refusal.error is not ErrorCode.ELECTION_NOT_NEEDED:
                logger.warning("%s gets no preferred leader: %s", partition, refusal)
        await self.core.fenced.write(Delete(paths.PREFERRED_REPLICA_ELECTION, stat.version))

    async def rebalance(self) -> None:
        """Elect the preferred leaders of brokers that lead too few of their partitions.

        That is, other brokers lead more than leader.imbalance.per.broker.percentage of those
        whose preferred leader it is.
        """
        context = self.context
        preferred: dict[int, list[TopicPartition]] = {}
        for partition in context.all_partitions():
            if not context.is_to_be_deleted(partition) and context.state(partition) is not None:
                first = context.assignment(partition).replicas[0]
                preferred.setdefault(first, []).append(partition)
        for broker_id, partitions in sorted(preferred.items()):
            elsewhere = [
                partition
                for partition in partitions
                if (state := context.state(partition)) is not None and state.leader != broker_id
            ]
            limit = self.core.config.leader_imbalance_per_broker_percentage
            if 100 * len(elsewhere) > limit * len(partitions):
                await self._lead_again(broker_id, elsewhere)

    async def _lead_again(self, broker_id: int, partitions: Collection[TopicPartition]) -> None:
        context = self.context
        possible = [
            partition
            for partition in partitions
            if context.is_online(partition, broker_id)
            and not context.assignment(partition).is_being_reassigned
            and (state := context.state(partition)) is not None
            and broker_id in state.isr
        ]
        if possible:
            logger.info("broker %d shall lead %d partitions again", broker_id, len(possible))
            await self.core.partitions.bring_online(possible, elect_preferred)


def _not_available(election: ElectionType, partition: TopicPartition) -> KafkaError:
    if election is ElectionType.PREFERRED:
        return KafkaError.of(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"the preferred leader of {partition} does not live or is not in sync",
        )
    return KafkaError.of(
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no replica of {partition} lives"
    )
