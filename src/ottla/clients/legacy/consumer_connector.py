"""`ConsumerConnector`: the high-level consumer of the 0.7 design; its group is in ZooKeeper."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Any, Final

from ottla.clients.client_settings import ClosedOnExit
from ottla.clients.legacy.group_nodes import (
    ConsumerNodes,
    ConsumerThreadId,
    TopicFilter,
    registry_of,
)
from ottla.clients.legacy.kafka_stream import KafkaStream
from ottla.clients.legacy.message import Decoder, DefaultDecoder
from ottla.clients.legacy.rebalancer import RebalanceLimits, ZooKeeperRebalancer
from ottla.clients.legacy.stream_fetcher import StreamFetcher, StreamOf
from ottla.config.legacy_config import ZooKeeperConsumerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.registry.znodes import STATIC, ConsumerRegistration
from ottla.runtime import Runtime, Timer
from ottla.runtime.io_thread import IoThread, Lock
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


CLOSE_LIMIT_MS: Final = 30_000

ConfigLike = ZooKeeperConsumerConfig | Mapping[str, Any]


class Consumer:
    """Makes connectors, as `kafka.consumer.Consumer` does."""

    @staticmethod
    def create(config: ConfigLike) -> ConsumerConnector:
        return ConsumerConnector(config)


class ConsumerConnector(ClosedOnExit):
    """A consumer of a group that divides partitions through ZooKeeper.

        with Consumer.create({"zk.connect": "localhost:2181", "groupid": "mail"}) as connector:
            (stream,) = connector.create_message_streams({"pages": 1})["pages"]
            for message in stream:
                ...

    Each stream is for one thread, and each partition feeds one stream. Offsets are kept in
    ZooKeeper. The connector itself may be used by any thread.
    """

    def __init__(self, config: ConfigLike) -> None:
        if not isinstance(config, ZooKeeperConsumerConfig):
            config = ZooKeeperConsumerConfig.parse(config)
        self._config = config
        self._streams: list[KafkaStream] = []
        self._has_streams = False
        self._is_shut_down = False
        self._lock = Lock()
        self._io = IoThread(f"{config.groupid}-connector")
        self._core = self._io.begin_with(self._build())

    @property
    def consumer_id(self) -> str:
        """Its name in the group."""
        return self._core.consumer

    def create_message_streams(
        self, topic_count_map: Mapping[str, int], decoder: Decoder | None = None
    ) -> dict[str, list[KafkaStream]]:
        """Create the given number of streams for each topic; may be called only once.

        Returns when the partitions are taken; raises ConsumerRebalanceFailedError if other
        consumers do not release them.
        """
        for topic, count in topic_count_map.items():
            _require_streams(topic, count)
        self._begin()
        streams = {
            topic: [self._stream(f"{topic}-{number}", decoder) for number in range(count)]
            for topic, count in topic_count_map.items()
        }
        self._join(dict(topic_count_map), STATIC, lambda topic, number: streams[topic][number])
        return streams

    def create_message_streams_by_filter(
        self, topic_filter: TopicFilter, num_streams: int = 1, decoder: Decoder | None = None
    ) -> list[KafkaStream]:
        """Create streams for all present and future topics that pass the filter."""
        _require_streams(repr(topic_filter), num_streams)
        self._begin()
        streams = [self._stream(f"{topic_filter}-{n}", decoder) for n in range(num_streams)]
        subscription = {topic_filter.regex: num_streams}
        self._join(subscription, topic_filter.pattern, lambda _, number: streams[number])
        return streams

    def commit_offsets(self) -> None:
        """Write to ZooKeeper how far the streams have been read."""
        self._require_open()
        self._io.run(self._core.commit())

    def shutdown(self) -> None:
        """Release the partitions, leave the group, and end the streams. Twice does nothing."""
        with self._lock:
            if self._is_shut_down:
                return
            self._is_shut_down = True
        try:
            if self._io.is_alive:
                self._io.run(self._core.close(), CLOSE_LIMIT_MS)
        finally:
            self._io.close()
            for stream in self._streams:
                stream.close()

    def close(self) -> None:
        """The same as `shutdown`."""
        self.shutdown()

    async def _build(self) -> ConnectorCore:
        core = ConnectorCore(self._io.runtime, self._config)
        await core.open()
        return core

    def _begin(self) -> None:
        self._require_open()
        with self._lock:
            if self._has_streams:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "a connector can create message streams only once"
                )
            self._has_streams = True

    def _stream(self, name: str, decoder: Decoder | None) -> KafkaStream:
        stream = KafkaStream(
            name,
            decoder or DefaultDecoder(),
            self._config.consumer_timeout_ms,
            self._config.queuedchunks_max,
            lambda stream: self._io.post(self._core.on_room, stream),
        )
        self._streams.append(stream)
        return stream

    def _join(self, subscription: Mapping[str, int], pattern: str, stream_of: Any) -> None:
        try:
            self._io.run(self._core.join(subscription, pattern, stream_of))
        except BaseException:
            self.shutdown()
            raise

    def _require_open(self) -> None:
        if self._is_shut_down:
            raise RuntimeError("the connector is shut down")


def _require_streams(what: str, count: int) -> None:
    if count < 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what}: {count} streams are too few")
