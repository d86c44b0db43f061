"""Subscriptions and assignments of members."""

from __future__ import annotations

import pytest

from ottla.errors import RemoteProtocolError
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopicPartition,
)
from ottla.protocol.message import decode_versioned, encode_versioned


def test_subscription_of_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    """Fields that v4 or later may have added at the end are ignored."""
    subscription = ConsumerProtocolSubscription(
        topics=["a", "b"],
        owned_partitions=[ConsumerProtocolTopicPartition(topic="a", partitions=[0, 1])],
        generation_id=4,
        rack_id="r1",
    )
    newer = b"\0\7" + encode_versioned(subscription, 3)[2:] + b"what v7 has"

    assert decode_versioned(ConsumerProtocolSubscription, newer) == subscription


def test_subscription_of_v0_leaves_out_what_v0_lacks() -> None:
    """Owned partitions, generation and rack are only hints to the assignor."""
    subscription = ConsumerProtocolSubscription(topics=["a"], generation_id=4, rack_id="r1")

    data = encode_versioned(subscription, 0)

    assert data == b"\0\0" + b"\0\0\0\1\0\1a" + b"\xff\xff\xff\xff"


def test_assignment_is_read_in_any_version() -> None:
    """All versions look alike."""
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[ConsumerProtocolTopicPartition(topic="t", partitions=[0, 2])],
        user_data=b"\0",
    )

    for version in range(4):
        data = encode_versioned(assignment, version)
        assert decode_versioned(ConsumerProtocolAssignment, data) == assignment


@pytest.mark.parametrize("data", [b"\xff\xff\0\0\0\0\0\0\0\0", b"\0\0\0\0", b"\0\1\0\0\0\0\0\0"])
def test_assignment_that_is_broken_is_refused(data: bytes) -> None:
    """A negative version, or too few bytes for the fields that are known."""
    with pytest.raises(RemoteProtocolError):
        decode_versioned(ConsumerProtocolAssignment, data)
