"""Records of __consumer_offsets as text, for the console consumer and for dumps."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

from ottla.cli.exact_json import json_line
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolSubscription,
    decode_assignment,
    partitions_of,
)
from ottla.protocol.message import Struct, decode_versioned
from ottla.protocol.offsets_topic import (
    VALUES,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupRegularExpressionKey,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
)
from ottla.structs import CONSUMER_PROTOCOL_TYPE, encode_uuid

if TYPE_CHECKING:
    from ottla.protocol.offsets_topic import StoredMember

KAFKA_NAMES = {"group": "group_id", "partition_count": "num_partitions"}


def offset_line(key: bytes | None, value: bytes | None) -> str | None:
    """`[group,topic,partition]::OffsetAndMetadata(...)`; None for a record of another kind."""
    found = decode_key(key) if key else None
    if not isinstance(found, OffsetCommitKey):
        return None
    shown = "NULL" if value is None else _commit_text(decode_versioned(OffsetCommitValue, value))
    return f"[{found.group},{found.topic},{found.partition}]::{shown}"


def _commit_text(commit: OffsetCommitValue) -> str:
    epoch = "Optional.empty" if commit.leader_epoch < 0 else f"Optional[{commit.leader_epoch}]"
    expires = "None" if commit.expire_timestamp < 0 else f"Some({commit.expire_timestamp})"
    return (
        f"OffsetAndMetadata(offset={commit.offset}, leaderEpoch={epoch}, "
        f"metadata={commit.metadata}, commitTimestamp={commit.commit_timestamp}, "
        f"expireTimestamp={expires})"
    )


def group_line(key: bytes | None, value: bytes | None) -> str | None:
    """`group::GroupMetadata(...)`; None for a record of another kind."""
    found = decode_key(key) if key else None
    if not isinstance(found, GroupMetadataKey):
        return None
    if value is None:
        return f"{found.group}::NULL"
    return f"{found.group}::{_group_text(found.group, decode_versioned(GroupMetadataValue, value))}"


def _group_text(group_id: str, group: GroupMetadataValue) -> str:
    members = ", ".join(
        f"{member.member_id} -> MemberMetadata(memberId={member.member_id}, "
        f"groupInstanceId={member.group_instance_id}, clientId={member.client_id}, "
        f"clientHost={member.client_host}, sessionTimeoutMs={member.session_timeout}, "
        f"rebalanceTimeoutMs={member.rebalance_timeout})"
        for member in group.members
    )
    return (
        f"GroupMetadata(groupId={group_id}, generation={group.generation}, "
        f"protocolType={group.protocol_type}, protocol={group.protocol}, "
        f"leader={group.leader}, members=Map({members}))"
    )


def topics_of(group_id: str, key: bytes | None, value: bytes | None) -> set[str]:
    """The topics that a record of this group names: subscribed to by a member, or committed."""
    fields: dict[type, str] = {
        ConsumerGroupMemberMetadataKey: "subscribed_topic_names",
        ConsumerGroupRegularExpressionKey: "topics",
    }
    found = decode_key(key) if key else None
    if found is None or found.group != group_id:
        return set()
    if isinstance(found, OffsetCommitKey):
        return {found.topic}
    if value is not None and type(found) in fields:
        return set(getattr(decode_versioned(VALUES[type(found)], value), fields[type(found)]))
    if value is None or not isinstance(found, GroupMetadataKey):
        return set()
    group = decode_versioned(GroupMetadataValue, value)
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return set()
    return {
        topic
        for member in group.members
        for topic in decode_versioned(ConsumerProtocolSubscription, member.subscription).topics
    }


def key_and_payload(key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    """A record as `dump-log --offsets-decoder` shows it; a tombstone has no payload.

    Commits and classic groups look as in Kafka 3, records of consumer groups as in Kafka 4.
    """
    found = decode_key(key) if key else None
    if found is None:
        return None, None
    if isinstance(found, OffsetCommitKey):
        shown = f"offset::{found.group}:{found.topic}:{found.partition}"
        if value is None:
            return shown, None
        commit = decode_versioned(OffsetCommitValue, value)
        return shown, f"{commit.offset}:{commit.metadata}" if commit.metadata else str(
            commit.offset
        )
    if not isinstance(found, GroupMetadataKey):
        shown = _json({"type": str(found.max_version), "data": _document(found)})
        if value is None:
            return shown, None
        version = str(int.from_bytes(value[:2], "big"))
        data = _document(decode_versioned(VALUES[type(found)], value))
        return shown, _json({"version": version, "data": data})
    shown = _json({"metadata": found.group})
    if value is None:
        return shown, None
    return shown, _group_json(decode_versioned(GroupMetadataValue, value))


def _group_json(group: GroupMetadataValue) -> str:
    assignments = ",".join(
        f"{member.member_id}={_assignment_text(group.protocol_type, member)}"
        for member in group.members
    )
    return _json(
        {
            "protocolType": group.protocol_type,
            "protocol": group.protocol,
            "generationId": group.generation,
            "assignment": f"{{{assignments}}}",
        }
    )


def _assignment_text(protocol_type: str, member: StoredMember) -> str:
    """`[topic-0, topic-1]`, with the user data behind it; hexadecimal for other protocols."""
    if protocol_type != CONSUMER_PROTOCOL_TYPE or not member.assignment:
        return bytes(member.assignment).hex().upper()
    assignment = decode_assignment(member.assignment)
    partitions = ", ".join(map(str, partitions_of(assignment.assigned_partitions)))
    user_data = bytes(assignment.user_data or b"").hex().upper()
    return f"[{partitions}]:{user_data}" if user_data else f"[{partitions}]"


def _document(value: object) -> object:
    """A message, or a value in it, as JSON has it: Kafka's names, ids in base 64."""
    from uuid import UUID

    if isinstance(value, Struct):
        return {
            _json_name(field.name): _document(getattr(value, field.name))
            for field in type(value).fields
            if field.tag is None or getattr(value, field.name) != field.default
        }
    if isinstance(value, list):
        return [_document(item) for item in value]
    if isinstance(value, UUID):
        return encode_uuid(value)
    return b64encode(value).decode() if isinstance(value, bytes) else value


def _json_name(name: str) -> str:
    first, *words = KAFKA_NAMES.get(name, name).split("_")
    return first + "".join(word.capitalize() for word in words)


def _json(document: object) -> str:
    return json_line(document, is_short=True)
