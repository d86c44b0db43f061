"""A member of a classic group in virtual time: each step of a rebalance, and its commits."""

from __future__ import annotations

import logging
import random

import pytest
from consumer_world import ConsumerWorld
from mock_kafka import HANG_UP, Later, MockCluster

from ottla.clients.consumer.subscription_state import RebalanceEvent, RebalanceListener
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.consumer_protocol import (
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ottla.protocol.fetch import FetchRequest
from ottla.protocol.group import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupRequest,
)
from ottla.protocol.metadata import MetadataRequest
from ottla.protocol.offsets import OffsetCommitRequest
from ottla.structs import TopicPartition

FIRST, SECOND = TopicPartition("pages", 0), TopicPartition("pages", 1)
HOUR_MS = 3_600_000
REBALANCE = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
UNKNOWN_MEMBER = HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
COOPERATIVE = {"partition_assignment_strategy": "cooperative-sticky"}


def member_of(runtime, cluster, listener=None, **settings) -> ConsumerWorld:
    """The only member of its group, which has both partitions and nothing more to do."""
    defaults = {"group_id": "g", "auto_commit_interval_ms": HOUR_MS}
    world = ConsumerWorld(runtime, cluster, **{**defaults, **settings})
    world.subscribe(listener)
    poll_until_settled(world)
    return world


def poll_until_settled(world: ConsumerWorld) -> None:
    for _ in range(30):
        world.poll(100)
        if world.core.is_settled:
            return
    raise AssertionError("there is always something left to do")


def rebalance(world: ConsumerWorld) -> None:
    """The next heartbeat tells the member to join again."""
    world.cluster[0].on(HeartbeatRequest, REBALANCE, HeartbeatResponse())
    world.advance(3_000)


def joins(cluster: MockCluster) -> list[tuple[list[str], list[int], int]]:
    """The topics, partitions and generation with which members have joined so far."""
    found = []
    for request in cluster[0].sent(JoinGroupRequest):
        if request.member_id:
            told = decode_subscription(request.protocols[0].metadata)
            owned = [p for topic in told.owned_partitions for p in topic.partitions]
            found.append((list(told.topics), owned, told.generation_id))
    return found


def test_member_tells_what_it_owns_and_since_which_generation(runtime, cluster):
    """Nothing after its membership was lost, and nothing after it has left."""
    world = member_of(runtime, cluster, **COOPERATIVE)
    rebalance(world)
    poll_until_settled(world)
    cluster[0].on(HeartbeatRequest, UNKNOWN_MEMBER, HeartbeatResponse())
    world.advance(3_000)
    poll_until_settled(world)
    world.run(world.core.unsubscribe())
    world.subscribe()
    poll_until_settled(world)

    nothing, everything = (["pages"], [], -1), (["pages"], [0, 1], 1)
    assert joins(cluster) == [nothing, everything, nothing, nothing]


def test_partitions_that_move_are_given_up_before_the_next_join(runtime, cluster):
    """The member joins once more, so that another one can have them (KIP-429)."""
    world = member_of(runtime, cluster, **COOPERATIVE)
    cluster[0].on(SyncGroupRequest, world.give(0))
    rebalance(world)
    poll_until_settled(world)

    assert [owned for _, owned, _ in joins(cluster)] == [[], [0, 1], [0]]
    assert list(world.core.subscriptions.assigned) == [FIRST]


@pytest.mark.parametrize("joins_as", ["leader", "follower"])
def test_subscription_that_changes_while_the_member_joins_is_not_lost(runtime, cluster, joins_as):
    """It joins again with the new one."""
    cluster.topics["orders"] = 1
    world = ConsumerWorld(runtime, cluster, group_id="g")
    cluster[0].on(JoinGroupRequest, world.join, "hold", world.join)
    world.subscribe()
    world.poll(100)
    world.call(world.core.subscribe, ["orders"], None)
    world.advance(100)
    held = cluster[0].held.pop()
    answer = world.join(held.request, 9)
    if joins_as == "follower":
        cluster[0].on(MetadataRequest, None)  # it has those that it needs
        answer.leader, answer.members = "another", []
        cluster[0].on(SyncGroupRequest, world.give(0), world.sync)
    held.answer(answer)
    poll_until_settled(world)

    assert [topics for topics, *_ in joins(cluster)] == [["pages"], ["orders"]]
    assert list(world.core.subscriptions.assigned) == [TopicPartition("orders", 0)]


def test_poll_that_waits_gives_up_partitions_at_once(runtime, cluster):
    """The heartbeat that tells of the rebalance wakes it, and nothing else does."""
    world = member_of(runtime, cluster)
    cluster[0].on(FetchRequest, None)
    world.poll(600)
    times: list[int] = []

    def join(request, version):
        times.append(runtime.clock.monotonic_ms())
        return world.join(request, version)

    cluster[0].on(JoinGroupRequest, join)
    cluster[0].on(HeartbeatRequest, REBALANCE, HeartbeatResponse())
    began_ms = runtime.clock.monotonic_ms()
    world.poll(4000)

    assert times[0] - began_ms <= 3000


@pytest.mark.parametrize("leads", [True, False])
def test_only_the_leader_has_its_group_rebalance_when_a_topic_grows(runtime, cluster, leads):
    """A member that has led before is no leader any more."""
    world = member_of(runtime, cluster)
    world.logs[2] = []

    def follow(request, version):
        response = world.join(request, version)
        response.leader, response.members = "another", []
        return response

    if not leads:
        cluster[0].on(JoinGroupRequest, follow)
        cluster[0].on(SyncGroupRequest, world.give(0, 1))
    rebalance(world)
    poll_until_settled(world)
    cluster.topics["pages"] = 3
    world.run(world.core.metadata.update(world.deadline()))
    poll_until_settled(world)

    assert len(joins(cluster)) == (3 if leads else 2)


@pytest.mark.parametrize("describes", [True, False])
@pytest.mark.parametrize("meanwhile", ["nothing", "a topic grows", "a topic is deleted"])
def test_leader_that_is_back_looks_at_the_topics_again(runtime, cluster, describes, meanwhile):
    """It divides nothing (KIP-814), and misses no change: neither one of before nor a later one."""
    cluster.topics["orders"] = 1
    world = ConsumerWorld(runtime, cluster, group_id="g", group_instance_id="i")
    world.logs[2] = []
    others = [TopicPartition("pages", 1)] if meanwhile == "a topic grows" else []
    before = [TopicPartition("pages", 0), TopicPartition("pages", 1), TopicPartition("orders", 0)]
    if meanwhile == "a topic is deleted":
        before.append(TopicPartition("gone", 0))
    elif meanwhile == "a topic grows":
        before.remove(others[0])

    def come_back(request, version):
        response = world.join(request, version)
        response.skip_assignment = True
        metadata = encode_subscription(["pages", "orders", "gone"], [], -1, None)
        other = JoinGroupResponseMember(member_id="other", metadata=metadata)
        response.members.append(other)
        return response

    def describe(request, version):
        group = DescribedGroup(error_code=0 if describes else ErrorCode.GROUP_AUTHORIZATION_FAILED)
        for share in (before[:1], before[1:]) if describes else ():
            assignment = encode_assignment(share)
            group.members.append(DescribedGroupMember(member_assignment=assignment))
        return DescribeGroupsResponse(groups=[group])

    cluster[0].on(DescribeGroupsRequest, describe)
    cluster[0].on(JoinGroupRequest, world.join, come_back, world.join)
    cluster[0].on(SyncGroupRequest, world.give(0), world.sync)
    world.subscribe()
    poll_until_settled(world)
    missed = describes and meanwhile != "nothing"
    assert len(joins(cluster)) == 1 + missed

    cluster.topics["pages"] = 3
    world.run(world.core.metadata.update(world.deadline()))
    poll_until_settled(world)
    assert len(joins(cluster)) == 2 + missed


def test_leader_that_knows_the_topics_asks_for_no_metadata(runtime, cluster):
    """It divides at once."""
    world = member_of(runtime, cluster)
    before = len(cluster[0].sent(MetadataRequest))
    rebalance(world)
    poll_until_settled(world)

    assert len(joins(cluster)) == 2
    assert len(cluster[0].sent(MetadataRequest)) == before


@pytest.mark.parametrize("is_told", [True, False])
def test_member_that_leaves_in_a_rebalance_begins_anew(runtime, cluster, is_told):
    """Neither an answer that comes late nor an event of before is taken for one of the next."""
    world = ConsumerWorld(runtime, cluster, group_id="g")
    world.subscribe(RebalanceListener())
    if is_told:
        first = world.run(world.core.poll(world.deadline()))
        assert isinstance(first, RebalanceEvent)
        world.run(world.core.unsubscribe())
        cluster[0].on(SyncGroupRequest, world.give(1))
        world.subscribe(RebalanceListener())
    else:
        cluster[0].on(JoinGroupRequest, "hold")
        world.poll(100)
        world.run(world.core.unsubscribe())
        held = cluster[0].held.pop()
        held.answer(world.join(held.request, 9))
        cluster[0].on(JoinGroupRequest, world.join)
        cluster[0].on(SyncGroupRequest, world.give(1))
        world.advance(100)
        assert world.core.subscriptions.assigned == {}
        assert cluster[0].sent(SyncGroupRequest) == []
        world.subscribe(RebalanceListener())
    event = world.run(world.core.poll(world.deadline()))

    assert event.partitions == (SECOND,)


def test_polls_return_nothing_while_partitions_are_given_up(runtime, cluster):
    """What is committed for the application is what it has handled, no more."""
    world = member_of(runtime, cluster, enable_auto_commit=True)
    cluster[0].on(OffsetCommitRequest, "hold")
    rebalance(world)
    world.poll(0)
    world.write("a")
    world.advance(1000)

    assert world.values(500) == []
    held = cluster[0].held.pop()
    held.answer(world.commit(held.request, 9))
    assert world.committed == {FIRST: 0, SECOND: 0}


def test_member_that_keeps_its_partitions_reads_on_while_it_joins(runtime, cluster):
    """A poll that waits goes on as soon as what was read is committed."""
    world = member_of(runtime, cluster, enable_auto_commit=True, **COOPERATIVE)
    cluster[0].on(JoinGroupRequest, "hold")
    rebalance(world)
    world.poll(0)
    world.write("a")
    world.advance(1000)
    began_ms = runtime.clock.monotonic_ms()

    assert world.values(5000) == ["a"]
    assert runtime.clock.monotonic_ms() - began_ms < 100
    assert len(cluster[0].held) == 1


def test_refusal_that_nobody_asks_for_is_no_noise(runtime, cluster, caplog):
    """The application closes its consumer before the next poll would raise."""
    caplog.set_level(logging.ERROR)
    world = ConsumerWorld(runtime, cluster, group_id="g")
    refusal = JoinGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    cluster[0].on(JoinGroupRequest, refusal)
    world.subscribe()
    world.poll(0)
    world.advance(1000)
    world.run(world.core.close(world.deadline()))

    assert caplog.records == []


ILLEGAL = ErrorCode.ILLEGAL_GENERATION
OFFSETS = {FIRST: OffsetAndMetadata(5)}


@pytest.mark.parametrize("code", [ILLEGAL, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_commit_that_is_refused_for_good_is_not_repeated(runtime, cluster, code):
    """The membership is the same, so that the next commit would be refused as well."""
    world = member_of(runtime, cluster)
    cluster[0].on(OffsetCommitRequest, world.refuse_commit(code))
    with pytest.raises(KafkaError) as caught:
        world.run(world.core.commit(OFFSETS, world.deadline(60_000)))

    assert caught.value.error is code
    assert len(cluster[0].sent(OffsetCommitRequest)) == 1


def test_commit_is_repeated_until_its_time_is_over(runtime, cluster):
    """Then the error is that of the last answer."""
    world = member_of(runtime, cluster)
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    cluster[0].on(OffsetCommitRequest, world.refuse_commit(code))
    began_ms = runtime.clock.monotonic_ms()
    with pytest.raises(KafkaError) as caught:
        world.run(world.core.commit(OFFSETS, world.deadline(5_000)))

    assert caught.value.error is code
    assert 5_000 <= runtime.clock.monotonic_ms() - began_ms < 6_500
    assert 5 < len(cluster[0].sent(OffsetCommitRequest)) < 15


def test_commit_of_a_member_without_a_generation_is_not_sent(runtime, cluster):
    """It is refused at once: others may have the partitions."""
    world = member_of(runtime, cluster)
    cluster[0].on(HeartbeatRequest, UNKNOWN_MEMBER)
    world.advance(3_000)
    began_ms = runtime.clock.monotonic_ms()
    with pytest.raises(KafkaError, match="given the partitions to others") as caught:
        world.run(world.core.commit(OFFSETS, world.deadline(60_000)))

    assert caught.value.error is ILLEGAL
    assert runtime.clock.monotonic_ms() == began_ms
    assert cluster[0].sent(OffsetCommitRequest) == []


@pytest.mark.parametrize("code", [ILLEGAL, ErrorCode.REBALANCE_IN_PROGRESS])
def test_commit_that_a_join_has_overtaken_is_made_in_the_next_generation(runtime, cluster, code):
    """A cooperative member has kept what it commits."""
    world = member_of(runtime, cluster, **COOPERATIVE)
    cluster[0].on(OffsetCommitRequest, "hold", world.commit)
    commit = world.runtime.scheduler.spawn(
        world.core.commit(OFFSETS, world.deadline(60_000)), "commit"
    )
    world.advance(100)
    rebalance(world)
    poll_until_settled(world)
    held = cluster[0].held.pop()
    held.answer(world.commit_answer(held.request, code))
    world.advance(2_000)

    assert commit.result() is None
    commits = cluster[0].sent(OffsetCommitRequest)
    assert [each.generation_id_or_member_epoch for each in commits] == [1, 2]
    assert world.committed == {FIRST: 5}


def test_commit_while_the_member_joins_waits_for_the_next_generation(runtime, cluster):
    """The coordinator refuses the one before, as it has begun the next."""
    world = member_of(runtime, cluster, **COOPERATIVE)
    cluster[0].on(JoinGroupRequest, "hold", world.join)
    cluster[0].on(OffsetCommitRequest, world.refuse_commit(ILLEGAL), world.commit)
    rebalance(world)
    for _ in range(3):
        world.poll(10)
    commit = world.runtime.scheduler.spawn(
        world.core.commit(OFFSETS, world.deadline(60_000)), "commit"
    )
    world.advance(50)
    held = cluster[0].held.pop()
    held.answer(world.join(held.request, 9))
    world.advance(2_000)

    assert commit.result() is None
    assert world.committed == {FIRST: 5}


def test_commit_goes_to_the_coordinator_that_is_there(runtime):
    """One that refuses the partitions, as it is none any more, is asked no more."""
    cluster = MockCluster(runtime, 2)
    cluster.topics["pages"] = 2
    world = ConsumerWorld(runtime, cluster, group_id="g")

    def move(request, version):
        cluster.coordinator = 1
        return world.commit_answer(request, ErrorCode.NOT_COORDINATOR)

    cluster[0].on(OffsetCommitRequest, move)
    world.assign(0)
    world.run(world.core.commit(OFFSETS, world.deadline(5_000)))

    assert world.committed == {FIRST: 5}
    assert len(cluster[0].sent(OffsetCommitRequest)) == 1


LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("later", ["commit", "commit_once"])
def test_commit_that_is_repeated_does_not_undo_a_later_one(runtime, cluster, later):
    """The group would go back although the later call has succeeded."""
    world = member_of(runtime, cluster)
    cluster[0].on(OffsetCommitRequest, world.refuse_commit(LOADING), world.commit)
    both = {FIRST: OffsetAndMetadata(1), SECOND: OffsetAndMetadata(2)}
    first = runtime.scheduler.spawn(world.core.commit(both, world.deadline(60_000)), "first")
    world.advance(10)
    world.run(getattr(world.core, later)(OFFSETS, world.deadline(60_000)))
    assert world.committed == {FIRST: 5}
    world.advance(5_000)

    assert first.result() is None
    assert world.committed == {FIRST: 5, SECOND: 2}
    world.run(world.core.commit({FIRST: OffsetAndMetadata(0)}, world.deadline()))
    assert world.committed[FIRST] == 0, "what is asked for later counts, also if it goes back"


def test_commit_is_not_repeated_for_partitions_that_went_to_others(runtime, cluster):
    """Their new reader has committed since: the error says so."""
    world = member_of(runtime, cluster, **COOPERATIVE)
    cluster[0].on(OffsetCommitRequest, world.refuse_commit(LOADING))
    commit = runtime.scheduler.spawn(world.core.commit(OFFSETS, world.deadline(60_000)), "commit")
    world.advance(10)
    cluster[0].on(SyncGroupRequest, world.give(1))
    rebalance(world)
    poll_until_settled(world)
    assert list(world.core.subscriptions.assigned) == [SECOND]
    cluster[0].on(OffsetCommitRequest, world.commit)
    world.advance(5_000)

    assert world.committed == {}
    assert commit.exception().error is ILLEGAL


def test_automatic_commits_do_not_pile_up(runtime, cluster):
    """While one is tried again no other begins; then the newest positions are committed."""
    world = member_of(runtime, cluster, enable_auto_commit=True, auto_commit_interval_ms=100)
    world.write("a", "b")
    world.poll(1000)
    cluster[0].on(OffsetCommitRequest, "hold", world.commit)
    before = len(cluster[0].sent(OffsetCommitRequest))
    for _ in range(20):
        world.poll(100)
    assert len(cluster[0].sent(OffsetCommitRequest)) - before == 1
    held = cluster[0].held.pop()
    held.answer(world.commit_answer(held.request, LOADING))
    world.write("c")
    for _ in range(20):
        world.poll(100)

    assert world.committed[FIRST] == 3


@pytest.mark.parametrize("seed", range(40))
def test_latest_of_the_commits_that_succeeded_counts(runtime, cluster, seed):
    """However many are under way at once, refused, cut off, late and repeated."""
    chance = random.Random(seed)
    world = member_of(runtime, cluster)

    def answer(request, version):
        if chance.random() < 0.5:
            code = chance.choice([LOADING, ErrorCode.NOT_COORDINATOR])
            return Later(delay_ms, world.commit_answer(request, code))
        if chance.random() < 0.3:
            return HANG_UP
        return Later(delay_ms, world.commit(request, version))

    delay_ms = chance.choice([0, 100, 300])
    cluster[0].on(OffsetCommitRequest, answer)
    commits = []
    for number in range(1, 25):
        places = chance.sample([FIRST, SECOND], chance.randint(1, 2))
        offsets = dict.fromkeys(places, OffsetAndMetadata(number))
        call = chance.choice([world.core.commit, world.core.commit_once])
        task = runtime.scheduler.spawn(call(offsets, world.deadline(60_000)), "commit")
        task.add_done_callback(lambda task: task.exception())
        commits.append((task, offsets))
        world.advance(chance.randrange(200))
    world.advance(120_000)

    assert all(task.done() for task, _ in commits)
    done = [offsets for task, offsets in commits if task.exception() is None]
    for place in (FIRST, SECOND):
        latest = max(each[place].offset for each in done if place in each)
        assert world.committed[place] >= latest
        assert world.committed[place] in {o[place].offset for _, o in commits if place in o}
