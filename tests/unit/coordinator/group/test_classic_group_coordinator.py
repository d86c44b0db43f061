"""Member ids that must be claimed (KIP-394), and members that keep their place (KIP-345)."""

import itertools

import group_world
import pytest
from group_world import (
    COMPLETING,
    INITIAL_DELAY_MS,
    PREPARING,
    REBALANCE_MS,
    SESSION_MS,
    STABLE,
    World,
)

from ottla.coordinator.coordinator_writer import WRITE_AGAIN_MS
from ottla.coordinator.group.member_sessions import PendingMembers
from ottla.errors import ErrorCode

REQUIRED = ErrorCode.MEMBER_ID_REQUIRED
FENCED = ErrorCode.FENCED_INSTANCE_ID
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
WRITE_ERRORS = (
    ErrorCode.NONE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
)


@pytest.fixture
def world():
    """A coordinator whose partition is loaded."""
    return World()


def test_first_join_is_told_a_member_id_since_version_4(world):
    """The member joins with the second request, under the id that the first was told."""
    first = world.join(version=4)
    assert first.error is REQUIRED
    member = first.value.member_id
    assert member.startswith("app-")
    assert world.group().members == {}

    second = world.join(member, version=4)
    world.advance(INITIAL_DELAY_MS)
    assert second.value.member_id == member
    assert second.value.generation_id == 1


@pytest.mark.parametrize("version", [0, 3])
def test_first_join_is_a_member_before_version_4(world, version):
    """Older clients do not know how to come back with a member id."""
    reply = world.join(version=version)
    world.advance(INITIAL_DELAY_MS)

    assert reply.error is ErrorCode.NONE
    assert reply.value.member_id in world.group().members


def test_version_0_has_the_session_timeout_for_rebalances(world):
    """There was no rebalance timeout before version 1."""
    world.join(version=0, rebalance_timeout_ms=-1)

    assert world.group().rebalance_timeout_ms == SESSION_MS


def test_member_that_joins_again_has_the_timeouts_that_it_names_now(world):
    """A consumer whose settings were changed keeps its member id, and not its old timeouts."""
    (leader,) = world.stable_group(None)
    world.join(leader, rebalance_timeout_ms=REBALANCE_MS + 1, session_timeout_ms=SESSION_MS + 2)
    member = world.group().members[leader]

    assert member.rebalance_timeout_ms == REBALANCE_MS + 1
    assert member.session_timeout_ms == SESSION_MS + 2


def test_static_member_needs_no_second_join(world):
    """An instance id identifies its member well enough."""
    reply = world.join(instance="i", version=9)

    assert reply.is_open
    assert world.group().static_members.keys() == {"i"}


def test_rebalance_waits_for_a_member_that_was_told_its_id(world):
    """Who is about to come back with its id is in the next generation already."""
    (leader,) = world.stable_group(None)
    pending = world.join(version=4).value.member_id
    rejoin = world.join(leader)
    assert rejoin.is_open
    world.join(pending, version=4)

    assert len(rejoin.value.members) == 2


def test_member_id_that_is_not_claimed_expires(world):
    """After the session timeout nobody waits for it any more."""
    (leader,) = world.stable_group(None)
    pending = world.join(version=4).value.member_id
    world.advance(SESSION_MS // 2)
    rejoin = world.join(leader)
    assert rejoin.is_open
    world.advance(SESSION_MS // 2)

    assert rejoin.value.generation_id == 2
    assert world.join(pending, version=4).error is UNKNOWN


def test_pending_member_can_leave(world):
    """A client that gives up between its two joins holds nobody up."""
    (leader,) = world.stable_group(None)
    pending = world.join(version=4).value.member_id
    rejoin = world.join(leader)

    assert world.leave(pending) == [ErrorCode.NONE]
    assert rejoin.value.generation_id == 2


def test_pending_member_cannot_become_static(world):
    """An id that was given to a dynamic member belongs to no instance."""
    pending = world.join(version=4).value.member_id

    assert world.join(pending, instance="i", version=5).error is UNKNOWN


def test_groups_of_unclaimed_ids_leave_nothing_behind(world):
    """Asking for member ids in ever new groups fills no memory for long."""
    for number in range(20):
        world.join(version=4, group_id=f"g{number}")
    assert len(world.listed()) == 20
    world.advance(SESSION_MS)

    assert world.listed() == []


def test_unclaimed_ids_are_bounded(world):
    """The oldest id gives way to the newest."""
    expired = []
    pending = PendingMembers(
        world.runtime.scheduler, lambda group, member: expired.append(member), limit=2
    )
    world.join()
    group = world.group()
    for member in ("a", "b", "c"):
        pending.add(group, member, 1_000)

    assert (expired, group.pending_members, len(pending)) == (["a"], {"b", "c"}, 2)


def test_static_member_that_restarts_causes_no_rebalance(world):
    """It gets a new id and its old assignment; the others go on in the same generation."""
    leader, follower = world.stable_group("one", "two")
    back = world.join(instance="two", version=5)

    assert (back.error, back.value.generation_id) == (ErrorCode.NONE, 1)
    assert back.value.member_id != follower
    assert back.value.leader == leader
    assert world.state is STABLE
    assert world.heartbeat(leader, 1) is ErrorCode.NONE
    assert world.sync(back.value.member_id, 1).value.assignment == follower.encode()


def test_static_leader_that_restarts_may_skip_the_assignment(world):
    """Since version 9 it is told that it leads and that the assignment stands (KIP-814)."""
    world.stable_group("one", "two")
    back = world.join(instance="one", version=9)

    assert back.value.skip_assignment
    assert back.value.leader == back.value.member_id
    assert len(back.value.members) == 2


def test_static_leader_that_restarts_is_a_follower_in_older_versions(world):
    """Told of its old id as the leader, it does not assign what nobody waits for."""
    leader, _ = world.stable_group("one", "two")
    back = world.join(instance="one", version=8)

    assert (back.value.leader, back.value.members) == (leader, [])
    assert not back.value.skip_assignment
    assert world.group().leader_id == back.value.member_id


def test_restarted_static_follower_does_not_skip(world):
    """Only a leader has an assignment to skip."""
    world.stable_group("one", "two")

    assert not world.join(instance="two", version=9).value.skip_assignment


def test_static_member_with_another_subscription_may_need_a_rebalance(world):
    """If its protocols change the one that is selected, all must join again."""
    protocols = (("range", b""), ("sticky", b""))
    joins = [world.join(instance=name, protocols=protocols) for name in ("one", "two")]
    world.stabilize(*joins)
    back = world.join(instance="two", version=5, protocols=(("sticky", b""),))

    assert back.is_open
    assert world.state is PREPARING


def test_older_process_of_an_instance_is_fenced_everywhere(world):
    """The id from before the restart belongs to a process that should not be there."""
    _, old = world.stable_group("one", "two")
    world.join(instance="two", version=5)

    assert world.heartbeat(old, 1, group_instance_id="two") is FENCED
    assert world.sync(old, 1, group_instance_id="two").error is FENCED
    assert world.join(old, instance="two").error is FENCED
    assert world.commit(5, old, 1, instance="two").value is FENCED
    assert world.leave((old, "two")) == [FENCED]
    assert world.heartbeat(old, 1) is UNKNOWN


def test_second_process_with_the_same_instance_fences_the_first(world):
    """While both wait to join, only the later one gets in."""
    first = world.join(instance="i")
    second = world.join(instance="i")
    assert first.error is FENCED
    world.end_initial_delay()

    assert second.error is ErrorCode.NONE
    assert len(world.group().members) == 1


def test_unknown_instance_with_a_member_id_is_refused(world):
    """An instance that is not in the group cannot speak as a member of it."""
    (member,) = world.stable_group(None)

    assert world.heartbeat(member, 1, group_instance_id="i") is UNKNOWN
    assert world.join(member, instance="i").error is UNKNOWN


def test_static_member_that_restarts_before_the_assignment_begins_anew(world):
    """The leader may be assigning partitions to an id that is gone."""
    joins = [world.join(instance="one"), world.join(instance="two")]
    world.end_initial_delay()
    waiting = world.sync(joins[1].value.member_id, 1)
    assert world.state is COMPLETING
    back = world.join(instance="two", version=5)

    assert waiting.error is FENCED
    assert back.is_open
    assert world.state is PREPARING


def test_static_member_is_not_dropped_by_a_rebalance(world):
    """It may be restarting: its place is kept until its session ends."""
    leader, away = world.stable_group(None, "two")
    world.group().members[away].session_timeout_ms = 300_000
    world.heartbeat(away, 1)
    rejoin = world.join(leader)
    world.advance(60_000)

    assert rejoin.value.generation_id == 2
    assert away in world.group().members


def test_rebalance_goes_on_waiting_while_only_static_members_are_away(world):
    """A generation needs somebody who leads it."""
    (member,) = world.stable_group("one")
    world.group().members[member].session_timeout_ms = 300_000
    world.heartbeat(member, 1)
    world.coordinator.rebalancer.prepare_rebalance(world.group(), "a test wants it")
    world.advance(150_000)
    assert (world.state, world.group().generation_id) == (PREPARING, 1)
    back = world.join(instance="one", version=5)

    assert back.value.generation_id == 2


def test_replacement_that_cannot_be_stored_is_taken_back(world):
    """The old id stays valid, since it is the one that a new coordinator would read."""
    _, old = world.stable_group("one", "two")
    world.log.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    back = world.join(instance="two", version=5)

    assert back.error is ErrorCode.NOT_COORDINATOR
    assert world.heartbeat(old, 1, group_instance_id="two") is ErrorCode.NONE
    assert world.group().leader_id in world.group().members


def test_administrator_removes_a_static_member_by_its_instance(world):
    """LeaveGroup with an empty member id names the instance alone."""
    leader, _ = world.stable_group("one", "two")

    assert world.leave(("", "two"), ("", "three")) == [ErrorCode.NONE, UNKNOWN]
    assert list(world.group().members) == [leader]


def test_members_leave_in_one_request_each_with_its_own_result(world):
    """A batch is not all or nothing."""
    leader, follower = world.stable_group(None, None)

    assert world.leave(leader, "stranger", follower) == [
        ErrorCode.NONE,
        UNKNOWN,
        ErrorCode.NONE,
    ]


def test_replacement_that_failed_and_is_in_the_log_is_taken_back_there(world):
    """The instance was told of an error; the next coordinator would not know its old member id."""
    old, _ = world.stable_group("one", None)
    world.log.error, world.log.is_replicated = ErrorCode.REQUEST_TIMED_OUT, False
    assert world.join(instance="one").error is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.group().static_members == {"one": old}
    world.advance(2 * WRITE_AGAIN_MS)
    world.log.error, world.log.is_replicated = ErrorCode.NONE, True
    world.advance(WRITE_AGAIN_MS)

    assert world.state is STABLE
    assert world.coordinator.manager.differences(0) == []


def test_replacement_that_was_refused_leaves_the_member_as_it_was(world, monkeypatch):
    """With all that is stored of it, also the client's id."""
    old, _ = world.stable_group("one", None)
    other = group_world.CLIENT._replace(client_id="other", client_host="/10.0.0.2")
    monkeypatch.setattr(group_world, "CLIENT", other)
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    answer = world.join(instance="one", protocols=(("range", b"newer"),))
    assert answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE

    assert world.group().members[old].client_id == "app"
    assert world.group().members[old].metadata("range") == b"meta"
    assert world.coordinator.manager.differences(0) == []


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("place", [0, 1])
def test_instance_that_is_back_again_waits_for_its_own_id_in_the_log(world, count, place):
    """A write of an earlier process of the instance is no answer to the present one."""
    world.stable_group("one", "two")
    instance = ("one", "two")[place]
    world.log.hold = True
    *earlier, last = [world.join(instance=instance, version=5) for _ in range(count)]
    world.log.release_first()

    assert [each.error for each in earlier] == [ErrorCode.FENCED_INSTANCE_ID] * (count - 1)
    assert last.is_open
    world.log.release()
    assert world.group().static_members[instance] == last.value.member_id
    assert world.coordinator.manager.differences(0) == []


@pytest.mark.parametrize("errors", [*itertools.product(WRITE_ERRORS, repeat=2)])
def test_instance_that_is_back_again_has_the_id_that_the_log_has(world, errors):
    """Each of the writes of its two processes may fail, or be in the log too late."""
    world.stable_group("one", "two")
    world.log.hold = True
    world.fail_writes(errors[0])
    first = world.join(instance="two", version=5)
    world.fail_writes(errors[1])
    last = world.join(instance="two", version=5)
    world.log.hold = False
    world.log.release()
    world.fail_writes(ErrorCode.NONE)
    world.advance(2 * WRITE_AGAIN_MS)

    assert not first.is_open
    assert not last.is_open
    assert world.coordinator.manager.differences(0) == []
    if not last.error:
        assert world.group().static_members["two"] == last.value.member_id


def test_replacement_that_is_stored_during_a_rebalance_waits_for_the_next_generation(world):
    """The present generation is over when its answer is there."""
    first, second, _ = world.stable_group(None, None, "two")
    world.log.hold = True
    back = world.join(instance="two", version=5)
    joins = [world.join(first, protocols=(("range", b"newer"),))]
    world.log.hold = False
    world.log.release()
    assert (world.state, back.is_open) == (PREPARING, True)
    joins.append(world.join(second))

    assert {each.value.generation_id for each in (back, *joins)} == {2}


def test_leader_that_sends_another_assignment_gets_the_first(world):
    """Its write is under way: the group has the assignment that the log has."""
    joins = [world.join(), world.join()]
    world.end_initial_delay()
    ids = [join.value.member_id for join in joins]
    world.log.hold = True
    first = world.sync(ids[0], 1, {ids[0]: b"a", ids[1]: b"b"})
    second = world.sync(ids[0], 1, {ids[0]: b"b", ids[1]: b"a"})
    world.log.release()

    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert second.value.assignment == b"a"
    assert world.coordinator.manager.differences(0) == []
