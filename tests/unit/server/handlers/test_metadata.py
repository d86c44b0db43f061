"""What clients are told of topics, and that it follows what the controller says."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.metadata import MetadataRequest, MetadataRequestTopic
from ottla.server.handlers.metadata import MetadataHandler
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import BrokerEndPoints, EndPoint, LeaderAndIsr, PartitionState, TopicPartition

INSIDE = SimpleNamespace(api_version=12, listener_name="INSIDE")
OUTSIDE = SimpleNamespace(api_version=12, listener_name="OUTSIDE")
OLD = SimpleNamespace(api_version=5, listener_name="OUTSIDE")


def broker(broker_id, *listeners):
    end_points = tuple(EndPoint(name, "PLAINTEXT", "host", 9092) for name in listeners)
    return BrokerEndPoints(broker_id, 1, end_points)


def led_by(leader):
    state = LeaderAndIsr(leader, 3, (1, 2), 4)
    return [PartitionState(TopicPartition("t", 0), UUID(int=7), 1, state, (1, 2))]


BROKERS = [broker(1, "INSIDE", "OUTSIDE"), broker(2, "INSIDE")]


@pytest.fixture
def cache():
    cache = MetadataCache("cluster")
    cache.update(led_by(1), BROKERS)
    return cache


@pytest.fixture
def handler(cache):
    return MetadataHandler(cache, False, None, lambda name: None)


def told(handler, context):
    """The error and the leader of the only partition."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    ((partition,),) = (
        topic.partitions for topic in handler.handle_metadata(context, request).topics
    )
    return ErrorCode.of(partition.error_code), partition.leader_id


def test_answer_follows_every_update(cache, handler):
    """What was built for one client serves the next ones until the controller says more."""
    assert told(handler, INSIDE) == told(handler, INSIDE) == (ErrorCode.NONE, 1)
    cache.update(led_by(2), BROKERS)
    assert told(handler, INSIDE) == (ErrorCode.NONE, 2)
    cache.update([], BROKERS[:1])

    assert told(handler, INSIDE) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


def test_each_listener_and_version_has_an_answer_of_its_own(cache, handler):
    """A leader without a listener is none for the clients of that listener."""
    cache.update(led_by(2), BROKERS)

    assert told(handler, INSIDE) == (ErrorCode.NONE, 2)
    assert told(handler, OUTSIDE) == (ErrorCode.LISTENER_NOT_FOUND, -1)
    assert told(handler, OLD) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


def test_partitions_are_built_once_for_many_clients(handler, monkeypatch):
    """Clients that lost the leader of 5,000 partitions kept brokers busy with their questions."""
    first = told(handler, INSIDE)
    monkeypatch.setattr(handler, "_partition", None)

    assert told(handler, INSIDE) == first
