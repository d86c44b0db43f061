"""Commits through the coordinator: who may, what is kept, and what the log says to it."""

import pytest
from group_world import World

from ottla.coordinator.coordinator_log import SETTLE_MS
from ottla.coordinator.group.group import Committer
from ottla.coordinator.group.offsets import CommittedOffset
from ottla.errors import ErrorCode
from ottla.structs import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def world():
    """A coordinator whose partition is loaded."""
    return World()


def test_simple_consumer_keeps_offsets_without_members(world):
    """A commit with generation -1 makes a group that is Empty and has offsets."""
    assert world.commit(5).value is ErrorCode.NONE
    assert world.committed() == 5
    assert world.group().protocol_type is None


def test_offsets_may_be_kept_under_the_empty_name(world):
    """Old clients without a group id commit to the group "" (it never has members)."""
    assert world.commit(5, group="").value is ErrorCode.NONE
    assert world.committed(group="") == 5


def test_metadata_and_leader_epoch_are_kept(world):
    """What comes with an offset comes back with it."""
    value = CommittedOffset(5, leader_epoch=3, metadata="note", commit_timestamp_ms=7)
    world.commit(value)

    assert world.coordinator.fetch_offsets("g", [T0]) == (ErrorCode.NONE, {T0: value})


def test_too_long_metadata_fails_alone(world):
    """The other partitions of the commit are stored."""
    too_long = CommittedOffset(1, metadata="é" * 2_049)
    just_fits = CommittedOffset(2, metadata="é" * 2_048)
    results = []
    world.coordinator.commit_offsets(
        "g", Committer(), {T0: too_long, T1: just_fits}, results.append
    )

    assert results == [{T0: ErrorCode.OFFSET_METADATA_TOO_LARGE, T1: ErrorCode.NONE}]
    assert (world.committed(), world.committed(partition=1)) == (None, 2)


def test_commit_is_seen_only_when_replicas_have_it(world):
    """Until the log acknowledges, readers get the offset before."""
    world.commit(5)
    world.log.hold = True
    reply = world.commit(6)
    assert reply.is_open
    assert world.committed() == 5
    world.log.release()

    assert reply.value is ErrorCode.NONE
    assert world.committed() == 6


@pytest.mark.parametrize(
    ("log_error", "answer"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_failed_write_is_told_in_the_words_of_coordinators(world, log_error, answer):
    """Clients of a group know nothing of the offsets topic and its replicas."""
    world.log.error = log_error

    assert world.commit(5).value is answer
    assert world.committed() is None


def test_commit_that_too_few_replicas_have_is_an_error_and_in_the_log(world):
    """The next coordinator will read it, so this one counts it as well."""
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    assert world.commit(5).value is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.committed() == 5


def test_commit_that_was_not_replicated_in_time_counts_when_it_is(world):
    """The client is told that it failed, but the log has it, and the next coordinator reads it."""
    world.commit(5)
    world.log.is_replicated = False
    world.log.error = ErrorCode.REQUEST_TIMED_OUT
    assert world.commit(6).value is ErrorCode.REQUEST_TIMED_OUT
    world.advance(60_000)
    assert world.committed() == 5

    world.log.is_replicated = True
    world.advance(SETTLE_MS)
    assert world.committed() == 6


def test_nothing_committed_is_no_error(world):
    """An unknown group, and an unknown partition, have no offset."""
    assert world.committed(group="nobody") is None
    assert world.coordinator.fetch_offsets("nobody", None) == (ErrorCode.NONE, {})
    world.commit(5)
    assert world.committed(partition=9) is None


def test_all_offsets_of_a_group_are_found_without_naming_them(world):
    """Administrators ask for everything."""
    world.commit(5)
    world.commit(6, partition=1)

    _, offsets = world.coordinator.fetch_offsets("g", None)
    assert {key: value.offset for key, value in offsets.items()} == {T0: 5, T1: 6}


def test_offset_may_be_set_back(world):
    """Rewinding is a commit like any other."""
    world.commit(50)
    world.commit(5)

    assert world.committed() == 5


def test_member_without_generation_is_refused_by_a_group_with_members(world):
    """A member must name its generation."""
    (member,) = world.stable_group(None)

    assert world.commit(5, member, -1).value is ErrorCode.ILLEGAL_GENERATION
