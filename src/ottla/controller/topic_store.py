"""Topics and the states of their partitions in the registry, read and written as Kafka has them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from uuid import UUID

from ottla.registry import paths
from ottla.registry.tree import (
    Create,
    NoNodeError,
    Operation,
    Registry,
    delete_tree,
    ensure_path,
)
from ottla.registry.znodes import (
    TopicNode,
    decode_partition_state,
    encode_partition_state,
)
from ottla.structs import LeaderAndIsr


class TopicStore:
    """The nodes below /brokers/topics and /admin/delete_topics.

    A topic exists as soon as its node does; partitions without a state node are new and get one
    from the controller, so a crash while a topic is created leaves nothing half done.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    async def names(self) -> list[str]:
        return await self.registry.children(paths.TOPICS)

    async def read(self, name: str) -> TopicNode:
        data, _ = await self.registry.get(paths.topic(name))
        return TopicNode.decode(name, data)

    async def read_states(self, name: str, partitions: Iterable[int]) -> dict[int, LeaderAndIsr]:
        """The states of those partitions that have one."""
        found = await asyncio.gather(*(self._read_state(name, index) for index in partitions))
        return {index: state for index, state in found if state is not None}

    async def _read_state(self, name: str, index: int) -> tuple[int, LeaderAndIsr | None]:
        path = paths.partition_state(name, index)
        try:
            data, stat = await self.registry.get(path)
        except NoNodeError:
            return index, None
        state, _ = decode_partition_state(path, data, stat.version)
        return index, state

    async def create(
        self, name: str, topic_id: UUID, assignment: Mapping[int, tuple[int, ...]]
    ) -> None:
        await self.registry.create(paths.topic(name), TopicNode(assignment, topic_id).encode())

    async def update(
        self, name: str, topic_id: UUID, assignment: Mapping[int, tuple[int, ...]]
    ) -> None:
        """Write the topic's node anew, with an id or with more partitions than it had."""
        await self.registry.set(paths.topic(name), TopicNode(assignment, topic_id).encode())

    async def create_states(
        self, name: str, states: Mapping[int, LeaderAndIsr], controller_epoch: int
    ) -> None:
        """The first states of new partitions, in as few rounds as their paths are deep."""
        await ensure_path(self.registry, paths.topic_partitions(name))
        await asyncio.gather(
            *(ensure_path(self.registry, paths.partition(name, index)) for index in states)
        )
        await asyncio.gather(
            *(
                self.registry.create(
                    paths.partition_state(name, index),
                    encode_partition_state(state, controller_epoch),
                )
                for index, state in states.items()
            )
        )

    async def write_states(
        self, name: str, states: Mapping[int, LeaderAndIsr], controller_epoch: int
    ) -> dict[int, LeaderAndIsr]:
        """Write states that follow known ones; returns them with their new versions.

        BadVersionError where somebody else wrote one: then there is another controller.
        """

        async def write(index: int, state: LeaderAndIsr) -> tuple[int, LeaderAndIsr]:
            stat = await self.registry.set(
                paths.partition_state(name, index),
                encode_partition_state(state, controller_epoch),
                state.version,
            )
            return index, state._replace(version=stat.version)

        return dict(await asyncio.gather(*(write(*item) for item in states.items())))

    async def adopt(self, topics: Mapping[str, tuple[UUID, Mapping[int, LeaderAndIsr]]]) -> None:
        """Create topics that have partitions with a history, by name: all of them or none."""
        operations: list[Operation] = []
        for name, (topic_id, states) in topics.items():
            assignment = {index: states[index].isr for index in sorted(states)}
            node = TopicNode(assignment, topic_id)
            operations.append(Create(paths.topic(name), node.encode()))
            operations.append(Create(paths.topic_partitions(name), b""))
            for index in assignment:
                operations.append(Create(paths.partition(name, index), b""))
                data = encode_partition_state(states[index], controller_epoch=0)
                operations.append(Create(paths.partition_state(name, index), data))
        await self.registry.multi(operations)

    async def mark_for_deletion(self, name: str) -> None:
        """From here on the topic will be deleted, whatever happens to the controller."""
        await ensure_path(self.registry, paths.delete_topic(name))

    async def marked_for_deletion(self) -> list[str]:
        return await self.registry.children(paths.DELETE_TOPICS)

    async def remove(self, name: str) -> None:
        """Forget the topic, then that it was to be deleted."""
        await delete_tree(self.registry, paths.topic(name))
        await delete_tree(self.registry, paths.delete_topic(name))
