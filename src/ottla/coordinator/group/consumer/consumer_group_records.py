"""Members of consumer groups, and consumer groups as records of `__consumer_offsets`.

Keys and values are those of Kafka 4.0. A record without a value deletes its key. Tombstones and
values of one change are in one batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeVar
from uuid import UUID

from ottla.coordinator.group.consumer.assigned_partitions import AssignedPartitions, in_order
from ottla.coordinator.group.consumer.cluster_topics import SubscribedTopic
from ottla.coordinator.group.consumer.consumer_member import (
    AssignmentEpochs,
    ClassicMembership,
    CurrentAssignment,
    MemberDetails,
    MemberState,
)
from ottla.coordinator.group.member_metadata import SupportedProtocol
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.consumer_group import (
    ConsumerGroupHeartbeatRequestTopicPartitions as TopicPartitions,
)
from ottla.protocol.message import Message, encode_versioned, encode_versioned_in_slices
from ottla.protocol.offsets_topic import (
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
    StoredClassicProtocol,
    StoredOwnedPartitions,
    StoredTopic,
    StoredTopicPartitions,
)
from ottla.runtime.scheduler import Work

VALUE_VERSION: Final = 0
PARTS_IN_A_SLICE: Final = 2_000
"""Of one value: a member may have partitions of ten thousand topics."""

T = TypeVar("T")


def group_epoch_key(group_id: str) -> bytes:
    return _key(ConsumerGroupMetadataKey(group=group_id))


def group_epoch_value(epoch: int) -> bytes:
    return _value(ConsumerGroupMetadataValue(epoch=epoch))


def partition_metadata_key(group_id: str) -> bytes:
    return _key(ConsumerGroupPartitionMetadataKey(group=group_id))


def partition_metadata_value(topics: Mapping[str, SubscribedTopic]) -> Work[bytes]:
    stored = yield from collected(
        StoredTopic(topic_id=topic.topic_id, topic_name=name, partition_count=topic.partition_count)
        for name, topic in sorted(topics.items())
    )
    return (yield from _value_in_slices(ConsumerGroupPartitionMetadataValue(topics=stored)))


def read_partition_metadata(
    value: ConsumerGroupPartitionMetadataValue,
) -> Work[dict[str, SubscribedTopic]]:
    topics = yield from collected(
        (topic.topic_name, SubscribedTopic(topic.topic_id, topic.partition_count))
        for topic in value.topics
    )
    return dict(topics)


def member_key(group_id: str, member_id: str) -> bytes:
    return _key(ConsumerGroupMemberMetadataKey(group=group_id, member_id=member_id))


def member_value(details: MemberDetails) -> bytes:
    return _value(
        ConsumerGroupMemberMetadataValue(
            instance_id=details.instance_id,
            rack_id=details.rack_id,
            client_id=details.client_id,
            client_host=details.client_host,
            subscribed_topic_names=list(details.topic_names),
            subscribed_topic_regex=details.topic_regex,
            rebalance_timeout_ms=details.rebalance_timeout_ms,
            server_assignor=details.assignor,
            classic_member_metadata=_stored_classic(details.classic),
        )
    )


def read_member(value: ConsumerGroupMemberMetadataValue) -> Work[MemberDetails]:
    names = yield from collected(value.subscribed_topic_names)
    return MemberDetails(
        client_id=value.client_id,
        client_host=value.client_host,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        topic_names=tuple(sorted(names)),
        topic_regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=_read_classic(value.classic_member_metadata),
    )


def _stored_classic(classic: ClassicMembership | None) -> ClassicMemberMetadata | None:
    if classic is None:
        return None
    return ClassicMemberMetadata(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=[
            StoredClassicProtocol(name=protocol.name, metadata=protocol.metadata)
            for protocol in classic.protocols
        ],
    )


def _read_classic(stored: ClassicMemberMetadata | None) -> ClassicMembership | None:
    if stored is None:
        return None
    if not stored.supported_protocols:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "a classic member offers no protocol")
    return ClassicMembership(
        stored.session_timeout_ms,
        tuple(
            SupportedProtocol(protocol.name, bytes(protocol.metadata))
            for protocol in stored.supported_protocols
        ),
    )


def target_epoch_key(group_id: str) -> bytes:
    return _key(ConsumerGroupTargetAssignmentMetadataKey(group=group_id))


def target_epoch_value(epoch: int) -> bytes:
    return _value(ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch))


def target_member_key(group_id: str, member_id: str) -> bytes:
    return _key(ConsumerGroupTargetAssignmentMemberKey(group=group_id, member_id=member_id))


def target_member_value(target: AssignedPartitions) -> bytes:
    stored = list(_stored_partitions(target))
    return _value(ConsumerGroupTargetAssignmentMemberValue(topic_partitions=stored))


def large_target_value(target: AssignedPartitions) -> Work[bytes]:
    """The same of very many topics."""
    stored = yield from collected(_stored_partitions(target))
    value = ConsumerGroupTargetAssignmentMemberValue(topic_partitions=stored)
    return (yield from _value_in_slices(value))


def current_assignment_key(group_id: str, member_id: str) -> bytes:
    return _key(ConsumerGroupCurrentMemberAssignmentKey(group=group_id, member_id=member_id))


def current_assignment_value(current: CurrentAssignment) -> bytes:
    value = _stored_progress(current)
    value.assigned_partitions = list(_owned_partitions(current, current.assigned))
    value.partitions_pending_revocation = list(
        _owned_partitions(current, current.pending_revocation)
    )
    return _value(value)


def large_assignment_value(current: CurrentAssignment) -> Work[bytes]:
    """The same of very many topics."""
    value = _stored_progress(current)
    value.assigned_partitions = yield from collected(_owned_partitions(current, current.assigned))
    value.partitions_pending_revocation = yield from collected(
        _owned_partitions(current, current.pending_revocation)
    )
    return (yield from _value_in_slices(value))


def _stored_progress(current: CurrentAssignment) -> ConsumerGroupCurrentMemberAssignmentValue:
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=current.member_epoch,
        previous_member_epoch=current.previous_member_epoch,
        state=current.state,
    )


def read_current_assignment(
    value: ConsumerGroupCurrentMemberAssignmentValue,
) -> Work[CurrentAssignment]:
    try:
        state = MemberState(value.state)
    except ValueError as error:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"there is no member state {value.state}"
        ) from error
    return CurrentAssignment(
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=state,
        assigned=(yield from read_partitions(value.assigned_partitions)),
        pending_revocation=(yield from read_partitions(value.partitions_pending_revocation)),
        assignment_epochs=(
            yield from _read_epochs(
                [*value.assigned_partitions, *value.partitions_pending_revocation]
            )
        ),
    )


def _read_epochs(stored: Iterable[StoredOwnedPartitions]) -> Work[AssignmentEpochs]:
    """The stored epochs; topics have none if a broker before KIP-1251 stored them."""
    found: dict[UUID, dict[int, int]] = {}
    for number, topic in enumerate(stored, 1):
        if not number % PARTS_IN_A_SLICE:
            yield
        if topic.assignment_epochs is None:
            continue
        if len(topic.assignment_epochs) != len(topic.partitions):
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"topic {topic.topic_id} has {len(topic.assignment_epochs)} assignment epochs "
                f"for {len(topic.partitions)} partitions; each must have one",
            )
        epochs = zip(topic.partitions, topic.assignment_epochs, strict=True)
        found.setdefault(topic.topic_id, {}).update(epochs)
    return found


def regex_key(group_id: str, regex: str) -> bytes:
    return _key(ConsumerGroupRegularExpressionKey(group=group_id, regular_expression=regex))


def regex_value(topics: Iterable[str], version: int, now_ms: int) -> bytes:
    return _value(
        ConsumerGroupRegularExpressionValue(
            topics=sorted(topics), version=version, timestamp=now_ms
        )
    )


def read_regex(value: ConsumerGroupRegularExpressionValue) -> Work[frozenset[str]]:
    return frozenset((yield from collected(value.topics)))


def read_partitions(
    stored: Iterable[StoredTopicPartitions | StoredOwnedPartitions | TopicPartitions],
) -> Work[AssignedPartitions]:
    named = yield from collected((each.topic_id, frozenset(each.partitions)) for each in stored)
    return AssignedPartitions.of(named)


def _stored_partitions(partitions: AssignedPartitions) -> Iterator[StoredTopicPartitions]:
    for topic_id, numbers in in_order(partitions.topics):
        yield StoredTopicPartitions(topic_id=topic_id, partitions=numbers)


def _owned_partitions(
    current: CurrentAssignment, partitions: AssignedPartitions
) -> Iterator[StoredOwnedPartitions]:
    for topic_id, numbers in in_order(partitions.topics):
        yield StoredOwnedPartitions(
            topic_id=topic_id,
            partitions=numbers,
            assignment_epochs=_known_epochs(current.assignment_epochs.get(topic_id, {}), numbers),
        )


def collected(parts: Iterable[T]) -> Work[list[T]]:
    """The parts of a value, some of them at a time."""
    made = []
    for number, part in enumerate(parts, 1):
        made.append(part)
        if not number % PARTS_IN_A_SLICE:
            yield
    return made


def _known_epochs(epochs: Mapping[int, int], numbers: list[int]) -> list[int] | None:
    """The assignment epoch of each partition; None if that of any is unknown."""
    return [epochs[number] for number in numbers] if epochs.keys() >= set(numbers) else None


def _key(key: Message) -> bytes:
    return encode_versioned(key, type(key).max_version)


def _value(value: Message) -> bytes:
    return encode_versioned(value, VALUE_VERSION)


def _value_in_slices(value: Message) -> Work[bytes]:
    return encode_versioned_in_slices(value, VALUE_VERSION)
