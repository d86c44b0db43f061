"""The checks of a ConsumerGroupHeartbeat, before and after its member is known."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ottla.coordinator.group.consumer.assigned_partitions import AssignedPartitions
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.coordinator.group.consumer.consumer_member import ConsumerMember
from ottla.coordinator.group.consumer.name_pattern import compile_regex
from ottla.coordinator.group.group import is_too_long
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.consumer_group import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupHeartbeatRequest,
)

MEMBER_MAKES_ITS_ID_VERSION = 1
MAX_TOPICS: Final = 10_000
"""In either list of a request; a topic may have any number of partitions."""


def check_request(
    request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Collection[str]
) -> None:
    """Raise the error of the request, regardless of its group."""
    _check_topics(request)
    _check_names(request)
    needs_id = api_version >= MEMBER_MAKES_ITS_ID_VERSION or request.member_epoch != JOIN_EPOCH
    if needs_id and not request.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    if request.member_epoch < LEAVE_STATIC_EPOCH:
        raise _invalid(f"MemberEpoch {request.member_epoch} is invalid: it must be at least -2.")
    if request.member_epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null where MemberEpoch is -2.")
    if request.member_epoch == JOIN_EPOCH:
        _check_join(request)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported; "
            f"group.consumer.assignors has {', '.join(assignors)}.",
        )
    if request.subscribed_topic_regex:
        compile_regex(request.subscribed_topic_regex)


def _check_topics(request: ConsumerGroupHeartbeatRequest) -> None:
    for name, topics in (
        ("SubscribedTopicNames", request.subscribed_topic_names),
        ("TopicPartitions", request.topic_partitions),
    ):
        if topics is not None and len(topics) > MAX_TOPICS:
            raise _invalid(f"{name} has {len(topics)} topics, which may be {MAX_TOPICS} at most.")


def _check_names(request: ConsumerGroupHeartbeatRequest) -> None:
    for name, value in (("InstanceId", request.instance_id), ("RackId", request.rack_id)):
        if value is not None and not value.strip():
            raise _invalid(f"{name} can't be empty.")
    names = [request.member_id, request.instance_id, request.rack_id, request.server_assignor]
    if any(is_too_long(name) for name in (*names, *(request.subscribed_topic_names or ()))):
        raise _invalid("A name of the request is longer than 32767 bytes.")


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms < 0:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid("SubscribedTopicNames or SubscribedTopicRegex must be set when joining.")


def check_epoch(
    member: ConsumerMember, member_epoch: int, owned: AssignedPartitions | None
) -> None:
    """Fence the member, unless it names its present epoch or did not get our last answer.

    In the latter case it names the previous epoch, and only partitions that are still its own.
    """
    current = member.current
    if member_epoch == current.member_epoch:
        return
    if member_epoch > current.member_epoch:
        raise fenced(member, member_epoch)
    is_retry = member_epoch == current.previous_member_epoch
    if not is_retry or owned is None or not owned <= current.assigned:
        raise fenced(member, member_epoch)


def fenced(member: ConsumerMember, member_epoch: int) -> KafkaError:
    """The error that makes a member give all its partitions up and join again."""
    return KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"Member {member.member_id} has epoch {member.current.member_epoch}, not {member_epoch}; "
        "it must abandon all its partitions and rejoin.",
    )


def find_member(
    group: ConsumerGroup | None, member_id: str, instance_id: str | None
) -> ConsumerMember:
    """The member that the sender claims to be; a static one is found by its instance id."""
    if group is None or (instance_id is None and member_id not in group.members):
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of the group."
        )
    if instance_id is None:
        return group.members[member_id]
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown to the group."
        )
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Instance id {instance_id} belongs to member {member.member_id}, not {member_id}.",
        )
    return member


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
