"""Offsets in topics that were deleted: forgotten a slice at a time, and never seen meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Final
from uuid import UUID

from ottla.coordinator.coordinator_log import for_each
from ottla.coordinator.coordinator_writer import WRITE_AGAIN_MS
from ottla.coordinator.group.deletion import OnStored
from ottla.coordinator.group.group import Group
from ottla.errors import ErrorCode
from ottla.runtime import Runtime
from ottla.runtime.scheduler import Work
from ottla.structs import NO_UUID, TopicPartition

OFFSETS_IN_A_STEP: Final = 10_000
COST_OF_A_GROUP: Final = 160
"""To take over a group, or to write a few tombstones, takes so much longer than a look at an
offset."""
TOMBSTONES_AT_ONCE: Final = 10_000
"""The tombstones of deleted topics in one write; others follow when the log has these."""


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


class OwedTombstones:
    """Writes the tombstones of deleted topics, again and again until they are in the log."""

    def __init__(
        self,
        runtime: Runtime,
        groups: Mapping[str, Group],
        drop_offsets: Callable[[Group, list[TopicPartition], OnStored], object],
    ) -> None:
        self._scheduler = runtime.scheduler
        self._groups = groups
        self._drop_offsets = drop_offsets
        self._paying: set[Group] = set()
        """Groups whose tombstones are on their way into the log."""
        self._waiting: set[str] = set()
        """The ids of groups whose tombstones were refused: they are written again soon."""

    def pay(self, group: Group) -> None:
        """Write the tombstones that the group owes, as far as they may be written now."""
        payable = list(islice(group.offsets.payable_tombstones(), TOMBSTONES_AT_ONCE))
        is_present = self._groups.get(group.group_id) is group
        if not payable or not is_present or group in self._paying:
            return
        self._paying.add(group)

        def on_stored(error: ErrorCode) -> None:
            self._paying.discard(group)
            if not error:
                self._pay_present(group.group_id)
            elif group.group_id not in self._waiting:
                self._waiting.add(group.group_id)
                self._scheduler.call_later(WRITE_AGAIN_MS, lambda: try_again(group.group_id))

        def try_again(group_id: str) -> None:
            self._waiting.discard(group_id)
            self._pay_present(group_id)

        self._drop_offsets(group, payable, on_stored)

    def _pay_present(self, group_id: str) -> None:
        """The group may have changed its protocol meanwhile: the other one has its offsets."""
        group = self._groups.get(group_id)
        if group is not None:
            self.pay(group)
