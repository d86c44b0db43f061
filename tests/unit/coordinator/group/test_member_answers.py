"""Answers to all members of a group, two at a time."""

import pytest
from consumer_group_world import ConsumerWorld
from group_world import COMPLETING, STABLE, World

from ottla.coordinator.group import group_records, member_answers, rebalancer
from ottla.coordinator.group.consumer import consumer_rebalancer
from ottla.errors import ErrorCode
from ottla.runtime import Runtime
from ottla.runtime.scheduler import Work, at_once

OTHER = (("range", b"other"),)
SLICE = 2


@pytest.fixture
def world():
    """A coordinator whose partition is loaded."""
    return World()


@pytest.fixture
def works(monkeypatch):
    """The work that answers members of large groups, which the test does slice by slice."""
    found: list[Work[None]] = []
    monkeypatch.setattr(member_answers, "MEMBERS_IN_A_SLICE", SLICE)
    monkeypatch.setattr(Runtime, "begin", lambda self, work, name: found.append(work))
    return found


def answered(replies):
    return [reply.value for reply in replies if not reply.is_open]


@pytest.mark.parametrize("meanwhile", ["nothing", "leave", "rebalance", "unload"])
def test_members_of_a_large_group_learn_of_their_generation_in_slices(world, works, meanwhile):
    """A rebalance that begins in a pause counts those who still wait as joined."""
    joins = [world.join() for _ in range(5)]
    world.end_initial_delay()
    (work,) = works
    works.clear()
    next(work)
    first, second = (each.member_id for each in answered(joins))
    assert (len(joins[0].value.members), world.state) == (5, COMPLETING)
    if meanwhile == "leave":
        last = list(world.group().members)[-1]
        assert world.leave(last) == [ErrorCode.NONE]
    elif meanwhile == "rebalance":
        again = [world.join(first, protocols=OTHER), world.join(second)]
    elif meanwhile == "unload":
        group = world.group()
        world.coordinator.on_resignation(0)
        at_once(works.pop())
        assert group.members == {}
    at_once(work)
    if meanwhile == "leave":
        assert joins[4].error is ErrorCode.UNKNOWN_MEMBER_ID
        again = [world.join(each) for each in (first, second)]
    for each in works:
        at_once(each)

    generations = [each.value.generation_id for each in joins]
    ids = [each.value.member_id for each in joins]
    assert {
        "nothing": [1, 1, 1, 1, 1],
        "leave": [1, 1, 2, 2, -1],
        "rebalance": [1, 1, 2, 2, 2],
        "unload": [1, 1, -1, -1, -1],
    }[meanwhile] == generations
    if meanwhile in ("leave", "rebalance"):
        assert {each.value.generation_id for each in again} == {2}
        assert world.group().members.keys() == {first, second, *filter(None, ids[2:])} - {
            each.value.member_id for each in joins if each.error
        }


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_instance_that_is_replaced_in_a_pause_waits_for_the_log(world, works, error):
    """Its join is a new one, which is answered when the log has its new member id."""
    joins = [world.join(instance=f"i{number}") for number in range(5)]
    world.end_initial_delay()
    (work,) = works
    works.clear()
    next(work)
    leader = joins[0].value.member_id
    ids = list(world.group().members)
    world.sync(leader, 1, {each: each.encode() for each in ids})
    at_once(works[0])
    assert world.state is STABLE
    world.log.hold, world.log.error = True, error
    back = world.join(instance="i4")
    at_once(work)
    assert joins[4].error is ErrorCode.FENCED_INSTANCE_ID
    assert back.is_open
    assert not any(each.is_open for each in joins)

    world.log.release()
    assert bool(back.error) == bool(error)
    assert (list(world.group().members) == ids) == bool(error)


@pytest.mark.parametrize("meanwhile", ["nothing", "leave", "sync", "rebalance"])
def test_members_of_a_large_group_get_their_assignments_in_slices(world, works, meanwhile):
    """Each request is answered once, with what the leader has given in its generation."""
    joins = [world.join() for _ in range(5)]
    world.end_initial_delay()
    at_once(works.pop())
    ids = [each.value.member_id for each in joins]
    syncs = [world.sync(each, 1) for each in ids[1:]]
    syncs.append(world.sync(ids[0], 1, {each: each.encode() for each in ids}))
    at_once(works.pop(0))
    (work,) = works
    works.clear()
    next(work)
    assert (len(answered(syncs)), world.state) == (SLICE, STABLE)
    if meanwhile == "leave":
        world.leave(ids[4])
    elif meanwhile == "sync":
        assert world.sync(ids[4], 1).value.assignment == ids[4].encode()
    elif meanwhile == "rebalance":
        again = [world.join(each, protocols=OTHER) for each in ids]
        for each in works:
            at_once(each)
        assert {each.value.generation_id for each in again} == {2}
        newer = world.sync(ids[4], 2)
    at_once(work)

    found = {each.value.assignment for each in syncs}
    expected = {each.encode() for each in ids}
    gone = {"leave": {ids[4].encode()}, "rebalance": {ids[4].encode()}}.get(meanwhile, set())
    assert found == (expected - gone) | ({b""} if gone else set())
    if meanwhile == "rebalance":
        assert newer.is_open


@pytest.mark.usefixtures("core_source")
@pytest.mark.parametrize("place", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "meanwhile", ["nothing", "sync", "leave", "rebalance", "newcomer", "unload"]
)
def test_record_of_a_large_group_is_made_in_slices(world, works, monkeypatch, meanwhile, place):
    """It is written unless another rebalance has begun in a pause; nobody waits for ever."""
    monkeypatch.setattr(group_records, "MEMBERS_IN_A_SLICE", SLICE)
    joins = [world.join() for _ in range(5)]
    world.end_initial_delay()
    at_once(works.pop())
    ids = [each.value.member_id for each in joins]
    syncs = [world.sync(each, 1) for each in ids[1:]]
    syncs.append(world.sync(ids[0], 1, {each: each.encode() for each in ids}))
    (work,) = works
    works.clear()
    for _ in range(place):
        next(work)
    before = len(world.log.partitions[0])
    if meanwhile == "sync":
        syncs[-1] = world.sync(ids[0], 1, dict.fromkeys(ids, b"other"))
    elif meanwhile == "leave":
        world.leave(ids[4])
    elif meanwhile == "rebalance":
        world.join(ids[4], protocols=OTHER)
    elif meanwhile == "newcomer":
        world.join()
    elif meanwhile == "unload":
        world.coordinator.on_resignation(0)
    at_once(work)
    while works:
        at_once(works.pop(0))

    is_written = meanwhile in ("nothing", "sync")
    assert len(world.log.partitions[0]) == before + is_written
    assert not any(each.is_open for each in syncs)
    if is_written:
        assert [each.value.assignment.decode() for each in syncs] == [*ids[1:], ids[0]]
        assert world.coordinator.manager.differences(0) == []
    else:
        assert all(each.error for each in syncs)


def test_line_of_the_log_names_some_of_very_many_members(world, caplog):
    """And the others by their number."""
    caplog.set_level("INFO")
    for _ in range(30):
        world.join(session_timeout_ms=120_000, rebalance_timeout_ms=5_000)
    world.end_initial_delay()
    world.advance(5_000)

    assert "and 20 more did not send SyncGroup in time" in caplog.text
    assert max(map(len, caplog.messages)) < 700


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_sessions_of_a_large_group_begin_though_some_end_in_a_pause_of_its_load(monkeypatch, kind):
    """Those of the others would never end: partitions of members that are gone had no reader."""
    world = World() if kind == "classic" else ConsumerWorld({"t": 6})
    if kind == "classic":
        world.stable_group(*[None] * 5)
        monkeypatch.setattr(rebalancer, "MEMBERS_IN_A_SLICE", 1)
        rebalancers = world.coordinator.rebalancer
    else:
        world.members("a", "b", "c", "d", "e")
        monkeypatch.setattr(consumer_rebalancer, "MEMBERS_IN_A_SLICE", 1)
        rebalancers = world.coordinator.consumer_rebalancer
    group = world.coordinator.manager.group("g")
    members = list(group.members.values())
    for member in members:
        member.session_timer.cancel()
        member.session_timer = None
    work = rebalancers.resume(group)
    next(work)
    group.remove(members[1] if kind == "consumer" else members[1].member_id)
    at_once(work)

    assert [each for each in group.members.values() if each.session_timer is None] == []
    assert len(group.members) == 4


@pytest.mark.parametrize("meanwhile", ["nothing", "again", "rebalance", "unload", "refused"])
def test_large_group_is_stored_once_for_all_instances_that_come_back_in_a_turn(
    world, monkeypatch, meanwhile
):
    """A thousand of them, with a record of all for each, left the broker no time for others."""
    names = ("one", "two", "three")
    world.stable_group(*names)
    monkeypatch.setattr(member_answers, "STORED_AT_ONCE", 1)
    before = len(world.log.partitions[0])
    back = [world.join(instance=name, version=5) for name in names]
    assert all(each.is_open for each in back)
    if meanwhile == "again":
        back.append(world.join(instance="two", version=5))
    elif meanwhile == "rebalance":
        world.join(protocols=OTHER)
    elif meanwhile == "unload":
        world.coordinator.on_resignation(0)
    elif meanwhile == "refused":
        world.log.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.advance(0)

    none, fenced = ErrorCode.NONE, ErrorCode.FENCED_INSTANCE_ID
    gone = ErrorCode.NOT_COORDINATOR
    assert [each.error for each in back if not each.is_open] == {
        "nothing": [none] * 3,
        "again": [none, fenced, none, none],
        "rebalance": [none] * 3,
        "unload": [gone] * 3,
        "refused": [gone] * 3,
    }[meanwhile]
    stored = {"nothing": 1, "again": 2}.get(meanwhile, 0)
    assert len(world.log.partitions[0]) == before + stored
    if meanwhile == "rebalance":  # its assignment is stored
        assert {each.value.generation_id for each in back} == {2}
    if stored:
        assert world.coordinator.manager.differences(0) == []
        assert {each.value.generation_id for each in back if not each.error} == {1}
