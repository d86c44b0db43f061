"""Deletes the state of an application, so that its next start begins from scratch.

It has state in three places: its folder, topics of its own, and the groups in which its sinks keep
their decisions. Output topics stay as they are. Needs no Spark.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ottla.clients.admin.admin import Admin
from ottla.clients.topic_offsets import OffsetSpec
from ottla.streams.naming import (
    applications_of,
    check_application_id,
    is_group_of,
    is_internal,
    lock_folder,
)
from ottla.structs import TopicPartition


@dataclass(frozen=True)
class Reset:
    """The data that a reset deletes: whole topics, all records of others, groups, and a folder.

    `left_topics` have the names of the application's own, and of another one's whose id begins
    with its id: that one has groups, and the topics may be its state.
    """

    topics: Sequence[str]
    emptied_topics: Sequence[str]
    groups: Sequence[str]
    folder: Path | None
    left_topics: Mapping[str, str]
    """With the id of that application."""

    @classmethod
    def plan(
        cls, admin: Admin, application_id: str, state_dir: Path, intermediate: Sequence[str] = ()
    ) -> Reset:
        """An application's existing state; raises ValueError for a topic that does not exist."""
        check_application_id(application_id)
        there = admin.list_topics()
        for topic in intermediate:
            if topic not in there:
                raise ValueError(f"there is no topic {topic}")
        folder = state_dir / application_id
        groups = [each.group_id for each in admin.list_groups()]
        own = sorted(each for each in there if is_internal(each, application_id))
        left = {
            topic: other
            for other in applications_of(groups)
            if other.startswith(f"{application_id}-")
            for topic in own
            if is_internal(topic, other)
        }
        return cls(
            topics=[each for each in own if each not in left],
            emptied_topics=list(intermediate),
            groups=sorted(each for each in groups if is_group_of(each, application_id)),
            folder=folder if folder.is_dir() else None,
            left_topics=dict(sorted(left.items())),
        )

    def carry_out(self, admin: Admin) -> None:
        """Delete all of it; the folder last, so that a failed reset can be repeated.

        ValueError, before anything is deleted, where an instance runs in the folder.
        """
        lock = None if self.folder is None else lock_folder(self.folder)
        try:
            if self.groups:
                admin.delete_groups(self.groups)  # before topics: deleting those may delete groups
            if self.topics:
                admin.delete_topics(self.topics)
            if self.emptied_topics:
                admin.delete_records(_ends(admin, self.emptied_topics))
            if self.folder is not None:
                shutil.rmtree(self.folder)
        finally:
            if lock is not None:
                lock.release()


def _ends(admin: Admin, topics: Sequence[str]) -> dict[TopicPartition, int]:
    partitions = [
        TopicPartition(name, each.partition)
        for name, description in admin.describe_topics(topics).items()
        for each in description.partitions
    ]
    found = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    return {where: result.offset for where, result in found.items()}
