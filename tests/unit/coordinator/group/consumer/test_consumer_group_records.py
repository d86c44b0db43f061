"""The current assignment of a member, as it is read back from `__consumer_offsets`."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.coordinator.group.consumer.assigned_partitions import AssignedPartitions
from ottla.coordinator.group.consumer.consumer_group_records import (
    PARTS_IN_A_SLICE,
    current_assignment_value,
    large_assignment_value,
    large_target_value,
    read_current_assignment,
    target_member_value,
)
from ottla.coordinator.group.consumer.consumer_member import CurrentAssignment, MemberState
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.message import decode_versioned
from ottla.protocol.offsets_topic import (
    ConsumerGroupCurrentMemberAssignmentValue,
    StoredOwnedPartitions,
)
from ottla.runtime.scheduler import at_once


def test_partitions_without_as_many_epochs_are_refused():
    """The error names the topic, both counts and the rule (KIP-1251)."""
    stored = StoredOwnedPartitions(topic_id=UUID(int=5), partitions=[0, 1], assignment_epochs=[3])
    value = ConsumerGroupCurrentMemberAssignmentValue(assigned_partitions=[stored])

    with pytest.raises(KafkaError, match=f"{UUID(int=5)} has 1 .* 2 partitions; each") as caught:
        at_once(read_current_assignment(value))

    assert caught.value.error is ErrorCode.CORRUPT_MESSAGE


def partitions_of(count: int, index: int) -> AssignedPartitions:
    return AssignedPartitions.of((UUID(int=1 + n), [index]) for n in range(count))


@pytest.mark.parametrize("count", [0, 1, PARTS_IN_A_SLICE, 2 * PARTS_IN_A_SLICE + 1])
def test_large_records_are_those_that_are_made_at_once(count):
    """In slices, as very many topics are not written in one."""
    target = partitions_of(count, 0)
    current = CurrentAssignment(
        4, 3, MemberState.UNREVOKED_PARTITIONS, target, partitions_of(count, 1)
    )

    assert at_once(large_target_value(target)) == target_member_value(target)
    value = at_once(large_assignment_value(current))
    assert value == current_assignment_value(current)
    stored = decode_versioned(ConsumerGroupCurrentMemberAssignmentValue, value)
    assert at_once(read_current_assignment(stored)) == current
    assert len(list(large_target_value(target))) >= count // PARTS_IN_A_SLICE


def test_state_of_a_member_that_there_is_not_is_refused():
    """A newer coordinator may have written it."""
    with pytest.raises(KafkaError, match="no member state 9") as caught:
        at_once(read_current_assignment(ConsumerGroupCurrentMemberAssignmentValue(state=9)))

    assert caught.value.error is ErrorCode.CORRUPT_MESSAGE
