"""The follower's side of a fetch session (KIP-227): only what has changed is named again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from ottla.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)
from ottla.structs import TopicPartition

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
MAX_EPOCH: Final = 2**31 - 1


class Wanted(NamedTuple):
    """From where a partition is to be fetched."""

    topic_id: UUID
    fetch_offset: int
    leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FollowerSession:
    """What the leader knows that we want. Invariant: `known` is what it has in our session.

    `names` has the topics of the partitions that were named, by id.
    """

    def __init__(self) -> None:
        self.known: dict[TopicPartition, Wanted] = {}
        self.names: dict[UUID, str] = {}
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH

    def reset(self) -> None:
        """Begin a new session with the next request."""
        self.known = {}
        self.names = {}
        self._id, self._epoch = NO_SESSION, FIRST_EPOCH

    def fill(
        self,
        request: FetchRequest,
        wanted: Mapping[TopicPartition, Wanted],
        touched: Iterable[TopicPartition],
    ) -> None:
        """Have the request ask for all that is wanted, by naming what is new in it.

        Only what is `touched` may have changed since the request before.
        """
        request.session_id, request.session_epoch = self._id, self._epoch
        known = self.known
        looked_at = touched if known else wanted
        changed = [tp for tp in looked_at if tp in wanted and known.get(tp) != wanted[tp]]
        gone = {tp: known.pop(tp) for tp in looked_at if tp in known and tp not in wanted}
        known.update((tp, wanted[tp]) for tp in changed)
        request.topics = _grouped(wanted, changed)
        self.names.update((topic.topic_id, topic.topic) for topic in request.topics)
        if self._epoch != FIRST_EPOCH:
            request.forgotten_topics_data = _forgotten(gone)

    def accept(self, response: FetchResponse) -> None:
        """The leader has answered without an error for the request as a whole."""
        if response.session_id == NO_SESSION:
            self.reset()
            return
        self._id = response.session_id
        self._epoch = 1 if self._epoch == MAX_EPOCH else self._epoch + 1


def _grouped(
    wanted: Mapping[TopicPartition, Wanted], changed: list[TopicPartition]
) -> list[FetchTopic]:
    topics: dict[str, FetchTopic] = {}
    for topic_partition in changed:
        each = wanted[topic_partition]
        name = topic_partition.topic
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = FetchTopic(topic=name, topic_id=each.topic_id, partitions=[])
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


def _forgotten(gone: Mapping[TopicPartition, Wanted]) -> list[ForgottenTopic]:
    topics: dict[str, ForgottenTopic] = {}
    for (name, index), each in gone.items():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = ForgottenTopic(topic=name, topic_id=each.topic_id, partitions=[])
        topic.partitions.append(index)
    return list(topics.values())
