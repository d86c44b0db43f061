"""The topics of the cluster, as subscriptions are resolved against them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Protocol
from uuid import UUID

from ottla.runtime.scheduler import Work
from ottla.structs import NamedTuple, TopicMetadata, TopicPartition

LOOKED_UP_AT_ONCE: Final = 2_000


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


def look_up(topics: ClusterTopics, names: Collection[str]) -> Work[dict[str, SubscribedTopic]]:
    """The topics of these names that exist, each as it is when its turn comes."""
    found = {}
    if len(names) >= LOOKED_UP_AT_ONCE:
        yield
    for number, name in enumerate(names, 1):
        topic = topics.topic(name)
        if topic is not None and len(topic.partitions):
            found[name] = SubscribedTopic(topic.topic_id, len(topic.partitions))
        if not number % LOOKED_UP_AT_ONCE:
            yield
    return found
