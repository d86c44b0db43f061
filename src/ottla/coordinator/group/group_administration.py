"""What administrators ask of a coordinator: describe, list and delete groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from ottla.coordinator.group.group import GroupMetadata, GroupState
from ottla.coordinator.group.group_metadata_manager import GroupMetadataManager
from ottla.coordinator.group.group_type import Group
from ottla.errors import ErrorCode
from ottla.protocol.group import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from ottla.structs import TopicPartition


class Availability(Protocol):
    """Says whether this broker can answer for a group now."""

    def __call__(self, group_id: str, *, may_be_empty: bool) -> ErrorCode: ...


class GroupAdministration:
    """Looks at groups from outside, and removes those that nobody uses."""

    def __init__(self, manager: GroupMetadataManager, availability: Availability) -> None:
        self._manager = manager
        self._availability = availability

    def describe_groups(self, group_ids: Iterable[str]) -> list[DescribedGroup]:
        """State and members of each classic group; one that there is not is Dead, no error."""
        return [self._describe(group_id) for group_id in group_ids]

    def list_groups(self, request: ListGroupsRequest) -> ListGroupsResponse:
        """The groups that are known here; an empty filter lets all pass (KIP-518)."""
        states = {state.lower() for state in request.states_filter}
        types = {type_name.lower() for type_name in request.types_filter}
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ListGroupsResponse(
            error_code=loading if self._manager.is_loading else ErrorCode.NONE,
            groups=[
                _listed(group)
                for group in self._manager.groups()
                if (not states or group.state_name.lower() in states)
                and (not types or group.type.value in types)
            ],
        )

    def delete_groups(
        self, request: DeleteGroupsRequest, respond: Callable[[DeleteGroupsResponse], object]
    ) -> None:
        """Each group on its own; the answer waits until all deletions are in the log (KIP-229)."""
        group_ids = list(dict.fromkeys(request.groups_names))
        results: dict[str, ErrorCode] = {}

        def on_result(group_id: str, error: ErrorCode) -> None:
            results[group_id] = error
            if len(results) == len(group_ids):
                respond(_deleted(group_ids, results))

        if not group_ids:
            respond(DeleteGroupsResponse())
        for group_id in group_ids:
            self._delete(group_id, on_result)

    def delete_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition],
        respond: Callable[[ErrorCode, Mapping[TopicPartition, ErrorCode]], object],
    ) -> None:
        """Only of topics that no member reads; a group whose members do not say so keeps all."""
        error = self._availability(group_id, may_be_empty=True)
        group = self._manager.group(group_id)
        if not error and group is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif not error and group and not group.is_empty and group.subscribed_topics is None:
            error = ErrorCode.NON_EMPTY_GROUP
        if error or group is None:
            respond(error, {})
            return
        topics = None if group.is_empty else group.subscribed_topics
        read = {p for p in partitions if p.topic in (topics or ())}
        errors = dict.fromkeys(partitions, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
        unread = [partition for partition in partitions if partition not in read]

        def on_stored(error: ErrorCode) -> None:
            respond(ErrorCode.NONE, {**errors, **dict.fromkeys(unread, error)})

        self._manager.delete_offsets(group, unread, on_stored)

    def _describe(self, group_id: str) -> DescribedGroup:
        error = self._availability(group_id, may_be_empty=True)
        if error:
            return DescribedGroup(error_code=error, group_id=group_id)
        group = self._manager.classic_group(group_id)
        if group is None:
            return DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        is_stable = group.is_in(GroupState.STABLE)
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol_name or "") if is_stable else "",
            members=_described_members(group),
        )

    def _delete(self, group_id: str, on_result: Callable[[str, ErrorCode], object]) -> None:
        error = self._availability(group_id, may_be_empty=True)
        group = self._manager.group(group_id)
        if error:
            on_result(group_id, error)
        elif group is None:
            on_result(group_id, ErrorCode.GROUP_ID_NOT_FOUND)
        elif not group.is_empty:
            on_result(group_id, ErrorCode.NON_EMPTY_GROUP)
        else:
            self._manager.delete_group(group, lambda error: on_result(group_id, error))


def _listed(group: Group) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state_name,
        group_type=group.type.value,
    )


def _described_members(group: GroupMetadata) -> list[DescribedGroupMember]:
    """Subscriptions and assignments are shown of a stable group; else they do not hold."""
    is_stable = group.is_in(GroupState.STABLE)
    protocol = group.protocol_name or ""
    return [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(protocol) if is_stable else b"",
            member_assignment=member.assignment if is_stable else b"",
        )
        for member in group.members.values()
    ]


def _deleted(group_ids: Iterable[str], results: dict[str, ErrorCode]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=results[group_id])
            for group_id in group_ids
        ]
    )
