"""The health of a consumer, as a supervisor's probes see it."""

from __future__ import annotations

import pytest
from consumer_world import ConsumerWorld
from consumers import consumer_of

from ottla import Consumer, KafkaError, TopicPartition
from ottla.clients.consumer.consumer_health import health_of
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.errors import ErrorCode
from ottla.protocol.fetch import FetchRequest
from ottla.protocol.group import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.offsets import OffsetCommitRequest

FIRST = TopicPartition("pages", 0)


@pytest.fixture
def member(runtime, cluster) -> ConsumerWorld:
    return ConsumerWorld(runtime, cluster, group_id="g", max_poll_interval_ms=10_000)


def test_consumer_that_reads_is_alive_and_ready(member):
    """With its partitions, and how far it is behind."""
    member.write("a", "b")
    member.subscribe()
    assert not health_of(member.core).assignment
    member.values()
    health = health_of(member.core)
    assert (health.is_alive, health.is_ready, health.last_error) == (True, True, None)
    assert health.assignment == {FIRST, TopicPartition("pages", 1)}
    member.values()
    assert health_of(member.core).lag == 0


def test_consumer_that_does_nothing_is_not_ready(member):
    """It was made, and has nothing to read."""
    assert (health_of(member.core).is_alive, health_of(member.core).is_ready) == (True, False)


def test_member_that_has_not_joined_is_not_ready(member):
    """It has no partition yet, and no lag that would be 0."""
    member.subscribe()
    health = health_of(member.core)
    assert (health.is_alive, health.is_ready, health.lag) == (True, False, None)


def test_consumer_that_does_not_poll_is_dead(member):
    """For max.poll.interval.ms; the time since the poll is told."""
    member.subscribe()
    member.values()
    member.advance(9_000)
    assert health_of(member.core).is_alive
    member.advance(2_000)
    health = health_of(member.core)
    assert not health.is_alive
    assert health.ms_since_poll >= 11_000


def test_error_of_a_poll_is_told_until_one_succeeds(member):
    """Such as rights that are missing."""
    member.assign(0)
    refused = member.refuse_fetch(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    member.cluster[0].on(FetchRequest, refused, member.fetch)
    with pytest.raises(KafkaError):
        member.poll()
    health = health_of(member.core)
    assert health.last_error is not None
    assert health.last_error.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (health.is_alive, health.is_ready) == (True, False)
    member.advance(1000)
    member.poll()
    assert health_of(member.core).last_error is None


def test_error_of_a_commit_is_told_until_one_succeeds(member):
    """Also of one in the background."""
    member.subscribe()
    member.poll()
    refused = member.refuse_commit(ErrorCode.OFFSET_METADATA_TOO_LARGE)
    member.cluster[0].on(OffsetCommitRequest, refused, member.commit)
    offsets = {FIRST: OffsetAndMetadata(0)}
    member.call(member.core.begin_commit, offsets, None)
    member.advance(100)
    error = health_of(member.core).last_error
    assert error is not None
    assert error.error is ErrorCode.OFFSET_METADATA_TOO_LARGE
    member.call(member.core.begin_commit, offsets, None)
    member.advance(100)
    assert health_of(member.core).is_ready


def test_member_that_was_removed_is_not_ready(member):
    """Until it has joined again, in its next polls."""
    member.subscribe()
    member.poll()
    lost = HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    member.cluster[0].on(HeartbeatRequest, lost, HeartbeatResponse())
    member.advance(4000)
    assert not health_of(member.core).is_ready
    member.poll(5000)
    assert health_of(member.core).is_ready


def test_consumer_that_was_closed_is_dead(broker):
    """Asked by any thread, it answers."""
    consumer: Consumer = consumer_of(broker)
    assert consumer.health().is_alive
    consumer.close()
    assert not consumer.health().is_alive
