"""The topics of the cluster, as subscriptions are resolved against them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol
from uuid import UUID

from ottla.structs import TopicMetadata, TopicPartition


class SubscribedTopic(NamedTuple):
    """A topic that a group reads, as it was when the group last refreshed its topics."""

    topic_id: UUID
    partition_count: int


class ClusterTopics(Protocol):
    """All topics of the cluster; `version` grows when one comes, goes, or gets partitions."""

    @property
    def version(self) -> int: ...

    def topic(self, name: str) -> TopicMetadata | None: ...

    def topics(self) -> Iterable[TopicMetadata]: ...

    def topic_name(self, topic_id: UUID) -> str | None: ...

    def is_deleted(self, topic_partition: TopicPartition, topic_id: UUID) -> bool: ...


def look_up(topics: ClusterTopics, names: Iterable[str]) -> dict[str, SubscribedTopic]:
    """The topics of these names that exist."""
    found = {}
    for name in names:
        topic = topics.topic(name)
        if topic is not None and len(topic.partitions):
            found[name] = SubscribedTopic(topic.topic_id, len(topic.partitions))
    return found
