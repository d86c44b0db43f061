"""Offsets in topics that were deleted: forgotten a slice at a time, and never seen meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final
from uuid import UUID

from ottla.coordinator.coordinator_log import for_each
from ottla.coordinator.group.group import Group
from ottla.runtime import Runtime
from ottla.runtime.scheduler import Work
from ottla.structs import NO_UUID, TopicPartition

OFFSETS_IN_A_STEP: Final = 10_000
COST_OF_A_GROUP: Final = 80
"""To take over a group, or to write a few tombstones, takes so much longer than a look at an
offset."""


class TopicDrops:
    """Deleted topics, each set with the ids of the groups that may still have offsets in them.

    Groups are attended in slices, as all of them together may have millions of offsets. One that is
    asked for before its turn is attended first: a topic of the same name may be there by then.
    """

    def __init__(
        self,
        runtime: Runtime,
        groups: Mapping[str, Group],
        is_deleted: Callable[[TopicPartition, UUID], bool],
        pay_tombstones: Callable[[Group], object],
    ) -> None:
        self._runtime = runtime
        self._groups = groups
        self._is_deleted = is_deleted
        self._pay_tombstones = pay_tombstones
        self._waiting: list[tuple[Collection[str], dict[str, None]]] = []

    @property
    def is_under_way(self) -> bool:
        """Whether some group may still have such offsets."""
        return bool(self._waiting)

    def begin(self, topics: Collection[str]) -> None:
        """Have all present groups forget their offsets in these topics."""
        waiting = dict.fromkeys(self._groups)
        self._waiting.append((topics, waiting))
        self._runtime.begin(self._attend_all(topics, waiting), "forget offsets of deleted topics")

    def attend(self, group: Group) -> None:
        """Have a group that somebody asks for forget them now."""
        for topics, waiting in self._waiting:
            if group.group_id in waiting:
                del waiting[group.group_id]
                for_each((group,), partial(self._drop, topics))

    def forget(self, group_ids: Iterable[str]) -> None:
        """These groups are gone: others of their ids have no offsets in these topics."""
        for _, waiting in self._waiting:
            for group_id in group_ids:
                waiting.pop(group_id, None)

    def compare(self) -> None:
        """Have all groups forget their offsets in topics that do not exist."""
        self._runtime.begin(self._compare_all(), "forget offsets without a topic")

    def compare_group(self, group: Group, seen: int) -> Work[int]:
        """Have a group do so; `seen` offsets of others have been looked at since the last pause.

        Returns how many have been then.
        """
        known = group.offsets.known()
        for place in range(0, len(known) or 1, OFFSETS_IN_A_STEP):
            some = known[place : place + OFFSETS_IN_A_STEP]
            gone = [each for each in some if self._is_deleted(each, NO_UUID)]
            group.offsets.remove_deleted(list(filter(group.offsets.knows, gone)))
            seen += COST_OF_A_GROUP + len(some)
            if seen >= OFFSETS_IN_A_STEP:
                seen = 0
                yield
        present = self._groups.get(group.group_id)  # it may have got the other protocol
        if present is not None:
            self._pay_tombstones(present)
        return seen

    def _compare_all(self) -> Work[None]:
        seen = 0
        for group in list(self._groups.values()):
            seen = yield from self.compare_group(group, seen)

    def _drop(self, topics: Collection[str], group: Group) -> None:
        group.offsets.remove_deleted(group.offsets.in_topics(topics))
        self._pay_tombstones(group)

    def _attend_all(self, topics: Collection[str], waiting: dict[str, None]) -> Work[None]:
        seen = 0
        for group_id in list(waiting):
            if group_id not in waiting:
                continue
            group = self._groups[group_id]
            if len(group.offsets) > OFFSETS_IN_A_STEP:
                yield from self._attend_large(topics, waiting, group)
                continue
            self.attend(group)
            seen += COST_OF_A_GROUP + len(group.offsets)
            if seen >= OFFSETS_IN_A_STEP:
                seen = 0
                yield
        self._waiting.remove((topics, waiting))

    def _attend_large(
        self, topics: Collection[str], waiting: dict[str, None], group: Group
    ) -> Work[None]:
        """The same in slices, as long as nobody asks for the group.

        What is pending comes first: an open transaction may end in a pause.
        """

        def drop(partitions: Iterable[TopicPartition], group: Group) -> None:
            gone = [each for each in partitions if each.topic in topics]
            group.offsets.remove_deleted([each for each in gone if group.offsets.knows(each)])

        for_each((group,), partial(drop, group.offsets.pending()))
        for some in group.offsets.in_pieces(OFFSETS_IN_A_STEP):
            yield
            if group.group_id not in waiting:
                return
            for_each((group,), partial(drop, some))
        del waiting[group.group_id]
        for_each((group,), self._pay_tombstones)
