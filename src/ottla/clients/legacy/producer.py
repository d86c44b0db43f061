"""`Producer` of the 0.7 design, which sends directly (sync) or through a queue (async).

Its pool has one connection for each broker, and a route from each partition to its leader. A
producer learns from ZooKeeper, or from its settings, which partitions it may choose from.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, cast

from ottla.clients.answers import only
from ottla.clients.client_settings import ClosedOnExit
from ottla.clients.legacy.broker_clients import (
    Link,
    LinkSettings,
    MessageSets,
    Outcome,
    Packing,
    ProducerRequest,
    new_link,
    produce,
)
from ottla.clients.legacy.cluster_nodes import (
    BrokerPartition,
    ClusterNodes,
    PlacedPartition,
    cluster_nodes,
    registry_of,
)
from ottla.clients.legacy.first_design_link import FirstDesignLink
from ottla.clients.legacy.message import (
    DefaultEncoder,
    DefaultPartitioner,
    Encoder,
    Message,
    Partitioner,
)
from ottla.clients.network_client import check_code
from ottla.config.legacy_config import LegacyProducerConfig
from ottla.errors import ErrorCode, InvalidMetadataError, KafkaError
from ottla.protocol.first_design import RANDOM_PARTITION
from ottla.record.compression import CompressionType
from ottla.registry import paths
from ottla.registry.tree import SessionState, Watch
from ottla.runtime import Runtime, Timer
from ottla.runtime.io_thread import Condition, IoThread
from ottla.runtime.scheduler import pause
from ottla.structs import NO_LEADER, NamedTuple, Node, TopicPartition

logger = logging.getLogger(__name__)

CREATION_PAUSE_MS = 50
CREATION_ATTEMPTS = 100


class Producer(ClosedOnExit):
    """Sends data to partitions, directly (producer.type=sync) or through a queue (async).

        with Producer({"zk.connect": "localhost:2181", "serializer.class": StringEncoder}) as p:
            p.send(ProducerData("pages", "user-7", ["/index.html", "/about.html"]))

    Any thread may use it. Leaving the block, or `close`, sends the queued messages.
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
        """Send the queued messages and close the connections. Closing twice does nothing."""
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


LinkTo = Callable[[int], Link]


class ZooKeeperPartitionInfo:
    """Reads brokers and topics in ZooKeeper, and watches their changes.

    These are brokers that come and go, and topics that are created, deleted, or get partitions.
    """

    def __init__(
        self,
        runtime: Runtime,
        nodes: ClusterNodes,
        link_to: LinkTo,
        on_brokers: Callable[[Mapping[int, Node]], object],
    ) -> None:
        self.known: Mapping[str, tuple[BrokerPartition, ...]] = {}
        self.brokers: Mapping[int, Node] = {}
        self._runtime = runtime
        self._nodes = nodes
        self._registry = nodes.registry
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
        link = self._link_to(broker_id)
        if isinstance(link, FirstDesignLink):
            return  # there the first message makes it
        response = await link.metadata(topic)
        answer = only(response.topics, f"topic {topic}")
        error = ErrorCode.of(answer.error_code)
        if error not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            raise KafkaError.of(error, f"topic {topic}: {error.sentence}")

    async def _read(self, topic: str) -> bool:
        """Take over ZooKeeper's nodes of a topic; returns whether messages can be sent to it."""
        if topic not in self._topic_watches:
            refresh = partial(self._refresh_topic_soon, topic)
            self._topic_watches[topic] = self._nodes.watch_topic(topic, refresh)
        found = await self._nodes.placed(topic, self.brokers)
        known = {name: entry for name, entry in self.known.items() if name != topic}
        if found:
            known[topic] = tuple(found)
        self.known = known
        return any(entry.leader != NO_LEADER for entry in found)

    async def _update_brokers(self) -> None:
        self.brokers = await self._nodes.live_brokers()
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
        if isinstance(self._link_to(order[0]), FirstDesignLink):
            # There a broker cannot be asked for its partitions: it chooses one of its partitions.
            anywhere = [BrokerPartition(each, PlacedPartition.of(each, -1), each) for each in order]
            self.known = {**self.known, topic: tuple(anywhere)}
            return
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
        link = self._link_to(broker_id)
        assert not isinstance(link, FirstDesignLink), "all brokers are of one version"
        response = await link.metadata(topic)
        answer = only(response.topics, f"topic {topic}")
        check_code(answer.error_code, f"topic {topic}")
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
        self._links: dict[int, Link] = {}
        self.info: BrokerPartitionInfo
        if config.zk_connect is None:
            self.info = StaticPartitionInfo(runtime, config.brokers, self.link_to)
        else:
            nodes = cluster_nodes(registry_of(runtime, config), config.broker_version)
            self.info = ZooKeeperPartitionInfo(runtime, nodes, self.link_to, self._on_brokers)

    def link_to(self, broker_id: int) -> Link:
        """The link to a broker, created if needed; raises if the broker is not known."""
        node = self.info.brokers.get(broker_id)
        if node is None:
            raise InvalidMetadataError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {broker_id}"
            )
        link = self._links.get(broker_id)
        if link is None or link.node[:3] != node[:3]:
            self._drop(broker_id)
            version = self.config.broker_version
            link = self._links[broker_id] = new_link(self.runtime, node, self._settings, version)
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


class QueueItem(NamedTuple):
    """One piece of data in the queue of an async producer, with its partition."""

    data: Any
    topic: str
    partition: int


class EventHandler(Protocol):
    """Serialises a batch of events and sends it; an error that it raises fails the batch."""

    def handle(
        self, events: Sequence[QueueItem], producer: ProducerPool, encoder: Encoder
    ) -> None: ...

    def close(self) -> None: ...


class DefaultEventHandler:
    """Encodes the events, puts those of each partition together, and sends all at once."""

    def handle(self, events: Sequence[QueueItem], producer: ProducerPool, encoder: Encoder) -> None:
        messages: dict[TopicPartition, list[Message]] = {}
        for data, topic, partition in events:
            queue = messages.setdefault(TopicPartition(topic, partition), [])
            queue.append(encoder.to_message(data))
        if messages:
            producer.multi_send(
                [ProducerRequest(*partition, queue) for partition, queue in messages.items()]
            )

    def close(self) -> None:
        """There is nothing to close."""


class CallbackHandler:
    """Sees the data in the queue of an async producer, and may change it. This one does nothing.

    `before_enqueue` and `after_enqueue` run in the threads that call `send`, the others in the
    producer's thread.
    """

    def before_enqueue(self, item: QueueItem) -> QueueItem:
        """Return the item to queue in place of `item`."""
        return item

    def after_enqueue(self, item: QueueItem, added: bool) -> None:
        """The item is in the queue, or there was no room for it."""

    def after_dequeuing_existing_data(self, item: QueueItem | None) -> Sequence[QueueItem]:
        """Return the items for the batch in place of one that has left the queue.

        `item` is None when queue.time has passed: then items that were held back may be returned.
        """
        return () if item is None else (item,)

    def before_sending_data(self, items: Sequence[QueueItem]) -> Sequence[QueueItem]:
        """Return the items to send in place of a complete batch."""
        return items

    def last_batch_before_close(self) -> Sequence[QueueItem]:
        """Return the items that must still be sent, as the producer is being closed."""
        return ()

    def close(self) -> None:
        """The last batch has been sent."""


class QueueFullError(KafkaError):
    """There is no room in the queue of an async producer: the event was not taken."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.OPERATION_NOT_ATTEMPTED, message)


class QueueClosedError(KafkaError):
    """The async producer is closed: the event was not taken."""

    def __init__(self, message: str = "the queue of the producer is closed") -> None:
        super().__init__(ErrorCode.OPERATION_NOT_ATTEMPTED, message)


Handle = Callable[[Sequence[QueueItem]], None]


class AsyncProducer:
    """Queues events; a batch is handled when batch.size is reached or queue.time has passed.

    Events are handled in the order of the queue, by one thread. Events that cannot be sent are
    logged and lost: `send` has already returned by then.
    """

    def __init__(
        self, config: LegacyProducerConfig, handle: Handle, callbacks: CallbackHandler
    ) -> None:
        self.failed_count = 0
        self._config = config
        self._handle = handle
        self._callbacks = callbacks
        self._queue: deque[QueueItem] = deque()
        self._batch: list[QueueItem] = []
        self._has_room = Condition()
        self._is_closed = False
        self._is_woken = False
        self._thread = IoThread("ProducerSendThread")
        self._timer: Timer | None = None
        self._thread.post(self._arm)

    def send(self, item: QueueItem) -> None:
        """Queue an event; QueueFullError without room within queue.enqueueTimeout.ms (-1: wait)."""
        item = self._callbacks.before_enqueue(item)
        added = False
        try:
            added = self._enqueue(item)
        finally:
            self._callbacks.after_enqueue(item, added)
        if not added:
            raise QueueFullError(
                f"the queue holds {self._config.queue_size} events (queue.size) and had no room "
                f"within queue.enqueueTimeout.ms={self._config.queue_enqueueTimeout_ms}"
            )

    def close(self) -> None:
        """Take no more events, and handle those that are queued."""
        with self._has_room:
            if self._is_closed:
                return
            self._is_closed = True
            self._has_room.notify_all()
        self._thread.run(self._finish())
        self._thread.close()

    def _enqueue(self, item: QueueItem) -> bool:
        timeout_ms = self._config.queue_enqueueTimeout_ms
        limit_s = None if timeout_ms < 0 else timeout_ms / 1000
        with self._has_room:
            if not self._has_room.wait_for(self._may_enqueue, limit_s):
                return False
            if self._is_closed:
                raise QueueClosedError
            self._queue.append(item)
            must_wake = not self._is_woken and len(self._queue) >= self._config.batch_size
            self._is_woken |= must_wake
        if must_wake:
            self._thread.post(self._drain)
        return True

    def _may_enqueue(self) -> bool:
        return self._is_closed or len(self._queue) < self._config.queue_size

    # In the I/O thread, which sends

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        scheduler = self._thread.runtime.scheduler
        self._timer = scheduler.call_later(self._config.queue_time, self._on_queue_time)

    def _on_queue_time(self) -> None:
        """queue.time has passed: send the events that are queued, however few."""
        self._collect()
        self._batch += self._callbacks.after_dequeuing_existing_data(None)
        self._flush()
        self._arm()

    def _drain(self) -> None:
        """Send all full batches; the rest waits for more events, or for queue.time."""
        with self._has_room:
            self._is_woken = False
        self._collect()
        if not self._batch:
            self._arm()

    async def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._collect()
        self._batch += self._callbacks.last_batch_before_close()
        self._flush()
        self._callbacks.close()

    def _collect(self) -> None:
        """Take events from the queue until it is empty, sending each batch that is full."""
        while (item := self._take()) is not None:
            self._batch += self._callbacks.after_dequeuing_existing_data(item)
            if len(self._batch) >= self._config.batch_size:
                self._flush()

    def _take(self) -> QueueItem | None:
        with self._has_room:
            if not self._queue:
                return None
            item = self._queue.popleft()
            self._has_room.notify()
            return item

    def _flush(self) -> None:
        batch, self._batch = self._batch, []
        if not batch:
            return
        try:
            events = self._callbacks.before_sending_data(batch)
            if events:
                self._handle(events)
        except Exception:  # the application's handler may raise anything
            self.failed_count += len(batch)
            logger.exception("%d events could not be sent and are lost", len(batch))


CLOSE_LIMIT_MS: Final = 30_000


class ProducerData(NamedTuple):
    """Data for one partition of a topic; the key chooses the partition for all of them.

    The key is not sent. Without a key the partition is chosen at random.
    """

    topic: str
    key: Any
    data: Sequence[Any]


def _each(producer_data: Iterable[ProducerData | Sequence[ProducerData]]) -> Iterator[ProducerData]:
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
