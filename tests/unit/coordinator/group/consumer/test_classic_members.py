"""Which requests of classic members a consumer group takes, by its epochs and their protocols."""

from __future__ import annotations

from uuid import UUID

import pytest
from consumer_group_world import ClassicPeer, ConsumerWorld, Peer, embedded

from ottla.config.config_type import INT_MAX
from ottla.coordinator.coordinator_writer import WRITE_AGAIN_MS
from ottla.coordinator.group.consumer import consumer_group_records
from ottla.coordinator.group.consumer.assigned_partitions import (
    AssignedPartitions,
    TopicIdPartition,
)
from ottla.coordinator.group.consumer.classic_members import (
    check_protocols,
    check_sync,
    find_leaving,
    should_rejoin,
)
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.coordinator.group.consumer.consumer_member import (
    ClassicMembership,
    ConsumerMember,
    CurrentAssignment,
    MemberDetails,
    MemberState,
)
from ottla.coordinator.group.member_metadata import ClientContext, SupportedProtocol
from ottla.coordinator.group.member_requests import JoinAttempt
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    MemberIdentity,
    SyncGroupRequest,
)

P0, P1 = (TopicIdPartition(UUID(int=5), number) for number in range(2))
STABLE, UNREVOKED, UNRELEASED = MemberState
LAST = CurrentAssignment(INT_MAX, INT_MAX, STABLE, AssignedPartitions({P0}))
"""Of an epoch behind which they begin again."""


def classic(name, *protocols, instance=None, current=None):
    membership = ClassicMembership(
        10_000, tuple(SupportedProtocol(each, b"") for each in protocols or ("range",))
    )
    details = MemberDetails("app", "/", instance_id=instance, classic=membership)
    return ConsumerMember(name, details, current or CurrentAssignment(4, 4))


def group_of(*members, epoch=4):
    group = ConsumerGroup("g")
    for member in members:
        group.add(member)
    group.group_epoch = group.assignment_epoch = epoch
    return group


def error_of(call, *arguments):
    try:
        call(*arguments)
    except KafkaError as error:
        return error.error
    return ErrorCode.NONE


@pytest.mark.parametrize(
    ("member_id", "protocol_type", "offers", "error"),
    [
        ("", "consumer", ("range",), ErrorCode.NONE),
        ("", "consumer", ("sticky",), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("", "consumer", (), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("", "connect", ("range",), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("a", "consumer", ("sticky",), ErrorCode.NONE),
        ("b", "consumer", ("sticky",), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_classic_members_have_a_protocol_in_common(member_id, protocol_type, offers, error):
    """The sender's own earlier offers do not count, nor do members of the other protocol."""
    group = group_of(
        classic("a", "range"),
        classic("b", "range", "sticky"),
        ConsumerMember("c", MemberDetails("app", "/")),
    )
    protocols = [JoinGroupRequestProtocol(name=name, metadata=b"") for name in offers]
    request = JoinGroupRequest(
        group_id="g", member_id=member_id, protocol_type=protocol_type, protocols=protocols
    )
    attempt = JoinAttempt(request, ClientContext("app", "/", 9), lambda _: None)

    assert error_of(check_protocols, group, attempt) is error


@pytest.mark.parametrize(
    ("fields", "current", "error"),
    [
        ({}, None, ErrorCode.NONE),
        ({"generation_id": 3}, None, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": 5}, None, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol_type": "consumer", "protocol_name": "range"}, None, ErrorCode.NONE),
        ({"protocol_name": "range"}, None, ErrorCode.NONE),
        ({"protocol_name": "other"}, None, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, None, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"generation_id": 3}, CurrentAssignment(3, 3), ErrorCode.REBALANCE_IN_PROGRESS),
        ({"generation_id": INT_MAX}, LAST, ErrorCode.REBALANCE_IN_PROGRESS),
        ({"generation_id": 3}, CurrentAssignment(3, 3, UNREVOKED), ErrorCode.NONE),
    ],
)
def test_sync_is_of_the_present_generation_and_a_protocol_of_the_member(fields, current, error):
    """A member that has to give partitions up is told which, whatever the group's epoch is."""
    member = classic("a", "range", "sticky", current=current)
    request = SyncGroupRequest(**{"group_id": "g", "member_id": "a", "generation_id": 4, **fields})

    assert error_of(check_sync, group_of(member), member, request) is error


@pytest.mark.parametrize(
    ("current", "others", "rejoins"),
    [
        (CurrentAssignment(4, 4, STABLE, AssignedPartitions({P0})), (), False),
        (CurrentAssignment(3, 3, STABLE, AssignedPartitions({P0})), (), True),
        (LAST, (), True),
        (CurrentAssignment(4, 4, UNREVOKED, AssignedPartitions({P0})), (), True),
        (CurrentAssignment(4, 4, UNRELEASED, AssignedPartitions({P0})), (P1,), False),
        (CurrentAssignment(4, 4, UNRELEASED, AssignedPartitions({P0})), (), True),
        (CurrentAssignment(4, 4, STABLE, AssignedPartitions({P0})), (P1,), False),
    ],
)
def test_member_joins_again_where_it_has_something_to_give_or_take(current, others, rejoins):
    """It joins again in a new epoch too, but not while another member has its partitions."""
    member = classic("a", current=current)
    other = classic("b", current=CurrentAssignment(4, 4, assigned=AssignedPartitions(others)))
    group = group_of(member, other)
    group.target["a"] = AssignedPartitions({P0, P1})

    assert should_rejoin(group, member) is rejoins


@pytest.mark.parametrize(
    ("member_id", "instance", "found"),
    [
        ("a", None, "a"),
        ("", "i", "b"),
        ("b", "i", "b"),
        ("a", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("", "j", ErrorCode.UNKNOWN_MEMBER_ID),
        ("", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("x", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("c", None, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_member_that_leaves_is_named_by_its_id_or_instance(member_id, instance, found):
    """Those of the other protocol leave in another way."""
    consumer = ConsumerMember("c", MemberDetails("app", "/"))
    group = group_of(classic("a"), classic("b", instance="i"), consumer)
    identity = MemberIdentity(member_id=member_id, group_instance_id=instance)
    if isinstance(found, ErrorCode):
        assert error_of(find_leaving, group, identity) is found
    else:
        assert find_leaving(group, identity).member_id == found


def mixed(world):
    """A group of one member of either protocol, both with all that they should have."""
    consumer, peer = Peer("c"), ClassicPeer(world)
    world.join(consumer)
    for _ in range(4):
        peer.live()
        world.beat(consumer)
    assert len(peer.owned) == len(consumer.owned) == 2
    return consumer, peer


@pytest.mark.parametrize("answers", ["heartbeat", "sync"])
def test_classic_member_lives_as_long_as_it_sends_something(answers):
    """Each request begins its session anew."""
    world = ConsumerWorld({"t": 4})
    consumer, peer = mixed(world)
    for _ in range(6):
        world.advance(6_000)
        world.beat(consumer)
        if answers == "heartbeat":
            assert peer.beat() is ErrorCode.NONE
        else:
            assert peer.receive(peer.sync()) is ErrorCode.NONE

    assert set(world.consumers.members) == {"c", peer.member_id}


def test_requests_of_classic_members_that_are_refused_are_answered():
    """Each with its error; an open one would be waited for."""
    world = ConsumerWorld({"t": 4})
    _, peer = mixed(world)
    peer.generation += 1
    assert peer.sync().error is ErrorCode.ILLEGAL_GENERATION
    assert peer.beat() is ErrorCode.ILLEGAL_GENERATION
    assert world.leave("nobody", peer.member_id) == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]

    assert set(world.consumers.members) == {"c"}


def test_member_that_joined_and_is_silent_is_put_out_by_its_session():
    """It need not wait for the end of the time for a rebalance."""
    world = ConsumerWorld({"t": 4})
    consumer, peer = mixed(world)
    silent = ClassicPeer(world)
    assert silent.take(silent.join()) is ErrorCode.NONE
    for _ in range(2):
        world.advance(5_500)
        world.beat(consumer)
        peer.live()

    assert set(world.consumers.members) == {"c", peer.member_id}


def test_full_group_takes_those_who_are_in_it():
    """Another one is refused, and is not asked to come back."""
    world = ConsumerWorld({"t": 4}, group_consumer_max_size=2)
    _, peer = mixed(world)
    newcomer = ClassicPeer(world)
    assert newcomer.take(newcomer.join()) is ErrorCode.GROUP_MAX_SIZE_REACHED

    assert peer.take(peer.join()) is ErrorCode.NONE


def leave(world, member):
    world.coordinator.consumer_rebalancer.take_out(
        world.consumers, [member], "a test", lambda error: None
    )


def move_on(world, member):
    """It has joined again, and has the next epoch."""
    world.consumers.set_current(
        member, member.current._replace(member_epoch=member.current.member_epoch + 1)
    )


@pytest.mark.usefixtures("core_source")
@pytest.mark.parametrize(
    ("meanwhile", "error"),
    [
        (lambda world, member: None, ErrorCode.NONE),
        (leave, ErrorCode.UNKNOWN_MEMBER_ID),
        (move_on, ErrorCode.ILLEGAL_GENERATION),
        (lambda world, member: world.coordinator.shutdown(), ErrorCode.NOT_COORDINATOR),
    ],
)
def test_member_that_is_told_in_slices_is_told_of_its_own_generation(monkeypatch, meanwhile, error):
    """Its assignment has very many topics, and something else comes in a pause."""
    world = ConsumerWorld({"t": 4})
    _, peer = mixed(world)
    had = peer.owned
    monkeypatch.setattr(consumer_group_records, "PARTS_IN_A_SLICE", 1)
    reply = peer.sync()
    assert reply.is_open
    meanwhile(world, world.consumers.members[peer.member_id])
    world.advance(1)

    assert peer.receive(reply) is error
    assert peer.owned == had


@pytest.mark.usefixtures("core_source")
def test_place_that_is_taken_while_a_subscription_is_read_is_taken(monkeypatch):
    """Of two members with very many topics one comes too late; the other one is let in."""
    world = ConsumerWorld({"t": 4}, group_consumer_max_size=3)
    mixed(world)
    monkeypatch.setattr(consumer_group_records, "PARTS_IN_A_SLICE", 1)
    peers = [ClassicPeer(world, False, owned=frozenset({("t", 0)})) for _ in range(2)]
    replies = [peer.join() for peer in peers]
    assert [reply.is_open for reply in replies] == [True, True]
    world.advance(1)

    assert sorted(reply.error for reply in replies) == [
        ErrorCode.NONE,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]
    assert len(world.consumers.members) == 3


@pytest.mark.usefixtures("core_source")
@pytest.mark.parametrize(("others", "is_let_in"), [("range", True), ("sticky", False)])
def test_members_that_join_in_slices_have_a_protocol_in_common(monkeypatch, others, is_let_in):
    """Of two that come at once, with very many topics, the later one must agree with the first."""
    world = ConsumerWorld({"t": 4})
    world.join(Peer("c"))
    monkeypatch.setattr(consumer_group_records, "PARTS_IN_A_SLICE", 1)
    owned = frozenset({("t", 0)})
    replies = [
        ClassicPeer(world, False, owned=owned).join(protocols=((name, embedded(("t",), owned, 1)),))
        for name in ("range", others)
    ]
    assert [reply.is_open for reply in replies] == [True, True]
    world.advance(1)

    refused = ErrorCode.NONE if is_let_in else ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sorted(reply.error for reply in replies) == sorted([ErrorCode.NONE, refused])


@pytest.mark.usefixtures("core_source")
def test_member_that_changes_its_protocol_while_it_is_told_has_nothing_more_to_hear(monkeypatch):
    """It has restarted with the other one, under its id."""
    world = ConsumerWorld({"t": 4})
    _, peer = mixed(world)
    monkeypatch.setattr(consumer_group_records, "PARTS_IN_A_SLICE", 1)
    reply = peer.sync()
    assert reply.is_open
    member = world.consumers.members[peer.member_id]
    member.details = member.details._replace(classic=None)
    world.advance(1)

    assert reply.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_partition_that_a_member_says_it_has_is_nobody_elses():
    """A cooperative member joins with all that it has, and gives up a part when it has synced."""
    world = ConsumerWorld({"t": 4})
    consumer, peer = Peer("c"), ClassicPeer(world, is_eager=False)
    world.join(consumer, "other")
    peer.live()
    assert len(peer.owned) == 4
    consumer.subscription = {"subscribed_topic_names": ["t"], "subscribed_topic_regex": None}
    world.rejoin(consumer)
    assert peer.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(3):
        assert peer.take(peer.join()) is ErrorCode.NONE
        assert world.beat(consumer) is ErrorCode.NONE
        assert consumer.owned == frozenset()
    peer.receive(peer.sync())
    assert (len(peer.owned), peer.wants_to_join) == (2, True)
    peer.live()
    world.beat(consumer)

    assert len(consumer.owned) == 2
    assert not consumer.owned & peer.owned


@pytest.mark.parametrize("ask", ["join", "sync"])
def test_answer_that_is_not_in_the_log_is_an_error(ask):
    """The member asks again."""
    world = ConsumerWorld({"t": 4})
    _, peer = mixed(world)
    world.create("u", 2)
    peer.topics = ("t", "u")
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    joined = peer.join()
    assert joined.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    if ask == "sync":
        peer.generation = world.consumers.members[peer.member_id].current.member_epoch
        assert peer.sync().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.error = ErrorCode.NONE

    assert peer.rejoin() is ErrorCode.NONE


@pytest.mark.parametrize("instance", [None, "i"])
def test_joins_do_not_fill_memory_while_the_log_cannot_be_written(instance):
    """Each attempt of a client without an id would make a member, or a new one of its instance."""
    world = ConsumerWorld({"t": 4})
    mixed(world)
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    topics = tuple(f"{number:05d}{'t' * 200}" for number in range(100))

    def attempts(instance, *names):
        peers = [ClassicPeer(world, instance=instance, topics=names) for _ in range(80)]
        return {peer.join().error for peer in peers}

    errors = attempts(None, *topics)
    writes, count = world.consumers.writes, len(world.consumers.members)
    waiting = len(writes.unsaved)

    assert errors | attempts(instance, "t") == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert (len(writes.unsaved), len(world.consumers.members)) == (waiting, count)
    assert count < 60
    world.log.error = ErrorCode.NONE
    world.advance(WRITE_AGAIN_MS)
    assert ClassicPeer(world, instance=instance).rejoin() is ErrorCode.NONE
