"""The brokers of `InProcessBroker` in their thread: how they start, stop, and are cut off."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import ContextDecorator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from ottla.clients.consumer.completed_fetch import AbortedTransactions
from ottla.config.broker_config import BrokerConfig
from ottla.controller.requested_topic import RequestedTopic
from ottla.errors import KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.consumer_protocol import decode_assignment
from ottla.record.consumer_record import ConsumerRecord, TimestampType
from ottla.record.memory_records import batches
from ottla.registry.session_tree import SessionTree, TreeRegistry
from ottla.runtime import (
    BACKGROUND_WORKERS,
    DiskLock,
    File,
    LocalDisk,
    LoopScheduler,
    Runtime,
    SocketNetwork,
    SystemClock,
    ThreadBackground,
)
from ottla.runtime.io_thread import Lock
from ottla.runtime.scheduler import at_once
from ottla.server.broker import Broker
from ottla.structs import BROKER_DEFAULT, INTERNAL_TOPICS, TopicPartition
from ottla.testing.faults import Faults
from ottla.testing.runtime import MockBackground
from ottla.testing.waiting import LIMIT_S, wait_until_async

if TYPE_CHECKING:
    from ottla.network.request_context import RequestContext
    from ottla.protocol.consumer_group import DescribedConsumerGroup
    from ottla.protocol.group import DescribedGroup
    from ottla.replication.partition import Partition
    from ottla.server.api import Answer, Handler
    from ottla.testing.memory_disk import MemoryDisk

logger = logging.getLogger(__name__)
T = TypeVar("T")
READ_BYTES: Final = 1 << 20


class LiveBrokers(ABC):
    """Brokers in the process of a test: the calls of the test, and its waits.

    All calls are for threads of the test, and block them: from a coroutine of the test use
    `asyncio.to_thread`. A wait gives up after `limit` seconds with a NeverHappenedError, which
    names the condition and the last state.
    """

    def __init__(self) -> None:
        self.faults = Faults()
        """The fates of the next requests; they stay over restarts."""

    @abstractmethod
    def _brokers(self) -> list[Broker]:
        """The brokers that serve; RuntimeError if there is none."""

    @abstractmethod
    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop of the brokers, and return its result."""

    # Topics

    def create_topic(
        self,
        name: str,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        **config: str | int,
    ) -> None:
        """Create a topic, with settings as `cleanup_policy="compact"`; returns when it serves.

        KafkaError TOPIC_ALREADY_EXISTS where there is one of the name.
        """
        settings = {key: str(value) for key, value in dotted(config).items()}
        topic = RequestedTopic(name, partitions, replication_factor, config=settings)
        self.run(self._create_topic(topic))

    async def _create_topic(self, topic: RequestedTopic) -> None:
        controller = await wait_until_async(
            lambda: next(
                (each.controller for each in self._brokers() if is_controller(each)), None
            ),
            "a controller",
        )
        created = (await controller.create_topics([topic]))[topic.name]
        if isinstance(created, KafkaError):
            raise created
        await wait_until_async(
            lambda: len(self._leaders(topic.name)) == created.num_partitions,
            f"leaders of {created.num_partitions} partitions of {topic.name}",
            seen=lambda: sorted(self._leaders(topic.name)),
        )

    def topics(self) -> list[str]:
        """The names of all topics but the internal ones, sorted."""

        async def names() -> list[str]:
            known = {topic.name for each in self._brokers() for topic in each.cache.topics()}
            return sorted(known - INTERNAL_TOPICS)

        return self.run(names())

    def wait_until_in_sync(
        self, topic: str, replicas: int | None = None, limit: float = LIMIT_S
    ) -> None:
        """Wait until all replicas of each partition, or just so many, are in sync."""

        def in_sync() -> dict[int, tuple[int, ...]]:
            return {
                index: leader.leadership.in_sync.committed
                for index, leader in sorted(self._leaders(topic).items())
                if leader.leadership is not None
            }

        def is_in_sync() -> bool:
            leaders = self._leaders(topic)
            wanted = {index: replicas or len(each.replicas) for index, each in leaders.items()}
            found = in_sync()
            return len(found) == self._partition_count(topic) > 0 and all(
                len(isr) == wanted[index] for index, isr in found.items()
            )

        what = f"{replicas or 'all'} replicas of {topic} in sync"
        self.run(wait_until_async(is_in_sync, what, limit, seen=in_sync))

    # Records

    def records(
        self,
        topic: str,
        partition: int | None = None,
        *,
        isolation_level: str = "read_uncommitted",
    ) -> list[ConsumerRecord]:
        """The records that a consumer would read of a topic from its beginning, by partition.

        A topic that does not exist has no records. Keys and values are bytes.
        """

        async def read() -> list[ConsumerRecord]:
            return self._records(topic, partition, isolation_level == "read_committed")

        if isolation_level not in ("read_uncommitted", "read_committed"):
            raise ValueError(
                f"isolation_level={isolation_level!r}: must be read_uncommitted or read_committed"
            )
        return self.run(read())

    def wait_for_records(
        self,
        topic: str,
        count: int,
        *,
        isolation_level: str = "read_uncommitted",
        limit: float = LIMIT_S,
    ) -> list[ConsumerRecord]:
        """Wait until a topic has so many records or more, and return them as `records` does."""
        is_committed = isolation_level == "read_committed"

        async def read() -> list[ConsumerRecord]:
            await wait_until_async(
                lambda: len(self._records(topic, None, is_committed)) >= count,
                f"{count} records in {topic}",
                limit,
                seen=lambda: f"{len(self._records(topic, None, is_committed))} records",
            )
            return self._records(topic, None, is_committed)

        return self.run(read())

    def _records(self, topic: str, partition: int | None, is_committed: bool) -> list[Any]:
        return [
            record
            for index, leader in sorted(self._leaders(topic).items())
            if partition in (None, index)
            for record in _records_of(leader, is_committed)
        ]

    # Groups

    def group(self, group_id: str) -> LiveGroup:
        """State and members of a group, classic or of the consumer protocol; else it is Dead."""

        async def describe() -> LiveGroup:
            return self._group(group_id)

        return self.run(describe())

    def wait_for_group(
        self,
        group_id: str,
        members: int | None = None,
        *,
        stable: bool = True,
        limit: float = LIMIT_S,
    ) -> LiveGroup:
        """Wait until a group has so many members; if `stable`, until each has its partitions.

        With `members=0` it waits until the group is empty. Returns the group as it is then.
        """

        def found() -> LiveGroup | None:
            group = self._group(group_id)
            if members is not None and len(group.members) != members:
                return None
            wanted = ("Stable",) if group.members or members is None else ("Empty", "Dead")
            return group if not stable or group.state in wanted else None

        stability = "stable " if stable else ""
        count = "with any members" if members is None else f"with {members} members"
        what = f"the {stability}group {group_id} {count}"
        return self.run(wait_until_async(found, what, limit, seen=lambda: self._group(group_id)))

    def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """The committed offsets of a group; those of open transactions do not count."""

        async def fetch() -> dict[TopicPartition, int]:
            return self._committed(group_id)

        return self.run(fetch())

    def wait_until_consumed(self, group_id: str, topic: str, limit: float = LIMIT_S) -> None:
        """Wait until a group has committed the end of each partition that has records."""

        def lags() -> dict[int, int]:
            committed = self._committed(group_id)
            return {
                index: leader.last_stable_offset - committed.get(leader.topic_partition, 0)
                for index, leader in sorted(self._leaders(topic).items())
            }

        def is_consumed() -> bool:
            return all(lag <= 0 for lag in lags().values())

        what = f"group {group_id} to commit the end of {topic}"
        self.run(
            wait_until_async(is_consumed, what, limit, seen=lambda: f"lag by partition: {lags()}")
        )

    def expel_member(self, group_id: str, member_id: str | None = None) -> str:
        """Take a member out of its group, as if its session had expired; returns its id.

        Without an id it is the one that has joined first. The others share its partitions; it
        learns of it with its next request, and may join again.
        """

        async def expel() -> str:
            coordinator = self._coordinator_of(group_id)
            found = None if coordinator is None else _expel(coordinator, group_id, member_id)
            if found is None:
                who = "no members" if member_id is None else f"no member {member_id}"
                raise ValueError(f"group {group_id} has {who}: {self._group(group_id)}")
            return found

        return self.run(expel())

    def _coordinator_of(self, group_id: str) -> Broker | None:
        for broker in self._brokers():
            if not broker.coordinators.groups.availability(group_id):
                return broker
        return None

    def _group(self, group_id: str) -> LiveGroup:
        broker = self._coordinator_of(group_id)
        if broker is not None:
            groups = broker.coordinators.groups
            (described,) = at_once(groups.describe_consumer_groups([group_id]))
            if not described.error_code:
                return _consumer_group(described)
            return _classic_group(*at_once(groups.describe_groups([group_id])))
        return LiveGroup("Dead", ())

    def _committed(self, group_id: str) -> dict[TopicPartition, int]:
        for broker in self._brokers():
            error, offsets = broker.coordinators.groups.fetch_offsets(group_id, None)
            if not error:
                return {
                    partition: value.offset
                    for partition, value in offsets.items()
                    if value is not None
                }
        return {}

    # Partitions

    def _leaders(self, topic: str) -> dict[int, Partition]:
        """The partitions of a topic that have a leader, at the leader."""
        return {
            each.topic_partition.partition: each
            for broker in self._brokers()
            for each in broker.replica_manager.partitions.values()
            if each.topic_partition.topic == topic and each.is_leader
        }

    def _partition_count(self, topic: str) -> int:
        found = (broker.cache.topic(topic) for broker in self._brokers())
        return max((len(each.partitions) for each in found if each is not None), default=0)


class LiveMember(NamedTuple):
    """A member of a group, and the partitions that it was assigned."""

    member_id: str
    client_id: str
    partitions: tuple[TopicPartition, ...]


class LiveGroup(NamedTuple):
    """A group as its coordinator has it; `state` is Kafka's name, such as Stable or Dead."""

    state: str
    members: tuple[LiveMember, ...]


class ProcessDisk(LocalDisk):
    """The machine's disk, which knows the files that one broker has opened, and can close them."""

    __slots__ = ("_files", "_is_ended", "_locks")

    def __init__(self) -> None:
        self._files: list[File] = []
        self._locks: list[DiskLock] = []
        self._is_ended = False

    def open(self, path: str, *, create: bool = False) -> File:
        self._check(path)
        file = super().open(path, create=create)
        self._files.append(file)
        return file

    def replace(self, path: str, data: bytes | bytearray | memoryview) -> None:
        self._check(path)
        super().replace(path, data)

    def rename(self, src: str, dst: str) -> None:
        self._check(src)
        super().rename(src, dst)

    def unlink(self, path: str) -> None:
        self._check(path)
        super().unlink(path)

    def lock(self, path: str) -> DiskLock:
        self._check(path)
        self._locks.append(super().lock(path))
        return self._locks[-1]

    def end_process(self) -> None:
        """Close all that was opened, as the kernel does; every later call fails."""
        self._is_ended = True
        for file in self._files:
            file.close()
        for lock in self._locks:
            lock.release()

    def _check(self, path: str) -> None:
        if self._is_ended:
            raise OSError(errno.EBADF, "the broker has been killed", path)


class BrokerLife:
    """One run of a broker, from its start to its end; used on its loop only."""

    def __init__(
        self,
        settings: Mapping[str, str | int],
        disk: MemoryDisk | None,
        faults: Faults,
        tree: SessionTree | None = None,
    ) -> None:
        """With a `tree` the broker is one of those that share it."""
        self.faults = faults
        config = BrokerConfig.parse(settings)
        loop, clock = asyncio.get_running_loop(), SystemClock()
        scheduler = LoopScheduler(loop, clock)
        self.disk: MemoryDisk | ProcessDisk = ProcessDisk() if disk is None else disk
        self.runtime = Runtime(
            clock=clock,
            scheduler=scheduler,
            background=ThreadBackground(loop, BACKGROUND_WORKERS)
            if disk is None
            else MockBackground(scheduler),  # memory is not waited for
            disk=self.disk,
            network=SocketNetwork(loop),
            random=random.Random(),
        )
        self.registry = None if tree is None else TreeRegistry(scheduler, tree)
        self.broker = Broker(config, self.runtime, registry=self.registry)
        self.broker.log_dir_failures.on_fatal = self._on_fatal
        self.preparing: asyncio.Task[None] | None = None
        """Creates the coordinators' topics."""
        self._end: asyncio.Future[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Serve clients; a start that fails is undone."""
        try:
            await self.broker.startup()
        except BaseException:
            await self.kill()
            raise
        self.faults.attach(self.broker)

    def prepare_coordinators(self) -> asyncio.Task[None] | None:
        """Begin to create the coordinators' topics, on the broker that is the controller.

        Else the first client that asks for a coordinator creates them, and has to ask again:
        librdkafka does so half a second later.
        """
        if self.preparing is None and self.broker.controller.is_active:
            self.preparing = self.runtime.scheduler.spawn(
                self._prepare_coordinators(), "create internal topics"
            )
        return self.preparing

    def prepare_when_asked(self) -> None:
        """Prepare the coordinators when the first client looks for one, which waits for that.

        It is a third of a start; many a test has neither groups nor transactions.
        """
        self.broker.apis.wrap(ApiKey.FIND_COORDINATOR, self._when_prepared)

    def _when_prepared(self, handler: Handler) -> Handler:
        async def wait(context: RequestContext, body: Any, preparing: asyncio.Task[None]) -> Any:
            await asyncio.wait([preparing])
            answer = handler(context, body)
            return await answer if isinstance(answer, Coroutine) else answer

        def handle(context: RequestContext, body: Any) -> Answer:
            preparing = self.prepare_coordinators()
            if preparing is None or preparing.done():
                return handler(context, body)
            return wait(context, body, preparing)

        return handle

    async def _prepare_coordinators(self) -> None:
        for topic in sorted(INTERNAL_TOPICS):
            try:
                await self.broker.controller.auto_create_topic(topic)
            except KafkaError as error:
                logger.info("%s is not created in advance: %s", topic, error)

    async def stop(self) -> None:
        """A clean stop, or the wait for the end of the one that is under way."""
        await self._end_once(self._stop)

    async def kill(self) -> None:
        """End it as `kill -9` does: nothing more is written, answered or handed over."""
        await self._end_once(self._kill)

    @property
    def is_over(self) -> bool:
        return self._end is not None

    async def _end_once(self, end: Callable[[], Awaitable[None]]) -> None:
        if self._end is None:
            self._end = asyncio.get_running_loop().create_future()
            self.faults.detach(self.broker)
            try:
                await end()
            finally:
                self._end.set_result(None)
        await self._end

    async def _stop(self) -> None:
        await self.broker.shutdown()
        self.disk.end_process()

    async def _kill(self) -> None:
        self.disk.end_process()
        broker = self.broker
        processor = getattr(broker, "processor", None)
        if processor is not None:
            await processor.stop(0)
        link = getattr(broker, "link", None)
        if link is not None:
            link.close()
        for extension in broker.extensions.values():
            await extension.close(is_killed=True)
        await self.runtime.close()
        if self.registry is not None:
            self.registry.end_session()

    def _on_fatal(self) -> None:
        """Every log directory has failed: the broker stops, as its process would."""
        # Not a task of the runtime, which the stop cancels.
        self._ending = asyncio.get_running_loop().create_task(self.stop(), name="stop for good")


class CollectorPause(ContextDecorator):
    """No garbage is collected while brokers start: the objects that they make then are none.

    Else each start takes a third longer, and one in a hundred waits while the collector looks
    through all modules of the process. Threads may start brokers at once: the last one ends it.
    """

    _lock: Final = Lock()
    _starts = 0
    _was_enabled = False

    def __enter__(self) -> None:
        with self._lock:
            if CollectorPause._starts == 0:
                CollectorPause._was_enabled = gc.isenabled()
                gc.disable()
            CollectorPause._starts += 1

    def __exit__(self, *_error: object) -> None:
        with self._lock:
            CollectorPause._starts -= 1
            if CollectorPause._starts == 0 and CollectorPause._was_enabled:
                gc.enable()


def collect_young() -> None:
    """Free a broker that has ended: its parts hold each other.

    It takes a third of a millisecond while they are young. Left to themselves they grow old, and
    one test in a hundred waits while the collector looks through all modules of the process.
    """
    if gc.isenabled():
        gc.collect(1)


def dotted(settings: Mapping[str, str | int]) -> dict[str, str | int]:
    """Names of settings as they are, for such as are Python's keywords; with dots they are."""
    return {
        name if "." in name else name.replace("_", "."): value for name, value in settings.items()
    }


def _expel(broker: Broker, group_id: str, member_id: str | None) -> str | None:
    """Take a member out of its group; returns its id, None if there is no such member."""
    groups, reason = broker.coordinators.groups, "a test has expelled it"
    classic = groups.manager.classic_group(group_id)
    modern = groups.manager.consumer_group(group_id)
    if classic is not None and classic.members:
        member = classic.members.get(member_id or next(iter(classic.members)))
        if member is not None:
            groups.rebalancer.remove_member(classic, member, reason)
            return member.member_id
    elif modern is not None and modern.members:
        one = modern.members.get(member_id or next(iter(modern.members)))
        if one is not None:
            groups.consumer_rebalancer.take_out(modern, [one], reason, lambda _: None)
            return one.member_id
    return None


def _consumer_group(described: DescribedConsumerGroup) -> LiveGroup:
    members = [
        LiveMember(
            member.member_id,
            member.client_id,
            tuple(
                TopicPartition(topic.topic_name, index)
                for topic in member.assignment.topic_partitions
                for index in topic.partitions
            ),
        )
        for member in described.members
    ]
    return LiveGroup(described.group_state, tuple(members))


def _classic_group(described: DescribedGroup) -> LiveGroup:
    """Assignments to members of other protocols than the consumers' are not known."""
    is_known = described.protocol_type == "consumer"
    members = [
        LiveMember(
            member.member_id,
            member.client_id,
            _assigned(member.member_assignment) if is_known and member.member_assignment else (),
        )
        for member in described.members
    ]
    return LiveGroup(described.group_state, tuple(members))


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    topics = decode_assignment(assignment).assigned_partitions
    return tuple(TopicPartition(each.topic, index) for each in topics for index in each.partitions)


def is_controller(broker: Broker) -> bool:
    """Whether the broker is the controller."""
    return broker.controller.is_active


def _records_of(partition: Partition, is_committed: bool) -> Iterator[ConsumerRecord]:
    """The records of a partition at its leader, as far as consumers may read."""
    log = partition.log
    end = log.last_stable_offset if is_committed else log.high_watermark
    offset = log.log_start_offset
    topic, index = partition.topic_partition
    while offset < end:
        data = log.read(offset, READ_BYTES, max_offset=end, min_one_message=True)
        if data.records is None:
            return
        found = log.aborted_transactions(data, end) if is_committed else []
        aborted = AbortedTransactions([(each.producer_id, each.first_offset) for each in found])
        before = offset
        for batch in batches(data.records.read()):
            is_hidden = aborted.hides(batch)
            time_kind = TimestampType(batch.is_log_append_time)
            epoch = batch.partition_leader_epoch
            if not batch.is_control and not is_hidden:
                for record in batch.records():
                    at, time_ms, key, value, headers = record
                    if at >= offset:
                        yield ConsumerRecord(
                            topic, index, at, time_ms, time_kind, key, value, headers, epoch
                        )
            offset = max(offset, batch.next_offset)
        if offset == before:
            return
