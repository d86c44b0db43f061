"""Moves partitions to other replicas: old and new ones together until the new ones are in sync.

replicas = target + those to be removed      written, sent to all of them (KIP-455)
every target replica is in sync  ->  a target leads, the others are deleted,
                                     replicas = target
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from ottla.controller.active_controller import ActiveController
from ottla.controller.active_feature import ActiveFeature
from ottla.controller.controller import Controller
from ottla.controller.controller_context import PartitionReplica, ReplicaAssignment
from ottla.controller.controller_core import ControllerCore
from ottla.controller.leader_election import (
    Candidates,
    elect_offline,
    elect_reassigned,
    in_next_epoch,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.registry import paths
from ottla.registry.tree import Delete, NoNodeError, RegistryError, RegistryFailedError, Set
from ottla.registry.znodes import decode_reassignments, encode_reassignments
from ottla.structs import LeaderAndIsr, TopicPartition

logger = logging.getLogger(__name__)


class PartitionReassigner(ActiveFeature):
    """Begins, continues, completes and cancels reassignments.

    Which partitions are being reassigned is in their topics' nodes; /admin/reassign_partitions
    is the older way to ask for it, and names a partition until its reassignment has ended.
    """

    def __init__(self, core: ControllerCore) -> None:
        super().__init__(core)
        self._asked_by_node: dict[TopicPartition, tuple[int, ...]] = {}

    def under_way(self) -> dict[TopicPartition, ReplicaAssignment]:
        """The reassignments under way; a topic being deleted has none: all its replicas go."""
        return {
            TopicPartition(topic.name, index): topic.full_assignment(index)
            for topic in self.context.topics.values()
            if topic.name not in self.context.topics_to_delete
            for index in sorted({*topic.adding, *topic.removing})
        }

    def changing(self, partition: TopicPartition) -> ReplicaAssignment | None:
        """The reassignment of the partition, if one is under way; others are not looked at."""
        if not self._exists(partition):
            return None
        assignment = self.context.assignment(partition)
        return assignment if assignment.is_being_reassigned else None

    async def load(self) -> None:
        """Continue a predecessor's reassignments."""
        for partition in self.under_way():
            await self._advance(partition)
        await self.read_node()

    def nodes(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        return {paths.REASSIGN_PARTITIONS: self.read_node}

    async def on_replicas_online(self, partitions: Iterable[TopicPartition]) -> None:
        """Continue these reassignments."""
        for partition in partitions:
            if self.changing(partition) is not None:
                await self._advance(partition)

    async def on_isr_changes(self, partitions: Iterable[TopicPartition]) -> None:
        """End the reassignments that are complete."""
        complete = [each for each in partitions if self._is_complete(each)]
        await self.on_replicas_online(complete)

    def after_event(self) -> None:
        """Forget requests for partitions whose topics are being deleted."""
        if self.deleted:
            self.core.enqueue_once("reassignments of deleted topics", self.forget_deleted)

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
        """Begin the reassignments that a tool has written to /admin/reassign_partitions."""
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
        changing = self.changing(partition)
        return changing is not None and changing.target == target

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


async def alter_reassignments(
    controller: Controller, targets: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, KafkaError | None]:
    """Begin to move partitions to these replicas; None cancels a reassignment under way."""
    wanted = {
        partition: None if replicas is None else tuple(replicas)
        for partition, replicas in targets.items()
    }
    return await controller.do(
        "alter reassignments", lambda active: active.find(PartitionReassigner).alter(wanted)
    )


async def list_reassignments(
    controller: Controller, partitions: Sequence[TopicPartition] | None
) -> dict[TopicPartition, ReplicaAssignment]:
    """The reassignments under way, of these partitions or of all."""

    async def under_way(active: ActiveController) -> dict[TopicPartition, ReplicaAssignment]:
        reassigner = active.find(PartitionReassigner)
        if partitions is None:
            return reassigner.under_way()
        found = ((each, reassigner.changing(each)) for each in partitions)
        return {each: changing for each, changing in found if changing is not None}

    return await controller.do("list reassignments", under_way)
