"""Rebalances of two and three members, as they are told to each of them."""

import pytest
from group_world import (
    COMPLETING,
    EMPTY,
    INITIAL_DELAY_MS,
    PREPARING,
    REBALANCE_MS,
    SESSION_MS,
    STABLE,
    World,
)

from ottla.coordinator.group.member_sessions import EMPTY_RETRY_MS
from ottla.errors import ErrorCode

REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS


@pytest.fixture
def world():
    """A coordinator whose partition is loaded."""
    return World()


def test_first_rebalance_waits_for_members_that_start_together(world):
    """A newcomer makes the wait one delay longer; then the leader learns of all who came."""
    first, second = world.join(), world.join()
    world.advance(2 * INITIAL_DELAY_MS - 1)
    assert first.is_open
    world.advance(1)

    answers = [first.value, second.value]
    assert [answer.generation_id for answer in answers] == [1, 1]
    assert [answer.protocol_name for answer in answers] == ["range", "range"]
    assert {answer.leader for answer in answers} == {first.value.member_id}
    assert [len(answer.members) for answer in answers] == [2, 0]
    assert [member.metadata for member in first.value.members] == [b"meta", b"meta"]


def test_first_rebalance_is_extended_up_to_the_rebalance_timeout(world):
    """Newcomers do not hold the first ones for longer than these want to wait (KIP-134)."""
    replies = []
    for _ in range(4):
        replies.append(world.join(rebalance_timeout_ms=10_000))
        world.advance(2_499)
    assert all(reply.is_open for reply in replies)
    world.advance(4)

    assert {reply.value.generation_id for reply in replies} == {1}


def test_initial_delay_of_nothing_answers_at_once():
    """With delay 0 the first member begins alone."""
    world = World(group_initial_rebalance_delay_ms=0)
    reply = world.join()
    world.advance(0)

    assert reply.value.generation_id == 1


def test_assignment_reaches_each_member_when_the_leader_brings_it(world):
    """Followers wait in SyncGroup; each gets its own part, a forgotten one gets nothing."""
    joins = [world.join() for _ in range(3)]
    world.end_initial_delay()
    leader, second, third = (join.value.member_id for join in joins)
    waiting = world.sync(second, 1)
    assert waiting.is_open
    assert world.state is COMPLETING

    answer = world.sync(leader, 1, {leader: b"L", second: b"S", "stranger": b"X"})
    assert (answer.value.assignment, waiting.value.assignment) == (b"L", b"S")
    assert world.sync(third, 1).value.assignment == b""
    assert world.state is STABLE


def test_third_member_makes_the_others_join_again(world):
    """A newcomer waits until both others have heard of it by heartbeat and joined again."""
    leader, follower = world.stable_group(None, None)
    newcomer = world.join()
    assert world.heartbeat(leader, 1) is REBALANCE
    assert world.heartbeat(follower, 1) is REBALANCE
    again = world.join(follower)
    assert newcomer.is_open
    led = world.join(leader)

    generations = [reply.value.generation_id for reply in (newcomer, again, led)]
    assert generations == [2, 2, 2]
    assert len(led.value.members) == 3


def test_member_that_does_not_join_again_is_left_behind(world):
    """After the rebalance timeout the generation begins without those who are missing."""
    leader, follower = world.stable_group(None, None)
    rejoin = world.join(leader)
    for _ in range(12):
        world.heartbeat(follower, 1)
        world.advance(REBALANCE_MS // 12)

    assert rejoin.value.generation_id == 2
    assert list(world.group().members) == [leader]
    assert world.heartbeat(follower, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_leader_that_is_left_behind_is_succeeded(world):
    """A member that has joined leads the next generation."""
    leader, follower = world.stable_group(None, None)
    rejoin = world.join(follower, protocols=(("range", b"new"),))
    world.leave(leader)

    assert rejoin.value.leader == follower
    assert len(rejoin.value.members) == 1


def test_rebalance_during_a_sync_sends_all_back(world):
    """Members that wait for an assignment of a generation that is over have to join again."""
    joins = [world.join(), world.join()]
    world.end_initial_delay()
    waiting = world.sync(joins[1].value.member_id, 1)
    world.join()

    assert waiting.error is REBALANCE
    assert world.state is PREPARING


def test_second_sync_of_a_member_answers_the_first(world):
    """A request that its client gave up does not stay open."""
    joins = [world.join(), world.join()]
    world.end_initial_delay()
    follower = joins[1].value.member_id
    first = world.sync(follower, 1)
    second = world.sync(follower, 1)

    assert first.error is REBALANCE
    assert second.is_open


def test_last_member_that_leaves_makes_the_group_empty(world):
    """An empty generation is one of its own, so that old members cannot come back into it."""
    (member,) = world.stable_group(None)
    world.leave(member)

    group = world.group()
    assert (group.state, group.generation_id) == (EMPTY, 2)
    assert (group.protocol_name, group.leader_id) == (None, None)


def test_generation_goes_on_after_the_group_was_empty(world):
    """A group that fills again continues to count, and waits for more members again."""
    (member,) = world.stable_group(None)
    world.leave(member)
    reply = world.join()
    assert reply.is_open
    world.advance(INITIAL_DELAY_MS)

    assert reply.value.generation_id == 3


def test_assignment_that_cannot_be_stored_is_not_given(world):
    """Members are told an error and rebalance; nothing was promised that a crash takes back."""
    joins = [world.join(), world.join()]
    world.end_initial_delay()
    leader, follower = (join.value.member_id for join in joins)
    waiting = world.sync(follower, 1)
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    answer = world.sync(leader, 1, {leader: b"L"})

    assert answer.error is waiting.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert answer.value.assignment == b""
    assert world.state is PREPARING


def test_assignment_of_a_past_generation_comes_to_nothing(world):
    """While it was written the next generation began, which waits for its own."""
    (leader,) = world.stable_group(None)
    world.log.hold = True
    world.join(leader)
    sync = world.sync(leader, 2, {leader: b"old"})
    newcomer = world.join()
    assert sync.error is REBALANCE
    world.join(leader)
    waiting = world.sync(newcomer.value.member_id, 3)
    world.log.release()

    assert world.state is COMPLETING
    assert waiting.is_open
    assert world.group().members[leader].assignment == b""


def test_member_that_never_syncs_is_removed(world):
    """Who does not ask for its assignment in the rebalance timeout holds its place for nothing."""
    joins = [world.join(), world.join()]
    world.end_initial_delay()
    leader, silent = (join.value.member_id for join in joins)
    world.sync(leader, 1, {leader: b"L"})
    for _ in range(REBALANCE_MS // SESSION_MS * 2):
        world.heartbeat(leader, 1)
        world.heartbeat(silent, 1)
        world.advance(SESSION_MS // 2)

    assert list(world.group().members) == [leader]
    assert world.heartbeat(leader, 1) is REBALANCE


def test_members_are_counted_once_however_often_they_join(world):
    """Joining twice in one rebalance does not make up for a member that is missing."""
    leader, follower = world.stable_group(None, None)
    world.join(leader)
    again = world.join(leader)
    assert again.is_open
    world.join(follower)

    assert again.value.generation_id == 2


def completing_group(world):
    """Two members that have joined again; neither has sent its SyncGroup."""
    leader, follower = world.stable_group(None, None)
    joins = [world.join(leader), world.join(follower)]
    assert world.state is COMPLETING
    assert world.group().sync_timer is not None
    return leader, follower, joins[0].value.generation_id


@pytest.mark.parametrize("ends", ["all have synced", "who has not is gone", "they join again"])
def test_time_to_sync_ends_when_nobody_is_waited_for(world, ends):
    """No timer of a past generation is left."""
    leader, follower, generation = completing_group(world)
    world.sync(leader, generation, {leader: b"1", follower: b"2"})
    assert world.group().sync_timer is not None
    if ends == "all have synced":
        world.sync(follower, generation)
    elif ends == "who has not is gone":
        world.leave(follower)
    else:
        world.join(leader)

    assert world.group().sync_timer is None


def test_time_to_sync_takes_nobody_out_of_the_next_rebalance(world):
    """Who has not synced by the end of it has as long to join as all others."""
    leader, follower, generation = completing_group(world)
    world.sync(leader, generation, {leader: b"1", follower: b"2"})
    for _ in range(REBALANCE_MS // 5_000 - 1):
        world.advance(5_000)
        world.heartbeat(leader, generation)
        world.heartbeat(follower, generation)
    world.join(leader)
    for _ in range(2):
        world.advance(5_000)
        assert world.heartbeat(follower, generation) is REBALANCE

    assert world.state is PREPARING
    assert set(world.group().members) == {leader, follower}


def test_time_to_sync_ends_by_itself(world):
    """Once, and members that have not used it are gone."""
    leader, follower, generation = completing_group(world)
    world.sync(leader, generation, {leader: b"1", follower: b"2"})
    for _ in range(REBALANCE_MS // 5_000):
        world.advance(5_000)
        world.heartbeat(leader, generation)
        world.heartbeat(follower, generation)

    assert set(world.group().members) == {leader}
    assert world.group().sync_timer is None


def test_group_that_is_abandoned_is_dead_and_waits_for_nothing(world):
    """Whoever still has it sees that; members look for another coordinator."""
    completing_group(world)
    group = world.group()
    world.coordinator.shutdown()

    assert (group.state_name, group.sync_timer, group.members) == ("Dead", None, {})


def test_group_that_all_have_left_is_so_in_the_log(world):
    """Its next coordinator does not wait for them."""
    members = world.stable_group(None, None)
    world.leave(*members)
    world.advance(REBALANCE_MS)
    generation = world.group().generation_id
    assert world.coordinator.manager.differences(0) == []
    world.move_away_and_back()

    assert (world.group().state_name, world.group().generation_id) == ("Empty", generation)


@pytest.mark.parametrize("returns", [True, False])
def test_group_that_could_not_be_written_empty_is_written_so_only_if_it_is_still(world, returns):
    """The write comes a moment later: it would take the members of by then out of the log."""
    (member,) = world.stable_group(None)
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    world.leave(member)
    world.log.error = ErrorCode.NONE
    if returns:
        world.stabilize(world.join(version=3))
    world.advance(EMPTY_RETRY_MS)
    members = list(world.group().members)
    world.move_away_and_back()

    assert world.state is (STABLE if returns else EMPTY)
    assert list(world.group().members) == members
    assert len(members) == returns


def test_group_of_nobody_but_a_member_id_that_is_given_back_is_gone(world):
    """Nothing of it was ever in the log."""
    member_id = world.join(version=4).value.member_id
    assert world.coordinator.manager.group("g") is not None
    world.leave(member_id)

    assert world.coordinator.manager.group("g") is None
