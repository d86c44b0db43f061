"""Sessions of members: kept up by heartbeats, and by requests that stand for them."""

import pytest
from group_world import COMPLETING, EMPTY, PREPARING, REBALANCE_MS, SESSION_MS, STABLE, World

from ottla.coordinator.group.classic_group import ClassicGroup
from ottla.coordinator.group.member_sessions import NEW_MEMBER_JOIN_TIMEOUT_MS, PendingMembers
from ottla.errors import ErrorCode
from ottla.testing import mock_runtime


@pytest.fixture
def world():
    """A coordinator whose partition is loaded."""
    return World()


def test_silent_member_fails_after_its_session_timeout(world):
    """The others are asked to share its partitions."""
    leader, silent = world.stable_group(None, None)
    world.advance(SESSION_MS - 1)
    assert world.heartbeat(leader, 1) is ErrorCode.NONE
    world.advance(1)

    assert world.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.heartbeat(silent, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_keep_a_member(world):
    """Each heartbeat gives the full session timeout again."""
    (member,) = world.stable_group(None)
    for _ in range(20):
        world.advance(SESSION_MS - 1)
        assert world.heartbeat(member, 1) is ErrorCode.NONE


def test_commits_keep_a_member(world):
    """Who commits offsets is alive."""
    (member,) = world.stable_group(None)
    for offset in range(5):
        world.advance(SESSION_MS - 1)
        assert world.commit(offset, member, 1).value is ErrorCode.NONE


def test_refused_heartbeats_do_not_keep_a_member(world):
    """A heartbeat for another generation is not one."""
    (member,) = world.stable_group(None)
    world.advance(SESSION_MS - 1)
    world.heartbeat(member, 7)
    world.advance(1)

    assert member not in world.group().members


def test_group_whose_members_all_fail_becomes_empty(world):
    """There is nobody left to rebalance with."""
    world.stable_group(None, None)
    world.advance(SESSION_MS)

    assert world.state is EMPTY


def test_member_that_waits_to_join_is_not_expected_to_speak(world):
    """It cannot send heartbeats while its JoinGroup is open; its session begins with the answer."""
    leader, slow = world.stable_group(None, None)
    rejoin = world.join(leader)
    for _ in range(5):
        world.advance(SESSION_MS - 1)
        world.heartbeat(slow, 1)
    assert rejoin.is_open
    world.join(slow)
    assert rejoin.value.generation_id == 2

    world.advance(SESSION_MS)
    assert world.state is EMPTY


def test_member_that_waits_for_its_assignment_is_not_expected_to_speak(world):
    """The session begins anew when the leader has brought the assignment."""
    joins = [world.join(), world.join()]
    world.end_initial_delay()
    leader, follower = (join.value.member_id for join in joins)
    waiting = world.sync(follower, 1)
    for _ in range(3):
        world.advance(SESSION_MS - 1)
        world.heartbeat(leader, 1)
    assert world.state is COMPLETING
    world.sync(leader, 1, {follower: b"F"})
    assert waiting.value.assignment == b"F"
    world.advance(SESSION_MS - 1)
    world.heartbeat(leader, 1)
    assert world.state is STABLE
    world.advance(1)

    assert list(world.group().members) == [leader]


def test_new_member_that_gave_up_is_dropped_in_the_end(world):
    """Nobody can tell whether a client that waits in its first join is still there."""
    joins = [world.join(rebalance_timeout_ms=900_000), world.join(rebalance_timeout_ms=900_000)]
    world.stabilize(*joins)
    leader = joins[0].value.leader
    newcomer = world.join()
    waited_ms = 0
    while waited_ms < NEW_MEMBER_JOIN_TIMEOUT_MS:
        assert newcomer.is_open
        for join in joins:
            world.heartbeat(join.value.member_id, 1)
        world.advance(SESSION_MS // 2)
        waited_ms += SESSION_MS // 2

    assert newcomer.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert leader in world.group().members


def test_session_of_a_member_that_failed_while_rebalancing_counts(world):
    """A rebalance does not wait for members that are gone."""
    leader, _ = world.stable_group(None, None)
    rejoin = world.join(leader)
    assert world.state is PREPARING
    world.advance(SESSION_MS)

    assert rejoin.value.generation_id == 2
    assert SESSION_MS < REBALANCE_MS


def test_longer_and_shorter_sessions_are_each_kept(world):
    """Every member has the timeout that it asked for."""
    joins = [world.join(session_timeout_ms=30_000), world.join(session_timeout_ms=6_000)]
    world.stabilize(*joins)
    world.advance(6_000)
    assert list(world.group().members) == [joins[0].value.member_id]
    world.advance(24_000)

    assert world.state is EMPTY


# -- ids that were handed out


class Handed:
    """Ids that wait for their members, of two groups and at most so many."""

    def __init__(self, limit=3):
        self.runtime = mock_runtime()
        self.expired = []
        self.pending = PendingMembers(
            self.runtime.scheduler, lambda group, member: self.expired.append(member), limit
        )
        self.group, self.other = ClassicGroup("g", 0), ClassicGroup("h", 0)


def test_id_that_nobody_claims_expires():
    """In its time, and once; one that was claimed does not."""
    handed = Handed()
    handed.pending.add(handed.group, "a", 1000)
    handed.pending.add(handed.other, "b", 2000)
    assert (handed.group.pending_members, len(handed.pending)) == ({"a"}, 2)
    handed.pending.discard(handed.other, "b")
    handed.pending.discard(handed.other, "never there")
    assert (handed.other.pending_members, len(handed.pending)) == (set(), 1)
    handed.runtime.advance(999)
    assert handed.expired == []
    handed.runtime.advance(100_000)

    assert (handed.expired, handed.group.pending_members, len(handed.pending)) == (["a"], set(), 0)


def test_oldest_ids_give_way_to_new_ones(caplog):
    """They are as expired; their time does not come a second time."""
    handed = Handed(limit=2)
    for name in ("a", "b", "c"):
        handed.pending.add(handed.group, name, 1000)
        handed.runtime.advance(10)
    assert (handed.expired, len(handed.pending)) == (["a"], 2)
    handed.runtime.advance(10_000)

    assert (handed.expired, len(handed.pending)) == (["a", "b", "c"], 0)
    assert caplog.text == ""


def test_id_that_is_claimed_is_waited_for_no_more(world):
    """A claimed id has no time limit, and does not count among the ids given out."""
    member_id = world.join(version=4).value.member_id
    assert len(world.coordinator.rebalancer.pending) == 1
    joined = world.join(member_id, version=4)

    assert len(world.coordinator.rebalancer.pending) == 0
    world.end_initial_delay()
    assert joined.error is ErrorCode.NONE


def test_requests_of_a_member_that_is_removed_are_answered(world):
    """It waits for its assignment or for the next generation, and is no member any more."""
    leader, follower = world.stable_group(None, None)
    joins = [world.join(leader), world.join(follower)]
    assert world.state is COMPLETING
    sync = world.sync(follower, joins[1].value.generation_id)
    assert sync.is_open
    world.leave(follower)
    assert sync.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.state is PREPARING
    newcomer = world.join()
    (member_id,) = set(world.group().members) - {leader}
    world.leave(member_id)

    assert newcomer.error is ErrorCode.UNKNOWN_MEMBER_ID
