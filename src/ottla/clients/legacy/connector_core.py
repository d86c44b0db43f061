"""The parts of a ConsumerConnector put together, on the loop that runs them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping

from ottla.clients.legacy.group_nodes import ConsumerNodes, ConsumerThreadId, registry_of
from ottla.clients.legacy.kafka_stream import KafkaStream
from ottla.clients.legacy.rebalancer import RebalanceLimits, ZooKeeperRebalancer
from ottla.clients.legacy.stream_fetcher import StreamFetcher, StreamOf
from ottla.config.legacy_config import ZooKeeperConsumerConfig
from ottla.errors import KafkaError
from ottla.registry.znodes import ConsumerRegistration
from ottla.runtime import Runtime, Timer
from ottla.runtime.network import canonical_host_name
from ottla.structs import Node, TopicPartition

logger = logging.getLogger(__name__)


def consumer_name(runtime: Runtime, config: ZooKeeperConsumerConfig) -> str:
    """`group_host-milliseconds-random`, or `group_consumerid`, as Kafka's consumers are named."""
    name = config.consumerid
    if name is None:
        chance = f"{runtime.random.getrandbits(32):08x}"
        name = f"{canonical_host_name()}-{runtime.clock.now_ms()}-{chance}"
    return f"{config.groupid}_{name}"


class ConnectorCore:
    """A connector without its synchronous API: created, used and closed on one loop.

    It is the PartitionReceiver of its rebalancer.
    """

    def __init__(self, runtime: Runtime, config: ZooKeeperConsumerConfig) -> None:
        self.runtime = runtime
        self.config = config
        self.consumer = consumer_name(runtime, config)
        self.registry = registry_of(runtime, config)
        self._nodes = ConsumerNodes(self.registry, config.groupid or "", self.consumer)
        self._rebalancer: ZooKeeperRebalancer | None = None
        self._fetcher: StreamFetcher | None = None
        self._stream_of: StreamOf | None = None
        self._committed: dict[TopicPartition, int] = {}
        self._committing = asyncio.Lock()
        self._timer: Timer | None = None

    async def open(self) -> None:
        await self.registry.start()

    async def join(
        self, subscription: Mapping[str, int], pattern: str, stream_of: StreamOf
    ) -> None:
        """Join the group and fill the streams; `stream_of` finds a topic's stream by number."""
        config = self.config
        self._stream_of = stream_of
        self._rebalancer = ZooKeeperRebalancer(
            self.runtime,
            self._nodes,
            ConsumerRegistration(subscription, pattern, self.runtime.clock.now_ms()),
            self,
            RebalanceLimits(
                config.rebalance_retries_max,
                config.rebalance_backoff_ms,
                config.zk_sessiontimeout_ms,
                config.exclude_internal_topics,
            ),
        )
        if config.autocommit_enable:
            self._timer = self.runtime.scheduler.call_every(
                config.autocommit_interval_ms, self._spawn_commit
            )
        await self._rebalancer.start()

    async def commit(self) -> None:
        """Write the consumed offsets that have changed."""
        if self._fetcher is not None:
            await self._commit(self._fetcher.consumed())

    async def close(self) -> None:
        """Leave the group, after a commit if autocommit is enabled."""
        if self._timer is not None:
            self._timer.cancel()
        if self._rebalancer is not None:
            await self._rebalancer.close()
        if self._fetcher is not None:
            self._fetcher.close()
        await self.registry.close()

    def on_room(self, stream: KafkaStream) -> None:
        if self._fetcher is not None:
            self._fetcher.on_room(stream)

    # For the rebalancer

    async def release(self, partitions: Collection[TopicPartition]) -> None:
        if self._fetcher is None:
            return
        offsets = self._fetcher.drop(partitions)
        if self.config.autocommit_enable:
            await self._commit_or_log(offsets)
        for partition in partitions:
            self._committed.pop(partition, None)

    def take(
        self,
        owners: Mapping[TopicPartition, ConsumerThreadId],
        offsets: Mapping[TopicPartition, int],
        brokers: Mapping[int, Node],
    ) -> None:
        if self._fetcher is None:
            assert self._stream_of is not None, "the rebalancer was made after the streams"
            self._fetcher = StreamFetcher(self.runtime, self.config, brokers, self._stream_of)
        self._committed.update(offsets)
        self._fetcher.take(owners, offsets)
        names = ", ".join(f"{partition} ({thread})" for partition, thread in owners.items())
        logger.info("%s has taken %s", self.consumer, names)

    def on_brokers(self, brokers: Mapping[int, Node]) -> None:
        if self._fetcher is not None:
            self._fetcher.on_brokers(brokers)

    def drop_all(self) -> None:
        logger.warning("%s has lost its session and with it its partitions", self.consumer)
        if self._fetcher is not None:
            self._fetcher.drop(list(self._fetcher.owned))
        self._committed.clear()

    # Commits

    def _spawn_commit(self) -> None:
        if self._fetcher is not None:
            commit = self._commit_or_log(self._fetcher.consumed())
            self.runtime.scheduler.spawn(commit, f"commit of {self.consumer}")

    async def _commit_or_log(self, offsets: Mapping[TopicPartition, int]) -> None:
        try:
            await self._commit(offsets)
        except KafkaError as error:
            logger.warning("%s could not commit its offsets: %s", self.consumer, error)

    async def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        async with self._committing:
            changed = {p: o for p, o in offsets.items() if self._committed.get(p) != o}
            await self._nodes.commit(changed)
            self._committed.update(changed)
