"""One connection for each broker, and routing from a partition to its leader."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from ottla.clients.legacy.broker_link import BrokerLink, LinkSettings
from ottla.clients.legacy.group_nodes import registry_of
from ottla.clients.legacy.message import Message
from ottla.clients.legacy.partition_info import (
    BrokerPartitionInfo,
    StaticPartitionInfo,
    ZooKeeperPartitionInfo,
)
from ottla.clients.legacy.produce import (
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
from ottla.runtime import Runtime
from ottla.runtime.io_thread import IoThread
from ottla.runtime.scheduler import pause
from ottla.structs import NO_LEADER, Node, TopicPartition


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
