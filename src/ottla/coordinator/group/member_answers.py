"""Answers the waiting members of a classic group, which may be tens of thousands, in slices."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from itertools import islice
from typing import Final

from ottla.coordinator.coordinator_log import for_each
from ottla.coordinator.group.classic_group import ClassicGroup, GroupState
from ottla.coordinator.group.deletion import OnStored
from ottla.coordinator.group.group_metadata_manager import GroupMetadataManager
from ottla.coordinator.group.member_metadata import MemberMetadata
from ottla.coordinator.group.member_requests import MEMBERS_IN_A_SLICE
from ottla.coordinator.group.member_sessions import MemberSessions
from ottla.errors import ErrorCode
from ottla.protocol.group import JoinGroupResponse, SyncGroupResponse
from ottla.runtime import Runtime
from ottla.runtime.scheduler import Work

STORED_AT_ONCE: Final = 20
"""The members of a group that is stored for each of them, as it takes no time."""
NAMED_MEMBERS: Final = 10
"""The members that are named in a line of the log, or in a reason."""


class MemberAnswers:
    """Sends the answers that all members of a group get together; others may come in a pause."""

    def __init__(
        self,
        runtime: Runtime,
        sessions: MemberSessions[ClassicGroup, MemberMetadata],
        generation_for: Callable[[ClassicGroup, MemberMetadata], JoinGroupResponse],
    ) -> None:
        self._runtime = runtime
        self._sessions = sessions
        self._generation_for = generation_for

    def answer_joins(self, group: ClassicGroup) -> None:
        """Answer JoinGroup, of those who wait now, with the present generation.

        Those who wait when the next rebalance begins, in a pause, have joined for that one.
        """
        self._runtime.begin(self._joins(group), "answer JoinGroup of a large group")

    def _joins(self, group: ClassicGroup) -> Work[None]:
        generation_id = group.generation_id
        waiting = [(member, member.awaiting_join) for member in group.members.values()]
        for number, (member, callback) in enumerate(waiting, 1):
            if callback is not None and member.awaiting_join is callback:
                self._sessions.restart(group, member)
                group.answer_join(member, self._generation_for(group, member))
            if not number % MEMBERS_IN_A_SLICE:
                yield
                if group.generation_id != generation_id or group.is_in(
                    GroupState.PREPARING_REBALANCE, GroupState.DEAD
                ):
                    return

    def answer_syncs(self, group: ClassicGroup, error: ErrorCode = ErrorCode.NONE) -> None:
        """Answer SyncGroup, of those who wait now, with the assignments of now, or an error."""
        self._runtime.begin(self._syncs(group, error), "answer SyncGroup of a large group")

    def _syncs(self, group: ClassicGroup, error: ErrorCode) -> Work[None]:
        waiting = [
            (member, member.awaiting_sync, member.assignment)
            for member in group.members.values()
            if member.awaiting_sync is not None
        ]
        names = (None, None) if error else (group.protocol_type, group.protocol_name)
        for number, (member, callback, assignment) in enumerate(waiting, 1):
            if member.awaiting_sync is callback:  # it may have been answered in a pause
                # A session cannot expire while its member waits for us; it starts again now.
                self._sessions.restart(group, member)
                response = SyncGroupResponse(
                    error_code=error,
                    protocol_type=names[0],
                    protocol_name=names[1],
                    assignment=assignment,
                )
                group.answer_sync(member, response)
            if not number % MEMBERS_IN_A_SLICE:
                yield


class SharedStores:
    """Stores stable groups as they are: a large one once for all that ask for it in one turn.

    A thousand static members may be restarted at once, and the record has all of them.
    """

    def __init__(self, runtime: Runtime, manager: GroupMetadataManager) -> None:
        self._scheduler = runtime.scheduler
        self._manager = manager
        self._waiting: dict[ClassicGroup, list[OnStored]] = {}

    def store(self, group: ClassicGroup, on_stored: OnStored) -> None:
        """`on_stored` is called with NONE as well if the group is no longer stable in its turn."""
        waiting = self._waiting.setdefault(group, [])
        waiting.append(on_stored)
        if len(group.members) <= STORED_AT_ONCE:
            self._store(group)
        elif len(waiting) == 1:
            self._scheduler.call_soon(partial(self._store, group))

    def _store(self, group: ClassicGroup) -> None:
        waiting = self._waiting.pop(group, [])

        def on_stored(error: ErrorCode) -> None:
            for_each(waiting, lambda each: each(error))

        if not group.is_in(GroupState.STABLE):
            on_stored(ErrorCode.NONE)
        elif waiting:
            assignment = {each.member_id: each.assignment for each in group.members.values()}
            self._manager.store_group(group, assignment, on_stored)


def named(member_ids: Collection[str]) -> str:
    """The members by their ids, the first ones of very many."""
    text = ", ".join(islice(member_ids, NAMED_MEMBERS))
    left = len(member_ids) - NAMED_MEMBERS
    return f"{text} and {left} more" if left > 0 else text
