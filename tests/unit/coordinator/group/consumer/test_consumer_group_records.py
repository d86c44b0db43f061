"""The current assignment of a member, as it is read back from `__consumer_offsets`."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.coordinator.group.consumer.consumer_group_records import read_current_assignment
from ottla.errors import ErrorCode, KafkaError
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
