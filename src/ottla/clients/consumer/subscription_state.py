"""The topics or partitions that a consumer reads, and how far it has got in each of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum

from ottla.clients.topic_offsets import KnownTopics, OffsetAndMetadata, OffsetSpec, with_ids
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.topic_name import validate_topic_name
from ottla.structs import NO_EPOCH, NO_REPLICA, NO_UUID, NamedTuple, TopicPartition


class SubscriptionState:
    """The subscription and the partitions that it has resulted in.

    Invariant: topics and partitions are not mixed; `assigned` holds the current partitions only.
    """

    def __init__(self) -> None:
        self.type = SubscriptionType.NONE
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        self.listener: object | None = None
        self.assigned: dict[TopicPartition, TopicPartitionState] = {}

    @property
    def is_by_group(self) -> bool:
        """Whether a group assigns the partitions."""
        return self.type in (SubscriptionType.TOPICS, SubscriptionType.PATTERN)

    def subscribe(self, topics: Iterable[str], listener: object | None) -> None:
        wanted = list(topics)
        for topic in wanted:
            validate_topic_name(topic)
        self._become(SubscriptionType.TOPICS)
        self.topics = frozenset(wanted)
        self.listener = listener

    def subscribe_pattern(self, pattern: re.Pattern[str], listener: object | None) -> None:
        """Subscribe to topics that match, now and later; `match_topics` finds them."""
        self._become(SubscriptionType.PATTERN)
        self.pattern = pattern
        self.listener = listener

    def match_topics(self, names: Iterable[str]) -> bool:
        """Subscribe to the names that match the pattern; returns whether anything changed."""
        assert self.pattern is not None, "there is no pattern"
        found = frozenset(name for name in names if self.pattern.fullmatch(name))
        has_changed = found != self.topics
        self.topics = found
        return has_changed

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read partitions chosen by hand."""
        for partition in partitions:
            validate_topic_name(partition.topic)
        self._become(SubscriptionType.ASSIGNED)
        self.topics = frozenset(partition.topic for partition in partitions)
        self.replace(partitions)

    def replace(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the assigned partitions; those that stay keep their positions."""
        self.assigned = {
            partition: self.assigned.get(partition) or TopicPartitionState(partition)
            for partition in partitions
        }

    def unsubscribe(self) -> None:
        self.type = SubscriptionType.NONE
        self.topics = frozenset()
        self.pattern = None
        self.listener = None
        self.assigned = {}

    def state(self, partition: TopicPartition) -> TopicPartitionState:
        """How far a partition has been read; raises if it is not assigned."""
        state = self.assigned.get(TopicPartition(*partition))
        if state is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"partition {partition} is not assigned to this consumer",
            )
        return state

    def is_current(self, state: TopicPartitionState, generation: int) -> bool:
        """Whether work begun in `generation` of this partition is still valid."""
        return self.assigned.get(state.topic_partition) is state and state.generation == generation

    def without_position(self) -> list[TopicPartitionState]:
        """The partitions that have neither a position nor a reset."""
        return [
            state
            for state in self.assigned.values()
            if state.position is None and state.reset_to is None
        ]

    def to_be_reset(self) -> list[TopicPartitionState]:
        return [state for state in self.assigned.values() if state.reset_to is not None]

    @property
    def has_all_positions(self) -> bool:
        return all(state.position is not None for state in self.assigned.values())

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int) -> None:
        """Continue where the application says, whatever it was given before."""
        state = self.state(partition)
        state.seek(offset, leader_epoch)
        state.given_id = NO_UUID
        state.sought = state.generation

    def reset(self, partition: TopicPartition, timestamp: int) -> None:
        """Continue at the offset of a timestamp that the application names."""
        state = self.state(partition)
        state.request_reset(timestamp)
        state.sought = state.generation

    def with_ids(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets to commit, those of assigned partitions with the ids of their topics."""
        return with_ids(offsets, self.known_topics())

    def known_topics(self) -> dict[TopicPartition, KnownTopics]:
        """The topics in which the application may have read, of each partition with an id."""
        known = {partition: state.topics for partition, state in self.assigned.items()}
        return {partition: topics for partition, topics in known.items() if topics.are_known}

    def _become(self, type: SubscriptionType) -> None:
        if self.type not in (SubscriptionType.NONE, type):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"the consumer reads {self.type.value}; unsubscribe before it reads {type.value}",
            )
        self.type = type


def names_of(topics: Collection[str] | str, pattern: str | re.Pattern[str] | None) -> list[str]:
    """The names of topics to subscribe to; none where a pattern is given in their place."""
    names = [topics] if isinstance(topics, str) else list(topics)
    if bool(names) == (pattern is not None):
        raise ValueError("either topics or a pattern must be given")
    return names


def compiled_pattern(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    """The pattern of topics; ValueError for one that is no regular expression."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern={pattern!r}: is no regular expression: {error}") from None


class RebalanceListener:
    """Base class for `subscribe(listener=...)`; called inside `poll`, in the thread that polls.

    `commit`, `seek` and `position` may be called from here.
    """

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """These partitions are about to be reassigned: the last chance to commit."""

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """These partitions were added."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """These partitions may already belong to others; a commit for them would be refused."""
        self.on_partitions_revoked(partitions)


class RebalanceKind(Enum):
    """Which method of the listener an event is for."""

    REVOKED = "on_partitions_revoked"
    ASSIGNED = "on_partitions_assigned"
    LOST = "on_partitions_lost"


class RebalanceEvent(NamedTuple):
    """A change that the application has to handle before polling continues."""

    kind: RebalanceKind
    partitions: tuple[TopicPartition, ...]

    def tell(self, listener: object | None) -> object:
        """Call the listener, which need not have all methods; the result of its method."""
        method = getattr(listener, self.kind.value, None)
        return None if method is None else method(self.partitions)


FETCH_AGAIN = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)
"""Errors of one partition in a fetch response after which the consumer fetches again.

These resolve themselves, most of them with fresh metadata; others are raised to the caller.
"""

RESETS = {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST}
"""Timestamps for auto.offset.reset; `none` is missing, as the application decides then."""


class SubscriptionType(Enum):
    """How partitions are chosen: by the group, by the group and a pattern, or by hand."""

    NONE = "nothing"
    TOPICS = "topics"
    PATTERN = "a pattern"
    ASSIGNED = "partitions"


class TopicPartitionState:
    """How far one assigned partition has been read.

    `position` is the offset of the next record that the application gets, `fetch_offset` that of
    the next one to be fetched; the records between have been fetched already. `leader_epoch` and
    `fetched_epoch` are the leader epochs of the batches before these. `generation` counts
    the jumps (seek, reset): records fetched before the last one are no longer wanted. `topic_id` is
    that of the topic in which the position is, NO_UUID until the metadata have one: another topic
    of the same name has other records at the same offsets. `given_id` is that of the topic of the
    records that the application was given last.
    """

    __slots__ = (
        "consumed",
        "fetch_offset",
        "fetched",
        "fetched_epoch",
        "generation",
        "given_id",
        "high_watermark",
        "is_paused",
        "last_stable_offset",
        "leader_epoch",
        "outdated_since_ms",
        "position",
        "read_replica",
        "refused_in",
        "reset_to",
        "retry_at_ms",
        "sought",
        "topic_id",
        "topic_partition",
        "validated_epoch",
    )

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.topic_id = self.given_id = NO_UUID
        self.position: int | None = None
        self.fetch_offset = 0
        self.leader_epoch = NO_EPOCH
        self.fetched_epoch = NO_EPOCH
        self.validated_epoch = NO_EPOCH  # its leader has all before fetch_offset
        self.outdated_since_ms: int | None = None  # when metadata older than the position came
        self.refused_in: object = None  # the metadata by which it was out of range
        self.reset_to: int | None = None  # the timestamp whose offset will be the position
        self.is_paused = False
        self.generation = 0
        self.sought = 0  # the generation that began with a seek of the application, at last
        self.fetched = 0  # fetches that have arrived; counted on the loop
        self.consumed = 0  # those of them that were read; counted by the reading thread
        self.retry_at_ms = 0
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.read_replica = NO_REPLICA  # the broker to fetch from, if it is not the leader

    @property
    def buffered(self) -> int:
        """How many fetches wait to be read."""
        return self.fetched - self.consumed

    def lag(self, is_committed: bool, position: int | None) -> int | None:
        """How far a position is behind the last readable record, or the last committed one."""
        end = self.last_stable_offset if is_committed else self.high_watermark
        return None if end is None or position is None else max(0, end - position)

    def seek(self, offset: int, leader_epoch: int = NO_EPOCH) -> None:
        """Continue at `offset`."""
        self._jump()
        self.position = offset
        self.fetch_offset = offset
        self.leader_epoch = self.fetched_epoch = leader_epoch
        self.validated_epoch = NO_EPOCH
        self.outdated_since_ms = None

    def rewind(self, offset: int) -> None:
        """Read again what was given, from `offset` on: of that topic, and not of its successor.

        Where the position is in the next topic of the name by now, it stays there.
        """
        if self.topics.have_changed:
            return
        topic_id = self.topic_id if self.given_id == NO_UUID else self.given_id
        self.seek(offset)
        self.topic_id = topic_id

    def to_commit(self, offset: int) -> OffsetAndMetadata:
        """An offset that the application has read to, in this topic and leader epoch."""
        return OffsetAndMetadata(offset, leader_epoch=self.leader_epoch, topic_id=self.topic_id)

    @property
    def topics(self) -> KnownTopics:
        return KnownTopics(self.given_id, self.topic_id, self.position)

    def validate(self, leader_epoch: int) -> None:
        """The leader of this epoch has the records before `fetch_offset`."""
        self.validated_epoch = leader_epoch
        self.outdated_since_ms = None

    def request_reset(self, timestamp: int) -> None:
        """Continue at the offset of a timestamp, once it has been looked up."""
        self._jump()
        self.position = None
        self.reset_to = timestamp

    def _jump(self) -> None:
        self.topic_id = NO_UUID
        self.refused_in = None
        self.reset_to = None
        self.generation += 1
        self.fetched = 0
        self.consumed = 0
        self.retry_at_ms = 0
        self.read_replica = NO_REPLICA
