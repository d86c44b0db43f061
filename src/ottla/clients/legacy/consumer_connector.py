"""`ConsumerConnector`: the high-level consumer of the 0.7 design; its group is in ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.clients.client_settings import ClosedOnExit
from ottla.clients.legacy.connector_core import ConnectorCore
from ottla.clients.legacy.group_nodes import TopicFilter
from ottla.clients.legacy.kafka_stream import KafkaStream
from ottla.clients.legacy.message import Decoder, DefaultDecoder
from ottla.config.legacy_config import ZooKeeperConsumerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.registry.znodes import STATIC
from ottla.runtime.io_thread import IoThread, Lock

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
