"""Messages that no client library has, byte by byte by hand: those that brokers store, and versions
that only old brokers speak to each other, or Kafka 4.4 knows."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.protocol.leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from ottla.protocol.message import Message, decode, decode_versioned, encode, encode_versioned
from ottla.protocol.metadata_records import (
    METADATA_RECORDS,
    ConfigRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.protocol.offsets_topic import (
    VALUES,
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    StoredClassicProtocol,
    StoredMember,
    StoredOwnedPartitions,
    StoredRacks,
    StoredTopic,
    StoredTopicPartitions,
)
from ottla.protocol.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from ottla.protocol.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode()


def data(value: bytes) -> bytes:
    return len(value).to_bytes(4, "big") + value


def compact(value: bytes) -> bytes:
    return bytes([len(value) + 1]) + value


def i16(value: int) -> bytes:
    return value.to_bytes(2, "big", signed=True)


def i32(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


def i64(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def offset_commit_value(**values: Any) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=42, metadata="note", commit_timestamp=1_700_000_000_000, **values
    )


def group_metadata_value(group: dict[str, Any], member: dict[str, Any]) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="m-1",
        members=[
            StoredMember(
                member_id="m-1",
                client_id="c",
                client_host="/10.0.0.1",
                session_timeout=45000,
                subscription=b"sub",
                assignment=b"ass",
                **member,
            )
        ],
        **group,
    )


COMMIT = i64(42), text("note") + i64(1_700_000_000_000)
GROUP = text("consumer") + i32(3) + text("range") + text("m-1")
IDENTITY = text("c") + text("/10.0.0.1")
PAYLOADS = i32(45000) + data(b"sub") + data(b"ass")
FLEXIBLE_GROUP = (
    compact(b"consumer") + i32(3) + compact(b"range") + compact(b"m-1") + i64(99) + b"\2"
    + compact(b"m-1") + compact(b"i-1") + compact(b"c") + compact(b"/10.0.0.1")
    + i32(60000) + i32(45000) + compact(b"sub") + compact(b"ass") + b"\0" + b"\0"
)  # fmt: skip


def transaction_log_value(**values: Any) -> TransactionLogValue:
    return TransactionLogValue(
        producer_id=7,
        producer_epoch=2,
        transaction_timeout_ms=60000,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="orders", partition_ids=[0, 3])],
        transaction_last_update_timestamp_ms=99,
        transaction_start_timestamp_ms=98,
        **values,
    )


TRANSACTION = i64(7) + i16(2) + i32(60000) + b"\1"
MARKER = WritableTxnMarker(
    producer_id=7,
    producer_epoch=2,
    transaction_result=True,
    topics=[WritableTxnMarkerTopic(name="orders", partition_indexes=[3])],
    coordinator_epoch=5,
)
MARKER_RESULT = WritableTxnMarkerResult(
    producer_id=7,
    topics=[
        WritableTxnMarkerTopicResult(
            name="orders",
            partitions=[WritableTxnMarkerPartitionResult(partition_index=3, error_code=47)],
        )
    ],
)
EPOCH_REQUEST = OffsetForLeaderEpochRequest(
    topics=[
        OffsetForLeaderTopic(
            topic="orders", partitions=[OffsetForLeaderPartition(partition=3, leader_epoch=4)]
        )
    ]
)


def epoch_response(**values: int) -> OffsetForLeaderEpochResponse:
    end = EpochEndOffset(error_code=74, partition=3, end_offset=42, **values)
    return OffsetForLeaderEpochResponse(
        topics=[OffsetForLeaderTopicResult(topic="orders", partitions=[end])]
    )


OLD: list[tuple[Message, int, bytes]] = [
    (
        WriteTxnMarkersRequest(markers=[MARKER]),
        0,
        i32(1) + i64(7) + i16(2) + b"\1" + i32(1) + text("orders") + i32(1) + i32(3) + i32(5),
    ),
    (
        WriteTxnMarkersResponse(markers=[MARKER_RESULT]),
        0,
        i32(1) + i64(7) + i32(1) + text("orders") + i32(1) + i32(3) + i16(47),
    ),
    (EPOCH_REQUEST, 0, i32(1) + text("orders") + i32(1) + i32(3) + i32(4)),
    (EPOCH_REQUEST, 1, i32(1) + text("orders") + i32(1) + i32(3) + i32(4)),
    (epoch_response(), 0, i32(1) + text("orders") + i32(1) + i16(74) + i32(3) + i64(42)),
    (
        epoch_response(leader_epoch=4),
        1,
        i32(1) + text("orders") + i32(1) + i16(74) + i32(3) + i32(4) + i64(42),
    ),
]

TOPIC_ID = UUID(int=5)
NEW: list[tuple[Message, int, bytes]] = [
    (
        TxnOffsetCommitRequest(
            transactional_id="x",
            group_id="g",
            producer_id=7,
            producer_epoch=2,
            generation_id=4,
            member_id="m",
            group_instance_id=None,
            topics=[
                TxnOffsetCommitRequestTopic(
                    topic_id=TOPIC_ID,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=3,
                            committed_offset=42,
                            committed_leader_epoch=9,
                            committed_metadata="note",
                        )
                    ],
                )
            ],
        ),
        6,
        compact(b"x") + compact(b"g") + i64(7) + i16(2) + i32(4) + compact(b"m") + b"\0" + b"\2"
        + TOPIC_ID.bytes + b"\2" + i32(3) + i64(42) + i32(9) + compact(b"note") + b"\0\0\0",
    ),
    (
        TxnOffsetCommitResponse(
            throttle_time_ms=8,
            topics=[
                TxnOffsetCommitResponseTopic(
                    topic_id=TOPIC_ID,
                    partitions=[
                        TxnOffsetCommitResponsePartition(partition_index=3, error_code=100)
                    ],
                )
            ],
        ),
        6,
        i32(8) + b"\2" + TOPIC_ID.bytes + b"\2" + i32(3) + i16(100) + b"\0\0\0",
    ),
]  # fmt: skip
"""Topics by id (KIP-1319), of Kafka 4.4."""
PARTITIONS = b"\2" + TOPIC_ID.bytes + b"\3" + i32(0) + i32(3) + b"\0"
MEMBER_KEY = text("g") + text("m-1")
MEMBER = (
    compact(b"i-1") + b"\0" + compact(b"c") + compact(b"/10.0.0.1")
    + b"\2" + compact(b"orders") + compact(b"pay.*") + i32(60000) + compact(b"uniform")
)  # fmt: skip


def stored_partitions() -> list[StoredTopicPartitions]:
    return [StoredTopicPartitions(topic_id=TOPIC_ID, partitions=[0, 3])]


def stored_member(classic: ClassicMemberMetadata | None) -> ConsumerGroupMemberMetadataValue:
    return ConsumerGroupMemberMetadataValue(
        instance_id="i-1",
        client_id="c",
        client_host="/10.0.0.1",
        subscribed_topic_names=["orders"],
        subscribed_topic_regex="pay.*",
        rebalance_timeout_ms=60000,
        server_assignor="uniform",
        classic_member_metadata=classic,
    )


CONSUMER_GROUPS: list[tuple[Message, int, bytes]] = [
    (ConsumerGroupMetadataKey(group="g"), 3, i16(3) + text("g")),
    (ConsumerGroupMetadataValue(epoch=9), 0, i16(0) + i32(9) + b"\0"),
    (ConsumerGroupPartitionMetadataKey(group="g"), 4, i16(4) + text("g")),
    (
        ConsumerGroupPartitionMetadataValue(
            topics=[
                StoredTopic(
                    topic_id=TOPIC_ID,
                    topic_name="orders",
                    partition_count=4,
                    partition_metadata=[StoredRacks(partition=3, racks=["r"])],
                )
            ]
        ),
        0,
        i16(0) + b"\2" + TOPIC_ID.bytes + compact(b"orders") + i32(4)
        + b"\2" + i32(3) + b"\2" + compact(b"r") + b"\0" + b"\0" + b"\0",
    ),
    (ConsumerGroupMemberMetadataKey(group="g", member_id="m-1"), 5, i16(5) + MEMBER_KEY),
    (stored_member(None), 0, i16(0) + MEMBER + b"\0"),
    (
        stored_member(
            ClassicMemberMetadata(
                session_timeout_ms=45000,
                supported_protocols=[StoredClassicProtocol(name="range", metadata=b"sub")],
            )
        ),
        0,
        i16(0) + MEMBER + b"\1" + b"\0" + b"\x12" + b"\1"
        + i32(45000) + b"\2" + compact(b"range") + compact(b"sub") + b"\0" + b"\0",
    ),
    (ConsumerGroupTargetAssignmentMetadataKey(group="g"), 6, i16(6) + text("g")),
    (
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=9),
        0,
        i16(0) + i32(9) + b"\0",
    ),
    (ConsumerGroupTargetAssignmentMemberKey(group="g", member_id="m-1"), 7, i16(7) + MEMBER_KEY),
    (
        ConsumerGroupTargetAssignmentMemberValue(topic_partitions=stored_partitions()),
        0,
        i16(0) + PARTITIONS + b"\0",
    ),
    (ConsumerGroupCurrentMemberAssignmentKey(group="g", member_id="m-1"), 8, i16(8) + MEMBER_KEY),
    (
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=9,
            previous_member_epoch=8,
            state=1,
            assigned_partitions=[StoredOwnedPartitions(topic_id=TOPIC_ID, partitions=[0, 3])],
            partitions_pending_revocation=[
                StoredOwnedPartitions(topic_id=TOPIC_ID, partitions=[5], assignment_epochs=[7])
            ],
        ),
        0,
        i16(0) + i32(9) + i32(8) + b"\1" + PARTITIONS
        + b"\2" + TOPIC_ID.bytes + b"\2" + i32(5) + b"\1" + b"\0\5" + b"\2" + i32(7) + b"\0",
    ),
    (
        ConsumerGroupRegularExpressionKey(group="g", regular_expression="pay.*"),
        16,
        i16(16) + text("g") + text("pay.*"),
    ),
    (
        ConsumerGroupRegularExpressionValue(topics=["payments"], version=7, timestamp=99),
        0,
        i16(0) + b"\2" + compact(b"payments") + i64(7) + i64(99) + b"\0",
    ),
]  # fmt: skip

CHECKED: list[tuple[Message, int, bytes]] = [
    *CONSUMER_GROUPS,
    (
        OffsetCommitKey(group="g", topic="orders", partition=7),
        0,
        i16(0) + text("g") + text("orders") + i32(7),
    ),
    (
        OffsetCommitKey(group="g", topic="orders", partition=7),
        1,
        i16(1) + text("g") + text("orders") + i32(7),
    ),
    (offset_commit_value(), 0, i16(0) + COMMIT[0] + COMMIT[1]),
    (offset_commit_value(expire_timestamp=5), 1, i16(1) + COMMIT[0] + COMMIT[1] + i64(5)),
    (offset_commit_value(), 2, i16(2) + COMMIT[0] + COMMIT[1]),
    (offset_commit_value(leader_epoch=9), 3, i16(3) + COMMIT[0] + i32(9) + COMMIT[1]),
    (
        offset_commit_value(leader_epoch=9),
        4,
        i16(4) + i64(42) + i32(9) + compact(b"note") + i64(1_700_000_000_000) + b"\0",
    ),
    (GroupMetadataKey(group="g"), 2, i16(2) + text("g")),
    (
        group_metadata_value({}, {}),
        0,
        i16(0) + GROUP + i32(1) + text("m-1") + IDENTITY + PAYLOADS,
    ),
    (
        group_metadata_value({}, {"rebalance_timeout": 60000}),
        1,
        i16(1) + GROUP + i32(1) + text("m-1") + IDENTITY + i32(60000) + PAYLOADS,
    ),
    (
        group_metadata_value({"current_state_timestamp": 99}, {"rebalance_timeout": 60000}),
        2,
        i16(2) + GROUP + i64(99) + i32(1) + text("m-1") + IDENTITY + i32(60000) + PAYLOADS,
    ),
    (
        group_metadata_value(
            {"current_state_timestamp": 99},
            {"rebalance_timeout": 60000, "group_instance_id": None},
        ),
        3,
        i16(3) + GROUP + i64(99) + i32(1)
        + text("m-1") + i16(-1) + IDENTITY + i32(60000) + PAYLOADS,
    ),
    (
        group_metadata_value(
            {"current_state_timestamp": 99},
            {"rebalance_timeout": 60000, "group_instance_id": "i-1"},
        ),
        4,
        i16(4) + FLEXIBLE_GROUP,
    ),
    (TransactionLogKey(transactional_id="t"), 0, i16(0) + text("t")),
    (
        transaction_log_value(),
        0,
        i16(0) + TRANSACTION + i32(1) + text("orders") + i32(2) + i32(0) + i32(3)
        + i64(99) + i64(98),
    ),
    (
        transaction_log_value(previous_producer_id=6, client_transaction_version=2),
        1,
        i16(1) + TRANSACTION + b"\2" + compact(b"orders") + b"\3" + i32(0) + i32(3) + b"\0"
        + i64(99) + i64(98) + b"\2" + b"\0\x08" + i64(6) + b"\2\2" + i16(2),
    ),
]  # fmt: skip

METADATA: list[tuple[Message, bytes]] = [
    (
        TopicRecord(name="orders", topic_id=TOPIC_ID),
        compact(b"orders") + TOPIC_ID.bytes + b"\0",
    ),
    (
        ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="99"),
        b"\2" + compact(b"orders") + compact(b"retention.ms") + compact(b"99") + b"\0",
    ),
    (RemoveTopicRecord(topic_id=TOPIC_ID), TOPIC_ID.bytes + b"\0"),
    (
        ProducerIdsRecord(broker_id=1, broker_epoch=7, next_producer_id=2000),
        i32(1) + i64(7) + i64(2000) + b"\0",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("message", "version", "expected"),
    [pytest.param(*case, id=f"{type(case[0]).__name__}-v{case[1]}") for case in CHECKED],
)
def test_stored_message_has_the_bytes_of_its_layout(
    message: Message, version: int, expected: bytes
) -> None:
    """The version goes in front, then the fields in the order of the schema."""
    assert encode_versioned(message, version) == expected
    assert decode_versioned(type(message), expected) == message


@pytest.mark.parametrize(
    ("message", "version", "expected"),
    [pytest.param(*case, id=f"{type(case[0]).__name__}-v{case[1]}") for case in OLD + NEW],
)
def test_version_without_a_peer_has_the_bytes_of_its_layout(
    message: Message, version: int, expected: bytes
) -> None:
    """Versions without a peer are held to the schema by hand."""
    assert encode(message, version) == expected
    assert decode(type(message), version, expected) == message


@pytest.mark.parametrize(
    ("record", "expected"), [pytest.param(*case, id=type(case[0]).__name__) for case in METADATA]
)
def test_record_of_the_cluster_metadata_has_the_bytes_of_its_layout(
    record: Message, expected: bytes
) -> None:
    """Without the version, which stands in the frame around it."""
    assert encode(record, 0) == expected
    assert decode(type(record), 0, expected) == record


def test_every_record_of_the_cluster_metadata_is_checked_here() -> None:
    """Only a KRaft controller writes them."""
    assert {type(record) for record, _ in METADATA} == set(METADATA_RECORDS.values())


def test_every_version_of_the_stored_messages_is_checked_here() -> None:
    """A version that is added needs its bytes here, as no other implementation has them."""
    checked = {(type(message), version) for message, version, _ in CHECKED}

    classes = (*VALUES.keys(), *VALUES.values(), TransactionLogKey, TransactionLogValue)
    assert checked == {
        (cls, v) for cls in classes for v in range(cls.min_version, cls.max_version + 1)
    }
