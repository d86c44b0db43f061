"""The names of mirrored topics, by MirrorMaker 2's rules.

Everything here is a rule on names; no cluster is involved. See KIP-382, KIP-690 (internal
topics), KIP-700 and Kafka's `connect/mirror-client`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final

from ottla.clients.mirror_records import HEARTBEATS
from ottla.errors import ConfigError

DEFAULT_SEPARATOR: Final = "."
CHECKPOINTS_SUFFIX: Final = "checkpoints.internal"
OFFSET_SYNCS_PREFIX: Final = "mm2-offset-syncs"
INTERNAL_SUFFIX: Final = "internal"
HOPS_LIMIT: Final = 32
"""No real chain of mirrors is longer; a name that is walked further is nonsense."""


class ReplicationPolicy(ABC):
    """How a topic is called on other clusters, and whose topic a name stands for.

    A `source` is the alias of a cluster, as mm2.properties has it.
    """

    def __init__(
        self, separator: str = DEFAULT_SEPARATOR, *, separates_internal_topics: bool = True
    ) -> None:
        """`separates_internal_topics` puts a separator of one's own into their names, too."""
        self.separator = separator
        self._internal = separator if separates_internal_topics else DEFAULT_SEPARATOR

    @abstractmethod
    def format_remote_topic(self, source: str, topic: str) -> str:
        """The name of `topic` of the cluster `source` on a target."""

    @abstractmethod
    def topic_source(self, topic: str) -> str | None:
        """The cluster that a topic was mirrored from; None for a cluster's own."""

    @abstractmethod
    def upstream_topic(self, topic: str) -> str | None:
        """The name of a mirrored topic on the cluster that it came from."""

    def original_topic(self, topic: str) -> str:
        """The name of a topic on the cluster where it is nobody's copy."""
        for _ in range(HOPS_LIMIT):
            upstream = self.upstream_topic(topic)
            if self.topic_source(topic) is None or upstream is None or upstream == topic:
                break
            topic = upstream
        return topic

    def is_cycle(self, topic: str, clusters: Iterable[str]) -> bool:
        """Whether a topic has been on one of these clusters before.

        Copying it there would make prefixes grow endlessly. With names that do not change nothing
        can be seen. An alias may have the separator in it, so that a name begins with more than
        its `topic_source`.
        """
        visited = tuple(f"{cluster}{self.separator}" for cluster in clusters)
        for _ in range(HOPS_LIMIT):
            if self.topic_source(topic) is None:
                return False
            upstream = self.upstream_topic(topic)
            if topic.startswith(visited):
                return True
            if upstream is None or upstream == topic:
                return False
            topic = upstream
        return True

    def hops(self, topic: str, source: str) -> int:
        """Over how many mirrors a topic came from `source`; -1 if it did not."""
        for count in range(1, HOPS_LIMIT):
            found = self.topic_source(topic)
            upstream = self.upstream_topic(topic)
            if found is None:
                return -1
            if found == source:
                return count
            if upstream is None or upstream == topic:
                return -1
            topic = upstream
        return -1

    # Internal topics

    def heartbeats_topic(self) -> str:
        return HEARTBEATS

    def offset_syncs_topic(self, cluster: str) -> str:
        """Where the pairs of offsets are kept: named by the cluster at the flow's other end."""
        return f"{OFFSET_SYNCS_PREFIX}{self._internal}{cluster}{self._internal}{INTERNAL_SUFFIX}"

    def checkpoints_topic(self, source: str) -> str:
        """The topic on the target with the translated offsets of the source's groups."""
        return f"{source}{self._internal}{CHECKPOINTS_SUFFIX.replace('.', self._internal)}"

    def is_heartbeats_topic(self, topic: str) -> bool:
        return self.original_topic(topic) == HEARTBEATS

    def is_checkpoints_topic(self, topic: str) -> bool:
        return topic.endswith(self._internal + CHECKPOINTS_SUFFIX.replace(".", self._internal))

    def is_internal_topic(self, topic: str) -> bool:
        """Whether a topic belongs to a mirror, a worker or a cluster, and is not to be copied."""
        is_mm2 = topic.startswith("mm2") and topic.endswith(self._internal + INTERNAL_SUFFIX)
        is_kafkas = topic.startswith(("__", "."))
        return is_mm2 or is_kafkas or self.is_checkpoints_topic(topic)


class DefaultReplicationPolicy(ReplicationPolicy):
    """`pages` of the cluster `lisbon` is `lisbon.pages` elsewhere: each name shows its way."""

    def format_remote_topic(self, source: str, topic: str) -> str:
        return f"{source}{self.separator}{topic}"

    def topic_source(self, topic: str) -> str | None:
        source, found, _ = topic.partition(self.separator)
        return source if found and source else None

    def upstream_topic(self, topic: str) -> str | None:
        source = self.topic_source(topic)
        return None if source is None else topic[len(source) + len(self.separator) :]


class IdentityReplicationPolicy(ReplicationPolicy):
    """A topic is called the same everywhere, but for heartbeats.

    For one-way flows: that a topic has come full circle cannot be seen by its name. `source` is the
    alias of the cluster that this flow comes from.
    """

    def __init__(
        self,
        separator: str = DEFAULT_SEPARATOR,
        *,
        separates_internal_topics: bool = True,
        source: str | None = None,
    ) -> None:
        super().__init__(separator, separates_internal_topics=separates_internal_topics)
        self.source = source
        self._of_heartbeats = DefaultReplicationPolicy(separator)

    def format_remote_topic(self, source: str, topic: str) -> str:
        if self._looks_like_heartbeats(topic):
            return self._of_heartbeats.format_remote_topic(source, topic)
        return topic

    def topic_source(self, topic: str) -> str | None:
        if self._looks_like_heartbeats(topic):
            return self._of_heartbeats.topic_source(topic)
        return self.source

    def upstream_topic(self, topic: str) -> str | None:
        if self._looks_like_heartbeats(topic):
            return self._of_heartbeats.upstream_topic(topic)
        return topic

    def is_cycle(self, topic: str, clusters: Iterable[str]) -> bool:
        return self._looks_like_heartbeats(topic) and super().is_cycle(topic, clusters)

    def _looks_like_heartbeats(self, topic: str) -> bool:
        return topic.endswith(HEARTBEATS)


POLICIES: Final = {
    "DefaultReplicationPolicy": DefaultReplicationPolicy,
    "IdentityReplicationPolicy": IdentityReplicationPolicy,
}
"""The policies, by the last part of Kafka's class names: packages do not count."""


def policy_named(
    class_name: str, separator: str, separates_internal_topics: bool, source: str | None
) -> ReplicationPolicy:
    """The policy of `replication.policy.class`: one of Kafka's names, or a class of one's own."""
    known = POLICIES.get(class_name.rpartition(".")[2])
    if known is DefaultReplicationPolicy:
        return DefaultReplicationPolicy(
            separator, separates_internal_topics=separates_internal_topics
        )
    if known is IdentityReplicationPolicy:
        return IdentityReplicationPolicy(
            separator, separates_internal_topics=separates_internal_topics, source=source
        )
    raise ConfigError(
        f"replication.policy.class={class_name}: must be one of {', '.join(sorted(POLICIES))}"
    )
