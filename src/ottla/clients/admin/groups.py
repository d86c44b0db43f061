"""Groups: list, describe, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from ottla.clients.admin.admin_client import AdminClient, checked
from ottla.clients.admin.descriptions import GroupDescription, GroupListing, MemberDescription
from ottla.clients.answers import only
from ottla.clients.network_client import response_error
from ottla.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
    DescribedConsumerGroup,
)
from ottla.protocol.consumer_protocol import decode_assignment, partitions_of
from ottla.protocol.group import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from ottla.runtime.timing import Deadline
from ottla.structs import Node, TopicPartition

FIRST_LIST_WITH_STATES = 4
FIRST_LIST_WITH_TYPES = 5
CONSUMER = "consumer"
DEAD = "Dead"


class GroupAdmin:
    """Requests about groups; each goes to the group's coordinator, lists come from all brokers."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def list_groups(
        self, states: Sequence[str], types: Sequence[str] = ()
    ) -> list[GroupListing]:
        async def attempt(
            pending: list[int], deadline: Deadline
        ) -> dict[int, list[GroupListing] | KafkaError]:
            answers = await asyncio.gather(
                *(self._list(broker, states, types) for broker in pending)
            )
            return dict(zip(pending, answers, strict=True))

        brokers = await self._admin.brokers(self._admin.deadline())
        results = await self._admin.for_each(brokers, attempt)
        for broker, listed in results.items():
            if not isinstance(listed, KafkaError):
                self._admin.note_coordinator(broker, [group.group_id for group in listed])
        every = (group for listed in checked(results).values() for group in listed)
        return sorted({group.group_id: group for group in every}.values())

    async def describe_groups(
        self, group_ids: Sequence[str]
    ) -> dict[str, GroupDescription | KafkaError]:
        async def attempt(
            pending: list[str], deadline: Deadline
        ) -> dict[str, GroupDescription | KafkaError]:
            return await self._admin.ask_coordinators(pending, deadline, self._describe)

        return await self._admin.for_each(group_ids, attempt)

    async def delete_groups(self, group_ids: Sequence[str]) -> dict[str, KafkaError | None]:
        async def attempt(pending: list[str], deadline: Deadline) -> dict[str, KafkaError | None]:
            answers = await asyncio.gather(*(self._delete(group, deadline) for group in pending))
            return dict(zip(pending, answers, strict=True))

        return await self._admin.for_each(group_ids, attempt)

    async def _list(
        self, broker: int, states: Sequence[str], types: Sequence[str]
    ) -> list[GroupListing] | KafkaError:
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        low = FIRST_LIST_WITH_STATES if states else 0
        low = FIRST_LIST_WITH_TYPES if types else low
        try:
            response = cast(
                ListGroupsResponse, await self._admin.client.send(broker, request, low=low)
            )
        except KafkaError as cause:
            return cause
        error = response_error(response.error_code, f"groups of broker {broker}")
        return error or [
            GroupListing(group.group_id, group.protocol_type, group.group_state, group.group_type)
            for group in response.groups
        ]

    async def _describe(
        self, coordinator: Node, group_ids: list[str]
    ) -> dict[str, GroupDescription | KafkaError]:
        request = DescribeGroupsRequest(groups=group_ids)
        answer = await self._admin.client.send(coordinator.id, request)
        found: dict[str, GroupDescription | KafkaError] = {
            group.group_id: _described(group, coordinator)
            for group in cast(DescribeGroupsResponse, answer).groups
        }
        dead = [
            name
            for name, each in found.items()
            if not isinstance(each, KafkaError) and each.state == DEAD
        ]
        if dead:
            # DescribeGroups reports a consumer group as one that does not exist.
            found |= await self._describe_consumer_groups(coordinator, dead)
        return found

    async def _describe_consumer_groups(
        self, coordinator: Node, group_ids: list[str]
    ) -> dict[str, GroupDescription | KafkaError]:
        """The groups of KIP-848 among them; older brokers have none."""
        request = ConsumerGroupDescribeRequest(group_ids=group_ids)
        try:
            answer = await self._admin.client.send(coordinator.id, request)
        except KafkaError as error:
            if error.error is ErrorCode.UNSUPPORTED_VERSION:
                return {}
            raise
        return {
            group.group_id: response_error(group.error_code, f"group {group.group_id}")
            or consumer_group_of(group, coordinator)
            for group in cast(ConsumerGroupDescribeResponse, answer).groups
            if group.error_code != ErrorCode.GROUP_ID_NOT_FOUND
        }

    async def _delete(self, group_id: str, deadline: Deadline) -> KafkaError | None:
        try:
            coordinator = await self._admin.coordinator(group_id, deadline)
            request = DeleteGroupsRequest(groups_names=[group_id])
            answer = await self._admin.client.send(coordinator.id, request)
        except KafkaError as error:
            return error
        try:
            result = only(cast(DeleteGroupsResponse, answer).results, f"group {group_id}")
        except KafkaError as error:
            return error
        return response_error(result.error_code, f"group {group_id}")


def _described(group: DescribedGroup, coordinator: Node) -> GroupDescription | KafkaError:
    """A group; one that does not exist is Dead, also where the broker says so by an error."""
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        group.error_code = ErrorCode.NONE
    error = response_error(group.error_code, f"group {group.group_id}")
    return error or _description_or_fault(group, coordinator)


def _description_or_fault(
    group: DescribedGroup, coordinator: Node
) -> GroupDescription | KafkaError:
    """A group; the error of it alone where its leader has given out assignments that are none."""
    try:
        return description_of(group, coordinator)
    except ProtocolError as fault:
        what = f"group {group.group_id}: an assignment cannot be read: {fault.message}"
        return KafkaError.of(fault.error, what)


def description_of(group: DescribedGroup, coordinator: Node) -> GroupDescription:
    """A group as the coordinator describes it; only consumers' assignments can be decoded."""
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
                partitions_of(decode_assignment(member.member_assignment).assigned_partitions)
                if group.protocol_type == CONSUMER and member.member_assignment
                else [],
            )
            for member in group.members
        ],
    )


def consumer_group_of(group: DescribedConsumerGroup, coordinator: Node) -> GroupDescription:
    """A group of KIP-848 as the coordinator describes it."""
    return GroupDescription(
        group.group_id,
        group.group_state,
        CONSUMER,
        group.assignor_name,
        coordinator,
        [
            MemberDescription(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                _partitions(member.assignment),
                member.member_epoch,
                _partitions(member.target_assignment),
            )
            for member in group.members
        ],
        group.group_epoch,
        group.assignment_epoch,
    )


def _partitions(assignment: DescribedAssignment) -> list[TopicPartition]:
    return [
        TopicPartition(topic.topic_name, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    ]
