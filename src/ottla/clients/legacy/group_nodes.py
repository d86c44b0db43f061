"""What a consumer of the 0.7 design keeps in the registry: its id, its partitions, its offsets.

A consumer is in its group for as long as its id node exists. Every other write is combined with a
check of that node: a write that comes too late, after the session has ended, is refused.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from ottla.config.legacy_config import LegacyConfig
from ottla.config.zookeeper_config import parse_connect
from ottla.errors import ConfigError
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
from ottla.registry.znodes import (
    BLACK_LIST,
    WHITE_LIST,
    BrokerNode,
    ConsumerRegistration,
    TopicNode,
    decode_offset,
    decode_partition_state,
    encode_offset,
)
from ottla.registry.zookeeper import ZooKeeperRegistry, ZooKeeperSettings
from ottla.runtime import Runtime
from ottla.structs import INTERNAL_TOPICS, NO_LEADER, Node, TopicPartition

T = TypeVar("T")
WRITES_AT_ONCE: Final = 500
"""A larger `multi` may not fit into one ZooKeeper packet."""
FIRST_VERSION: Final = 0
"""An id node is written only once, when it is created."""


class ConsumerNodes:
    """The nodes of one consumer below /consumers/[group]."""

    def __init__(self, registry: Registry, group: str, consumer: str) -> None:
        self.registry = registry
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


# Which topics a connector reads by pattern.


class TopicFilter:
    """A list of topics or patterns: commas mean 'or', surrounding blanks and quotes are dropped.

    The patterns are Python's, which agree with Java's as far as topic names need it.
    """

    pattern: str
    """Its name in the registration of a consumer."""
    accepts_matches: bool

    def __init__(self, raw_regex: str) -> None:
        self.regex = raw_regex.strip().replace(",", "|").replace(" ", "").strip("\"'")
        try:
            self._compiled = re.compile(self.regex)
        except re.error as error:
            raise ConfigError(
                f"topic filter {raw_regex!r}: must be a regular expression: {error}"
            ) from None

    def is_topic_allowed(self, topic: str, exclude_internal_topics: bool = True) -> bool:
        if exclude_internal_topics and topic in INTERNAL_TOPICS:
            return False
        return (self._compiled.fullmatch(topic) is not None) is self.accepts_matches

    def matching(self, topics: Iterable[str], exclude_internal_topics: bool = True) -> list[str]:
        """Those of the topics that are allowed, sorted."""
        return sorted(t for t in topics if self.is_topic_allowed(t, exclude_internal_topics))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.regex!r})"


class Whitelist(TopicFilter):
    """The topics that match."""

    pattern = WHITE_LIST
    accepts_matches = True


class Blacklist(TopicFilter):
    """The topics that do not match."""

    pattern = BLACK_LIST
    accepts_matches = False


FILTERS = {kind.pattern: kind for kind in (Whitelist, Blacklist)}


# What clients of the 0.7 design read about the cluster in the registry, and how they open it.


Replicas = Mapping[int, tuple[int, ...]]


def registry_of(runtime: Runtime, config: LegacyConfig) -> ZooKeeperRegistry:
    """The registry that zk.connect names, not yet started."""
    address = parse_connect("zk.connect", config.zk_connect or "")
    settings = ZooKeeperSettings(
        address.servers,
        address.chroot,
        session_timeout_ms=config.zk_sessiontimeout_ms,
        connection_timeout_ms=config.zk_connectiontimeout_ms,
    )
    return ZooKeeperRegistry(runtime, settings)


async def live_brokers(registry: Registry) -> dict[int, Node]:
    """The live brokers by id; those without a plaintext listener are left out."""
    found = {}
    for name in await names_below(registry, paths.BROKER_IDS):
        try:
            data, _ = await registry.get(paths.broker(int(name)))
        except NoNodeError:
            continue  # it is gone meanwhile, and the watch will report that
        node = BrokerNode.decode(int(name), data)
        if node.host is not None:
            found[int(name)] = Node(int(name), node.host, node.port, node.rack)
    return found


async def names_below(registry: Registry, path: str) -> list[str]:
    """The children of a node; none if the node does not exist yet."""
    try:
        return await registry.children(path)
    except NoNodeError:
        return []


async def replicas_of(registry: Registry, topics: Iterable[str]) -> dict[str, Replicas]:
    """The partitions of topics and their replicas; topics that do not exist are left out."""
    found: dict[str, Replicas] = {}
    for topic in topics:
        try:
            data, _ = await registry.get(paths.topic(topic))
        except NoNodeError:
            continue
        found[topic] = TopicNode.decode(topic, data).assignment
    return found


async def leader_of(registry: Registry, topic: str, partition: int) -> int:
    """The leader of a partition; -1 if it has none, or does not exist yet."""
    path = paths.partition_state(topic, partition)
    try:
        data, stat = await registry.get(path)
    except NoNodeError:
        return NO_LEADER
    return decode_partition_state(path, data, stat.version)[0].leader


# The assignment in a group of the 0.7 design, computed by each consumer for itself.
#
# All consumers of a group get the same result, as they read the same registrations and topics.


class ConsumerThreadId(NamedTuple):
    """One stream of a consumer as the owner of partitions, written `consumer-0`."""

    consumer: str
    number: int

    def __str__(self) -> str:
        return f"{self.consumer}-{self.number}"


def sort_partitions(replicas: Mapping[int, Sequence[int]]) -> list[int]:
    """A topic's partitions in the order in which they are assigned.

    Those with the same preferred leader are adjacent, so that a consumer needs few brokers. The
    preferred leader is used since it stays the same while the actual leader changes.
    """

    def place(partition: int) -> tuple[int, int]:
        return (replicas[partition] or (NO_LEADER,))[0], partition

    return sorted(replicas, key=place)


def assign(partitions: Sequence[int], threads: Sequence[str]) -> dict[int, str]:
    """Equal runs of partitions for the threads; the first threads take the remainder.

    Both must be sorted. With more threads than partitions the last threads get nothing.
    """
    if not threads:
        return {}
    share, left_over = divmod(len(partitions), len(threads))
    owners = {}
    start = 0
    for number, thread in enumerate(threads):
        end = start + share + (number < left_over)
        owners.update(dict.fromkeys(partitions[start:end], thread))
        start = end
    return owners


def subscribed_topics(
    registration: ConsumerRegistration, topics: Collection[str], *, exclude_internal: bool = True
) -> dict[str, int]:
    """The topics that a consumer reads, with their stream counts; `topics` are all that exist."""
    if registration.pattern not in FILTERS:
        return dict(registration.subscription)
    found = {}
    for regex, count in registration.subscription.items():
        for topic in FILTERS[registration.pattern](regex).matching(topics, exclude_internal):
            found[topic] = count
    return found


def decide(
    registrations: Mapping[str, ConsumerRegistration],
    replicas: Mapping[str, Mapping[int, Sequence[int]]],
    topics: Collection[str],
    *,
    exclude_internal: bool = True,
) -> dict[TopicPartition, ConsumerThreadId]:
    """The owner of every partition of the topics in `replicas` that some consumer reads.

    The threads are sorted by their names as strings, as in Kafka's consumers.
    """
    threads: dict[str, dict[str, ConsumerThreadId]] = {}
    for consumer, registration in registrations.items():
        counts = subscribed_topics(registration, topics, exclude_internal=exclude_internal)
        for topic, count in counts.items():
            ids = [ConsumerThreadId(consumer, number) for number in range(count)]
            threads.setdefault(topic, {}).update((str(id), id) for id in ids)
    return {
        TopicPartition(topic, partition): by_name[name]
        for topic, by_name in threads.items()
        if topic in replicas
        for partition, name in assign(sort_partitions(replicas[topic]), sorted(by_name)).items()
    }
