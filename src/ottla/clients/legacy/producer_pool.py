"""One connection for each broker, and routing from a partition to its leader.

A producer learns from ZooKeeper, or from its settings, which partitions it may choose from.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ottla.clients.legacy.broker_link import BrokerLink, LinkSettings
from ottla.clients.legacy.group_nodes import leader_of, live_brokers, registry_of, replicas_of
from ottla.clients.legacy.message import Message
from ottla.clients.legacy.sync_producer import (
    RANDOM_PARTITION,
    MessageSets,
    Outcome,
    Packing,
    ProducerRequest,
    produce,
)
from ottla.config.legacy_config import LegacyProducerConfig
from ottla.errors import ErrorCode, InvalidMetadataError, KafkaError
from ottla.record.compression import CompressionType
from ottla.registry import paths
from ottla.registry.tree import Registry, SessionState, Watch
from ottla.runtime import Runtime
from ottla.runtime.io_thread import IoThread
from ottla.runtime.scheduler import pause
from ottla.structs import NO_LEADER, Node, TopicPartition

logger = logging.getLogger(__name__)

CREATION_PAUSE_MS = 50
CREATION_ATTEMPTS = 100


class BrokerPartition(NamedTuple):
    """A partition, the broker that it belongs to, and its current leader."""

    broker_id: int
    partition: int
    leader: int


LinkTo = Callable[[int], BrokerLink]


class ZooKeeperPartitionInfo:
    """Reads brokers and topics in ZooKeeper, and watches their changes.

    These are brokers that come and go, and topics that are created, deleted, or get partitions.
    """

    def __init__(
        self,
        runtime: Runtime,
        registry: Registry,
        link_to: LinkTo,
        on_brokers: Callable[[Mapping[int, Node]], object],
    ) -> None:
        self.known: Mapping[str, tuple[BrokerPartition, ...]] = {}
        self.brokers: Mapping[int, Node] = {}
        self._runtime = runtime
        self._registry = registry
        self._link_to = link_to
        self._on_brokers = on_brokers
        self._watches: list[Watch] = []
        self._topic_watches: dict[str, Watch] = {}

    async def start(self) -> None:
        registry = self._registry
        await registry.start()
        self._watches = [
            registry.watch_children(paths.BROKER_IDS, self._refresh_soon),
            registry.watch_children(paths.TOPICS, self._refresh_soon),
            registry.watch_session(self._on_session),
        ]
        await self._update_brokers()

    async def learn(self, topic: str) -> None:
        """Look a topic up again; brokers may create it. Raises an error if it does not exist."""
        for attempt in range(CREATION_ATTEMPTS):
            if await self._read(topic):
                return
            if not self.brokers:
                await self._update_brokers()
            if not self.brokers:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "there is no broker in ZooKeeper")
            if not attempt:
                await self._make(topic)
            await pause(self._runtime.scheduler, CREATION_PAUSE_MS)
        raise InvalidMetadataError(
            ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic} has no partition with a leader"
        )

    async def close(self) -> None:
        for watch in [*self._watches, *self._topic_watches.values()]:
            watch.cancel()
        await self._registry.close()

    async def _make(self, topic: str) -> None:
        """Ask a broker for a missing topic, which it creates or answers with an error."""
        broker_id = self._runtime.random.choice(sorted(self.brokers))
        response = await self._link_to(broker_id).metadata(topic)
        (answer,) = response.topics
        error = ErrorCode.of(answer.error_code)
        if error not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            raise KafkaError.of(error, f"topic {topic}: {error.sentence}")

    async def _read(self, topic: str) -> bool:
        """Take over what ZooKeeper has about a topic; returns whether it can be sent to."""
        if topic not in self._topic_watches:
            refresh = partial(self._refresh_topic_soon, topic)
            self._topic_watches[topic] = self._registry.watch_data(paths.topic(topic), refresh)
        replicas = (await replicas_of(self._registry, [topic])).get(topic, {})
        leaders = await asyncio.gather(
            *(leader_of(self._registry, topic, partition) for partition in replicas)
        )
        found = [
            BrokerPartition((ids or (NO_LEADER,))[0], partition, leader)
            for (partition, ids), leader in zip(replicas.items(), leaders, strict=True)
        ]
        known = {name: entry for name, entry in self.known.items() if name != topic}
        if found:
            known[topic] = tuple(sorted(found))
        self.known = known
        return any(entry.leader != NO_LEADER for entry in found)

    async def _update_brokers(self) -> None:
        self.brokers = await live_brokers(self._registry)
        self._on_brokers(self.brokers)

    async def _refresh(self, topics: Collection[str]) -> None:
        try:
            await self._update_brokers()
            for topic in topics:
                await self._read(topic)
        except KafkaError as error:
            logger.warning("the partitions cannot be read in ZooKeeper: %s", error)

    def _refresh_soon(self) -> None:
        refresh = self._refresh(list(self.known))
        self._runtime.scheduler.spawn(refresh, "read brokers and topics")

    def _refresh_topic_soon(self, topic: str) -> None:
        if topic in self.known:
            self._runtime.scheduler.spawn(self._refresh([topic]), f"read topic {topic}")

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.RENEWED:
            self._refresh_soon()


class StaticPartitionInfo:
    """Asks the brokers of broker.list for the leaders of a topic's partitions.

    Only these brokers are used. If none of them is known under its id in the cluster, because the
    address is that of a load balancer, the leaders in the response are used.
    """

    def __init__(self, runtime: Runtime, brokers: Mapping[int, Node], link_to: LinkTo) -> None:
        self.known: Mapping[str, tuple[BrokerPartition, ...]] = {}
        self.brokers: Mapping[int, Node] = dict(brokers)
        self._runtime = runtime
        self._listed = dict(brokers)
        self._link_to = link_to

    async def start(self) -> None:
        """There is nothing to load before a topic is sent to."""

    async def learn(self, topic: str) -> None:
        order = sorted(self._listed)
        self._runtime.random.shuffle(order)
        failure: KafkaError | None = None
        for broker_id in order:
            try:
                found = await self._ask(broker_id, topic)
            except KafkaError as error:
                failure = error
                continue
            if found:
                self.known = {**self.known, topic: tuple(sorted(found))}
                return
        raise failure or InvalidMetadataError(
            ErrorCode.LEADER_NOT_AVAILABLE,
            f"the brokers of broker.list lead no partition of topic {topic}",
        )

    async def close(self) -> None:
        """There is nothing to close."""

    async def _ask(self, broker_id: int, topic: str) -> list[BrokerPartition]:
        response = await self._link_to(broker_id).metadata(topic)
        (answer,) = response.topics
        error = ErrorCode.of(answer.error_code)
        if error is not ErrorCode.NONE:
            raise KafkaError.of(error, f"topic {topic}: {error.sentence}")
        nodes = {n.node_id: Node(n.node_id, n.host, n.port) for n in response.brokers}
        usable = set(self._listed) & set(nodes)
        if not usable:
            usable = set(nodes)
            self.brokers = {**self._listed, **nodes}
        return [
            BrokerPartition(p.leader_id, p.partition_index, p.leader_id)
            for p in answer.partitions
            if p.leader_id in usable
        ]


BrokerPartitionInfo = ZooKeeperPartitionInfo | StaticPartitionInfo
"""The source of a producer's knowledge about partitions.

`known` is replaced, never changed, so that any thread may read it; the methods must be called on
the loop.
"""


class PoolCore:
    """The links to the live brokers; used on the loop."""

    def __init__(self, runtime: Runtime, config: LegacyProducerConfig) -> None:
        self.runtime = runtime
        self.config = config
        self.packing = Packing(
            config.request_required_acks,
            config.socket_timeout_ms,
            config.max_message_size,
            CompressionType.of(config.codec_name),
            frozenset(config.compressed_topics),
        )
        self._settings = LinkSettings(
            config.client_id,
            config.socket_timeout_ms,
            config.connect_timeout_ms,
            send_buffer_bytes=config.buffer_size,
        )
        self._links: dict[int, BrokerLink] = {}
        self.info: BrokerPartitionInfo
        if config.zk_connect is None:
            self.info = StaticPartitionInfo(runtime, config.brokers, self.link_to)
        else:
            registry = registry_of(runtime, config)
            self.info = ZooKeeperPartitionInfo(runtime, registry, self.link_to, self._on_brokers)

    def link_to(self, broker_id: int) -> BrokerLink:
        """The link to a broker, created if needed; raises if the broker is not known."""
        node = self.info.brokers.get(broker_id)
        if node is None:
            raise InvalidMetadataError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {broker_id}"
            )
        link = self._links.get(broker_id)
        if link is None or link.node[:3] != node[:3]:
            self._drop(broker_id)
            link = self._links[broker_id] = BrokerLink(self.runtime, node, self._settings)
        return link

    async def send(self, sets: MessageSets) -> None:
        """Send to the leaders; raises an error that remains after num.retries."""
        pending = sets
        for attempt in range(self.config.num_retries + 1):
            if attempt:
                await pause(self.runtime.scheduler, self.config.retry_backoff_ms)
            outcome = await self._send_once(pending, is_retry=attempt > 0)
            failures = [error for error in outcome.values() if error is not None]
            pending = {p: m for p, m in pending.items() if outcome.get(p) is not None}
            if not failures:
                return
            if not any(error.retriable for error in failures):
                break
        raise failures[0]

    async def close(self) -> None:
        await self.info.close()
        for broker_id in list(self._links):
            self._drop(broker_id)

    async def _send_once(self, sets: MessageSets, *, is_retry: bool) -> Outcome:
        outcome: Outcome = {}
        by_leader: dict[int, MessageSets] = {}
        for topic in {partition.topic for partition in sets}:
            if is_retry or topic not in self.info.known:
                try:
                    await self.info.learn(topic)
                except KafkaError as error:
                    outcome.update((p, error) for p in sets if p.topic == topic)
        for partition, messages in sets.items():
            leader = self._leader(partition)
            if partition in outcome:
                continue
            if leader == NO_LEADER:
                outcome[partition] = no_leader(partition)
            else:
                by_leader.setdefault(leader, {})[partition] = messages
        answers = await asyncio.gather(*(self._produce(*part) for part in by_leader.items()))
        for answer in answers:
            outcome.update(answer)
        return outcome

    async def _produce(self, leader: int, sets: MessageSets) -> Outcome:
        try:
            now_ms = self.runtime.clock.now_ms
            return await produce(self.link_to(leader), sets, self.packing, now_ms)
        except KafkaError as error:
            return dict.fromkeys(sets, error)

    def _leader(self, partition: TopicPartition) -> int:
        for entry in self.info.known.get(partition.topic, ()):
            if entry.partition == partition.partition:
                return entry.leader
        return NO_LEADER

    def _on_brokers(self, brokers: Mapping[int, Node]) -> None:
        """Keep a link to each live broker, and to no other."""
        for broker_id in self._links.keys() - brokers.keys():
            self._drop(broker_id)
        for broker_id in brokers:
            self.link_to(broker_id)

    def _drop(self, broker_id: int) -> None:
        link = self._links.pop(broker_id, None)
        if link is not None:
            link.close()


def no_leader(partition: TopicPartition) -> KafkaError:
    return InvalidMetadataError(
        ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition} has no leader that can be used"
    )


class ProducerPool:
    """Sends messages to the leaders of their partitions, from any thread but the loop's own."""

    def __init__(self, io: IoThread, core: PoolCore) -> None:
        self._io = io
        self._core = core

    def send(
        self, topic: str, messages: Sequence[Message], partition: int = RANDOM_PARTITION
    ) -> None:
        """Send messages to one partition."""
        self.multi_send([ProducerRequest(topic, partition, messages)])

    def multi_send(self, requests: Sequence[ProducerRequest]) -> None:
        """Send messages to several partitions at once."""
        for sets in self._core.packing.message_sets(requests, self.any_partition):
            self._io.run(self._core.send(sets))

    def partitions(self, topic: str) -> Sequence[tuple[int, int, int]]:
        """The partitions of a topic, as (broker it belongs to, number, leader)."""
        known = self._core.info.known.get(topic)
        if known is None:
            self._io.run(self._core.info.learn(topic))
            known = self._core.info.known.get(topic, ())
        return known

    def any_partition(self, topic: str) -> int:
        """A random partition of those that have a leader."""
        led = [entry for entry in self.partitions(topic) if entry[2] != NO_LEADER]
        if not led:
            raise no_leader(TopicPartition(topic, RANDOM_PARTITION))
        broker_id = self._io.runtime.random.choice(sorted({entry[0] for entry in led}))
        mine = [entry[1] for entry in led if entry[0] == broker_id]
        return self._io.runtime.random.choice(mine)
