"""The nodes of a consumer of the 0.7 design in the registry: its id, its partitions, its offsets.

A consumer is in its group for as long as its id node exists. Every other write is combined with a
check of that node: a write that comes too late, after the session has ended, is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from ottla.clients.legacy.cluster_nodes import cluster_nodes
from ottla.registry import paths
from ottla.registry.tree import (
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Operation,
    Registry,
    Set,
    ensure_path,
)
from ottla.registry.znodes import ConsumerRegistration, decode_offset, encode_offset
from ottla.structs import TopicPartition

T = TypeVar("T")
WRITES_AT_ONCE: Final = 500
"""A larger `multi` may not fit into one ZooKeeper packet."""
FIRST_VERSION: Final = 0
"""An id node is written only once, when it is created."""


class ConsumerNodes:
    """The nodes of one consumer below /consumers/[group]."""

    def __init__(
        self, registry: Registry, group: str, consumer: str, broker_version: str = ""
    ) -> None:
        self.registry = registry
        self.cluster = cluster_nodes(registry, broker_version)
        """Where the brokers and partitions of the cluster are."""
        self.group = group
        self.consumer = consumer
        self._has_offset: set[TopicPartition] = set()
        self._id = paths.consumer_id(group, consumer)
        self._is_member = Check(self._id, FIRST_VERSION)

    async def register(self, registration: ConsumerRegistration) -> None:
        """Join the group; raises NodeExistsError if another session has this id."""
        await ensure_path(self.registry, paths.consumer_ids(self.group))
        await self.registry.create(self._id, registration.encode(), ephemeral=True)

    async def leave(self) -> None:
        """Leave the group; does nothing if it was left already."""
        try:
            await self.registry.delete(self._id)
        except NoNodeError:
            pass  # its session has ended

    async def registrations(self) -> dict[str, ConsumerRegistration]:
        """The consumers of the group, this one among them."""
        found = {}
        for name in await self.registry.children(paths.consumer_ids(self.group)):
            try:
                data, _ = await self.registry.get(paths.consumer_id(self.group, name))
            except NoNodeError:
                continue  # it has left meanwhile, and the watch will report that
            found[name] = ConsumerRegistration.decode(name, data)
        return found

    async def take(self, owners: Mapping[TopicPartition, str]) -> None:
        """Become the owner of all the partitions, or of none and raise NodeExistsError."""
        for topic in {partition.topic for partition in owners}:
            await ensure_path(self.registry, paths.partition_owners(self.group, topic))
        taken: list[TopicPartition] = []
        try:
            for part in in_parts(list(owners)):
                await self._write(
                    Create(self._owner(p), owners[p].encode(), ephemeral=True) for p in part
                )
                taken += part
        except NodeExistsError:
            await self.give_up(taken)
            raise

    async def give_up(self, partitions: Collection[TopicPartition]) -> None:
        """Give up the ownership of partitions that this consumer owns."""
        for part in in_parts(list(partitions)):
            try:
                await self._write(Delete(self._owner(p)) for p in part)
            except NoNodeError:
                # A tool has deleted owners, or the id is gone, in which case it fails again.
                left = [p for p in part if await self._is_owner(p)]
                await self._write(Delete(self._owner(p)) for p in left)

    async def _is_owner(self, partition: TopicPartition) -> bool:
        try:
            owner, _ = await self.registry.get(self._owner(partition))
        except NoNodeError:
            return False
        return owner.decode().rpartition("-")[0] == self.consumer

    def owner_paths(self, partitions: Iterable[TopicPartition]) -> list[str]:
        """The paths of the partitions' owner nodes."""
        return list(map(self._owner, partitions))

    async def are_any_owned(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether any of the partitions has an owner."""
        for path in self.owner_paths(partitions):
            if await self.registry.exists(path) is not None:
                return True
        return False

    async def offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The committed offsets; partitions without one are left out."""
        wanted = list(partitions)
        found = await asyncio.gather(*map(self._committed, wanted))
        offsets = {p: o for p, o in zip(wanted, found, strict=True) if o is not None}
        self._has_offset.difference_update(wanted)
        self._has_offset.update(offsets)
        return offsets

    async def _committed(self, partition: TopicPartition) -> int | None:
        path = self._offset(partition)
        try:
            return decode_offset(path, (await self.registry.get(path))[0])
        except NoNodeError:
            return None

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write offsets; NoNodeError or SessionEndedError if the group was left meanwhile."""
        for part in in_parts(list(offsets)):
            for partition in part:
                await self._prepare(partition)
            try:
                await self._commit({p: offsets[p] for p in part})
            except (NoNodeError, NodeExistsError):
                # A tool has deleted or created offsets meanwhile, or the id is gone: find out.
                await self.registry.get(self._id)
                self._has_offset.difference_update(part)
                for partition in part:
                    await self._prepare(partition)
                await self._commit({p: offsets[p] for p in part})

    async def _prepare(self, partition: TopicPartition) -> None:
        if partition in self._has_offset:
            return
        await ensure_path(self.registry, paths.group_offsets(self.group, partition.topic))
        if await self.registry.exists(self._offset(partition)) is not None:
            self._has_offset.add(partition)

    async def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        operations: list[Operation] = []
        for partition, offset in offsets.items():
            kind = Set if partition in self._has_offset else Create
            operations.append(kind(self._offset(partition), encode_offset(offset)))
        await self._write(operations)
        self._has_offset.update(offsets)

    async def _write(self, operations: Iterable[Operation]) -> None:
        await self.registry.multi([self._is_member, *operations])

    def _owner(self, partition: TopicPartition) -> str:
        return paths.partition_owner(self.group, *partition)

    def _offset(self, partition: TopicPartition) -> str:
        return paths.group_offset(self.group, *partition)


def in_parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Divide the items into runs that can each be written at once."""
    for start in range(0, len(items), WRITES_AT_ONCE):
        yield items[start : start + WRITES_AT_ONCE]
