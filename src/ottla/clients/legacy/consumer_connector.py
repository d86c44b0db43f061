"""`ConsumerConnector`: the high-level consumer of the 0.7 design; its group is in ZooKeeper.

In a rebalance each consumer finds its own partitions, without a coordinator: all members of the
group compute the same owners from the same nodes. A consumer first releases the partitions that
are no longer its own, then takes the new ones; the owner nodes are ephemeral, and creating one that
exists fails, so that a partition never has two owners.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from enum import Enum
from functools import partial
from typing import Any, Final, Protocol

from ottla.clients.client_settings import ClosedOnExit
from ottla.clients.legacy.assignment import ConsumerThreadId, decide, subscribed_topics
from ottla.clients.legacy.cluster_nodes import names_below, registry_of
from ottla.clients.legacy.first_design_fetcher import FirstDesignFetcher
from ottla.clients.legacy.group_nodes import ConsumerNodes
from ottla.clients.legacy.kafka_stream import KafkaStream, StreamOf
from ottla.clients.legacy.message import Decoder, DefaultDecoder
from ottla.clients.legacy.stream_fetcher import StreamFetcher
from ottla.clients.legacy.topic_filter import TopicFilter
from ottla.config.legacy_config import ZooKeeperConsumerConfig, is_first_design
from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError
from ottla.registry import paths
from ottla.registry.tree import NodeExistsError, RegistryError, SessionState, Watch
from ottla.registry.znodes import STATIC, ConsumerRegistration
from ottla.runtime import Runtime, Timer
from ottla.runtime.host_name import canonical_host_name
from ottla.runtime.io_thread import IoThread, Lock
from ottla.runtime.scheduler import within
from ottla.structs import NamedTuple, Node, TopicPartition

logger = logging.getLogger(__name__)

SUSPENSION_SHARE: Final = 3
"""A silent server is noticed after 2/3 of the session timeout; this share (1/3) is left then."""


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


class ConsumerRebalanceFailedError(KafkaError):
    """A consumer could not take its partitions, in spite of all retries."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REBALANCE_IN_PROGRESS, message)


class RebalanceLimits(NamedTuple):
    """How often, and how long, a consumer waits for partitions that others have not released."""

    max_retries: int = 4
    backoff_ms: int = 2000
    session_timeout_ms: int = 6000
    exclude_internal_topics: bool = True


class RebalanceOutcome(Enum):
    """How a rebalance ended: done, partitions still owned by other consumers, or an error."""

    DONE = "done"
    TAKEN = "taken"
    FAILED = "failed"


class PartitionReceiver(Protocol):
    """Reads the owned partitions; it must return no records of any others."""

    async def release(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading these, and commit how far they were read."""
        ...

    def take(
        self,
        owners: Mapping[TopicPartition, ConsumerThreadId],
        offsets: Mapping[TopicPartition, int],
        brokers: Mapping[int, Node],
    ) -> None:
        """Read these as well, from their committed offsets if they have one."""
        ...

    def on_brokers(self, brokers: Mapping[int, Node]) -> None:
        """Take over the current brokers."""
        ...

    def drop_all(self) -> None:
        """Stop reading at once: other consumers may own these partitions by now."""
        ...


class ZooKeeperRebalancer:
    """Keeps one consumer in its group, and gives it the partitions that it owns.

    Invariant: `owned` are the partitions whose owner nodes this consumer has created in the current
    session, and the receiver reads no others.
    """

    def __init__(
        self,
        runtime: Runtime,
        nodes: ConsumerNodes,
        registration: ConsumerRegistration,
        receiver: PartitionReceiver,
        limits: RebalanceLimits,
    ) -> None:
        self.owned: dict[TopicPartition, ConsumerThreadId] = {}
        self._runtime = runtime
        self._nodes = nodes
        self._registry = nodes.registry
        self._registration = registration
        self._receiver = receiver
        self._limits = limits
        self._is_registered = False
        self._must_release_all = False
        self._session_changes = 0
        self._wanted = asyncio.Event()
        self._watches: list[Watch] = []
        self._topic_watches: dict[str, Watch] = {}
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Join the group and take partitions; may raise ConsumerRebalanceFailedError."""
        await self._register()
        registry = self._registry
        self._watches = [
            registry.watch_session(self._on_session),
            registry.watch_children(paths.consumer_ids(self._nodes.group), self.request),
            registry.watch_children(paths.BROKER_IDS, self.request),
        ]
        if self._registration.pattern != STATIC:
            self._watches.append(registry.watch_children(paths.TOPICS, self.request))
        self.request()
        name = f"rebalance of {self._nodes.consumer}"
        self._task = self._runtime.scheduler.spawn(self._run(), name)
        await asyncio.wait([self._first, self._task], return_when=asyncio.FIRST_COMPLETED)
        if self._first.done():
            self._first.result()
        else:
            self._task.result()  # raises: the task ends only with an error

    def request(self) -> None:
        """Ask for a rebalance: something has changed in the group or in the cluster."""
        self._wanted.set()

    async def close(self) -> None:
        """Release all partitions and leave the group."""
        for watch in [*self._watches, *self._topic_watches.values()]:
            watch.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        try:
            if self.owned:
                await self._release(list(self.owned))
            if self._is_registered:
                await self._nodes.leave()
        except KafkaError as error:
            logger.warning("%s could not leave its group: %s", self._nodes.consumer, error)

    # Rebalances

    async def _run(self) -> None:
        while True:
            await self._wanted.wait()
            failures = 0
            while (outcome := await self._try_to_rebalance()) is not RebalanceOutcome.DONE:
                failures += not await self._wait(outcome)
                if failures > self._limits.max_retries:
                    self._report_failure()
                    failures = 0
            if not self._first.done():
                self._first.set_result(None)

    def _report_failure(self) -> None:
        """Report to a waiting application; retries continue, as no other consumer takes over."""
        text = (
            f"{self._nodes.consumer} cannot take its partitions after "
            f"{self._limits.max_retries} retries"
        )
        if self._first.done():
            logger.error("%s; it goes on trying", text)
        else:
            self._first.set_exception(ConsumerRebalanceFailedError(text))

    async def _try_to_rebalance(self) -> RebalanceOutcome:
        self._wanted.clear()
        try:
            await self._rebalance()
        except NodeExistsError:
            return RebalanceOutcome.TAKEN
        except KafkaError as error:
            logger.info("%s could not rebalance: %s", self._nodes.consumer, error)
            return RebalanceOutcome.FAILED
        return RebalanceOutcome.DONE

    async def _rebalance(self) -> None:
        if not self._is_registered:
            await self._register()
        brokers = await self._nodes.cluster.live_brokers()
        self._receiver.on_brokers(brokers)
        mine = await self._find_own()
        lost = [p for p, thread in self.owned.items() if mine.get(p) != thread]
        if self._must_release_all:
            lost = list(self.owned)
        self._must_release_all = False
        if lost:
            await self._release(lost)
        new = {p: thread for p, thread in mine.items() if p not in self.owned}
        # Without a broker nothing can be read; the watch reports when there is one.
        if new and brokers:
            await self._take(new, brokers)

    async def _find_own(self) -> dict[TopicPartition, ConsumerThreadId]:
        """The partitions that this consumer should own, given the registrations and topics."""
        exclude_internal = self._limits.exclude_internal_topics
        topics: list[str] = []
        if self._registration.pattern != STATIC:
            topics = await names_below(self._registry, paths.TOPICS)
        subscribed = subscribed_topics(
            self._registration, topics, exclude_internal=exclude_internal
        )
        self._watch_topics(subscribed)
        replicas = await self._nodes.cluster.replicas_of(subscribed)
        registrations = await self._nodes.registrations()
        # Other consumers' filters are applied only to the topics that matter here.
        owners = decide(
            registrations, replicas, list(subscribed), exclude_internal=exclude_internal
        )
        me = self._nodes.consumer
        return {p: thread for p, thread in owners.items() if thread.consumer == me}

    def _watch_topics(self, topics: Collection[str]) -> None:
        """Watch for new topics and new partitions."""
        for topic in self._topic_watches.keys() - set(topics):
            self._topic_watches.pop(topic).cancel()
        for topic in set(topics) - self._topic_watches.keys():
            self._topic_watches[topic] = self._nodes.cluster.watch_topic(topic, self.request)

    async def _release(self, partitions: Collection[TopicPartition]) -> None:
        try:
            await self._receiver.release(partitions)
            gone = [partition for partition in partitions if partition in self.owned]
            await self._nodes.give_up(gone)
        except KafkaError:
            self._must_release_all = True  # they are no longer read, but may still be owned
            raise
        for partition in gone:
            self.owned.pop(partition, None)

    async def _take(
        self, new: Mapping[TopicPartition, ConsumerThreadId], brokers: Mapping[int, Node]
    ) -> None:
        await self._nodes.take({p: str(thread) for p, thread in new.items()})
        changes = self._session_changes
        self.owned.update(new)
        try:
            offsets = await self._nodes.offsets(new)
        except KafkaError:
            self._must_release_all = True  # they are owned, but not read
            raise
        if changes == self._session_changes:
            self._receiver.take(new, offsets, brokers)
        else:  # other consumers may own them by now; when a server answers it is found out
            self._must_release_all = True

    async def _register(self) -> None:
        """Join the group, waiting for the end of an earlier session with the same name."""
        limit_ms = self._limits.session_timeout_ms + self._limits.backoff_ms
        gone = asyncio.Event()
        path = paths.consumer_id(self._nodes.group, self._nodes.consumer)
        watch = self._registry.watch_data(path, gone.set)
        try:
            while True:
                gone.clear()
                try:
                    await self._nodes.register(self._registration)
                    self._is_registered = True
                    return
                except NodeExistsError:
                    what = f"there is another consumer {path}, and it did not leave"
                    await within(self._runtime.scheduler, limit_ms, gone.wait(), what)
        finally:
            watch.cancel()

    async def _wait(self, outcome: RebalanceOutcome) -> bool:
        """Wait for a limited time until a partition is released or the group changes."""
        released = asyncio.Event()
        watches: list[Watch] = []
        try:
            if outcome is RebalanceOutcome.TAKEN:
                await self._watch_owners(released, watches)
            pause_ms = self._limits.backoff_ms
            await within(self._runtime.scheduler, pause_ms, self._either(released), "")
        except KafkaTimeoutError:
            return False
        finally:
            for watch in watches:
                watch.cancel()
        return True

    async def _watch_owners(self, released: asyncio.Event, watches: list[Watch]) -> None:
        """Watch the owners of partitions to take; `released` is set if there are none already."""
        try:
            mine = await self._find_own()
            new = [partition for partition in mine if partition not in self.owned]
            for path in self._nodes.owner_paths(new):
                watches.append(self._registry.watch_data(path, released.set))
            if not await self._nodes.are_any_owned(new):
                released.set()
        except RegistryError as error:
            logger.info("%s cannot see who owns its partitions: %s", self._nodes.consumer, error)

    async def _either(self, changed: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in (changed, self._wanted)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    # The session

    def _on_session(self, state: SessionState) -> None:
        self._session_changes += 1
        if state is SessionState.SUSPENDED:
            end = partial(self._on_long_suspension, self._session_changes)
            self._runtime.scheduler.call_later(
                self._limits.session_timeout_ms // SUSPENSION_SHARE, end
            )
        elif state is SessionState.EXPIRED:
            self._is_registered = False
            self.owned.clear()
            self._receiver.drop_all()
        else:
            self.request()

    def _on_long_suspension(self, changes: int) -> None:
        """Stop reading: ZooKeeper was silent for so long that the session may have ended."""
        if changes == self._session_changes:
            self._must_release_all = True
            self._receiver.drop_all()


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
        self._nodes = ConsumerNodes(
            self.registry, config.groupid or "", self.consumer, config.broker_version
        )
        self._rebalancer: ZooKeeperRebalancer | None = None
        self._fetcher: StreamFetcher | FirstDesignFetcher | None = None
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
            await self._commit(self._fetcher.owned.consumed())

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
            kind = (
                FirstDesignFetcher if is_first_design(self.config.broker_version) else StreamFetcher
            )
            self._fetcher = kind(self.runtime, self.config, brokers, self._stream_of)
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
            commit = self._commit_or_log(self._fetcher.owned.consumed())
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


def _require_streams(what: str, count: int) -> None:
    if count < 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what}: {count} streams are too few")
