"""Groups: list, describe, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from ottla.clients.admin.admin_client import AdminClient
from ottla.clients.admin.descriptions import GroupDescription, GroupListing, MemberDescription
from ottla.clients.consumer_protocol import decode_assignment
from ottla.clients.network_client import response_error
from ottla.errors import KafkaError
from ottla.network.timing import Deadline
from ottla.protocol.group import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from ottla.structs import Node

FIRST_LIST_WITH_STATES = 4
CONSUMER = "consumer"


class GroupAdmin:
    """Requests about groups; each goes to the group's coordinator, lists come from all brokers."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def list_groups(self, states: Sequence[str]) -> list[GroupListing]:
        async def attempt(
            pending: list[int], deadline: Deadline
        ) -> dict[int, list[GroupListing] | KafkaError]:
            answers = await asyncio.gather(*(self._list(broker, states) for broker in pending))
            return dict(zip(pending, answers, strict=True))

        brokers = await self._admin.brokers(self._admin.deadline())
        results = await self._admin.for_each(brokers, attempt)
        groups: dict[str, GroupListing] = {}
        for listed in results.values():
            if isinstance(listed, KafkaError):
                raise listed
            groups.update((group.group_id, group) for group in listed)
        return sorted(groups.values())

    async def describe_groups(
        self, group_ids: Sequence[str]
    ) -> dict[str, GroupDescription | KafkaError]:
        async def attempt(
            pending: list[str], deadline: Deadline
        ) -> dict[str, GroupDescription | KafkaError]:
            answers = await asyncio.gather(*(self._describe(group, deadline) for group in pending))
            return dict(zip(pending, answers, strict=True))

        return await self._admin.for_each(group_ids, attempt)

    async def delete_groups(self, group_ids: Sequence[str]) -> dict[str, KafkaError | None]:
        async def attempt(pending: list[str], deadline: Deadline) -> dict[str, KafkaError | None]:
            answers = await asyncio.gather(*(self._delete(group, deadline) for group in pending))
            return dict(zip(pending, answers, strict=True))

        return await self._admin.for_each(group_ids, attempt)

    async def _list(self, broker: int, states: Sequence[str]) -> list[GroupListing] | KafkaError:
        request = ListGroupsRequest(states_filter=list(states))
        low = FIRST_LIST_WITH_STATES if states else 0
        try:
            response = cast(
                ListGroupsResponse, await self._admin.client.send(broker, request, low=low)
            )
        except KafkaError as cause:
            return cause
        error = response_error(response.error_code, f"groups of broker {broker}")
        return error or [
            GroupListing(group.group_id, group.protocol_type, group.group_state)
            for group in response.groups
        ]

    async def _describe(self, group_id: str, deadline: Deadline) -> GroupDescription | KafkaError:
        try:
            coordinator = await self._admin.coordinator(group_id, deadline)
            request = DescribeGroupsRequest(groups=[group_id])
            answer = await self._admin.client.send(coordinator.id, request)
        except KafkaError as error:
            return error
        (group,) = cast(DescribeGroupsResponse, answer).groups
        return response_error(group.error_code, f"group {group_id}") or description_of(
            group, coordinator
        )

    async def _delete(self, group_id: str, deadline: Deadline) -> KafkaError | None:
        try:
            coordinator = await self._admin.coordinator(group_id, deadline)
            request = DeleteGroupsRequest(groups_names=[group_id])
            answer = await self._admin.client.send(coordinator.id, request)
        except KafkaError as error:
            return error
        (result,) = cast(DeleteGroupsResponse, answer).results
        return response_error(result.error_code, f"group {group_id}")


def description_of(group: DescribedGroup, coordinator: Node) -> GroupDescription:
    """A group as the coordinator tells it; only consumers' assignments can be read."""
    return GroupDescription(
        group.group_id,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        coordinator,
        [
            MemberDescription(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                decode_assignment(member.member_assignment)
                if group.protocol_type == CONSUMER and member.member_assignment
                else [],
            )
            for member in group.members
        ],
    )
