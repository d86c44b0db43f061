"""Commits, look-ups, deletion and expiry of offsets in consumer groups, and what is listed."""

from __future__ import annotations

import pytest
from consumer_group_world import ConsumerWorld, Peer

from ottla.coordinator.group.group import Committer
from ottla.coordinator.group.offsets import CommittedOffset
from ottla.errors import ErrorCode
from ottla.runtime.scheduler import at_once
from ottla.structs import TopicPartition, TxnProducer

T0 = TopicPartition("t", 0)
MINUTE_MS = 60_000


@pytest.fixture
def world() -> ConsumerWorld:
    return ConsumerWorld({"t": 1}, offsets_retention_minutes=10)


@pytest.mark.parametrize(
    ("member", "epoch", "error"),
    [
        ("a", 1, ErrorCode.NONE),
        ("a", 0, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("b", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_commit_is_the_members_in_its_epoch(world, member, epoch, error):
    """Nobody else's while the group has members."""
    world.members("a")

    assert world.commit(5, member, epoch).value is error
    assert world.committed() == (5 if error is ErrorCode.NONE else None)


def test_member_commits_in_its_old_epoch_what_it_still_has():
    """Its heartbeat is on the way when it closes, also to a new coordinator (KIP-1251)."""
    world = ConsumerWorld({"t": 2})
    a, b = world.members("a", "b")
    old = a.epoch
    (kept,) = (number for _, number in a.owned)
    world.quit(b)
    world.settle(a)
    assert a.epoch > old
    assert len(a.owned) == 2

    world.reload()

    stale = ErrorCode.STALE_MEMBER_EPOCH
    assert world.commit(5, "a", old, partition=kept).value is ErrorCode.NONE
    assert world.commit(5, "a", old, partition=1 - kept).value is stale
    assert world.commit(5, "a", a.epoch, partition=1 - kept).value is ErrorCode.NONE
    assert world.commit(6, "a", 0, partition=kept).value is stale
    assert world.commit(6, "a", old, topic="never read").value is stale
    assert world.committed(partition=kept) == 5


def test_member_that_began_anew_commits_nothing_in_an_old_epoch(world):
    """It has given up all that it had then."""
    (a,) = world.members("a")
    old = a.epoch
    other = Peer("b")
    world.join(other, "u")
    world.rejoin(a)
    world.settle(a, other)
    assert (a.epoch > old, a.owned) == (True, {("t", 0)})

    assert world.commit(5, "a", old).value is ErrorCode.STALE_MEMBER_EPOCH


def test_member_commits_what_it_gives_up_and_nothing_after():
    """It commits no more after giving up, not even with the old epoch once it owns it again."""
    world = ConsumerWorld({"t": 2})
    (a,) = world.members("a")
    old = a.epoch
    b = Peer("b")
    world.join(b)
    world.beat(a)
    (lost,) = {0, 1} - {number for _, number in a.owned}
    assert world.commit(5, "a", a.epoch, partition=lost).value is ErrorCode.NONE

    world.settle(a, b)

    assert world.commit(6, "a", old, partition=lost).value is ErrorCode.STALE_MEMBER_EPOCH
    world.quit(b)
    world.settle(a)
    assert world.commit(6, "a", old, partition=lost).value is ErrorCode.STALE_MEMBER_EPOCH
    assert world.committed(partition=lost) == 5


def test_member_must_know_what_a_stale_epoch_is(world):
    """Versions of OffsetCommit before 9 do not."""
    world.members("a")
    results = {}

    world.coordinator.commit_offsets(
        "g", Committer("a", 1, knows_epochs=False), {T0: 5}, results.update
    )

    assert results == {T0: ErrorCode.UNSUPPORTED_VERSION}


@pytest.mark.parametrize(
    ("knows_epochs", "stale"),
    [(True, ErrorCode.STALE_MEMBER_EPOCH), (False, ErrorCode.ILLEGAL_GENERATION)],
)
def test_stale_epoch_has_another_name_in_older_transactions(world, knows_epochs, stale):
    """Versions of TxnOffsetCommit before 6 do not know it, and may be used all the same."""
    world.members("a")
    results = []
    for epoch in (7, 1):
        committer = Committer("a", epoch, knows_epochs=knows_epochs)
        world.coordinator.commit_offsets_in_transaction(
            "g", committer, TxnProducer("x", 7, 0, 1), {T0: CommittedOffset(5)}, results.append
        )

    assert results == [{T0: stale}, {T0: ErrorCode.NONE}]


@pytest.mark.parametrize(
    ("reader", "error"),
    [
        (Committer(), ErrorCode.NONE),
        (Committer("a", 1), ErrorCode.NONE),
        (Committer("a", 7), ErrorCode.STALE_MEMBER_EPOCH),
        (Committer("b", 1), ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_look_up_by_a_member_is_in_its_epoch(world, reader, error):
    """Without a name anybody may look."""
    world.members("a")

    assert world.coordinator.fetch_offsets("g", [T0], reader)[0] is error


def test_offsets_of_topics_that_are_read_are_kept(world):
    """Those of others expire, and all of them once the group has no members (KIP-211)."""
    (a,) = world.members("a")
    world.commit(5, "a", a.epoch)
    world.commit(6, "a", a.epoch, topic="old")
    for _ in range(50):
        world.advance(MINUTE_MS // 2)
        world.beat(a)
    assert world.committed() == 5
    assert world.committed("old") is None

    world.quit(a)
    world.advance(20 * MINUTE_MS)

    assert world.coordinator.manager.group("g") is None
    world.reload()
    assert world.coordinator.manager.group("g") is None


@pytest.mark.parametrize("restarts", [0, 1, 4])
@pytest.mark.parametrize("comes_back", [False, True])
def test_offsets_are_kept_from_when_the_last_member_has_left(world, comes_back, restarts):
    """A group that worked until now keeps offsets of quiet partitions, as classic ones do.

    It has that time again after each of its lives, and not after each change of its coordinator.
    """
    (a,) = world.members("a")
    world.commit(5, "a", a.epoch)
    beat_for_an_hour(world, a)
    world.quit(a)
    if comes_back:
        world.advance(10 * MINUTE_MS)
        (a,) = world.members("a")
        beat_for_an_hour(world, a)
        world.quit(a)
    for _ in range(restarts):
        world.advance(2 * MINUTE_MS)
        world.reload()
    world.advance((9 - 2 * restarts) * MINUTE_MS)
    assert world.committed() == 5

    world.advance((10 if restarts else 11) * MINUTE_MS)
    assert world.committed() is None
    assert world.coordinator.manager.group("g") is None


def beat_for_an_hour(world, member):
    for _ in range(120):
        world.advance(MINUTE_MS // 2)
        world.beat(member)


def test_group_is_deleted_when_it_is_empty(world):
    """With all its records."""
    (a,) = world.members("a")
    world.commit(5, "a", a.epoch)
    assert world.delete("g") == {"g": ErrorCode.NON_EMPTY_GROUP}
    world.quit(a)

    assert world.delete("g") == {"g": ErrorCode.NONE}
    world.reload()

    assert world.listed() == []
    assert world.committed() is None


def test_groups_are_listed_by_type_and_state(world):
    """Without regard to case."""
    world.members("a")
    world.commit(1, group="simple")

    assert world.listed(types=["Consumer"]) == ["g"]
    assert world.listed(types=["classic"]) == ["simple"]
    assert world.listed(states=["stable"]) == ["g"]
    assert world.listed() == ["g", "simple"]


def test_group_is_described_with_its_epochs(world):
    """Dead to DescribeGroups, as in Kafka; a classic one is not found here."""
    (a,) = world.members("a")
    world.commit(1, group="simple")

    found, simple, missing = at_once(
        world.coordinator.describe_consumer_groups(["g", "simple", "no"])
    )

    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 1, 1)
    assert found.assignor_name == "uniform"
    (member,) = found.members
    assert (member.member_id, member.member_epoch, member.member_type) == ("a", a.epoch, 1)
    assert member.assignment == member.target_assignment
    assert member.assignment.topic_partitions[0].topic_name == "t"
    assert simple.error_code == missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert at_once(world.coordinator.describe_groups(["g"]))[0].group_state == "Dead"
