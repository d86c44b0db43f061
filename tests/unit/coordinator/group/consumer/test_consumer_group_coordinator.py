"""Heartbeats of consumer groups: joins, epochs, reconciliation, leaving and time limits."""

from __future__ import annotations

import pytest
from consumer_group_world import REVOCATION_MS, SESSION_MS, ConsumerWorld, Peer, partitions_of, wire

from ottla.config.coordinator_config import ConsumerGroupConfig
from ottla.coordinator.coordinator_writer import WRITE_AGAIN_MS
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroupState
from ottla.coordinator.group.consumer.consumer_member import MemberState
from ottla.errors import ErrorCode
from ottla.runtime.scheduler import at_once


@pytest.fixture
def world() -> ConsumerWorld:
    return ConsumerWorld({"t": 4})


def everything(world, *peers):
    """All partitions that somebody owns, in a list, so that double ownership shows."""
    return sorted(partition for peer in peers for partition in peer.owned)


ALL = [("t", number) for number in range(4)]


def test_first_member_gets_everything_at_once(world):
    """With the group's first epoch."""
    (a,) = world.members("a")

    assert sorted(a.owned) == ALL
    assert a.epoch == world.consumers.group_epoch == 1
    assert world.consumers.state is ConsumerGroupState.STABLE


@pytest.mark.parametrize("left", [0, 1, 2])
def test_epochs_begin_again_after_the_last(world, left):
    """No request can carry a larger one; the members go on with what they have."""
    (a,) = world.members("a")
    last = 2**31 - 1 - left
    group = world.consumers
    group.group_epoch = group.assignment_epoch = last
    group.members["a"].current = group.members["a"].current._replace(
        member_epoch=last, previous_member_epoch=last
    )
    a.epoch = last
    joined = [Peer(f"b{number}") for number in range(3)]
    for peer in joined:
        world.join(peer)
        for _ in range(4):
            for each in (a, *joined[: joined.index(peer) + 1]):
                assert world.beat(each) is ErrorCode.NONE
                assert sorted(set(everything(world, a, *joined))) == sorted(
                    everything(world, a, *joined)
                )

    assert everything(world, a, *joined) == ALL
    assert {a.epoch, *(peer.epoch for peer in joined)} == {3 - left}
    assert world.coordinator.manager.differences(0) == []


def test_second_member_gets_partitions_when_the_first_has_given_them_up(world):
    """Never before, and the first one keeps its epoch until then."""
    (a,) = world.members("a")
    b = Peer("b")

    world.join(b)
    assert (b.epoch, b.owned) == (2, frozenset())
    before = a.held
    world.beat(a, topic_partitions=None)
    assert (a.epoch, len(a.owned)) == (1, 2)
    world.beat(b)
    assert not b.owned
    world.beat(a, topic_partitions=wire(before))
    world.beat(b)
    assert not b.owned, "a still says that it owns them"
    world.beat(a)
    assert a.epoch == 2
    world.beat(b)

    assert everything(world, a, b) == ALL
    assert world.consumers.state is ConsumerGroupState.STABLE


def test_states_follow_from_the_epochs(world):
    """Assigning after a member has gone, reconciling until the others have its partitions."""
    a, b = world.members("a", "b")

    world.quit(b)
    assert world.consumers.state is ConsumerGroupState.ASSIGNING
    world.join(b)
    assert world.consumers.state is ConsumerGroupState.RECONCILING
    world.settle(a, b)
    assert world.consumers.state is ConsumerGroupState.STABLE
    world.quit(a)
    world.quit(b)
    assert world.consumers.state is ConsumerGroupState.EMPTY


def test_heartbeat_without_news_writes_nothing(world):
    """It is answered without an assignment."""
    world.members("a")
    written = len(world.log.records())

    reply = world.send(member_id="a", member_epoch=1)

    assert not reply.error
    assert reply.value.assignment is None
    assert len(world.log.records()) == written


def test_full_heartbeat_is_answered_in_full(world):
    """A client that has lost an answer says everything, and is told everything."""
    world.members("a")

    reply = world.send(
        member_id="a",
        member_epoch=1,
        rebalance_timeout_ms=1,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )

    assert len(partitions_of(reply.value.assignment)) == 4


def test_answer_waits_for_the_log(world):
    """Of those who change something, and of those who would see the change."""
    world.members("a")
    world.log.hold = True
    b = world.send(
        member_id="b",
        member_epoch=0,
        rebalance_timeout_ms=1,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    a = world.send(member_id="b", member_epoch=2)

    assert b.is_open
    assert a.is_open
    world.log.release()
    assert not b.error
    assert not a.error


def test_failed_write_is_made_up_for(world):
    """The sender tries again, and the log has all that it needs after that."""
    a = Peer("a")
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.join(a) is ErrorCode.COORDINATOR_NOT_AVAILABLE

    world.log.error = ErrorCode.NONE
    assert world.rejoin(a) is ErrorCode.NONE
    world.reload()

    assert world.beat(a) is ErrorCode.NONE
    assert sorted(a.owned) == ALL


def test_new_members_are_refused_while_the_log_cannot_be_written(world):
    """Each attempt has an id of its own, and its records would wait for the log as well."""
    world.members("a")
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    topics = [f"{number:05d}{'t' * 200}" for number in range(100)]

    def attempts(name):
        errors = set()
        for number in range(80):
            reply = world.send(
                member_id=f"{name}-{number}",
                member_epoch=0,
                rebalance_timeout_ms=1,
                subscribed_topic_names=topics,
                topic_partitions=[],
            )
            world.advance(0)
            errors.add(reply.error)
        return errors

    errors = attempts("b")
    writes = world.consumers.writes
    waiting, count = len(writes.unsaved), writes.count

    assert errors | attempts("c") == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert (len(writes.unsaved), writes.count) == (waiting, count)  # not for each attempt
    assert len(world.consumers.members) < 80
    world.advance(WRITE_AGAIN_MS)
    attempts("c")
    assert (len(writes.unsaved), writes.count) == (waiting, count + 1)
    world.log.error = ErrorCode.NONE
    assert attempts("d") == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    world.advance(WRITE_AGAIN_MS)
    assert attempts("d") == {ErrorCode.NONE}
    world.reload()
    assert "d-79" in world.consumers.members


@pytest.mark.parametrize("epoch", [2, 7])
def test_epoch_ahead_of_the_members_is_fenced(world, epoch):
    """It comes from somebody else, or from a time that was lost."""
    world.members("a")

    reply = world.send(member_id="a", member_epoch=epoch)

    assert reply.error is ErrorCode.FENCED_MEMBER_EPOCH


def test_epoch_before_is_taken_from_one_that_missed_the_answer(world):
    """As long as it owns no more than it may."""
    a, b = world.members("a", "b")
    world.quit(b)
    before = Peer("a", epoch=a.epoch, held=a.held)
    world.beat(a)

    assert world.beat(before) is ErrorCode.NONE
    assert before.owned == a.owned
    before.epoch -= 2
    assert world.beat(before) is ErrorCode.FENCED_MEMBER_EPOCH


def test_epoch_before_is_fenced_without_its_partitions(world):
    """What the member owns then cannot be told."""
    a, b = world.members("a", "b")
    world.quit(b)
    epoch = a.epoch
    world.beat(a)

    reply = world.send(member_id="a", member_epoch=epoch)

    assert reply.error is ErrorCode.FENCED_MEMBER_EPOCH


def test_stranger_is_unknown(world):
    """In a group that exists, and in one that does not."""
    assert world.beat(Peer("x", epoch=3)) is ErrorCode.UNKNOWN_MEMBER_ID
    world.members("a")

    assert world.beat(Peer("x", epoch=3)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.quit(Peer("x")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_fenced_member_comes_back_with_epoch_0(world):
    """Under its own id, and gets what it had."""
    a, _ = world.members("a", "b")
    owned = a.owned

    assert world.rejoin(a) is ErrorCode.NONE

    assert a.owned == owned
    assert len(world.consumers.members) == 2


def test_silent_member_is_put_out(world):
    """Its session ends, and the other one gets its partitions."""
    a, b = world.members("a", "b")
    world.advance(SESSION_MS - 1)
    world.beat(a)
    world.advance(1)

    assert list(world.consumers.members) == ["a"]
    world.settle(a)
    assert sorted(a.owned) == ALL
    assert world.beat(b) is ErrorCode.UNKNOWN_MEMBER_ID


def test_member_that_does_not_revoke_is_put_out(world):
    """After its rebalance timeout, although it sends heartbeats."""
    (a,) = world.members("a")
    b = Peer("b")
    world.join(b)
    owned = wire(a.held)
    world.beat(a, topic_partitions=owned)
    assert world.consumers.members["a"].current.state is MemberState.UNREVOKED_PARTITIONS

    world.advance(REVOCATION_MS // 2)
    assert world.beat(a, topic_partitions=owned) is ErrorCode.NONE
    world.beat(b)
    world.advance(REVOCATION_MS // 2)

    assert world.beat(a, topic_partitions=owned) is ErrorCode.UNKNOWN_MEMBER_ID
    world.settle(b)
    assert sorted(b.owned) == ALL


def test_member_that_revokes_in_time_stays(world):
    """The time limit ends with the revocation."""
    (a,) = world.members("a")
    b = Peer("b")
    world.join(b)
    world.settle(a, b)

    for _ in range(3):
        world.advance(REVOCATION_MS // 2)
        world.settle(a, b)

    assert everything(world, a, b) == ALL


def test_static_member_is_back_with_the_same_partitions(world):
    """Under another member id, and nobody else notices."""
    a, b = Peer("a", instance="i"), Peer("b")
    world.join(a)
    world.join(b)
    world.settle(a, b)
    epoch, owned = a.epoch, a.owned

    assert world.quit(a, -2) is ErrorCode.NONE
    world.beat(b)
    again = Peer("a2", instance="i")
    assert world.join(again) is ErrorCode.NONE

    assert (again.epoch, again.owned) == (epoch, owned)
    assert world.consumers.state is ConsumerGroupState.STABLE
    assert world.beat(a) is ErrorCode.FENCED_INSTANCE_ID


def test_static_member_that_stays_away_is_put_out(world):
    """When its session ends."""
    a, b = Peer("a", instance="i"), Peer("b")
    world.join(a)
    world.join(b)
    world.settle(a, b)
    world.quit(a, -2)

    world.advance(SESSION_MS - 1)
    world.beat(b)
    world.advance(1)
    world.settle(b)

    assert sorted(b.owned) == ALL


@pytest.mark.parametrize("leaves", [True, False])
def test_time_to_revoke_ends_with_what_was_to_be_revoked(world, leaves):
    """The member has left for now, or has joined again with nothing."""
    a, b = Peer("a", instance="i"), Peer("b")
    world.join(a, rebalance_timeout_ms=5_000)
    world.join(b)
    world.beat(a)
    assert world.consumers.members["a"].rebalance_timer is not None
    if leaves:
        assert world.quit(a, -2) is ErrorCode.NONE
    else:
        assert world.rejoin(a, rebalance_timeout_ms=5_000) is ErrorCode.NONE
    world.advance(6_000)

    assert "a" in world.consumers.members


def test_session_of_a_static_member_begins_anew_when_it_leaves_for_now(world):
    """It has the whole of it to come back."""
    a = Peer("a", instance="i")
    world.join(a)
    world.advance(SESSION_MS - 1)
    world.quit(a, -2)
    world.advance(SESSION_MS - 1)
    assert "a" in world.consumers.members
    world.advance(1)

    assert "a" not in world.consumers.members


def test_instance_id_is_not_released_by_silence(world):
    """Only by saying so (-2), by leaving, or by the end of the session."""
    a = Peer("a", instance="i")
    world.join(a)

    assert world.join(Peer("b", instance="i")) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert world.quit(a, -1) is ErrorCode.NONE
    assert world.join(Peer("b", instance="i")) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("member", "instance", "error"),
    [
        ("a", "j", ErrorCode.UNKNOWN_MEMBER_ID),
        ("b", "i", ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_instance_id_must_be_the_members(world, member, instance, error):
    """To go on, and to leave."""
    world.join(Peer("a", instance="i"))
    stranger = Peer(member, instance=instance, epoch=1)

    assert world.beat(stranger) is error
    assert world.quit(stranger) is error


def test_member_cannot_change_its_instance_id(world):
    """A member that was dynamic stays so."""
    world.members("a")

    assert world.join(Peer("a", instance="i")) is ErrorCode.INVALID_REQUEST


def test_group_is_full(world):
    """At group.consumer.max.size; members may still come back."""
    world = ConsumerWorld({"t": 4}, group_consumer_max_size=1)
    (a,) = world.members("a")

    assert world.join(Peer("b")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.rejoin(a) is ErrorCode.NONE


def test_full_group_that_was_never_there_leaves_no_trace(world):
    """A join that is refused makes no group."""
    world.join(Peer("a"), server_assignor="best")

    assert world.coordinator.manager.group("g") is None


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "m" * 40_000}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": ["t"] * 10_001}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "best"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_request_that_cannot_be_meant_is_refused(world, fields, error):
    """With what is wrong with it."""
    values = {
        "member_id": "a",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }

    reply = world.send(**{**values, **fields})

    assert reply.error is error
    assert world.coordinator.manager.group("g") is None
    assert world.send(**{**values, "rebalance_timeout_ms": 0}).error is ErrorCode.NONE


def test_member_of_version_0_is_given_an_id(world):
    """Later ones make it themselves (KIP-1082)."""
    reply = world.send(
        version=0,
        member_id="",
        member_epoch=0,
        rebalance_timeout_ms=1,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )

    assert reply.value.member_id in world.consumers.members


def test_most_wanted_assignor_is_used(world):
    """range gives neighbours."""
    a, b = Peer("a"), Peer("b")
    world.join(a, server_assignor="range")
    world.join(b)
    world.settle(a, b)

    assert sorted(a.owned) == ALL[:2]
    (described,) = at_once(world.coordinator.describe_consumer_groups(["g"]))
    assert described.assignor_name == "range"


def test_reload_goes_on_where_the_group_was(world):
    """Sessions begin anew, epochs and partitions stay."""
    world.create("u", 1)
    a, b = Peer("a", instance="i"), Peer("b")
    world.join(a)
    world.join(b, regex="u|t", server_assignor="range")
    world.settle(a, b)
    epoch = world.consumers.group_epoch

    world.reload()

    assert world.consumers.group_epoch == epoch
    assert world.beat(a) is ErrorCode.NONE
    assert world.beat(b) is ErrorCode.NONE
    assert world.consumers.group_epoch == epoch
    world.advance(SESSION_MS)
    assert world.consumers.is_empty


def test_reload_goes_on_to_wait_for_a_revocation(world):
    """The time limit begins anew."""
    (a,) = world.members("a")
    owned = wire(a.held)
    b = Peer("b")
    world.join(b)
    world.beat(a, topic_partitions=owned)

    world.reload()
    world.advance(REVOCATION_MS // 2)
    assert world.beat(a, topic_partitions=owned) is ErrorCode.NONE
    world.beat(b)
    world.advance(REVOCATION_MS // 2)

    assert list(world.consumers.members) == ["b"]


def test_resignation_sends_those_who_wait_elsewhere(world):
    """Waiting members are sent elsewhere, and nothing of the group is left here."""
    world.members("a")
    world.log.hold = True
    world.send(member_id="a", member_epoch=1, subscribed_topic_names=[], topic_partitions=[])
    waiting = world.send(member_id="a", member_epoch=2)
    assert waiting.is_open

    world.coordinator.on_resignation(0)

    assert waiting.error is ErrorCode.NOT_COORDINATOR
    assert world.send(member_id="a", member_epoch=1).error is ErrorCode.NOT_COORDINATOR
    world.log.release()
    world.advance(2 * SESSION_MS)
    assert world.coordinator.manager.group("g") is None


def test_group_with_time_limits_of_its_own_tells_its_members(world):
    """Members get the group's own limits, which hold from the next heartbeat on."""
    (a,) = world.members("a")
    own = ConsumerGroupConfig(
        consumer_session_timeout_ms=50_000, consumer_heartbeat_interval_ms=7_000
    )
    world.coordinator.consumer_rebalancer.config_of = {"g": own}.__getitem__
    reply = world.send(member_id="a", member_epoch=a.epoch)
    assert reply.value.heartbeat_interval_ms == 7_000

    world.advance(49_000)
    assert world.consumers.members
    world.advance(1_000)
    assert not world.consumers.members
