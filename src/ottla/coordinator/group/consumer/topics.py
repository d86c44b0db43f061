"""The topics of the cluster, as a group's subscriptions need to know them."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import NamedTuple, Protocol
from uuid import UUID


class SubscribedTopic(NamedTuple):
    """A topic that a group reads, as it was when the group last looked."""

    topic_id: UUID
    partition_count: int


class KnownTopic(Protocol):
    """A topic of the cluster."""

    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> UUID: ...

    @property
    def partitions(self) -> Sized: ...


class ClusterTopics(Protocol):
    """All topics of the cluster; `version` grows when one comes, goes, or gets partitions."""

    @property
    def version(self) -> int: ...

    def topic(self, name: str) -> KnownTopic | None: ...

    def topics(self) -> Iterable[KnownTopic]: ...

    def topic_name(self, topic_id: UUID) -> str | None: ...


def look_up(topics: ClusterTopics, names: Iterable[str]) -> dict[str, SubscribedTopic]:
    """Those of the topics that exist."""
    found = {}
    for name in names:
        topic = topics.topic(name)
        if topic is not None and len(topic.partitions):
            found[name] = SubscribedTopic(topic.topic_id, len(topic.partitions))
    return found
