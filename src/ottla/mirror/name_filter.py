"""The topics, groups and settings that are mirrored: lists of patterns that match whole names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ottla.errors import ConfigError
from ottla.mirror.replication_policy import ReplicationPolicy


class NameFilter:
    """Names that match one of the patterns and none of the excluded ones.

    `setting` is the key that the patterns are from, for the error that a bad one gets.
    """

    def __init__(self, setting: str, patterns: Sequence[str], excluded: Sequence[str]) -> None:
        self._wanted = any_of(setting, patterns)
        self._excluded = any_of(f"{setting}.exclude", excluded)

    def takes(self, name: str) -> bool:
        if self._wanted is None or not self._wanted.fullmatch(name):
            return False
        return self._excluded is None or not self._excluded.fullmatch(name)


def any_of(setting: str, patterns: Sequence[str]) -> re.Pattern[str] | None:
    """One pattern for a list of them; None for an empty list, which matches nothing."""
    wanted = [pattern.strip() for pattern in patterns if pattern.strip()]
    for pattern in wanted:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError(
                f"{setting}={pattern}: must be regular expressions, with commas between: {error}"
            ) from None
    return re.compile("|".join(f"(?:{pattern})" for pattern in wanted)) if wanted else None


def is_mirrored_topic(
    topic: str, policy: ReplicationPolicy, wanted: NameFilter, clusters: Iterable[str]
) -> bool:
    """Whether a topic of the source is copied by a flow between `clusters`.

    Heartbeats always are, from wherever they come, unless they would go in a circle.
    """
    if policy.is_cycle(topic, clusters):
        return False
    if policy.is_heartbeats_topic(topic):
        return True
    return not policy.is_internal_topic(topic) and wanted.takes(topic)
