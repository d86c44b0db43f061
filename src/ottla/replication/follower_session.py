"""The follower's side of a fetch session (KIP-227): only changed partitions are named again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.fetch import (
    LAST_VERSION_WITH_NAMES,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from ottla.structs import NO_UUID, NamedTuple, TopicPartition

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
MAX_EPOCH = 2**31 - 1


class PartitionFetchState(NamedTuple):
    """Where to fetch a partition from."""

    topic_id: UUID
    fetch_offset: int
    leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


Wanted = dict[TopicPartition, PartitionFetchState]
Answer = tuple[TopicPartition, PartitionFetchState, PartitionData]
NAMED_AT_ONCE = 5_000
"""Partitions in one request; with a topic for each they are fifteen thousand elements."""


class FollowerSession:
    """The partitions of a session, as the leader knows them. Invariant: `known` is its view of
    them.

    `names` has the topics of the known partitions by id, and some that are gone. A leader that has
    no room for a session is asked for some of the partitions after the others.
    """

    def __init__(self) -> None:
        self.known: Wanted = {}
        self.names: dict[UUID, str] = {}
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._named_count = 0
        """How many partitions were named since a session was last refused."""

    def reset(self) -> None:
        """Have the next request close the session, if there is one, and begin another."""
        self.known = {}
        self.names = {}
        self._epoch = FIRST_EPOCH

    @property
    def is_refused(self) -> bool:
        """Whether the leader has answered the last request without a session."""
        return self._named_count > 0

    def fill(
        self,
        request: FetchRequest,
        wanted: Mapping[TopicPartition, PartitionFetchState],
        touched: Iterable[TopicPartition],
        version: int,
    ) -> Sequence[TopicPartition]:
        """Have the request ask for all wanted partitions, by naming those that are new in it.

        Only `touched` partitions may have changed since the request before. Where the request names
        topics by id, an older topic of the same name is forgotten: by name, it is replaced.
        Returns the rest for the next request, since a leader takes no request of any size.
        """
        request.session_id, request.session_epoch = self._id, self._epoch
        known = self.known
        looked_at = touched if known else wanted
        news = [tp for tp in looked_at if tp in wanted and known.get(tp) != wanted[tp]]
        if self.is_refused and len(news) > NAMED_AT_ONCE:
            place = self._named_count % len(news)
            news = news[place:] + news[:place]
        changed, left = news[:NAMED_AT_ONCE], news[NAMED_AT_ONCE:]
        gone = {tp: known.pop(tp) for tp in looked_at if tp in known and tp not in wanted}
        if version > LAST_VERSION_WITH_NAMES:
            old = [
                tp for tp in changed if tp in known and known[tp].topic_id != wanted[tp].topic_id
            ]
            gone.update((tp, known[tp]) for tp in old)
        known.update((tp, wanted[tp]) for tp in changed)
        request.topics = _grouped(wanted, changed)
        self.names.update((topic.topic_id, topic.topic) for topic in request.topics)
        if len(self.names) > 2 * len(known) + NAMED_AT_ONCE:  # topics come and go
            self.names = {each.topic_id: tp.topic for tp, each in known.items()}
        if self._epoch != FIRST_EPOCH:
            request.forgotten_topics_data = _forgotten(gone)
        return left

    def accept(self, response: FetchResponse) -> list[Answer]:
        """The leader's answers, each to its last question; KafkaError where that is over.

        A leader that names partitions nobody asked for, or that it was to forget, would answer with
        that at once, again and again.
        """
        if response.error_code:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_SESSION
            raise KafkaError.of(response.error_code, f"fetch session {self._id}")
        answered: list[Answer] = []
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
                answered.append((topic_partition, asked, data))
        self._id = response.session_id
        if self._id == NO_SESSION:
            self._named_count += len(self.known)
            self.reset()
        else:
            self._named_count = 0
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
