"""`Producer` of the 0.7 design, which sends directly (sync) or through a queue (async)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from ottla.clients.client_settings import ClosedOnExit
from ottla.clients.legacy.async_producer import AsyncProducer
from ottla.clients.legacy.event_handler import (
    CallbackHandler,
    DefaultEventHandler,
    EventHandler,
    QueueItem,
)
from ottla.clients.legacy.message import DefaultEncoder, DefaultPartitioner, Encoder, Partitioner
from ottla.clients.legacy.producer_pool import PoolCore, ProducerPool
from ottla.config.legacy_config import LegacyProducerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.runtime.io_thread import IoThread

CLOSE_LIMIT_MS: Final = 30_000


class ProducerData(NamedTuple):
    """Data for one partition of a topic; the key chooses the partition for all of them.

    The key is not sent. Without a key the partition is chosen at random.
    """

    topic: str
    key: Any
    data: Sequence[Any]


class Producer(ClosedOnExit):
    """Sends data to partitions, directly (producer.type=sync) or through a queue (async).

        with Producer({"zk.connect": "localhost:2181", "serializer.class": StringEncoder}) as p:
            p.send(ProducerData("pages", "user-7", ["/index.html", "/about.html"]))

    Any thread may use it. Leaving the block, or `close`, sends what is queued.
    """

    def __init__(self, config: LegacyProducerConfig | Mapping[str, Any]) -> None:
        if not isinstance(config, LegacyProducerConfig):
            config = LegacyProducerConfig.parse(config)
        self._config = config
        self._encoder = cast(Encoder, made(config.serializer_class, DefaultEncoder))
        self._partitioner = cast(Partitioner, made(config.partitioner_class, DefaultPartitioner))
        self._handler = cast(EventHandler, made(config.event_handler, DefaultEventHandler))
        callbacks = cast(CallbackHandler, made(config.callback_handler, CallbackHandler))
        self._is_closed = False
        self._io = IoThread(f"{config.client_id}-producer")
        self._core = self._io.begin_with(self._build())
        self._pool = ProducerPool(self._io, self._core)
        self._queue: AsyncProducer | None = None
        if config.producer_type == "async":
            self._queue = AsyncProducer(config, self._handle, callbacks)

    def send(self, *producer_data: ProducerData | Sequence[ProducerData]) -> None:
        """Send data of one or several topics, as separate arguments or as a list.

        A sync producer returns when the brokers have all of it, and raises their errors; an async
        one returns when it is queued, and raises QueueFullError if there is no room.
        """
        if self._is_closed:
            raise RuntimeError("the producer is closed")
        items = [
            QueueItem(data, entry.topic, partition)
            for entry in _each(producer_data)
            for partition in (self._partition(entry.topic, entry.key),)
            for data in entry.data
        ]
        if self._queue is None:
            self._handle(items)
            return
        for item in items:
            self._queue.send(item)

    @property
    def failed_count(self) -> int:
        """The number of queued events that an async producer could not send."""
        return 0 if self._queue is None else self._queue.failed_count

    def close(self) -> None:
        """Send what is queued and close the connections. Closing twice does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._queue is not None:
                self._queue.close()
            self._handler.close()
            if self._io.is_alive:
                self._io.run(self._core.close(), CLOSE_LIMIT_MS)
        finally:
            self._io.close()

    async def _build(self) -> PoolCore:
        core = PoolCore(self._io.runtime, self._config)
        await core.info.start()
        return core

    def _handle(self, items: Sequence[QueueItem]) -> None:
        self._handler.handle(items, self._pool, self._encoder)

    def _partition(self, topic: str, key: Any) -> int:
        """The partition for a key: the partitioner's result is an index into the sorted list."""
        if key is None or self._config.zk_connect is None:
            return self._pool.any_partition(topic)
        partitions = self._pool.partitions(topic)
        place = self._partitioner.partition(key, len(partitions))
        if not 0 <= place < len(partitions):
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"the partitioner gave {place} for key {key!r}; topic {topic} has "
                f"{len(partitions)} partitions",
            )
        return partitions[place][1]


def _each(
    producer_data: Iterable[ProducerData | Sequence[ProducerData]],
) -> Iterator[ProducerData]:
    for entry in producer_data:
        if isinstance(entry, ProducerData):
            yield entry
        elif isinstance(entry, list | tuple):
            yield from _each(entry)
        else:
            raise TypeError(f"{entry!r} is a {type(entry).__name__}: it must be ProducerData")


def made(setting: Any, default: type) -> Any:
    """The object of a setting: an instance if it is a class, of `default` if it is not set."""
    chosen = default if setting is None else setting
    return chosen() if isinstance(chosen, type) else chosen
