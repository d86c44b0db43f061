"""A fetcher copies partitions from one leader, in rounds, with one request at a time.

A round first asks where logs diverge, for the partitions where that is not known yet; then it
fetches all others in one long poll. A partition with an error is left out for a while, longer each
time, and does not delay the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final, cast

from ottla.config.broker_config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.log.leader_epoch_cache import EpochEntry
from ottla.network.node_connection import NodeConnection
from ottla.protocol.fetch import (
    FIRST_VERSION_WITH_FETCHED_EPOCH,
    FIRST_VERSION_WITH_REPLICA_STATE,
    LAST_VERSION_WITH_NAMES,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from ottla.replication.cluster_view import ClusterView
from ottla.replication.follower_partition import FollowerPartition, FollowerPhase, is_damage
from ottla.replication.follower_session import NAMED_AT_ONCE, Answer, FollowerSession, Wanted
from ottla.replication.leader_questions import LeaderQuestions
from ottla.runtime import Runtime, Timer
from ottla.structs import NO_UUID, Node, TopicPartition

if TYPE_CHECKING:
    from ottla.replication.replication_quota import ReplicationQuota

logger = logging.getLogger(__name__)


FIRST_BACKOFF_MS: Final = 20
TOUCH_ALL_MS: Final = 500
TURN_MS: Final = 20
FLUSH_CHECK_MS: Final = 1_000
"""How often to check: a log that was taken offline is no longer flushed, without a signal."""

OnProgress = Callable[[TopicPartition], object]


class Copied:
    """A fetch from one leader, and the size of its answer."""

    __slots__ = ("bytes", "requests")

    def __init__(self) -> None:
        self.bytes = self.requests = 0


class ReplicaFetcher:
    """The partitions that one coroutine copies from one broker."""

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        broker_id: int,
        leader: Node,
        cluster: ClusterView,
        quota: ReplicationQuota,
        on_progress: OnProgress,
    ) -> None:
        self.leader = leader
        self.copied = Copied()
        self.followers: dict[TopicPartition, FollowerPartition] = {}
        self._runtime = runtime
        self._config = config
        self._broker_id = broker_id
        self.cluster = cluster
        self._quota = quota
        self._on_progress = on_progress
        self._connection: NodeConnection = cluster.connect(leader)
        self._session = FollowerSession()
        self._unflushed: dict[TopicPartition, FollowerPartition] = {}
        # The partitions to ask for, and those whose request may have changed since the last round.
        self._wanted: Wanted = {}
        self._touched: dict[TopicPartition, None] = {}
        self._without_id: set[TopicPartition] = set()
        self._sitting_out: dict[tuple[int, str], list[TopicPartition]] = {}
        self._touch_all_at_ms = self._turn_began_ms = 0
        self._failure_count = 0
        self._is_closed = False
        self._news = asyncio.Event()
        self._flushed = asyncio.Event()
        self._task = runtime.scheduler.spawn(self._run(), f"fetch from broker {leader.id}")

    def add(self, follower: FollowerPartition) -> None:
        """Copy a partition, from the next round on."""
        self.followers[follower.topic_partition] = follower
        self._unflushed[follower.topic_partition] = follower
        self._touched[follower.topic_partition] = None
        self._news.set()

    def remove(self, topic_partition: TopicPartition) -> None:
        """Let go of a partition, at once."""
        follower = self.followers.pop(topic_partition, None)
        self._touched[topic_partition] = None
        if follower is not None:
            follower.give_up()

    def close(self) -> None:
        """Let go of everything; the coroutine ends."""
        self._is_closed = True
        for topic_partition in list(self.followers):
            self.remove(topic_partition)
        self._connection.close("the fetcher is closed")
        self._task.cancel()

    def on_flushed(self) -> None:
        """One of the logs was flushed."""
        self._flushed.set()

    async def _run(self) -> None:
        while not self._is_closed:
            try:
                self._news.clear()
                if self.followers:
                    await self._connection.ready()
                    await self._ask()
                    self._log_who_sits_out()
                    await self._settle()
                    await self._fetch()
                    self._failure_count = 0
                else:
                    await self._news.wait()
            except Exception as error:
                self._session.reset()
                self._failure_count += 1
                expected = isinstance(error, KafkaError | OSError)
                level = logging.INFO if expected else logging.ERROR
                logger.log(level, "fetching from %s: %s", self.leader, error, exc_info=not expected)
                await self._sleep(self._backoff_ms(self._failure_count))

    def _backoff_ms(self, failure_count: int) -> int:
        most = self._config.replica_fetch_backoff_ms
        return int(min(most, FIRST_BACKOFF_MS << min(failure_count, 20)))

    async def _sleep(self, delay_ms: int) -> None:
        """Wait, but not while there is something new to do."""
        timer: Timer = self._runtime.scheduler.call_later(delay_ms, self._news.set)
        try:
            await self._news.wait()
        finally:
            timer.cancel()

    def _due(self, phase: FollowerPhase) -> list[FollowerPartition]:
        """Touched partitions in this phase whose backoff is over, as many as one request names."""
        now_ms = self._runtime.clock.monotonic_ms()
        due = (
            each
            for each in map(self.followers.get, self._touched)
            if each is not None and each.phase is phase and each.retry_at_ms <= now_ms
        )
        return list(islice(due, NAMED_AT_ONCE))

    def _delay(self, followers: Iterable[FollowerPartition], reason: str) -> None:
        now_ms = self._runtime.clock.monotonic_ms()
        for follower in followers:
            follower.failure_count += 1
            delay_ms = self._backoff_ms(follower.failure_count)
            follower.retry_at_ms = now_ms + delay_ms
            self._touched[follower.topic_partition] = None
            self._sitting_out.setdefault((delay_ms, reason), []).append(follower.topic_partition)

    def _log_who_sits_out(self) -> None:
        """Log once per round: an election may concern thousands of partitions."""
        sitting_out, self._sitting_out = self._sitting_out, {}
        for (delay_ms, reason), partitions in sitting_out.items():
            others = f" and {len(partitions) - 1} more" if len(partitions) > 1 else ""
            logger.info("%s%s sits out for %d ms: %s", partitions[0], others, delay_ms, reason)

    async def _ask(self) -> None:
        """Ask where the logs diverge, for all partitions where that is unknown."""
        truncating = self._due(FollowerPhase.TRUNCATING)
        if truncating:
            await self._questions().ask_epoch_ends(truncating)
        out_of_range = self._due(FollowerPhase.OUT_OF_RANGE)
        if out_of_range:
            await self._questions().ask_ends(out_of_range)

    def _questions(self) -> LeaderQuestions:
        return LeaderQuestions(self._connection, self._config, self._broker_id, self._delay)

    async def _fetch(self) -> None:
        touched = self._look_at_touched()
        if not self._wanted:
            self._touched = touched  # the leader still has partitions to forget
            await self._sleep(self._wait_ms(self._config.replica_fetch_backoff_ms))
            return
        version = self._version()
        request = self._request(touched, version)
        timeout_ms = request.max_wait_ms + self._config.replica_socket_timeout_ms
        self.copied.requests += 1
        response = cast(FetchResponse, await self._connection.send(request, version, timeout_ms))
        await self._take(self._session.accept(response))

    def _look_at_touched(self) -> dict[TopicPartition, None]:
        """Update the partitions of the next request; those that it does not name stay touched.

        All count as touched now and then, and always under a rate limit: there is no signal when a
        log has a new start or when the rate has room again.
        """
        now_ms = self._runtime.clock.monotonic_ms()
        if now_ms >= self._touch_all_at_ms or self._quota.is_limited:
            self._touched.update(dict.fromkeys(self.followers))
            self._touch_all_at_ms = now_ms + TOUCH_ALL_MS
        touched, self._touched = self._touched, {}
        max_bytes, is_throttled = self._config.replica_fetch_max_bytes, self._quota.is_exceeded
        for topic_partition in touched:
            follower = self.followers.get(topic_partition)
            self._without_id.discard(topic_partition)
            if follower is None:
                self._wanted.pop(topic_partition, None)
            elif (
                follower.phase is not FollowerPhase.FETCHING
                or follower.retry_at_ms > now_ms
                or not follower.log.is_available  # its end may not be on disk: claim nothing
                or (is_throttled and follower.is_behind and self._counts(follower))
            ):
                self._wanted.pop(topic_partition, None)
                self._touched[topic_partition] = None
            else:
                wanted = self._wanted[topic_partition] = follower.wanted(max_bytes)
                if wanted.topic_id == NO_UUID:
                    self._without_id.add(topic_partition)
        return touched

    def _counts(self, follower: FollowerPartition) -> bool:
        """Whether its copied bytes count against the follower's quota."""
        throttled = follower.log.config.follower_replication_throttled_replicas
        return self._quota.applies(throttled, follower.topic_partition.partition)

    def _version(self) -> int:
        high = LAST_VERSION_WITH_NAMES if self._without_id else FetchRequest.max_version
        return self._connection.version_of(FetchRequest, FIRST_VERSION_WITH_FETCHED_EPOCH, high)

    def _request(self, touched: Iterable[TopicPartition], version: int) -> FetchRequest:
        config = self._config
        request = FetchRequest(
            max_wait_ms=self._wait_ms(config.replica_fetch_wait_max_ms),
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
        )
        if version >= FIRST_VERSION_WITH_REPLICA_STATE:
            epoch = self.cluster.broker_epoch()
            request.replica_state = ReplicaState(replica_id=self._broker_id, replica_epoch=epoch)
        else:
            request.replica_id = self._broker_id
        left = self._session.fill(request, self._wanted, touched, version)
        if left and self._session.is_refused:  # all of them have their turns in the usual time
            request.max_wait_ms //= 2 + len(left) // NAMED_AT_ONCE
        elif left:
            self._touched.update(dict.fromkeys(left))
            request.max_wait_ms = 0
        return request

    def _wait_ms(self, most_ms: int) -> int:
        """The time until a backoff ends or a partition has to be asked about, at most `most_ms`."""
        now_ms = self._runtime.clock.monotonic_ms()
        for topic_partition in self._touched:
            follower = self.followers.get(topic_partition)
            if follower is not None and (
                follower.phase is not FollowerPhase.FETCHING or follower.retry_at_ms > now_ms
            ):
                most_ms = min(most_ms, max(0, follower.retry_at_ms - now_ms))
        return most_ms

    async def _take(self, answered: Iterable[Answer]) -> None:
        self._turn_began_ms = self._runtime.clock.monotonic_ms()
        for topic_partition, asked, data in answered:
            follower = self.followers.get(topic_partition)
            self._touched[topic_partition] = None
            if (
                follower is None
                or not follower.is_current
                or follower.log.topic_id != asked.topic_id
                or follower.leader_epoch != asked.leader_epoch
                or follower.log.log_end_offset < asked.fetch_offset
            ):
                continue
            if follower.log.log_end_offset > asked.fetch_offset:  # these records have come before
                if data.error_code or data.diverging_epoch is not None:
                    continue
                data.records = None
            try:
                await self._take_partition(follower, data)
            except KafkaError as error:
                damage = " (damaged on the way or at the leader)" if is_damage(error) else ""
                self._delay([follower], f"{error}{damage}")
            except Exception as error:
                if not follower.failure_count:  # once, not with every attempt
                    logger.exception("copying %s has failed", topic_partition)
                self._delay([follower], repr(error))

    async def _pause_if_long(self) -> None:
        """Let others run where the batches of an answer have taken long since they last could."""
        clock = self._runtime.clock
        if clock.monotonic_ms() - self._turn_began_ms >= TURN_MS:
            await self._runtime.slices.pause()
            self._turn_began_ms = clock.monotonic_ms()

    async def _settle(self) -> None:
        """Wait for the flushes that batches have asked for (flush.messages).

        By the next fetch offset the leader sees which records can no longer be lost here.
        """
        while self._unflushed:
            waiting = [each for each in self._unflushed.values() if each.awaits_flush]
            self._unflushed = {each.topic_partition: each for each in waiting}
            if not self._unflushed:
                return
            self._flushed.clear()
            timer = self._runtime.scheduler.call_later(FLUSH_CHECK_MS, self._flushed.set)
            try:
                await self._flushed.wait()
            finally:
                timer.cancel()

    async def _take_partition(self, follower: FollowerPartition, data: PartitionData) -> None:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            follower.phase = FollowerPhase.OUT_OF_RANGE
            return
        if data.error_code:
            self._delay([follower], ErrorCode.of(data.error_code).name)
            return
        if data.diverging_epoch is not None:
            ending = data.diverging_epoch
            await follower.take_epoch_end(EpochEntry(ending.epoch, ending.end_offset))
            return
        now_ms = self._runtime.clock.now_ms()
        if data.records:
            self._unflushed[follower.topic_partition] = follower
        size = await follower.append(data.records, now_ms, self._pause_if_long)
        if not follower.is_current:
            return
        follower.failure_count = 0
        self.copied.bytes += size
        if size and self._counts(follower):
            self._quota.record(size)
        if follower.note_leader(data.high_watermark, data.log_start_offset):
            self._on_progress(follower.topic_partition)
