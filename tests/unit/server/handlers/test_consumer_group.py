"""The APIs of consumer groups in both versions, and that what they answer can be encoded."""

from __future__ import annotations

import pytest
from apis_world import Context
from consumer_group_world import ConsumerWorld, partitions_of
from group_world import World

from ottla.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from ottla.protocol.message import encode
from ottla.runtime import Slices
from ottla.server.handlers.consumer_group import ConsumerGroupHandlers


def heartbeat(handlers, version, **fields):
    context = Context(version)
    request = ConsumerGroupHeartbeatRequest(
        **{
            "group_id": "g",
            "member_id": "a",
            "rebalance_timeout_ms": 1,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
            **fields,
        }
    )
    handlers.handle_consumer_group_heartbeat(context, request)
    return context.answer


@pytest.mark.parametrize("version", [0, 1])
def test_member_joins_and_is_described(version):
    """With the address that Kafka's tools show, and the operations if they are asked for."""
    world = ConsumerWorld({"t": 2})
    handlers = ConsumerGroupHandlers(world.coordinator, world.runtime.slices)

    answer = heartbeat(handlers, version)
    context = Context(version)
    described = handlers.handle_consumer_group_describe(
        context,
        ConsumerGroupDescribeRequest(group_ids=["g", "x"], include_authorized_operations=True),
    )

    assert encode(described, version)
    assert len(partitions_of(answer.assignment)) == 2
    found, missing = described.groups
    assert found.members[0].client_host == "/10.0.0.1"
    assert found.authorized_operations > 0
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert missing.authorized_operations < 0


@pytest.mark.parametrize("version", [0, 1])
def test_error_says_what_is_wrong(version):
    """In the words of a message beside its code."""
    answer = heartbeat(
        ConsumerGroupHandlers(ConsumerWorld().coordinator, Slices()),
        version,
        server_assignor="best",
    )

    assert answer.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert "uniform, range" in answer.error_message


def test_protocol_that_is_switched_off_is_not_advertised():
    """group.coordinator.rebalance.protocols."""
    off = World(group_coordinator_rebalance_protocols="classic")

    assert not ConsumerGroupHandlers(off.coordinator, Slices()).apis()
    assert set(ConsumerGroupHandlers(World().coordinator, Slices()).apis()) == {
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
    }
