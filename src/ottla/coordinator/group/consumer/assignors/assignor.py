"""What an assignor is told, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

from ottla.coordinator.group.consumer.member import Assignment


class MemberSpec(NamedTuple):
    """A member: the topics it reads, and the target that it had before."""

    topic_ids: frozenset[UUID]
    target: Assignment
    instance_id: str | None = None


class GroupSpec(NamedTuple):
    """The members by id, and the partition count of each topic that exists."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[UUID, int]


Assignor = Callable[[GroupSpec], dict[str, Assignment]]
"""Gives each partition that somebody reads to exactly one member that reads its topic."""
