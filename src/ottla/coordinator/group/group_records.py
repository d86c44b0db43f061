"""Groups and offsets as records of `__consumer_offsets`, with Kafka's keys and values.

Groups are written as Kafka 2.3 to 3.9 do, in version 3; offsets as Kafka 4.1 does, in version 4,
which has the topic's id: in version 3 where the id is not known, and in version 1 where a client
set its own retention time. A record without a value deletes its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.coordinator.group.classic_group import ClassicGroup, GroupState, group_key
from ottla.coordinator.group.member_metadata import MemberMetadata, SupportedProtocol
from ottla.coordinator.group.member_requests import MEMBERS_IN_A_SLICE
from ottla.coordinator.group.offsets import CommittedOffset
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.message import (
    decode_versioned,
    decode_versioned_in_slices,
    encode_versioned,
    encode_versioned_in_slices,
)
from ottla.protocol.offsets_topic import (
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    StoredMember,
)
from ottla.record.batch_builder import build_batch
from ottla.record.record import NewRecord
from ottla.runtime.scheduler import Work
from ottla.structs import NO_UUID, TopicPartition, TxnProducer

OFFSET_KEY_VERSION: Final = 1
OFFSET_VALUE_VERSION: Final = 4
OFFSET_VALUE_WITHOUT_TOPIC_ID_VERSION: Final = 3
OFFSET_VALUE_WITH_EXPIRY_VERSION: Final = 1
GROUP_VALUE_VERSION: Final = 3
LARGE_BYTES: Final = 1_000_000


def offset_key(group_id: str, partition: TopicPartition) -> bytes:
    """The key of a committed offset."""
    key = OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
    return encode_versioned(key, OFFSET_KEY_VERSION)


def offset_value(value: CommittedOffset) -> bytes:
    """A committed offset; that with an expiry time has no room for leader epoch and topic id."""
    stored = OffsetCommitValue(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp=value.commit_timestamp_ms,
        topic_id=value.topic_id,
    )
    if value.expire_timestamp_ms is None:
        is_known = value.topic_id != NO_UUID
        version = OFFSET_VALUE_VERSION if is_known else OFFSET_VALUE_WITHOUT_TOPIC_ID_VERSION
        return encode_versioned(stored, version)
    stored.expire_timestamp = value.expire_timestamp_ms
    return encode_versioned(stored, OFFSET_VALUE_WITH_EXPIRY_VERSION)


def offsets_batch(
    group_id: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    now_ms: int,
    producer: TxnProducer | None = None,
) -> bytes:
    """One batch with the records of these offsets, in the producer's transaction if one is given.

    The log recognizes a transaction by the producer id and epoch of its batches; their sequence
    numbers do not matter here.
    """
    records = [
        (now_ms, offset_key(group_id, partition), offset_value(value), ())
        for partition, value in offsets.items()
    ]
    if producer is None:
        return build_batch(records)
    return build_batch(
        records,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )


def tombstones(keys: Iterable[bytes], now_ms: int) -> list[NewRecord]:
    """Records without values for these keys."""
    return [(now_ms, key, None, ()) for key in keys]


def read_offset_value(data: bytes) -> CommittedOffset:
    """A committed offset of any version."""
    stored = decode_versioned(OffsetCommitValue, data)
    return CommittedOffset(
        offset=stored.offset,
        leader_epoch=stored.leader_epoch,
        metadata=stored.metadata,
        commit_timestamp_ms=stored.commit_timestamp,
        expire_timestamp_ms=stored.expire_timestamp if stored.expire_timestamp >= 0 else None,
        topic_id=stored.topic_id,
    )


def group_value(group: ClassicGroup, assignment: Mapping[str, bytes]) -> Work[bytes]:
    """The present generation of a group, with the assignment that it is about to get.

    The caller sees to it that this is still the present one after the pauses.
    """
    timestamp_ms = group.state_timestamp_ms
    stored = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=-1 if timestamp_ms is None else timestamp_ms,
    )
    for number, member in enumerate(list(group.members.values()), 1):
        given = assignment.get(member.member_id, b"")
        stored.members.append(_stored_member(stored.protocol, member, given))
        if not number % MEMBERS_IN_A_SLICE:
            yield
    return (yield from encode_versioned_in_slices(stored, GROUP_VALUE_VERSION))


def group_batch(group: ClassicGroup, assignment: Mapping[str, bytes], now_ms: int) -> Work[bytes]:
    """One batch with that record, and the tombstones that the group owes."""
    is_large = len(group.members) > MEMBERS_IN_A_SLICE or group.metadata_bytes > LARGE_BYTES
    value = yield from group_value(group, assignment)
    if is_large:
        yield
    records = tombstones(group.owed_tombstones, now_ms)
    batch = build_batch([*records, (now_ms, group_key(group.group_id), value, ())])
    if is_large:
        yield
    return batch


def _stored_member(protocol: str | None, member: MemberMetadata, assignment: bytes) -> StoredMember:
    assert protocol is not None, "a group with members has a protocol"
    return StoredMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.metadata(protocol),
        assignment=assignment,
    )


def read_group_value(group_id: str, data: bytes, now_ms: int) -> Work[ClassicGroup]:
    """The group as its last generation left it: Stable with its members, or Empty."""
    stored = yield from decode_versioned_in_slices(GroupMetadataValue, data)
    _check_members(stored)
    group = ClassicGroup(group_id, now_ms)
    group.protocol_type = stored.protocol_type or None
    for number, member in enumerate(stored.members, 1):
        group.add(_loaded_member(stored, member))
        if not number % MEMBERS_IN_A_SLICE:
            yield
    group.generation_id = stored.generation
    group.protocol_name = stored.protocol
    group.leader_id = stored.leader if stored.leader in group.members else group.leader_id
    group.state = GroupState.STABLE if group.members else GroupState.EMPTY
    timestamp_ms = stored.current_state_timestamp
    group.state_timestamp_ms = timestamp_ms if timestamp_ms >= 0 else None
    group.subscribed_topics = group.compute_subscribed_topics()
    return group


def _check_members(stored: GroupMetadataValue) -> None:
    """Refuse values that no coordinator writes, before they fail the group's own assertions."""
    ids = [member.member_id for member in stored.members]
    instances = [
        member.group_instance_id
        for member in stored.members
        if member.group_instance_id is not None
    ]
    if len(set(ids)) < len(ids) or len(set(instances)) < len(instances):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "a member stands in the group twice")
    if ids and not (stored.protocol_type and stored.protocol is not None):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the group has members and no protocol")


def _loaded_member(stored: GroupMetadataValue, member: StoredMember) -> MemberMetadata:
    timeout_ms = member.rebalance_timeout
    return MemberMetadata(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=timeout_ms if timeout_ms >= 0 else member.session_timeout,
        session_timeout_ms=member.session_timeout,
        protocol_type=stored.protocol_type,
        protocols=[SupportedProtocol(stored.protocol or "", member.subscription)],
        assignment=member.assignment,
    )
