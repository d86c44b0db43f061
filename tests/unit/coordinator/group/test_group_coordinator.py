"""Every state x request of a classic group, and the checks that come before the state."""

import pytest
from group_world import COMPLETING, EMPTY, PREPARING, STABLE, World

from ottla.coordinator.group.group_coordinator import GroupCoordinator
from ottla.errors import ErrorCode
from ottla.protocol.group import ListGroupsRequest
from ottla.runtime.scheduler import at_once

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
ILLEGAL = ErrorCode.ILLEGAL_GENERATION
STATES = [EMPTY, PREPARING, COMPLETING, STABLE]


def by_state(outcomes):
    """Each state with what is expected in it."""
    return list(zip(STATES, outcomes, strict=True))


@pytest.fixture
def world():
    """A coordinator whose partition is loaded."""
    return World()


def bring_to(world, state):
    """The group in a state; returns a member of it, or of its past, and its generation."""
    leader, follower = world.stable_group(None, None)
    if state is EMPTY:
        world.leave(leader, follower)
        world.advance(60_000)
    if state in (PREPARING, COMPLETING):
        world.join(leader)
    if state is COMPLETING:
        world.join(follower)
    assert world.state is state
    return follower, world.group().generation_id


@pytest.mark.parametrize(("state", "error"), by_state([UNKNOWN, REBALANCE, REBALANCE, NONE]))
def test_heartbeat_is_answered_by_state(world, state, error):
    """Only a stable group lets its members go on."""
    assert world.heartbeat(*bring_to(world, state)) is error


@pytest.mark.parametrize(("state", "error"), by_state([UNKNOWN, REBALANCE, None, NONE]))
def test_sync_is_answered_by_state(world, state, error):
    """In CompletingRebalance a follower waits for the leader's assignment."""
    reply = world.sync(*bring_to(world, state))

    assert reply.is_open if error is None else reply.error is error


@pytest.mark.parametrize(("state", "error"), by_state([UNKNOWN, NONE, REBALANCE, NONE]))
def test_commit_of_a_member_is_answered_by_state(world, state, error):
    """Commits are refused between JoinGroup and SyncGroup, when nobody knows what it owns."""
    member, generation = bring_to(world, state)

    assert world.commit(5, member, generation).value is error
    assert world.committed() == (None if error else 5)


@pytest.mark.parametrize(("state", "error"), by_state([NONE, UNKNOWN, UNKNOWN, UNKNOWN]))
def test_simple_commit_is_for_empty_groups(world, state, error):
    """Without member and generation one may commit only where no members are."""
    bring_to(world, state)

    assert world.commit(5).value is error


@pytest.mark.parametrize("state", STATES)
def test_leave_removes_the_member_in_every_state(world, state):
    """A member can always leave; a past member cannot leave again."""
    member, _ = bring_to(world, state)

    assert world.leave(member) == [UNKNOWN if state is EMPTY else NONE]
    assert member not in world.group().members


@pytest.mark.parametrize(
    ("state", "following"), by_state([EMPTY, COMPLETING, PREPARING, PREPARING])
)
def test_leaving_moves_the_group_on(world, state, following):
    """The others join again; if they were only waiting for the one that left, they begin."""
    member, _ = bring_to(world, state)
    world.leave(member)

    assert world.state is following


@pytest.mark.parametrize("state", STATES)
def test_new_member_waits_for_the_next_generation(world, state):
    """A join without member id is answered when all have joined or the time is up."""
    bring_to(world, state)
    generation = world.group().generation_id
    reply = world.join()

    assert reply.is_open
    assert world.state is PREPARING
    world.advance(60_000)
    assert reply.error is NONE
    assert reply.value.generation_id == generation + 1


@pytest.mark.parametrize(("state", "error"), by_state([UNKNOWN, None, NONE, NONE]))
def test_unchanged_follower_is_told_the_current_generation(world, state, error):
    """A follower that joins again with the same subscription disturbs nobody."""
    member, generation = bring_to(world, state)
    reply = world.join(member)

    if state is PREPARING:
        # It was the last one that was waited for.
        assert (reply.error, reply.value.generation_id) == (NONE, generation + 1)
    else:
        assert reply.error is error
        assert reply.value.generation_id == (-1 if error else generation)
        assert reply.value.members == []


@pytest.mark.parametrize("state", [COMPLETING, STABLE])
def test_changed_follower_begins_a_rebalance(world, state):
    """Another subscription needs another assignment."""
    member, _ = bring_to(world, state)
    reply = world.join(member, protocols=(("range", b"other"),))

    assert reply.is_open
    assert world.state is PREPARING


def test_leader_that_joins_again_begins_a_rebalance(world):
    """The leader may have seen something that changes the assignment, such as new partitions."""
    leader, follower = world.stable_group(None, None)
    reply = world.join(leader)

    assert reply.is_open
    assert world.heartbeat(follower, 1) is REBALANCE


def test_leader_whose_answer_was_lost_gets_the_members_again(world):
    """In CompletingRebalance an unchanged leader is answered as before."""
    bring_to(world, COMPLETING)
    leader = world.group().leader_id
    reply = world.join(leader)

    assert reply.value.generation_id == 2
    assert len(reply.value.members) == 2


@pytest.mark.parametrize("state", STATES[1:])
def test_stale_generation_is_refused_everywhere(world, state):
    """Whoever missed a rebalance must not act on what it owned before."""
    member, generation = bring_to(world, state)

    assert world.heartbeat(member, generation - 1) is ILLEGAL
    assert world.sync(member, generation - 1).error is ILLEGAL
    assert world.commit(5, member, generation - 1).value is ILLEGAL
    assert world.committed() is None


@pytest.mark.parametrize("state", STATES)
def test_stranger_is_refused_everywhere(world, state):
    """A member id that the coordinator did not give out means nothing."""
    _, generation = bring_to(world, state)

    assert world.heartbeat("stranger", generation) is UNKNOWN
    assert world.sync("stranger", generation).error is UNKNOWN
    assert world.join("stranger").error is UNKNOWN
    assert world.commit(5, "stranger", generation).value is UNKNOWN
    assert world.leave("stranger") == [UNKNOWN]


def test_unknown_group_is_refused(world):
    """Only a first join or a simple commit makes a group."""
    assert world.heartbeat("m", 1) is UNKNOWN
    assert world.sync("m", 1).error is UNKNOWN
    assert world.join("m").error is UNKNOWN
    assert world.leave("m") == [UNKNOWN]
    assert world.commit(5, "m", 1).value is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.listed() == []


@pytest.mark.parametrize("group_id", ["", "x" * 32_768])
def test_invalid_group_id_is_refused(world, group_id):
    """Members need a group with a name that fits into a record."""
    invalid = ErrorCode.INVALID_GROUP_ID

    assert world.join(group_id=group_id).error is invalid
    assert world.sync("m", 1, group_id=group_id).error is invalid
    assert world.heartbeat("m", 1, group_id=group_id) is invalid
    assert world.leave("m", group=group_id) == [invalid]
    assert world.commit(5, group=group_id).value is (invalid if group_id else NONE)


@pytest.mark.parametrize(
    ("session_timeout_ms", "error"),
    [
        (5_999, ErrorCode.INVALID_SESSION_TIMEOUT),
        (6_000, None),
        (1_800_000, None),
        (1_800_001, ErrorCode.INVALID_SESSION_TIMEOUT),
        (-1, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
def test_session_timeout_has_bounds(world, session_timeout_ms, error):
    """The broker's configuration says how long a session may be."""
    reply = world.join(session_timeout_ms=session_timeout_ms)

    assert reply.is_open if error is None else reply.error is error


def test_names_and_subscriptions_that_records_cannot_hold_are_refused(world):
    """What could not be stored later is refused before it joins, and leaves no group behind."""
    long_name, long_data = "x" * 32_768, bytes(world.config.message_max_bytes + 1)

    assert world.join(instance=long_name).error is ErrorCode.INVALID_REQUEST
    assert world.join(protocols=((long_name, b""),)).error is ErrorCode.INVALID_REQUEST
    assert world.join(protocols=(("range", long_data),)).error is ErrorCode.MESSAGE_TOO_LARGE
    assert world.join(protocols=()).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.listed() == []
    assert world.join(protocols=(("range", long_data[1:]),)).is_open


def test_other_protocol_is_refused_by_a_group_with_members(world):
    """A newcomer must have a protocol in common with everybody."""
    world.stable_group(None)

    refused = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.join(protocols=(("sticky", b""),)).error is refused
    assert world.join(protocol_type="connect").error is refused


def test_sync_with_another_protocol_is_refused(world):
    """Since version 5 a member says what it believes was agreed on (KIP-559)."""
    member, generation = bring_to(world, STABLE)

    refused = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.sync(member, generation, protocol_type="connect").error is refused
    assert world.sync(member, generation, protocol_name="sticky").error is refused
    reply = world.sync(member, generation, protocol_type="consumer", protocol_name="range")
    assert (reply.value.protocol_type, reply.value.protocol_name) == ("consumer", "range")


def test_partition_that_is_not_led_here_is_refused(world):
    """After a resignation everybody is sent to look for the new coordinator."""
    member, generation = bring_to(world, COMPLETING)
    waiting = world.sync(member, generation)
    world.coordinator.on_resignation(0)

    moved = ErrorCode.NOT_COORDINATOR
    assert waiting.error is moved
    assert world.join().error is moved
    assert world.heartbeat(member, generation) is moved
    assert world.commit(5).value is moved
    assert world.coordinator.fetch_offsets("g", None) == (moved, {})


def test_members_that_wait_to_join_are_sent_on_at_resignation(world):
    """An open JoinGroup is answered when the coordinator moves."""
    reply = world.join()
    world.coordinator.on_resignation(0)

    assert reply.error is ErrorCode.NOT_COORDINATOR


def test_coordinator_that_shuts_down_is_not_available(world):
    """Nobody is left waiting when the broker stops."""
    reply = world.join()
    world.coordinator.shutdown()

    gone = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert reply.error is gone
    assert world.join().error is gone
    assert at_once(world.coordinator.list_groups(ListGroupsRequest())).error_code == gone
    assert at_once(world.coordinator.describe_groups(["g"]))[0].error_code == gone


def test_coordinator_that_was_not_started_can_be_shut_down(world):
    """As can one that was shut down already."""
    other = GroupCoordinator(world.runtime, world.config, world.log, world.topics)
    for coordinator in (other, world.coordinator, world.coordinator):
        coordinator.shutdown()

    assert world.join().error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_coordinator_that_was_shut_down_expires_nothing(world):
    """Even if it is told of its partitions once more."""
    world.commit(5)
    world.coordinator.shutdown()
    world.coordinator.on_election(0)
    with world.log.replicated():
        world.advance(0)
    assert "g" in [group.group_id for group in world.coordinator.manager.groups()]
    before = len(world.log.records())
    world.advance(30 * 86_400_000)

    assert len(world.log.records()) == before


def test_full_group_takes_nobody_more():
    """group.max.size holds for new members; those that are in stay in."""
    world = World(group_max_size=2)
    leader, _ = world.stable_group(None, None)

    full = ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.join().error is full
    rejoin = world.join(leader)
    assert rejoin.is_open
    assert world.state is PREPARING
    newcomer = world.join()
    assert newcomer.is_open, "the first two that join make the next generation"


def test_member_that_joins_late_into_a_full_generation_is_dropped():
    """During a rebalance those count that have joined: the last one to come is one too many."""
    world = World(group_max_size=2)
    leader, follower = world.stable_group(None, None)
    world.join(leader)
    newcomer = world.join()
    late = world.join(follower)

    assert late.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert newcomer.error is NONE
    assert follower not in world.group().members


def subscription(count):
    """A protocol whose metadata has so many bytes, and a smaller one beside it."""
    return ("range", bytes(count)), ("other", b"meta")


def test_group_has_no_more_subscriptions_than_can_be_stored():
    """A thousand of a megabyte took four of memory each, and could not be written in the end."""
    world = World(offsets_topic_segment_bytes=1000)
    leader, follower = world.stable_group(None, None)
    full = ErrorCode.GROUP_MAX_SIZE_REACHED

    assert world.join(protocols=subscription(993)).error is full
    assert world.join(leader, protocols=subscription(997)).error is full
    assert (world.state, world.group().metadata_bytes) == (STABLE, 8)
    assert world.join(leader, protocols=subscription(996)).is_open
    assert world.join(follower).error is NONE
    assert world.join().error is full
    world.leave(leader)
    assert world.group().metadata_bytes == 4


def test_member_that_is_known_takes_no_more_room_for_its_subscription():
    """Also where a static one comes back under a new id: the one before it goes."""
    world = World(offsets_topic_segment_bytes=1000)
    world.stabilize(world.join(instance="i", protocols=subscription(1000)))

    assert world.join(instance="i", protocols=subscription(1000)).error is NONE
    assert world.group().metadata_bytes == 1000


def test_pending_member_that_is_refused_holds_no_rebalance_up():
    """It will not come back with its id, and would be waited for."""
    world = World(offsets_topic_segment_bytes=1000)
    (leader,) = world.stable_group(None)
    pending = world.join(version=4, protocols=subscription(500)).value.member_id
    full = ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.join(pending, version=4, protocols=subscription(999)).error is full
    world.join(leader, protocols=subscription(5))

    assert world.state is COMPLETING
