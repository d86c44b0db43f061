"""The topics that the members of a group subscribe to, kept up to date with the cluster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ottla.coordinator.group.consumer.assignors import SLICE_STEPS, SlicePace
from ottla.coordinator.group.consumer.cluster_topics import ClusterTopics, look_up
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.coordinator.group.consumer.consumer_group_records import partition_metadata_value
from ottla.coordinator.group.consumer.group_changes import GroupChanges
from ottla.coordinator.group.consumer.name_pattern import (
    MAX_KEPT_NAMES,
    STEPS_OF_SEARCH,
    compile_regex,
)
from ottla.errors import KafkaError
from ottla.runtime.scheduler import Work

logger = logging.getLogger(__name__)


class TopicMatches:
    """The topics that expressions match, remembered until topics come, go, or get partitions."""

    def __init__(self, topics: ClusterTopics) -> None:
        self._topics = topics
        self._version: int | None = None
        self._names: list[str] = []
        self._found: dict[str, frozenset[str]] = {}
        self._kept = 0

    def matching(self, text: str) -> Work[frozenset[str]]:
        """The names of the topics that the expression matches as a whole.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION where the search takes more steps than it may.
        """
        if self._version != self._topics.version:
            self._version = self._topics.version
            self._names = [topic.name for topic in self._topics.topics()]
            self._forget()
        found = self._found.get(text)
        if found is not None:
            return found
        names, matched = self._names, []
        for first in range(0, len(names), SLICE_STEPS):
            if first:
                yield
            matched += compile_regex(text).matching(names[first : first + SLICE_STEPS])
        found = frozenset(matched)
        if names is self._names:
            self._keep(text, found)
        return found

    def _keep(self, text: str, found: frozenset[str]) -> None:
        self._kept += 1 + len(found)
        if self._kept > MAX_KEPT_NAMES:
            self._forget()
            self._kept = 1 + len(found)
        self._found[text] = found

    def _forget(self) -> None:
        self._found.clear()
        self._kept = 0


def refresh_topics(
    changes: GroupChanges,
    topics: ClusterTopics,
    matches: TopicMatches,
    now_ms: int,
    *,
    asks_rights: bool,
) -> Work[bool]:
    """Look up the subscribed topics again; True if the group needs a new assignment.

    Topics that come, go, or get partitions change `version`, which each heartbeat compares.
    """
    group, version = changes.group, topics.version
    has_changed = group.seen_topics_version != version
    pace = SlicePace()
    for regex in group.used_regexes:
        if has_changed or asks_rights or regex not in group.regexes:
            names = yield from _names_in_sight(group, regex, matches, asks_rights)
            if group.regexes.get(regex) != names:
                changes.set_regex(regex, names, version, now_ms)
            if pace.is_over(STEPS_OF_SEARCH + len(names) + len(group.members)):
                yield
    drop_unused_regexes(changes)
    subscribed = group.compute_subscribed_topics()
    if not has_changed and subscribed == group.subscribed_topics:
        return False
    found, record = (yield from look_up(topics, subscribed)), None
    if found != group.topics:
        record = yield from partition_metadata_value(found)
    present = group.compute_subscribed_topics()
    if not subscribed <= present:  # members have left in a pause
        subscribed &= present
        found, record = {name: found[name] for name in found if name in present}, None
    group.seen_topics_version = version
    group.subscribed_topics = subscribed
    if found == group.topics:
        return False
    changes.set_topics(found, record)
    return True


def drop_unused_regexes(changes: GroupChanges) -> None:
    """Forget the expressions that no member has now."""
    used = frozenset(changes.group.used_regexes)
    for regex in [regex for regex in changes.group.regexes if regex not in used]:
        changes.drop_regex(regex)


def drop_unused_topics(changes: GroupChanges) -> None:
    """Members have left: forget the topics that only they have read."""
    group = changes.group
    drop_unused_regexes(changes)
    subscribed = group.compute_subscribed_topics()
    if subscribed != group.subscribed_topics:
        group.subscribed_topics = subscribed
        changes.set_topics(
            {name: group.topics[name] for name in group.topics if name in subscribed}
        )


def _names_in_sight(
    group: ConsumerGroup, regex: str, matches: TopicMatches, asks_rights: bool
) -> Work[frozenset[str]]:
    """The topics that the expression matches, and that all members with it may see.

    Where no member has named itself since this broker coordinates the group, no topic is added.
    """
    known = group.regexes.get(regex, frozenset())
    try:
        names = yield from matches.matching(regex)
    except KafkaError as error:  # new topics have made it harder than it was when it was taken
        logger.warning("Group %s keeps the topics it has: %s", group.group_id, error)
        return known
    if not asks_rights:
        return names
    users = [each for each in group.members.values() if each.details.topic_regex == regex]
    # Most members of a group are of one principal, and see the same.
    sights = dict.fromkeys(each.in_sight for each in users if each.in_sight is not None)
    if not sights:
        return names & known
    return (yield from _seen(names, sights))


def _seen(names: frozenset[str], sights: Iterable[Callable[[str], bool]]) -> Work[frozenset[str]]:
    """The names that are in all these sights."""
    pace = SlicePace()
    for in_sight in sights:
        seen = set()
        for name in names:
            if in_sight(name):
                seen.add(name)
            if pace.is_over(1):
                yield
        names = frozenset(seen)
    return names
