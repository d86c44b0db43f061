"""Incremental fetch sessions (KIP-227): a reader names its partitions once, then only changes.

| id, epoch of the request | meaning                                   |
|--------------------------|-------------------------------------------|
| 0, -1                    | full fetch without a session              |
| 0, 0                     | full fetch, please make a session         |
| id, 0                    | close that session and make a new one     |
| id, n > 0                | the n-th incremental fetch of the session |
| id, -1                   | close that session, full fetch            |

An incremental answer leaves out partitions without data and without changed offsets or errors. A
follower's partitions without changes are not even read. If an incremental fetch leaves a session
without partitions, the session is closed: the answer has session id 0.
The cache is bounded: when it is full, the session that was unused for longest is dropped, if it was
idle for long enough; for a follower's, one of a consumer goes that is in use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final
from uuid import UUID

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.fetch import LAST_VERSION_WITH_NAMES, FetchPartition, FetchRequest
from ottla.protocol.fetch import FetchTopic as RequestedTopic
from ottla.replication.delayed_fetch import FetchResults
from ottla.replication.replica_requests import (
    AwakePartitions,
    FetchPartitionResult,
    PartitionFetch,
    PartitionKey,
    partition_key,
)
from ottla.runtime import Runtime
from ottla.server.brokers_only import is_follower, replica_id_of
from ottla.structs import MAX_TOPIC_NAME_LENGTH, NO_OFFSET, NO_UUID, TopicPartition

INVALID_SESSION_ID: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_EPOCH = 2**31 - 1
MIN_EVICTION_MS: Final = 120_000
MAX_PARTITIONS = 100_000
UNRESOLVED: Final = "(topic id "

TopicName = Callable[[UUID], str | None]
Asked = Iterable[PartitionFetch]


def unresolved_name(topic_id: UUID) -> str:
    """Stands for the name of a topic whose id is unknown; no topic can have this name."""
    return f"{UNRESOLVED}{topic_id})"


def is_unresolved(name: str) -> bool:
    """Whether a name stands for a topic whose id is unknown."""
    return name.startswith(UNRESOLVED)


def name_again(known: PartitionFetch, request: PartitionFetch) -> None:
    """Take over the state of a partition that the reader names again, with other values.

    If its offset is unchanged, as with a new leader epoch, the reader may have dropped an answer. A
    name that was found for the topic id stays, even where the topic is gone.
    """
    if is_unresolved(request.topic_partition.topic):
        request.topic_partition = known.topic_partition
    if request.fetch_offset != known.fetch_offset:
        request.told_high_watermark = known.told_high_watermark
        request.told_log_start_offset = known.told_log_start_offset


def has_news(request: PartitionFetch, result: FetchPartitionResult) -> bool:
    """Whether an incremental answer must name the partition."""
    return (
        result.size_in_bytes > 0
        or result.is_urgent
        or result.high_watermark != request.told_high_watermark
        or result.log_start_offset != request.told_log_start_offset
    )


def note_told(request: PartitionFetch, result: FetchPartitionResult) -> None:
    """Remember the answer; after an error the partition is named again."""
    failed = result.error is not ErrorCode.NONE
    request.told_high_watermark = NO_OFFSET if failed else result.high_watermark
    request.told_log_start_offset = NO_OFFSET if failed else result.log_start_offset


class FetchSession:
    """The partitions that one reader follows, and the epoch of its next request.

    Invariant: `partitions` has each of them once, under the key that its reader names it by.
    """

    __slots__ = (
        "awake",
        "connection_id",
        "epoch",
        "has_unresolved",
        "id",
        "last_used_ms",
        "partitions",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        uses_topic_ids: bool,
        now_ms: int,
        is_of_follower: bool,
        connection_id: str,
    ) -> None:
        self.id = session_id
        self.connection_id = connection_id
        """The connection that has begun it."""
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.last_used_ms = now_ms
        self.partitions: dict[PartitionKey, PartitionFetch] = {}
        self.awake = AwakePartitions(self.partitions) if is_of_follower else None
        self.has_unresolved = False

    def add(self, request: PartitionFetch) -> None:
        """Add a partition to the session, or replace its values."""
        known = self.partitions.get(request.key)
        if known is not None:
            name_again(known, request)
        self.partitions[request.key] = request
        if self.awake is not None:
            request.session = self.awake
            self.awake.wake(request)
        if is_unresolved(request.topic_partition.topic):
            self.has_unresolved = True

    def forget(self, key: PartitionKey) -> None:
        """Remove a partition from the session, if it is there."""
        self.partitions.pop(key, None)
        if self.awake is not None:
            self.awake.awake.pop(key, None)

    def read_last(self, request: PartitionFetch) -> None:
        """Move this partition to the end: the others are read first next time."""
        key = request.key
        self.partitions[key] = self.partitions.pop(key)
        if self.awake is not None:
            self.awake.awake.pop(key, None)
            self.awake.wake(request)

    def wanted(self, now_ms: int) -> Collection[PartitionFetch]:
        """The partitions of an incremental fetch: all, or for a follower those with changes."""
        if self.awake is None:
            return list(self.partitions.values())
        self.awake.wake_all(now_ms)
        return self.awake

    def resolve_names(self, topic_name: TopicName) -> None:
        """A topic whose id was unknown before may be known now: read it under its name."""
        self.has_unresolved = False
        for request in self.partitions.values():
            if is_unresolved(request.topic_partition.topic):
                name = topic_name(request.topic_id)
                if name is None:
                    self.has_unresolved = True
                else:
                    index = request.topic_partition.partition
                    request.topic_partition = TopicPartition(name, index)


class FetchContext:
    """One fetch: its partitions, and which of the results its answer names."""

    __slots__ = ("error", "incremental", "partitions", "session")

    def __init__(
        self,
        partitions: Collection[PartitionFetch],
        session: FetchSession | None = None,
        incremental: bool = False,
        error: ErrorCode = ErrorCode.NONE,
    ) -> None:
        self.partitions = partitions
        self.session = session
        self.incremental = incremental
        self.error = error

    @property
    def session_id(self) -> int:
        return INVALID_SESSION_ID if self.session is None else self.session.id

    def answer(
        self, results: FetchResults
    ) -> Iterator[tuple[PartitionFetch, FetchPartitionResult]]:
        """The partitions that the answer names; those with data go to the end of the session,
        so that the others are read first next time.
        """
        if self.session is None:
            for request in self.partitions:
                yield request, results[request.key]
            return
        cached = self.session.partitions
        for request in self.partitions:
            result = results.get(request.key)
            if result is None or request.key not in cached:
                continue
            if not self.incremental or has_news(request, result):
                note_told(request, result)
                if result.size_in_bytes:
                    self.session.read_last(request)
                yield request, result


class FetchSessionCache:
    """The sessions of one broker, at most `max_sessions` of them.

    A connection of a consumer has one. Those of consumers have MAX_PARTITIONS together: a fetch
    with which they would be more has none, nor has one of a name that no topic may have.
    """

    def __init__(
        self,
        runtime: Runtime,
        max_sessions: int,
        topic_name: TopicName,
        is_broker: Callable[[int], bool],
    ) -> None:
        """`is_broker` knows the ids of the other brokers."""
        self.runtime = runtime
        self.max_sessions = max_sessions
        self.topic_name = topic_name
        self.is_broker = is_broker
        self._sessions: dict[int, FetchSession] = {}
        self._of_connections: dict[str, int] = {}
        self.evicted = 0
        """How many sessions have had to make room for others."""

    @property
    def partition_count(self) -> int:
        """How many partitions the sessions have."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def __len__(self) -> int:
        return len(self._sessions)

    def context_for(
        self, body: FetchRequest, api_version: int, connection: str = "", asked: Asked = ()
    ) -> FetchContext:
        """The partitions of this request, by the rules of the table above."""
        uses_topic_ids = api_version > LAST_VERSION_WITH_NAMES
        asked = asked or self.requested(body, uses_topic_ids)
        if body.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if body.session_id != INVALID_SESSION_ID:
                self._remove(body.session_id)
            return self._full(body, asked, uses_topic_ids, connection)
        return self._incremental(body, asked, uses_topic_ids)

    def end(self, fetch: FetchContext) -> None:
        """Keep no session for this fetch: its reader names its partitions each time."""
        if fetch.session is not None:
            self._remove(fetch.session.id)
            fetch.session = None
            if fetch.incremental:
                fetch.error = ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._of_connections.pop(session.connection_id, None)

    def check_follower(self, body: FetchRequest, fetch: FetchContext) -> None:
        """Refuse very many partitions to a reader that says to be a broker, and is none."""
        if not self.is_broker(replica_id_of(body)):
            self.end(fetch)
            raise KafkaError.of(
                ErrorCode.INVALID_REQUEST,
                f"a fetch of {len(fetch.partitions)} partitions for replica {replica_id_of(body)}, "
                "which is no broker of this cluster",
            )

    def _has_room(self, body: FetchRequest, count: int) -> bool:
        """Whether the sessions of consumers may have so many partitions more, of such topics."""
        if any(len(topic.topic or "") > MAX_TOPIC_NAME_LENGTH for topic in body.topics):
            return False
        of_consumers = (each for each in self._sessions.values() if each.awake is None)
        return sum(len(each.partitions) for each in of_consumers) + count <= MAX_PARTITIONS

    def _full(self, body: FetchRequest, asked: Asked, by_id: bool, connection: str) -> FetchContext:
        partitions = list(asked)
        if len(partitions) > 1:  # one that is named again counts once, as in Kafka
            partitions = list({each.key: each for each in partitions}.values())
        session = None
        if body.session_epoch == INITIAL_EPOCH:
            is_of_follower = is_follower(body)
            if is_of_follower:  # several may share a connection
                session = self._create(by_id, is_of_follower, "")
            elif self._has_room(body, len(partitions)):
                session = self._create(by_id, is_of_follower, connection)
        if session is not None:
            for request in partitions:
                session.add(request)
        return FetchContext(partitions, session)

    def _incremental(self, body: FetchRequest, asked: Asked, uses_topic_ids: bool) -> FetchContext:
        session = self._sessions.get(body.session_id)
        if session is None:
            return FetchContext([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != body.session_epoch:
            return FetchContext([], error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return FetchContext([], error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.has_unresolved:
            session.resolve_names(self.topic_name)
        count = sum(len(topic.partitions) for topic in body.topics)
        if count and session.awake is None and not self._has_room(body, count):
            self._remove(session.id)
            return FetchContext([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        for request in asked:
            session.add(request)
        for topic in body.forgotten_topics_data:
            name = self._name(topic.topic, topic.topic_id, uses_topic_ids)
            for index in topic.partitions:
                session.forget(partition_key(TopicPartition(name, index), topic.topic_id))
        if not session.partitions:
            self._remove(session.id)
            return FetchContext([])
        session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        self._touch(session)
        return FetchContext(session.wanted(session.last_used_ms), session, incremental=True)

    def requested(self, body: FetchRequest, uses_topic_ids: bool) -> Iterator[PartitionFetch]:
        for topic in body.topics:
            name = self._name(topic.topic, topic.topic_id, uses_topic_ids)
            for partition in topic.partitions:
                yield fetch_partition(name, topic, partition)

    def _name(self, name: str, topic_id: UUID, uses_topic_ids: bool) -> str:
        if not uses_topic_ids:
            return name
        return self.topic_name(topic_id) or unresolved_name(topic_id)

    def _create(
        self, uses_topic_ids: bool, is_of_follower: bool, connection_id: str
    ) -> FetchSession | None:
        now_ms = self.runtime.clock.monotonic_ms()
        if connection_id in self._of_connections:
            self._remove(self._of_connections[connection_id])
        if len(self._sessions) >= self.max_sessions and not self._evict(now_ms, is_of_follower):
            return None
        session_id = INVALID_SESSION_ID
        while session_id == INVALID_SESSION_ID or session_id in self._sessions:
            session_id = self.runtime.random.randrange(1, 2**31)
        session = FetchSession(session_id, uses_topic_ids, now_ms, is_of_follower, connection_id)
        self._sessions[session_id] = session
        if connection_id:
            self._of_connections[connection_id] = session_id
        return session

    def _touch(self, session: FetchSession) -> None:
        session.last_used_ms = self.runtime.clock.monotonic_ms()
        self._sessions[session.id] = self._sessions.pop(session.id)

    def _evict(self, now_ms: int, is_for_follower: bool) -> bool:
        """Make room for a session; a follower's is worth more than any of a consumer (KIP-227)."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is not None and now_ms - oldest.last_used_ms < MIN_EVICTION_MS:
            of_consumers = (each for each in self._sessions.values() if each.awake is None)
            oldest = next(of_consumers, None) if is_for_follower else None
        if oldest is None:
            return False
        self._remove(oldest.id)
        self.evicted += 1
        return True


def fetch_partition(name: str, topic: RequestedTopic, partition: FetchPartition) -> PartitionFetch:
    """A partition as the replica manager is asked for it."""
    return PartitionFetch(
        TopicPartition(name, partition.partition),
        topic.topic_id or NO_UUID,
        partition.fetch_offset,
        partition.partition_max_bytes,
        partition.current_leader_epoch,
        partition.last_fetched_epoch,
        partition.log_start_offset,
    )
