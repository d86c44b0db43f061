"""Keeps what a group knows of its topics up to date with the cluster."""

from __future__ import annotations

from ottla.coordinator.group.consumer.group_changes import GroupChanges
from ottla.coordinator.group.consumer.topic_regex import matching_topics
from ottla.coordinator.group.consumer.topics import ClusterTopics, look_up


def refresh_topics(changes: GroupChanges, topics: ClusterTopics, now_ms: int) -> bool:
    """Look at the subscriptions and the cluster again; whether that calls for an assignment.

    Topics that come, go, or get partitions are noticed by their version at the next heartbeat.
    """
    group = changes.group
    _refresh_regexes(changes, topics, now_ms)
    group.seen_topics_version = topics.version
    group.subscribed_topics = group.compute_subscribed_topics()
    found = look_up(topics, group.subscribed_topics)
    if found == group.topics:
        return False
    changes.set_topics(found)
    return True


def _refresh_regexes(changes: GroupChanges, topics: ClusterTopics, now_ms: int) -> None:
    """Each expression that some member has; a look at all topics only where they have changed."""
    group = changes.group
    has_changed = group.seen_topics_version != topics.version
    used = {member.details.topic_regex for member in group.members.values()} - {""}
    for regex in [regex for regex in group.regexes if regex not in used]:
        changes.drop_regex(regex)
    for regex in sorted(used):
        if regex in group.regexes and not has_changed:
            continue
        names = matching_topics(regex, topics)
        if group.regexes.get(regex) != names:
            changes.set_regex(regex, names, topics.version, now_ms)
