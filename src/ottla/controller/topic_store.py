"""Topics and the states of their partitions in the registry, read and written as Kafka has them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from ottla.controller.fenced_registry import FencedRegistry, Group
from ottla.errors import KafkaError
from ottla.registry import paths
from ottla.registry.tree import (
    Create,
    Delete,
    NoNodeError,
    Operation,
    Registry,
    RegistryError,
    RegistryFailedError,
    Set,
    ensure_path,
)
from ottla.registry.znodes import TopicNode, decode_partition_state, encode_partition_state
from ottla.runtime.scheduler import gather_each
from ottla.structs import LeaderAndIsr, NamedTuple, TopicPartition

logger = logging.getLogger(__name__)

MS_IN_A_MINUTE: Final = 60_000
ASKED_TOGETHER: Final = 200
"""Nodes that are read at the same time: a topic may have thousands, and each question is a task."""


class StoredState(NamedTuple):
    """The state of a partition as it is in the registry."""

    state: LeaderAndIsr
    controller_epoch: int
    modified_id: int
    """Numbers the write; a broker whose epoch is greater was registered after it."""
    created_ms: int


class TopicReader:
    """Reads the nodes below /brokers/topics and /admin/delete_topics."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    async def names(self) -> list[str]:
        return await self.registry.children(paths.TOPICS)

    async def read(self, name: str) -> TopicNode:
        data, _ = await self.registry.get(paths.topic(name))
        return TopicNode.decode(name, data)

    async def read_states(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, StoredState]:
        """The states of those partitions that have a readable one."""
        found = await gather_each(self._read_state, partitions)
        return {partition: stored for partition, stored in found if stored is not None}

    async def _read_state(
        self, topic_partition: TopicPartition
    ) -> tuple[TopicPartition, StoredState | None]:
        path = paths.partition_state(*topic_partition)
        try:
            data, stat = await self.registry.get(path)
            state, epoch = decode_partition_state(path, data, stat.version)
        except NoNodeError:
            return topic_partition, None
        except RegistryFailedError:
            raise
        except KafkaError as error:
            logger.error("%s is led by nobody: %s", topic_partition, error)
            return topic_partition, None
        return topic_partition, StoredState(state, epoch, stat.modified_id, stat.created_ms)

    async def marked_for_deletion(self) -> list[str]:
        return await self.registry.children(paths.DELETE_TOPICS)

    async def adopt(self, topics: Mapping[str, tuple[UUID, Mapping[int, LeaderAndIsr]]]) -> None:
        """Create topics whose partitions hold records already: all of them or none."""
        operations: list[Operation] = []
        for name, (topic_id, states) in topics.items():
            assignment = {index: states[index].isr for index in sorted(states)}
            node = TopicNode(assignment, topic_id)
            operations.append(Create(paths.topic(name), node.encode()))
            operations.append(Create(paths.topic_partitions(name), b""))
            for index in assignment:
                data = encode_partition_state(states[index], controller_epoch=0)
                state = Create(paths.partition_state(name, index), data)
                operations += (Create(paths.partition(name, index), b""), state)
        await self.registry.multi(operations)


class TopicStore(TopicReader):
    """Reads these nodes and, as the controller of one epoch, writes them.

    A topic exists as soon as its node does; partitions without a state node are new and get one
    from the controller, so a crash while a topic is created leaves nothing half done.
    """

    def __init__(self, fenced: FencedRegistry) -> None:
        super().__init__(fenced.registry)
        self.fenced = fenced

    async def create(self, name: str, node: TopicNode, beside: Sequence[Operation] = ()) -> None:
        """Create the topic, and do the operations `beside` it: all of it or nothing."""
        await self.fenced.write(Create(paths.topic(name), node.encode()), *beside)

    async def update(self, name: str, node: TopicNode) -> None:
        """Rewrite the topic's node: with an id, more partitions, or other replicas."""
        await self.fenced.write(Set(paths.topic(name), node.encode()))

    async def create_states(
        self, states: Mapping[TopicPartition, LeaderAndIsr]
    ) -> dict[TopicPartition, LeaderAndIsr]:
        """Write the first states of new partitions; returns those that had none before."""
        for name in sorted({topic_partition.topic for topic_partition in states}):
            await ensure_path(self.registry, paths.topic_partitions(name))
        epoch = self.fenced.epoch.epoch
        groups: list[Group] = [
            (
                Create(paths.partition(*each), b""),
                Create(paths.partition_state(*each), encode_partition_state(state, epoch)),
            )
            for each, state in states.items()
        ]
        outcomes = await self.fenced.write_each(groups)
        created = {}
        for (topic_partition, state), outcome in zip(states.items(), outcomes, strict=True):
            if not isinstance(outcome, RegistryError):
                created[topic_partition] = state._replace(version=0)
            elif (made := await self._create_state(topic_partition, state)) is not None:
                created[topic_partition] = made
        return created

    async def _create_state(
        self, topic_partition: TopicPartition, state: LeaderAndIsr
    ) -> LeaderAndIsr | None:
        """Create one state where the partition's node is there; None if it has one already.

        Brokers may know the partition, and refuse an epoch that is not later: that of the clock is.
        """
        path = paths.partition_state(*topic_partition)
        if await self.registry.exists(path) is not None:
            return None
        await ensure_path(self.registry, paths.partition(*topic_partition))
        stat = await self.registry.set(paths.partition(*topic_partition), b"")
        later = state._replace(leader_epoch=stat.modified_ms // MS_IN_A_MINUTE, version=0)
        await self.fenced.write(
            Create(path, encode_partition_state(later, self.fenced.epoch.epoch))
        )
        logger.error("%s had no state: it begins with all replicas that live", topic_partition)
        return later

    async def write_states(
        self, states: Mapping[TopicPartition, LeaderAndIsr]
    ) -> tuple[dict[TopicPartition, LeaderAndIsr], list[TopicPartition]]:
        """Write the next states; returns them with their new versions, and those refused.

        A state is refused if it was written, or has gone, since it was read.
        """
        epoch = self.fenced.epoch.epoch
        groups: list[Group] = [
            (
                Set(
                    paths.partition_state(*each),
                    encode_partition_state(state, epoch),
                    state.version,
                ),
            )
            for each, state in states.items()
        ]
        outcomes = await self.fenced.write_each(groups)
        written, refused = {}, []
        for (topic_partition, state), outcome in zip(states.items(), outcomes, strict=True):
            if isinstance(outcome, RegistryError):
                refused.append(topic_partition)
                continue
            (stat,) = outcome
            assert stat is not None, "a registry says what a set has made of the node"
            written[topic_partition] = state._replace(version=stat.version)
        return written, refused

    async def mark_for_deletion(self, names: Sequence[str]) -> None:
        """Mark the topics: from here on they will be deleted, even if the controller dies."""
        marked = set(await self.marked_for_deletion())
        missing = [name for name in names if name not in marked]
        if missing:
            await self.fenced.write(*(Create(paths.delete_topic(name), b"") for name in missing))

    async def unmark_for_deletion(self, names: Sequence[str]) -> None:
        """Remove the marks that the topics will be deleted."""
        await self.fenced.write_each([(Delete(paths.delete_topic(name)),) for name in names])

    async def remove(self, name: str) -> None:
        """Remove the topic's nodes, and with the last one its mark for deletion."""
        below = await self._tree(paths.topic(name))
        for outcome in await self.fenced.write_each([(Delete(path),) for path in below[:-1]]):
            if isinstance(outcome, RegistryError):
                raise outcome
        last = [Delete(path) for path in below[-1:]]
        if await self.registry.exists(paths.delete_topic(name)) is not None:
            last.append(Delete(paths.delete_topic(name)))
        await self.fenced.write(*last)

    async def _tree(self, path: str) -> list[str]:
        """The paths of the node and of all below it, children first."""
        try:
            names = await self.registry.children(path)
        except NoNodeError:
            return []
        below: list[str] = []
        for begin in range(0, len(names), ASKED_TOGETHER):
            some = names[begin : begin + ASKED_TOGETHER]
            trees = await asyncio.gather(*(self._tree(f"{path}/{name}") for name in some))
            below += (each for tree in trees for each in tree)
        return [*below, path]
