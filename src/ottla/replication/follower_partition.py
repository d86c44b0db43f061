"""A partition that this broker follows: where its log has to be cut, and what is appended to it.

TRUNCATING     ask the leader where the last epoch of our log ends in its log, cut there; again
               with an older epoch, until both have the epoch (KIP-101, KIP-279)
FETCHING       append what the leader sends; it notices if the logs part after all (KIP-595)
OUT_OF_RANGE   the leader does not have our end: ask it for its own end, and for its start
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast

from ottla.errors import ErrorCode, KafkaError
from ottla.log.follower_append import UnexpectedAppendOffsetError, append_as_follower
from ottla.log.leader_epoch_cache import EpochEntry
from ottla.protocol.fetch import (
    LAST_VERSION_WITH_NAMES,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from ottla.protocol.leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.record.record_batch import CorruptRecordError
from ottla.structs import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_EPOCH,
    NO_OFFSET,
    NO_UUID,
    TopicPartition,
    by_topic,
)

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.config.broker_config import BrokerConfig
    from ottla.log.log_manager import LogManager
    from ottla.network.node_connection import NodeConnection
    from ottla.protocol.types import RecordsData
    from ottla.replication.partition import Partition

logger = logging.getLogger(__name__)


# The follower's side of a fetch session (KIP-227): only what has changed is named again.


NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
MAX_EPOCH: Final = 2**31 - 1


class FollowerPartition:
    """One partition that a fetcher copies, for one leader epoch.

    Invariant: once `is_current` is False the log is no longer touched.
    """

    __slots__ = (
        "_is_given_up",
        "_log_manager",
        "failure_count",
        "leader_epoch",
        "leader_high_watermark",
        "log",
        "partition",
        "phase",
        "retry_at_ms",
    )

    def __init__(self, partition: Partition, log_manager: LogManager) -> None:
        self.partition = partition
        self.log = partition.log
        self.leader_epoch = partition.leader_epoch
        self.phase = FollowerPhase.TRUNCATING
        self.failure_count = 0
        self.retry_at_ms = 0
        self.leader_high_watermark = -1
        self._log_manager = log_manager
        self._is_given_up = False

    def __repr__(self) -> str:
        return f"FollowerPartition({self.topic_partition}, {self.phase.value}, {self.log!r})"

    @property
    def topic_partition(self) -> TopicPartition:
        return self.partition.topic_partition

    @property
    def is_current(self) -> bool:
        """Whether this broker still follows the leader of this epoch."""
        partition = self.partition
        return (
            not self._is_given_up
            and partition.leader_epoch == self.leader_epoch
            and not partition.is_leader
        )

    def give_up(self) -> None:
        """Stop touching the log: it is led here, or another fetcher copies it."""
        self._is_given_up = True

    @property
    def last_epoch(self) -> int:
        """The epoch of the last batch; -1 if the log is empty or its batches have no epochs."""
        return self.log.leader_epoch_cache.latest_epoch

    @property
    def lag(self) -> int | None:
        """Records up to the leader's high watermark; None while that is unknown."""
        if self.leader_high_watermark < 0:
            return None
        return max(0, self.leader_high_watermark - self.log.log_end_offset)

    @property
    def is_behind(self) -> bool:
        """Whether the leader has committed what is not here yet; True while that is unknown."""
        return self.leader_high_watermark < 0 or (
            self.log.log_end_offset < self.leader_high_watermark
        )

    @property
    def awaits_flush(self) -> bool:
        """Whether something that was copied is on its way to disk, because that was asked for."""
        log = self.log
        return self.is_current and log.is_available and log.safe_end_offset < log.log_end_offset

    async def truncate_without_epochs(self) -> None:
        """Keep what is committed for sure: nothing else is known of batches without an epoch."""
        await self._truncate(self.log.high_watermark)
        self._fetch_next()

    async def take_epoch_end(self, end: EpochEntry) -> None:
        """Truncate the log, given the leader's last epoch up to ours and its end there."""
        if end.start_offset == NO_OFFSET:
            await self.truncate_without_epochs()
            return
        log = self.log
        ours = log.leader_epoch_cache.end_offset_for(end.epoch, log.log_end_offset)
        if end.epoch == NO_EPOCH or ours.epoch == NO_EPOCH:
            await self._truncate(end.start_offset)
        elif ours.epoch == end.epoch:
            await self._truncate(min(ours.start_offset, end.start_offset))
        else:
            await self._truncate(ours.start_offset)
            if self.last_epoch != NO_EPOCH:
                self.phase = FollowerPhase.TRUNCATING
                return
        self._fetch_next()

    async def take_leader_end(self, offset: int) -> bool:
        """Cut off what the leader does not have; False if its log does not end before ours."""
        if offset >= self.log.log_end_offset:
            return False
        await self._truncate(offset)
        self._fetch_next()
        return True

    async def take_leader_start(self, offset: int) -> None:
        """Start again where the leader's log begins, if it no longer has anything older."""
        if offset > self.log.log_end_offset:
            await self._log_manager.truncate_fully_and_start_at(
                self.log, offset, lambda: self.is_current
            )
        self.phase = FollowerPhase.TRUNCATING
        if self.last_epoch == NO_EPOCH:
            self._fetch_next()

    async def _truncate(self, offset: int) -> None:
        await self._log_manager.truncate(self.log, offset, lambda: self.is_current)
        if self.is_current:
            # An epoch that we led without writing would make the logs diverge forever.
            end_offset = min(offset, self.log.log_end_offset)
            self.log.leader_epoch_cache.truncate_from_end(end_offset)

    def _fetch_next(self) -> None:
        self.phase = FollowerPhase.FETCHING

    def wanted(self, max_bytes: int) -> PartitionFetchState:
        """What to ask the leader for."""
        log = self.log
        return PartitionFetchState(
            log.topic_id,
            log.log_end_offset,
            self.leader_epoch,
            self.last_epoch,
            log.log_start_offset,
            max_bytes,
        )

    async def append(self, records: RecordsData | None, now_ms: int) -> int:
        """Append what the leader has sent; returns its size. KafkaError if it cannot be taken."""
        if not records:
            return 0
        try:
            return append_as_follower(self.log, records, self.leader_epoch, now_ms)
        except UnexpectedAppendOffsetError as error:
            # Our end, or where the leader's log begins, lies within its batch: it is kept whole.
            logger.info("%s; cutting back to %d", error, error.base_offset)
            await self._truncate(error.base_offset)
            if not self.is_current:
                return 0
            # At once: the leader may have nothing from there that could be fetched.
            return append_as_follower(self.log, records, self.leader_epoch, now_ms)

    def note_leader(self, high_watermark: int, log_start_offset: int) -> bool:
        """Take over how far the leader has committed and what it has deleted.

        True if more is committed here than before. What was committed under an earlier leader
        stays so: every replica that could be elected has it.
        """
        log = self.log
        self.leader_high_watermark = high_watermark
        before = log.high_watermark
        if high_watermark > before:
            log.update_high_watermark(high_watermark)
        if log.log_start_offset < log_start_offset <= log.high_watermark:
            log.maybe_increment_log_start_offset(log_start_offset)
        return log.high_watermark > before


class PartitionFetchState(NamedTuple):
    """Where to fetch a partition from."""

    topic_id: UUID
    fetch_offset: int
    leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


NAMED_AT_ONCE: Final = 5_000
"""Partitions in one request; with a topic for each they are fifteen thousand elements."""


class FollowerSession:
    """What the leader knows that we want. Invariant: `known` is what it has in our session.

    `names` has the topics of the partitions that were named, by id.
    """

    def __init__(self) -> None:
        self.known: dict[TopicPartition, PartitionFetchState] = {}
        self.names: dict[UUID, str] = {}
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH

    def reset(self) -> None:
        """Have the next request close the session, if there is one, and begin another."""
        self.known = {}
        self.names = {}
        self._epoch = FIRST_EPOCH

    def fill(
        self,
        request: FetchRequest,
        wanted: Mapping[TopicPartition, PartitionFetchState],
        touched: Iterable[TopicPartition],
        version: int,
    ) -> Sequence[TopicPartition]:
        """Have the request ask for all that is wanted, by naming what is new in it.

        Only what is `touched` may have changed since the request before. Where the request names
        topics by id, an older topic of the same name is forgotten: by name, it is replaced.
        Returns what is left for the next request, since a leader takes no request of any size.
        """
        request.session_id, request.session_epoch = self._id, self._epoch
        known = self.known
        looked_at = touched if known else wanted
        news = [tp for tp in looked_at if tp in wanted and known.get(tp) != wanted[tp]]
        changed, left = news[:NAMED_AT_ONCE], news[NAMED_AT_ONCE:]
        gone = {tp: known.pop(tp) for tp in looked_at if tp in known and tp not in wanted}
        if version > LAST_VERSION_WITH_NAMES:
            gone.update(
                (tp, known[tp])
                for tp in changed
                if tp in known and known[tp].topic_id != wanted[tp].topic_id
            )
        known.update((tp, wanted[tp]) for tp in changed)
        request.topics = _grouped(wanted, changed)
        self.names.update((topic.topic_id, topic.topic) for topic in request.topics)
        if self._epoch != FIRST_EPOCH:
            request.forgotten_topics_data = _forgotten(gone)
        return left

    def accept(self, response: FetchResponse) -> list[tuple[TopicPartition, PartitionData]]:
        """What the leader answers, by partition; KafkaError where the session cannot continue.

        A leader that names what it was not asked for, or was told to forget, would answer with
        that at once, again and again.
        """
        if response.error_code:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_SESSION
            raise KafkaError.of(response.error_code, f"fetch session {self._id}")
        answered: list[tuple[TopicPartition, PartitionData]] = []
        for topic in response.responses:
            name = topic.topic or self.names.get(topic.topic_id, "")
            for data in topic.partitions:
                topic_partition = TopicPartition(name, data.partition_index)
                asked = self.known.get(topic_partition)
                if asked is None or topic.topic_id not in (asked.topic_id, NO_UUID):
                    raise KafkaError.of(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        f"fetch session {self._id} answers for partition {data.partition_index} "
                        f"of topic {name or topic.topic_id}, which it was not asked for",
                    )
                answered.append((topic_partition, data))
        self._id = response.session_id
        if self._id == NO_SESSION:
            self.reset()
        else:
            self._epoch = 1 if self._epoch == MAX_EPOCH else self._epoch + 1
        return answered


def _grouped(
    wanted: Mapping[TopicPartition, PartitionFetchState], changed: list[TopicPartition]
) -> list[FetchTopic]:
    topics: dict[tuple[str, UUID], FetchTopic] = {}
    for topic_partition in changed:
        each = wanted[topic_partition]
        key = topic_partition.topic, each.topic_id
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = FetchTopic(topic=key[0], topic_id=each.topic_id, partitions=[])
        topic.partitions.append(
            FetchPartition(
                partition=topic_partition.partition,
                current_leader_epoch=each.leader_epoch,
                fetch_offset=each.fetch_offset,
                last_fetched_epoch=each.last_fetched_epoch,
                log_start_offset=each.log_start_offset,
                partition_max_bytes=each.max_bytes,
            )
        )
    return list(topics.values())


def _forgotten(gone: Mapping[TopicPartition, PartitionFetchState]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, UUID], ForgottenTopic] = {}
    for (name, index), each in gone.items():
        key = name, each.topic_id
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = ForgottenTopic(topic=name, topic_id=each.topic_id, partitions=[])
        topic.partitions.append(index)
    return list(topics.values())


class FollowerPhase(Enum):
    """What has to be asked of the leader next."""

    TRUNCATING = "truncating"
    FETCHING = "fetching"
    OUT_OF_RANGE = "out of range"


def is_damage(error: KafkaError) -> bool:
    """Whether the data that the leader sent is wrong, and not this broker's disk."""
    return isinstance(error, CorruptRecordError)


# What a follower asks its leader before it can fetch: where epochs end, where the log does.


FIRST_VERSION_WITH_REPLICA_ID: Final = 3
FIRST_VERSION_WITH_EPOCHS: Final = 4

T = TypeVar("T")
Delay = Callable[[Iterable[FollowerPartition], str], object]


class LeaderQuestions:
    """Asks for several partitions in one request. Those that get an error go to `delay`."""

    def __init__(
        self, connection: NodeConnection, config: BrokerConfig, broker_id: int, delay: Delay
    ) -> None:
        self._connection = connection
        self._timeout_ms = config.replica_socket_timeout_ms
        self._broker_id = broker_id
        self._delay = delay

    async def ask_epoch_ends(self, followers: Sequence[FollowerPartition]) -> None:
        """Cut each log where the leader's epochs say; then, or after more questions, it fetches."""
        asked = [follower for follower in followers if follower.last_epoch != NO_EPOCH]
        await self._attempt_all(
            (follower, follower.truncate_without_epochs)
            for follower in followers
            if follower.last_epoch == NO_EPOCH
        )
        if not asked:
            return
        response = await self._send_epochs(asked)
        by_name = {follower.topic_partition: follower for follower in asked}
        steps: list[tuple[FollowerPartition, Callable[[], Awaitable[None]]]] = []
        for topic in response.topics:
            for end in topic.partitions:
                follower_ = by_name.pop(TopicPartition(topic.topic, end.partition), None)
                if follower_ is None or not follower_.is_current:
                    continue
                if end.error_code:
                    self._delay([follower_], ErrorCode.of(end.error_code).name)
                else:
                    entry = EpochEntry(end.leader_epoch, end.end_offset)
                    steps.append((follower_, partial(follower_.take_epoch_end, entry)))
        await self._attempt_all(steps)
        self._delay(by_name.values(), "the leader has not answered where its epoch ends")

    async def _send_epochs(
        self, followers: Sequence[FollowerPartition]
    ) -> OffsetForLeaderEpochResponse:
        """Ask where the leader's log has the end of the last epoch of each follower."""
        request = OffsetForLeaderEpochRequest(replica_id=self._broker_id, topics=[])
        for name, group in _by_topic(followers).items():
            partitions = [
                OffsetForLeaderPartition(
                    partition=follower.topic_partition.partition,
                    current_leader_epoch=follower.leader_epoch,
                    leader_epoch=follower.last_epoch,
                )
                for follower in group
            ]
            request.topics.append(OffsetForLeaderTopic(topic=name, partitions=partitions))
        version = self._connection.version_of(
            OffsetForLeaderEpochRequest, FIRST_VERSION_WITH_REPLICA_ID
        )
        answer = await self._connection.send(request, version, self._timeout_ms)
        return cast("OffsetForLeaderEpochResponse", answer)

    async def ask_ends(self, followers: Sequence[FollowerPartition]) -> None:
        """Truncate logs at the leader's end; one that ends before its start restarts there."""
        ahead = await self._list_offsets(followers, LATEST_TIMESTAMP)
        cut = await self._attempt_all(
            (follower, partial(follower.take_leader_end, offset)) for follower, offset in ahead
        )
        behind = [follower for (follower, _), done in zip(ahead, cut, strict=True) if done is False]
        if behind:
            await self._attempt_all(
                (follower, partial(follower.take_leader_start, offset))
                for follower, offset in await self._list_offsets(behind, EARLIEST_TIMESTAMP)
            )

    async def _attempt_all(
        self, steps: Iterable[tuple[FollowerPartition, Callable[[], Awaitable[T]]]]
    ) -> list[T | None]:
        """Take a step with each, side by side: one write to disk serves all that are cut."""
        return await asyncio.gather(*(self._attempt(follower, step) for follower, step in steps))

    async def _attempt(
        self, follower: FollowerPartition, step: Callable[[], Awaitable[T]]
    ) -> T | None:
        """Take a step with one follower; its error does not affect the others."""
        try:
            return await step()
        except KafkaError as error:
            self._delay([follower], str(error))
        except Exception as error:
            if not follower.failure_count:
                logger.exception("cutting %s has failed", follower.topic_partition)
            self._delay([follower], repr(error))
        return None

    async def _list_offsets(
        self, followers: Sequence[FollowerPartition], timestamp_ms: int
    ) -> list[tuple[FollowerPartition, int]]:
        request = ListOffsetsRequest(replica_id=self._broker_id, topics=[])
        for name, group in _by_topic(followers).items():
            partitions = [
                ListOffsetsPartition(
                    partition_index=follower.topic_partition.partition,
                    current_leader_epoch=follower.leader_epoch,
                    timestamp=timestamp_ms,
                )
                for follower in group
            ]
            request.topics.append(ListOffsetsTopic(name=name, partitions=partitions))
        version = self._connection.version_of(ListOffsetsRequest, FIRST_VERSION_WITH_EPOCHS)
        response = cast(
            "ListOffsetsResponse",
            await self._connection.send(request, version, self._timeout_ms),
        )
        by_name = {follower.topic_partition: follower for follower in followers}
        found: list[tuple[FollowerPartition, int]] = []
        for topic in response.topics:
            for line in topic.partitions:
                follower = by_name.pop(TopicPartition(topic.name, line.partition_index), None)
                if follower is None or not follower.is_current:
                    continue
                if line.error_code:
                    self._delay([follower], ErrorCode.of(line.error_code).name)
                else:
                    found.append((follower, line.offset))
        self._delay(by_name.values(), "the leader has not answered where its log ends")
        return found


def _by_topic(followers: Iterable[FollowerPartition]) -> dict[str, list[FollowerPartition]]:
    return by_topic((follower.topic_partition.topic, follower) for follower in followers)
