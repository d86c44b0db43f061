"""Groups with members go from one protocol to the other, while their members read on."""

from __future__ import annotations

import pytest
from consumer_group_world import (
    REVOCATION_MS,
    SESSION_MS,
    ClassicPeer,
    ConsumerWorld,
    Peer,
    embedded,
    packed,
)
from group_world import PREPARING, REBALANCE_MS, STABLE, World

from ottla.coordinator.group.classic_group import ClassicGroup
from ottla.coordinator.group.consumer import group_migration
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.coordinator.group.group import Committer
from ottla.coordinator.group.offsets import CommittedOffset
from ottla.errors import ErrorCode
from ottla.protocol.consumer_group import MEMBER_TYPE_CLASSIC, MEMBER_TYPE_CONSUMER
from ottla.protocol.message import decode_versioned
from ottla.protocol.offsets_topic import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    decode_key,
)
from ottla.runtime.scheduler import at_once
from ottla.structs import TopicPartition

REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
PARTITIONS = 6
T0 = TopicPartition("t", 0)
EVERYTHING = frozenset(("t", number) for number in range(PARTITIONS))


def classic_group(world, count=2, **fields):
    """A stable classic group whose members share everything."""
    peers = [ClassicPeer(world, **fields) for _ in range(count)]
    complete_generation(world, peers)
    return peers


def complete_generation(world, peers):
    """All join, and the leader deals the partitions out."""
    joins = [peer.join() for peer in peers]
    if any(join.is_open for join in joins):
        world.end_initial_delay()
    for peer, join in zip(peers, joins, strict=True):
        assert peer.take(join) is ErrorCode.NONE
    ids = [peer.member_id for peer in peers]
    dealt = {
        member_id: packed(frozenset(("t", n) for n in range(number, PARTITIONS, len(ids))))
        for number, member_id in enumerate(ids)
    }
    leader = joins[0].value.leader
    syncs = [peer.sync(dealt if peer.member_id == leader else None) for peer in peers]
    for peer, sync in zip(peers, syncs, strict=True):
        assert peer.receive(sync) is ErrorCode.NONE


def settle(world, *peers):
    """Everybody has had its turns; nobody holds what another one holds."""
    for _ in range(5):
        for peer in peers:
            if isinstance(peer, ClassicPeer):
                peer.live()
            else:
                assert world.beat(peer) is ErrorCode.NONE
            held = [partition for each in peers for partition in each.owned]
            assert len(held) == len(set(held))


def until_classic(world, *peers):
    """The classic members do what they are asked to until the group is one of their own."""
    while True:
        for peer in peers:
            if peer.wants_to_join:
                assert peer.rejoin() is ErrorCode.NONE
            else:
                peer.beat()
            if not isinstance(world.coordinator.manager.group("g"), ConsumerGroup):
                return


@pytest.fixture
def world():
    return ConsumerWorld({"t": PARTITIONS})


@pytest.mark.parametrize("is_eager", [True, False])
def test_first_consumer_member_makes_it_a_consumer_group(world, is_eager):
    """The classic members keep their ids and commits, and give up what the newcomer gets."""
    a, b = classic_group(world, is_eager=is_eager)
    assert world.commit(5, a.member_id, a.generation).value is ErrorCode.NONE
    c = Peer("c")

    assert world.join(c) is ErrorCode.NONE
    assert (c.owned, a.owned | b.owned) == (frozenset(), EVERYTHING)
    assert world.commit(7, a.member_id, a.generation).value is ErrorCode.NONE
    settle(world, a, b, c)

    assert [len(peer.owned) for peer in (a, b, c)] == [2, 2, 2]
    assert a.owned | b.owned | c.owned == EVERYTHING
    assert world.consumers.state_name == "Stable"
    assert world.committed() == 7
    types = {
        member.member_id: member.member_type
        for member in at_once(world.coordinator.describe_consumer_groups(["g"]))[0].members
    }
    assert types == {
        a.member_id: MEMBER_TYPE_CLASSIC,
        b.member_id: MEMBER_TYPE_CLASSIC,
        "c": MEMBER_TYPE_CONSUMER,
    }


@pytest.mark.parametrize("meanwhile", ["nothing", "requests", "session", "unload", "leave"])
def test_large_group_becomes_a_consumer_group_in_slices(world, monkeypatch, meanwhile):
    """Nobody changes it in the pauses; if something does, the new member comes again."""
    monkeypatch.setattr(group_migration, "ADOPTED_IN_A_SLICE", 1)
    monkeypatch.setattr(group_migration, "MEMBERS_IN_A_SLICE", 1)
    a, b = classic_group(world)
    coming = {"member_epoch": 0, "rebalance_timeout_ms": REVOCATION_MS, "topic_partitions": []}
    coming["subscribed_topic_names"] = ["t"]
    reply = world.send(member_id="c", **coming)
    classic = world.group()
    assert reply.is_open
    if meanwhile == "requests":
        assert a.beat() is ErrorCode.NONE
        assert world.send(member_id="d", **coming).error is LOADING
        assert world.commit(5, a.member_id, a.generation).value is LOADING
        assert a.join().error is LOADING
    elif meanwhile == "session":
        gone = classic.members[a.member_id]
        world.coordinator.rebalancer.remove_member(classic, gone, "its session has expired")
    elif meanwhile == "unload":
        world.coordinator.on_resignation(0)
    elif meanwhile == "leave":
        assert world.leave(a.member_id) == [LOADING]
    world.runtime.scheduler.run_ready()

    error = {"session": LOADING, "unload": ErrorCode.NOT_COORDINATOR}.get(meanwhile, 0)
    assert reply.error == error
    assert not classic.is_dying
    if meanwhile == "unload":
        assert world.coordinator.manager.groups() == []
        return
    if error:
        assert isinstance(world.coordinator.manager.group("g"), ClassicGroup)
        reply = world.send(member_id="c", **coming)
        world.runtime.scheduler.run_ready()
        assert not reply.error
    peers = {b.member_id, "c"} if meanwhile == "session" else {a.member_id, b.member_id, "c"}
    assert world.consumers.members.keys() == peers
    assert all(each.session_timer for each in world.consumers.members.values())
    assert world.coordinator.manager.differences(0) == []


def test_rolled_group_is_a_consumer_group_and_rolled_back_a_classic_one(world):
    """One member after the other changes its protocol, and then back."""
    classic = classic_group(world, 3)
    consumers = []
    for number, old in enumerate(classic):
        world.leave(old.member_id)
        consumers.append(Peer(f"c{number}"))
        assert world.join(consumers[-1]) is ErrorCode.NONE
        settle(world, *classic[number + 1 :], *consumers)
    assert all(not member.is_classic for member in world.consumers.members.values())

    back = []
    for number, old in enumerate(consumers):
        assert world.quit(old) is ErrorCode.NONE
        back.append(ClassicPeer(world))
        if number < 2:
            settle(world, *consumers[number + 1 :], *back)
    until_classic(world, *back[:2])
    assert back[0].owned | back[1].owned == EVERYTHING
    assert world.state is PREPARING
    generation = back[0].generation
    assert world.commit(9, back[0].member_id, generation).value is ErrorCode.NONE
    complete_generation(world, [back[2], *back[:2]])

    assert world.state is STABLE
    assert [peer.generation for peer in back] == [generation + 1] * 3
    assert world.listed(types=["classic"]) == ["g"]
    world.reload()
    assert world.state is STABLE
    assert world.listed(types=["consumer"]) == []


def test_group_is_downgraded_only_when_all_have_caught_up(world):
    """What the last consumer member had is dealt out first, so that no generation is refused."""
    a, b = classic_group(world)
    c = Peer("c")
    world.join(c)
    settle(world, a, b, c)

    world.quit(c)
    assert a.beat() is REBALANCE
    assert a.rejoin() is ErrorCode.NONE
    assert a.beat() is ErrorCode.NONE
    assert isinstance(world.coordinator.manager.group("g"), ConsumerGroup)
    assert world.commit(5, b.member_id, b.generation).value is ErrorCode.NONE
    assert b.beat() is REBALANCE
    assert b.rejoin() is ErrorCode.NONE
    assert a.owned | b.owned == EVERYTHING

    assert world.listed(types=["classic"]) == ["g"], "with the answer that gave b the rest"
    assert world.state is PREPARING
    assert b.beat() is REBALANCE
    for peer in (a, b):
        assert world.commit(6, peer.member_id, peer.generation).value is ErrorCode.NONE


@pytest.mark.parametrize(("policy", "upgrades"), [("upgrade", True), ("downgrade", False)])
def test_policy_allows_one_direction(policy, upgrades):
    """upgrade never goes back; downgrade never begins."""
    world = ConsumerWorld({"t": PARTITIONS}, group_consumer_migration_policy=policy)
    (a,) = classic_group(world, 1)
    c = Peer("c")
    if not upgrades:
        assert world.join(c) is ErrorCode.GROUP_ID_NOT_FOUND
        assert world.state is STABLE
        assert world.heartbeat(a.member_id, a.generation) is ErrorCode.NONE
        return
    assert world.join(c) is ErrorCode.NONE
    settle(world, a, c)
    world.quit(c)
    settle(world, a)
    assert a.owned == EVERYTHING
    assert world.listed(types=["consumer"]) == ["g"]


def test_group_that_cannot_be_read_is_not_upgraded(world):
    """Other protocol types, malformed bytes, and assignors' own data stay classic."""
    World.join(world, protocol_type="connect")
    assert world.join(Peer("c")) is ErrorCode.GROUP_ID_NOT_FOUND

    other = ConsumerWorld({"t": 1})
    join = World.join(other)
    assert other.join(Peer("c")) is ErrorCode.GROUP_ID_NOT_FOUND
    other.stabilize(join)

    third = ConsumerWorld({"t": 1}, group_consumer_max_size=1)
    classic_group(third)
    assert third.join(Peer("c")) is ErrorCode.GROUP_ID_NOT_FOUND
    assert third.state is STABLE


@pytest.mark.parametrize(
    ("assignor", "answer"),
    [("cooperative-sticky", ErrorCode.NONE), ("streams", ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_user_data_of_an_assignment_counts_only_where_they_may_matter(world, assignor, answer):
    """librdkafka repeats in them what a member says of itself; another assignor may need them."""
    a = ClassicPeer(world)
    join = a.join(protocols=((assignor, embedded(("t",), frozenset(), 1)),))
    world.end_initial_delay()
    assert a.take(join) is ErrorCode.NONE
    assert a.receive(a.sync({a.member_id: packed(EVERYTHING, b"1234")})) is ErrorCode.NONE

    assert world.join(Peer("c")) is answer
    assert isinstance(world.coordinator.manager.group("g"), ConsumerGroup) is (not answer)


def test_rebalance_under_way_goes_on_in_the_consumer_group(world):
    """Those who wait for the others are asked to join again, and keep their ids."""
    a = ClassicPeer(world)
    waiting = a.join(version=4)
    a.member_id = waiting.value.member_id
    waiting = a.join(version=4)
    assert waiting.is_open

    c = Peer("c")
    assert world.join(c) is ErrorCode.NONE
    assert waiting.error is REBALANCE
    settle(world, a, c)
    assert a.owned | c.owned == EVERYTHING

    b, d = ClassicPeer(world), ClassicPeer(world)
    assert b.join(version=4).error is ErrorCode.MEMBER_ID_REQUIRED
    b.member_id = "made-up"
    settle(world, a, b, c, d)
    assert a.owned | b.owned | c.owned | d.owned == EVERYTHING


def test_group_that_all_have_left_while_it_waits_becomes_a_consumer_group(world):
    """It has no members, but is not Empty before its first rebalance ends."""
    World.join(world)
    (member_id,) = world.group().members
    world.leave(member_id)
    assert world.state is PREPARING

    c = Peer("c")
    assert world.join(c) is ErrorCode.NONE
    assert c.owned == EVERYTHING


def test_members_that_wait_for_their_assignment_join_again(world):
    """The leader has not brought it yet when the newcomer comes."""
    a, b = classic_group(world)
    joins = [a.join(), b.join()]
    a.take(joins[0])
    b.take(joins[1])
    follower = a if joins[0].value.leader != a.member_id else b
    sync = follower.sync()
    assert sync.is_open

    c = Peer("c")
    assert world.join(c) is ErrorCode.NONE
    assert follower.receive(sync) is REBALANCE
    settle(world, a, b, c)
    assert a.owned | b.owned | c.owned == EVERYTHING


@pytest.mark.parametrize("is_eager", [True, False])
def test_static_members_change_their_protocol_in_place(world, is_eager):
    """An instance that comes back with the other protocol keeps its partitions."""
    a, b = (
        ClassicPeer(world, instance=name, is_eager=is_eager, member_id="") for name in ("i0", "i1")
    )
    complete_generation(world, [a, b])
    before = a.owned

    c = Peer("c", instance="i0")
    assert world.join(c) is ErrorCode.NONE
    settle(world, b, c)
    assert c.owned == before
    assert a.beat() is ErrorCode.FENCED_INSTANCE_ID
    assert world.commit(5, a.member_id, a.generation).value is ErrorCode.UNKNOWN_MEMBER_ID

    d = ClassicPeer(world, instance="i0")
    d.live()
    assert d.owned == before
    assert world.beat(c) is ErrorCode.UNKNOWN_MEMBER_ID, "the group is a classic one again"
    until_classic(world, b, d)
    assert world.state is PREPARING
    assert b.owned | d.owned == EVERYTHING


def test_consumer_member_can_begin_anew_as_a_classic_one():
    """A member changes its protocol, in either direction, under the same id."""
    world = ConsumerWorld({"t": PARTITIONS}, group_consumer_migration_policy="upgrade")
    a, c = classic_group(world, 1)[0], Peer("c")
    world.join(c)
    settle(world, a, c)
    d = ClassicPeer(world, member_id="c")
    d.live()
    assert world.consumers.members["c"].is_classic
    e = Peer("c")
    assert world.join(e) is ErrorCode.NONE
    assert not world.consumers.members["c"].is_classic
    settle(world, a, e)
    assert a.owned | e.owned == EVERYTHING


def test_requests_of_strangers_are_refused(world):
    """Wrong generations, unknown ids, members of the other protocol, other assignors."""
    (a,) = classic_group(world, 1)
    c = Peer("c")
    world.join(c)
    settle(world, a, c)

    assert world.heartbeat(a.member_id, a.generation + 1) is ErrorCode.ILLEGAL_GENERATION
    assert world.heartbeat("c", c.epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync("nobody", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync(a.member_id, a.generation, protocol_name="other").error is (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    assert world.leave("c", "nobody") == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert world.commit(5, a.member_id, a.generation - 1).value is ErrorCode.ILLEGAL_GENERATION
    data = embedded(("t",), frozenset(), 1)
    for fields in (
        {"protocols": (("other", data),)},
        {"protocol_type": "connect", "protocols": (("range", data),)},
        {"protocols": (("range", b"?"),)},
    ):
        assert World.join(world, **fields).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    unknown = ClassicPeer(world, instance="i9", member_id="x")
    assert unknown.join().error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.beat(Peer("nobody", epoch=3)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_commit_of_an_old_version_is_for_classic_members_only(world):
    """Those before 9 cannot be told that an epoch is stale."""
    (a,) = classic_group(world, 1)
    c = Peer("c")
    world.join(c)
    settle(world, a, c)
    errors = {}
    for member_id, epoch in ((a.member_id, a.generation), ("c", c.epoch)):
        committer = Committer(member_id, epoch, knows_epochs=False)
        world.coordinator.commit_offsets("g", committer, {T0: CommittedOffset(1)}, errors.update)
        errors[member_id] = errors.pop(T0)
    assert errors == {a.member_id: ErrorCode.NONE, "c": ErrorCode.UNSUPPORTED_VERSION}


def test_classic_member_that_does_not_join_again_is_put_out(world):
    """It has its rebalance timeout, and its heartbeats do not help it."""
    (a,) = classic_group(world, 1)
    c = Peer("c")
    world.join(c)
    for _ in range(REBALANCE_MS // 5000):
        assert a.beat() is REBALANCE
        world.advance(5000)
        world.settle(c)

    assert a.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    world.settle(c)
    assert c.owned == EVERYTHING


def test_classic_member_that_does_not_sync_is_put_out(world):
    """The same holds for the second half of a rebalance, and for silence."""
    (a,) = classic_group(world, 1)
    c = Peer("c")
    world.join(c)
    a.take(a.join())
    for _ in range(REVOCATION_MS // 5000):
        world.advance(5000)
        a.beat()
        world.settle(c)
    assert a.sync().error is ErrorCode.UNKNOWN_MEMBER_ID

    b = ClassicPeer(world)
    settle(world, b, c)
    world.advance(SESSION_MS // 4)
    world.settle(c)
    assert b.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_classic_members_notice_new_partitions(world):
    """Classic members notice new partitions without a member of the consumer protocol."""
    world = ConsumerWorld({"t": 2}, group_consumer_migration_policy="upgrade")
    (a,) = classic_group_of_two_partitions(world)
    c = Peer("c")
    world.join(c)
    world.quit(c)
    settle(world, a)
    world.extend("t", 4)
    settle(world, a)
    assert a.owned == {("t", number) for number in range(4)}


def classic_group_of_two_partitions(world):
    peer = ClassicPeer(world)
    join = peer.join()
    world.end_initial_delay()
    peer.take(join)
    peer.receive(peer.sync({peer.member_id: packed(frozenset({("t", 0), ("t", 1)}))}))
    return [peer]


def test_mixed_group_is_read_back_from_the_log(world):
    """The classic members' protocols stand in their records, as Kafka writes them."""
    a, b = classic_group(world)
    c = Peer("c")
    world.join(c)
    settle(world, a, b, c)
    values = {
        decode_key(key).member_id: decode_versioned(ConsumerGroupMemberMetadataValue, value)
        for key, value in world.log.records()
        if isinstance(decode_key(key), ConsumerGroupMemberMetadataKey) and value
    }
    assert values["c"].classic_member_metadata is None
    stored = values[a.member_id].classic_member_metadata
    assert [protocol.name for protocol in stored.supported_protocols] == ["range", "sticky"]
    last = [v for k, v in world.log.records() if isinstance(decode_key(k), GroupMetadataKey)]
    assert last[-1] is None

    world.reload()

    assert world.listed(types=["consumer"]) == ["g"]
    for peer in (a, b):
        assert peer.beat() is ErrorCode.NONE
    settle(world, a, b, c)
    assert a.owned | b.owned | c.owned == EVERYTHING


def test_epochs_in_the_log_begin_with_the_generation(world):
    """Of the group and of its targets: a replay up to there has a group without a rebalance."""
    a, _ = classic_group(world)
    world.join(Peer("c"))
    group_epochs, target_epochs = [], []
    for key, value in world.log.records():
        kind = decode_key(key)
        if isinstance(kind, ConsumerGroupMetadataKey) and value:
            group_epochs.append(decode_versioned(ConsumerGroupMetadataValue, value).epoch)
        elif isinstance(kind, ConsumerGroupTargetAssignmentMetadataKey) and value:
            target = decode_versioned(ConsumerGroupTargetAssignmentMetadataValue, value)
            target_epochs.append(target.assignment_epoch)

    assert group_epochs[0] == target_epochs[0] == a.generation


@pytest.mark.parametrize("direction", ["up", "down"])
def test_change_that_is_not_in_the_log_is_made_up_for(world, direction):
    """The next write brings all that is owed, so that a restart finds one group of one kind."""
    (a,) = classic_group(world, 1)
    c = Peer("c")
    if direction == "up":
        world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
        assert world.join(c) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        world.log.error = ErrorCode.NONE
        assert world.rejoin(c) is ErrorCode.NONE
        world.reload()
        assert world.listed(types=["consumer"]) == ["g"]
        settle(world, a, c)
        return
    world.join(c)
    settle(world, a, c)
    world.quit(c)
    a.live()
    world.log.error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert a.beat() is REBALANCE
    assert world.state is PREPARING
    world.log.error = ErrorCode.NONE
    complete_generation(world, [a])
    left = [decode_key(key) for key, value in dict(world.log.records()).items() if value]
    assert [type(key).__name__ for key in left] == ["GroupMetadataKey"]
    world.reload()
    assert world.state is STABLE


def test_deposed_coordinator_answers_those_who_wait(world):
    """A classic member whose join is on its way into the log hears where to go."""
    (a,) = classic_group(world, 1)
    c = Peer("c")
    world.join(c)
    world.log.hold = True
    join = a.join()
    assert join.is_open
    world.log.error = ErrorCode.NONE
    world.coordinator.on_resignation(0)
    world.log.release()
    assert not join.is_open


def test_epochs_go_on_where_generations_ended(world):
    """Epochs and generations continue each other: a member's number never falls."""
    peers = classic_group(world)
    for _ in range(4):
        complete_generation(world, peers)
    generation = peers[0].generation
    c = Peer("c")
    world.join(c)
    assert (generation, c.epoch) == (5, 6)
    assert world.consumers.group_epoch == 6
    settle(world, *peers, c)
    world.quit(c)
    until_classic(world, *peers)

    assert world.group().generation_id > 6
    assert world.group().protocol_type == "consumer"
    assert world.group().protocol_name == "range"
    assert world.group().subscribed_topics == {"t"}
    world.reload()
    assert world.group().generation_id > 6
    assert world.group().subscribed_topics == {"t"}


def test_members_of_a_group_that_is_classic_again_do_not_wait_for_others(world):
    """It was stable: its next generation begins when all have joined, and not after a delay."""
    peers = classic_group(world)
    c = Peer("c")
    world.join(c)
    settle(world, *peers, c)
    world.quit(c)
    until_classic(world, *peers)
    joins = [peer.join() for peer in peers]

    assert [join.is_open for join in joins] == [False, False]
    assert [peer.take(join) for peer, join in zip(peers, joins, strict=True)] == [
        ErrorCode.NONE
    ] * 2


def test_members_of_either_protocol_are_missed_after_the_group_has_changed(world):
    """Sessions begin anew with it: who died before is not waited for without end."""
    classic_group(world)
    c = Peer("c")
    world.join(c)
    world.advance(max(SESSION_MS, REBALANCE_MS) * 3)
    assert world.coordinator.manager.group("g").is_empty

    a, b = classic_group(other := ConsumerWorld({"t": PARTITIONS}))
    c = Peer("c")
    other.join(c)
    settle(other, a, b, c)
    other.quit(c)
    until_classic(other, a, b)
    other.advance(max(SESSION_MS, REBALANCE_MS) * 3)
    assert other.group().is_empty


@pytest.mark.parametrize("size", [2, 3])
def test_group_larger_than_classic_ones_may_be_stays_a_consumer_group(size):
    """One of the largest size that they may have becomes one."""
    world = ConsumerWorld({"t": PARTITIONS}, group_max_size=2)
    peers = classic_group(world)
    c = Peer("c")
    assert world.join(c) is ErrorCode.NONE
    peers += [ClassicPeer(world) for _ in range(size - 2)]
    settle(world, *peers, c)
    world.quit(c)
    if size == 2:
        until_classic(world, *peers)
    else:
        settle(world, *peers)

    assert world.listed(types=["classic"]) == (["g"] if size == 2 else [])


def test_group_as_large_as_groups_of_the_other_protocol_may_be_is_upgraded():
    """The newcomer has to fit as well."""
    world = ConsumerWorld({"t": PARTITIONS}, group_consumer_max_size=2)
    classic_group(world)
    assert world.join(Peer("c")) is ErrorCode.GROUP_MAX_SIZE_REACHED
