"""Membership: joining, heartbeats, being thrown out, committing."""

from __future__ import annotations

import pytest
from consumer_world import ConsumerWorld
from mock_kafka import HANG_UP, MockCluster

from ottla.clients.consumer.membership import PollWatch
from ottla.clients.consumer.subscription_state import RebalanceListener
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.consumer_protocol import decode_assignment, encode_subscription
from ottla.protocol.fetch import FetchRequest
from ottla.protocol.group import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ottla.protocol.offsets import (
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from ottla.structs import TopicPartition

FIRST, SECOND = TopicPartition("pages", 0), TopicPartition("pages", 1)


class Journal(RebalanceListener):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, list[int]]] = []

    def note(self, name, partitions) -> None:
        self.events.append((name, [p.partition for p in partitions]))

    def on_partitions_assigned(self, partitions):
        self.note("assigned", partitions)

    def on_partitions_revoked(self, partitions):
        self.note("revoked", partitions)

    def on_partitions_lost(self, partitions):
        self.note("lost", partitions)


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def world(runtime, cluster, journal) -> ConsumerWorld:
    """A consumer that has subscribed to `pages` as the only member of its group."""
    world = ConsumerWorld(runtime, cluster, group_id="g")
    world.subscribe(journal)
    return world


def join(world) -> list[str]:
    """Poll until the member has its partitions; the values that came with them."""
    for _ in range(20):
        values = world.values(100)
        if world.core.subscriptions.assigned:
            return values
    raise AssertionError("the member did not get any partitions")


def test_member_joins_with_the_id_that_it_is_given(world, cluster, journal):
    """MEMBER_ID_REQUIRED, then the whole topic (KIP-394)."""
    join(world)

    assert [r.member_id for r in cluster[0].sent(JoinGroupRequest)] == ["", "member-0"]
    assert journal.events == [("assigned", [0, 1])]


def test_others_wait_for_a_member_as_long_as_it_may_work_between_polls(runtime, cluster):
    """The rebalance timeout is max.poll.interval.ms (KIP-62)."""
    world = ConsumerWorld(runtime, cluster, group_id="g", max_poll_interval_ms=12_345)
    world.subscribe()
    join(world)

    (timeout_ms,) = {r.rebalance_timeout_ms for r in cluster[0].sent(JoinGroupRequest)}
    assert timeout_ms == 12_345


def test_static_member_is_refused_where_the_broker_does_not_know_instances(runtime, cluster):
    """As a dynamic member it would cause the rebalances that it is to spare (KIP-345)."""
    cluster[0].versions[JoinGroupRequest.api_key] = (0, 4)
    world = ConsumerWorld(runtime, cluster, group_id="g", group_instance_id="one")
    world.subscribe()

    with pytest.raises(KafkaError, match=r"JOIN_GROUP.* 5 to .* 0 to 4") as caught:
        join(world)
    assert caught.value.error is ErrorCode.UNSUPPORTED_VERSION
    assert cluster[0].sent(JoinGroupRequest) == []


def test_member_begins_at_the_committed_offsets(world):
    """What has no commit begins where auto.offset.reset says."""
    world.committed[FIRST] = 1
    world.write("a", "b")
    world.write("c", partition=1)

    assert sorted(join(world) + world.values()) == ["b", "c"]


def test_heartbeats_go_on_without_polls(world, cluster):
    """A member sends one heartbeat every heartbeat.interval.ms."""
    join(world)
    world.advance(9_100)

    assert len(cluster[0].sent(HeartbeatRequest)) == 3


def test_rebalance_revokes_before_it_joins(world, cluster, journal):
    """A heartbeat tells of the rebalance; the next poll lets go, joins and gets a new share."""
    join(world)
    rebalance = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    cluster[0].on(HeartbeatRequest, rebalance, HeartbeatResponse())
    cluster[0].on(SyncGroupRequest, world.give(1))
    world.advance(3_000)
    world.poll(100)

    assert journal.events[1:] == [("revoked", [0, 1]), ("assigned", [1])]


def test_listener_commits_in_the_generation_of_which_it_is_told(world, cluster, journal):
    """Partitions that go are committed in the old generation, those that come in the new one."""
    generations: list[tuple[str, int]] = []
    note = journal.note

    def note_generation(name, partitions):
        generations.append((name, world.core._polled_as.generation))
        note(name, partitions)

    journal.note = note_generation
    join(world)
    world.poll(100)
    rebalance = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    cluster[0].on(HeartbeatRequest, rebalance, HeartbeatResponse())
    world.advance(3_000)
    world.poll(100)
    last = world.core.coordinator.member.membership.generation

    assert generations == [("assigned", last - 1), ("revoked", last - 1), ("assigned", last)]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_member_that_was_thrown_out_has_lost_its_partitions(world, cluster, journal, code):
    """on_partitions_lost, and a new join."""
    join(world)
    cluster[0].on(HeartbeatRequest, HeartbeatResponse(error_code=code), HeartbeatResponse())
    world.advance(3_000)
    world.poll(100)

    assert journal.events[1:] == [("lost", [0, 1]), ("assigned", [0, 1])]


def test_commit_of_a_lost_member_is_refused_with_advice(world, cluster):
    """Nothing is sent; the text says what to change."""
    join(world)
    lost = HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    cluster[0].on(HeartbeatRequest, lost)
    world.advance(3_000)

    with pytest.raises(KafkaError, match=r"max\.poll\.interval\.ms"):
        world.run(world.core.commit({FIRST: OffsetAndMetadata(1)}, world.deadline()))


def test_fenced_member_is_told(world, cluster):
    """FENCED_INSTANCE_ID ends the membership with an error in poll."""
    join(world)
    cluster[0].on(HeartbeatRequest, HeartbeatResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
    world.advance(3_000)

    with pytest.raises(KafkaError, match="FENCED_INSTANCE_ID"):
        world.poll()


def test_member_that_does_not_poll_leaves(runtime, cluster, journal):
    """After max.poll.interval.ms without a poll; the next poll tells of the loss."""
    world = ConsumerWorld(runtime, cluster, group_id="g", max_poll_interval_ms=10_000)
    world.subscribe(journal)
    join(world)
    world.advance(13_000)
    assert len(cluster[0].sent(LeaveGroupRequest)) == 1
    world.poll(100)

    assert journal.events[1:] == [("lost", [0, 1]), ("assigned", [0, 1])]


def test_coordinator_that_moved_is_looked_for_again(runtime, journal):
    """NOT_COORDINATOR on a heartbeat; the next one goes to the new coordinator."""
    cluster = MockCluster(runtime, 2)
    cluster.topics["pages"] = 2
    world = ConsumerWorld(runtime, cluster, group_id="g")
    world.subscribe(journal)
    join(world)
    cluster[0].on(HeartbeatRequest, HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR))
    cluster.coordinator = 1
    world.advance(6_100)

    assert len(cluster[1].sent(HeartbeatRequest)) == 1
    assert journal.events == [("assigned", [0, 1])]


@pytest.mark.parametrize(
    "answer",
    [
        JoinGroupResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID),
        JoinGroupResponse(error_code=ErrorCode.NOT_COORDINATOR),
        HANG_UP,
    ],
    ids=["loading", "unknown member", "not coordinator", "hang up"],
)
def test_join_is_repeated_after_what_may_pass(world, cluster, answer):
    """The member ends up with its partitions."""
    cluster[0].on(JoinGroupRequest, answer, world.join)
    join(world)


@pytest.mark.parametrize(
    "answer",
    [
        SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS),
        SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID),
        HANG_UP,
    ],
    ids=["rebalance", "unknown member", "hang up"],
)
def test_sync_that_fails_joins_again(world, cluster, answer):
    """The group may change while a member fetches its share."""
    cluster[0].on(SyncGroupRequest, answer, world.sync)
    join(world)


def test_group_that_refuses_the_member_is_told(world, cluster):
    """An error that stays comes out of poll."""
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    cluster[0].on(JoinGroupRequest, JoinGroupResponse(error_code=code))

    with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED: group g"):
        world.poll()


def test_poll_ends_in_time_while_the_group_waits(world, cluster):
    """A join that takes long goes on in the background."""
    cluster[0].on(JoinGroupRequest, "hold")
    before = world.runtime.clock.monotonic_ms()
    assert world.poll(300) == []
    assert world.runtime.clock.monotonic_ms() - before < 310
    (held,) = cluster[0].held
    held.answer(world.join(held.request, 9))
    cluster[0].on(JoinGroupRequest, world.join)
    join(world)


def test_missing_coordinator_is_waited_for(world, cluster):
    """COORDINATOR_NOT_AVAILABLE while the offsets topic is made."""
    default = cluster[0]._find_coordinator

    def unavailable(request, version):
        answer = default(request, version)
        answer.coordinators[0].error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return answer

    cluster[0].on(FindCoordinatorRequest, unavailable, unavailable, default)
    join(world)

    assert isinstance(default(FindCoordinatorRequest(), 0), FindCoordinatorResponse)


def test_commit_is_repeated_after_what_may_pass(world, cluster):
    """The commit is repeated until it is done."""
    join(world)
    cluster[0].on(
        OffsetCommitRequest,
        world.refuse_commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        world.refuse_commit(ErrorCode.NOT_COORDINATOR),
        world.commit,
    )
    world.run(world.core.commit({FIRST: OffsetAndMetadata(5)}, world.deadline(5000)))

    assert world.committed == {FIRST: 5}


def test_commit_is_made_as_the_member(world, cluster):
    """Generation and member id let the coordinator refuse what is old."""
    world.write("a")
    join(world)
    world.poll(500)
    world.run(world.core.commit(None, world.deadline()))
    (request,) = cluster[0].sent(OffsetCommitRequest)

    assert (request.generation_id_or_member_epoch, request.member_id) == (1, "member-0")
    assert world.committed == {FIRST: 1, SECOND: 0}


def test_automatic_commit_leaves_out_what_is_just_returned(runtime, cluster):
    """A poll commits the positions from before its own records."""
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 1000, "group_id": "g"}
    world = ConsumerWorld(runtime, cluster, max_poll_records=1, **settings)
    world.write("a", "b", "c")
    world.subscribe()
    while not (first := world.values(100)):
        pass
    world.advance(1001)
    second = world.values(100)
    world.advance(10)

    assert (first, second) == (["a"], ["b"])
    assert world.committed[FIRST] == 1


def test_closing_commits_and_leaves(runtime, cluster):
    """Others get the partitions at once, and go on where this member was."""
    world = ConsumerWorld(runtime, cluster, group_id="g", enable_auto_commit=True)
    world.write("a")
    world.subscribe()
    while not world.values(100):
        pass
    world.run(world.core.close(world.deadline()))

    assert world.committed[FIRST] == 1
    assert len(cluster[0].sent(LeaveGroupRequest)) == 1


def test_static_member_does_not_leave(runtime, cluster):
    """It is expected to come back within the session (KIP-345)."""
    world = ConsumerWorld(runtime, cluster, group_id="g", group_instance_id="one")
    world.subscribe()
    join(world)
    world.run(world.core.close(world.deadline()))

    assert cluster[0].sent(LeaveGroupRequest) == []
    assert cluster[0].sent(JoinGroupRequest)[0].group_instance_id == "one"


def test_closing_does_not_wait_for_a_dead_coordinator(world, cluster):
    """close() keeps its time limit."""
    join(world)
    cluster[0].stop()
    before = world.runtime.clock.monotonic_ms()
    world.run(world.core.close(world.deadline(500)))

    assert world.runtime.clock.monotonic_ms() - before <= 600


def test_cooperative_member_lets_go_only_of_what_moves(runtime, cluster, journal):
    """It revokes what was given to others, and joins again so that they can have it."""
    strategy = {"partition_assignment_strategy": "cooperative-sticky"}
    world = ConsumerWorld(runtime, cluster, group_id="g", **strategy)
    world.subscribe(journal)
    join(world)
    rebalance = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    cluster[0].on(HeartbeatRequest, rebalance, HeartbeatResponse())
    cluster[0].on(SyncGroupRequest, world.give(0))
    world.advance(3_000)
    world.poll(200)

    assert journal.events[:2] == [("assigned", [0, 1]), ("revoked", [1])]
    assert set(map(str, journal.events[2:])) == {str(("assigned", []))}
    assert list(world.core.subscriptions.assigned) == [FIRST]


def test_what_was_fetched_for_lost_partitions_is_not_read(world, cluster):
    """Others may read it by now; a transaction could not tell the group who reads it here."""
    join(world)
    lost = HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    cluster[0].on(HeartbeatRequest, lost, HeartbeatResponse())
    cluster[0].on(SyncGroupRequest, world.give(1))
    world.write("late")
    world.advance(3_000)

    assert world.values(500) == []
    assert list(world.core.subscriptions.assigned) == [SECOND]


def test_cooperative_member_that_is_unknown_when_it_joins_has_lost_everything(
    runtime, cluster, journal
):
    """Its positions begin anew from the commits: others may have had the partitions meanwhile."""
    strategy = {"partition_assignment_strategy": "cooperative-sticky"}
    world = ConsumerWorld(runtime, cluster, group_id="g", **strategy)
    world.subscribe(journal)
    join(world)
    rebalance = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    cluster[0].on(HeartbeatRequest, rebalance, HeartbeatResponse())
    unknown = JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    cluster[0].on(JoinGroupRequest, unknown, world.join)
    world.committed[FIRST] = 1
    world.advance(3_000)
    world.poll(200)
    world.write("read by others", "not read yet")

    assert world.values(500) == ["not read yet"]
    assert journal.events[1:] == [("lost", [0, 1]), ("assigned", [0, 1])]


def test_old_coordinator_is_told_which_member_leaves(runtime, cluster):
    """Before version 3 a request has one member."""
    cluster[0].versions[LeaveGroupRequest.api_key] = (0, 2)
    world = ConsumerWorld(runtime, cluster, group_id="g")
    world.subscribe()
    join(world)
    world.run(world.core.close(world.deadline()))

    (request,) = cluster[0].sent(LeaveGroupRequest)
    assert (request.group_id, request.member_id) == ("g", "member-0")


def test_coordinator_that_is_silent_for_a_session_is_looked_for_again(runtime):
    """The group may have moved to another broker."""
    cluster = MockCluster(runtime, 2)
    cluster.topics["pages"] = 2
    world = ConsumerWorld(runtime, cluster, group_id="g", session_timeout_ms=6000)
    world.subscribe()
    join(world)
    cluster.coordinator = 1
    asked = sum(len(broker.sent(FindCoordinatorRequest)) for broker in cluster.brokers.values())
    for broker in cluster.brokers.values():
        broker.on(
            HeartbeatRequest, HeartbeatResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        )
    world.advance(20_000)

    found = sum(len(broker.sent(FindCoordinatorRequest)) for broker in cluster.brokers.values())
    assert found > asked
    assert cluster[1].sent(HeartbeatRequest)


def test_slow_member_leaves_by_a_coordinator_that_may_have_moved(runtime, cluster, journal):
    """A refusal of that is not the end: it joins again when it polls."""
    world = ConsumerWorld(runtime, cluster, group_id="g", max_poll_interval_ms=10_000)
    world.subscribe(journal)
    join(world)
    refusal = LeaveGroupResponse(error_code=ErrorCode.NOT_COORDINATOR)
    cluster[0].on(LeaveGroupRequest, HANG_UP, refusal)
    asked = len(cluster[0].sent(FindCoordinatorRequest))
    world.advance(30_000)
    journal.events.clear()
    join_again = [world.poll(100) for _ in range(20)]

    assert not any(join_again)
    assert journal.events == [("lost", [0, 1]), ("assigned", [0, 1])]
    assert len(cluster[0].sent(FindCoordinatorRequest)) > asked


def test_leader_learns_of_topics_that_only_others_want(world, cluster):
    """The leader has to divide those topics as well."""
    cluster.topics["orders"] = 3

    def join_with_another(request, version):
        response = world.join(request, version)
        if not response.error_code:
            metadata = encode_subscription(["orders"], [], -1, None)
            other = JoinGroupResponseMember(member_id="other", metadata=metadata)
            response.members.append(other)
        return response

    cluster[0].on(JoinGroupRequest, join_with_another)
    join(world)

    given = {
        each.member_id: decode_assignment(each.assignment).assigned_partitions
        for each in cluster[0].sent(SyncGroupRequest)[-1].assignments
    }
    assert [(each.topic, each.partitions) for each in given["other"]] == [("orders", [0, 1, 2])]


def test_commit_to_a_coordinator_that_hangs_up_is_sent_to_the_next(runtime):
    """It is looked up again."""
    cluster = MockCluster(runtime, 2)
    cluster.topics["pages"] = 2
    world = ConsumerWorld(runtime, cluster, group_id="g")
    world.assign(0)

    def move(request, version):
        cluster.coordinator = 1
        return HANG_UP

    cluster[0].on(OffsetCommitRequest, move)
    world.run(world.core.commit({FIRST: OffsetAndMetadata(5)}, world.deadline(5000)))

    assert world.committed == {FIRST: 5}
    assert len(cluster[1].sent(OffsetCommitRequest)) == 1


def test_committed_offsets_are_asked_of_the_coordinator_that_is_there(runtime):
    """One that says that it is none any more is asked no more."""
    cluster = MockCluster(runtime, 2)
    cluster.topics["pages"] = 2
    world = ConsumerWorld(runtime, cluster, group_id="g")
    world.committed[FIRST] = 7

    def move(request, version):
        cluster.coordinator = 1
        group = OffsetFetchResponseGroup(group_id="g", error_code=ErrorCode.NOT_COORDINATOR)
        return OffsetFetchResponse(groups=[group])

    cluster[0].on(OffsetFetchRequest, move)
    found = world.run(world.core.committed([FIRST], world.deadline(5000)))

    assert {partition: each.offset for partition, each in found.items()} == {FIRST: 7}


def test_listener_without_a_word_about_losses_hears_of_a_revocation():
    """That is what the base class makes of it."""
    heard: list[object] = []

    class Listener(RebalanceListener):
        """Hears of what goes."""

        def on_partitions_revoked(self, partitions):
            heard.append(partitions)

    Listener().on_partitions_lost([FIRST])
    Listener().on_partitions_assigned([SECOND])
    assert heard == [[FIRST]]


@pytest.mark.parametrize("instance_id", [None, "i"])
def test_commit_of_a_static_member_names_its_instance(runtime, cluster, instance_id):
    """The coordinator finds out by it which member took the place of another."""
    settings = {} if instance_id is None else {"group_instance_id": instance_id}
    world = ConsumerWorld(runtime, cluster, group_id="g", **settings)
    world.subscribe()
    join(world)
    world.run(world.core.commit({FIRST: OffsetAndMetadata(5)}, world.deadline()))

    (request,) = cluster[0].sent(OffsetCommitRequest)
    assert request.group_instance_id == instance_id
    assert request.generation_id_or_member_epoch == 1


def test_commit_of_a_static_member_needs_a_coordinator_that_knows_instances(runtime, cluster):
    """An older one would take it from whoever has the id."""
    world = ConsumerWorld(runtime, cluster, group_id="g", group_instance_id="i")
    world.subscribe()
    join(world)
    cluster[0].versions[OffsetCommitRequest.api_key] = (0, 6)
    world.call(world.core.client.disconnect)
    world.advance(10)
    with pytest.raises(KafkaError) as caught:
        world.run(world.core.commit({FIRST: OffsetAndMetadata(5)}, world.deadline()))

    assert caught.value.error is ErrorCode.UNSUPPORTED_VERSION
    assert cluster[0].sent(OffsetCommitRequest) == []


def facts(world) -> dict[str, object]:
    """What a member tells of itself."""
    member = world.core.coordinator.member
    names = ["state", "generation", "member_id", "is_leader", "is_lost", "is_joining", "needs_join"]
    return {name: getattr(member, name) for name in [*names, "error"]}


@pytest.mark.parametrize("end", ["leaves", "is refused", "is lost"])
def test_member_that_is_not_in_the_group_any_more_is_as_one_that_never_was(
    world, cluster, runtime, end
):
    """Only a lost one knows that it was."""
    before = facts(ConsumerWorld(runtime, cluster, group_id="g"))
    cluster[0].on(JoinGroupRequest, world.join)
    assert (before["needs_join"], before["is_joining"]) == (True, False)
    if end == "is refused":
        refusal = JoinGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        cluster[0].on(JoinGroupRequest, world.join, refusal)
        with pytest.raises(KafkaError):
            world.poll()
    else:
        join(world)
        joined = facts(world)
        assert (joined["generation"], joined["is_leader"], joined["is_joining"]) == (1, True, False)
        if end == "leaves":
            world.run(world.core.unsubscribe())
        else:
            lost = HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
            cluster[0].on(HeartbeatRequest, lost)
            world.advance(3_000)

    assert facts(world) == {**before, "is_lost": end == "is lost"}


def test_lost_member_sends_no_heartbeats_and_a_new_one_does(world, cluster):
    """A member that has left sends none; each other sends one every heartbeat.interval.ms."""
    join(world)
    lost = HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    cluster[0].on(HeartbeatRequest, lost, HeartbeatResponse())
    counts = []

    def count() -> None:
        before = len(cluster[0].sent(HeartbeatRequest))
        world.advance(9_100)
        counts.append(len(cluster[0].sent(HeartbeatRequest)) - before)

    count()
    join(world)
    poll_until_stable(world)
    count()
    world.run(world.core.unsubscribe())
    count()
    world.subscribe()
    join(world)
    count()

    assert counts == [1, 3, 0, 3]


def poll_until_stable(world) -> None:
    for _ in range(20):
        world.poll(10)
        if not facts(world)["needs_join"]:
            return
    raise AssertionError(facts(world))


def test_member_that_was_lost_and_is_back_gives_up_as_any_other(world, cluster, journal):
    """Its partitions are revoked, and not lost once more."""
    join(world)
    lost = HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    rebalance = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    cluster[0].on(HeartbeatRequest, lost, rebalance, HeartbeatResponse())
    for _ in range(2):
        world.advance(3_000)
        poll_until_stable(world)
        world.poll(100)

    assert [name for name, _ in journal.events] == [
        "assigned",
        "lost",
        "assigned",
        "revoked",
        "assigned",
    ]


@pytest.mark.parametrize(
    ("code", "ids"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, ["", "member-0", "", "member-1"]),
        (ErrorCode.ILLEGAL_GENERATION, ["", "member-0", "member-0"]),
    ],
)
@pytest.mark.parametrize("kind", [HeartbeatRequest, SyncGroupRequest])
def test_member_keeps_the_id_that_the_coordinator_knows(world, cluster, code, ids, kind):
    """Only a generation that is over leaves it as it was."""
    if kind is HeartbeatRequest:
        join(world)
        cluster[0].on(kind, HeartbeatResponse(error_code=code), HeartbeatResponse())
        world.advance(3_000)
    else:
        cluster[0].on(kind, SyncGroupResponse(error_code=code), world.sync)
    poll_until_stable(world)

    assert [r.member_id for r in cluster[0].sent(JoinGroupRequest)] == ids


def test_id_that_comes_with_the_first_answer_is_used(world, cluster):
    """Older coordinators ask for no second round."""

    def admit(request, version):
        request.member_id = request.member_id or "given"
        return world.join(request, version)

    cluster[0].on(JoinGroupRequest, admit)
    join(world)
    world.advance(3_000)

    assert len(cluster[0].sent(JoinGroupRequest)) == 1
    assert [r.member_id for r in cluster[0].sent(HeartbeatRequest)] == ["given"]


def test_member_joins_the_group_of_the_coordinator_that_is_there(runtime, journal):
    """One that says that it is none any more is asked no more."""
    cluster = MockCluster(runtime, 2)
    cluster.topics["pages"] = 2
    world = ConsumerWorld(runtime, cluster, group_id="g")

    def move(request, version):
        cluster.coordinator = 1
        return JoinGroupResponse(error_code=ErrorCode.NOT_COORDINATOR)

    cluster[0].on(JoinGroupRequest, move)
    world.subscribe(journal)
    join(world)

    assert len(cluster[0].sent(JoinGroupRequest)) == 1


def test_connection_that_is_lost_in_a_rebalance_costs_no_partition(runtime, cluster, journal):
    """A cooperative member asks again, and reads on."""
    strategy = {"partition_assignment_strategy": "cooperative-sticky"}
    world = ConsumerWorld(runtime, cluster, group_id="g", **strategy)
    world.subscribe(journal)
    join(world)
    rebalance = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    cluster[0].on(HeartbeatRequest, rebalance, HeartbeatResponse())
    cluster[0].on(JoinGroupRequest, HANG_UP, world.join)
    world.advance(3_000)
    world.poll(1000)

    assert facts(world)["generation"] == 2
    assert "lost" not in [name for name, _ in journal.events]


@pytest.mark.parametrize("kind", [JoinGroupRequest, SyncGroupRequest])
def test_other_members_may_take_as_long_as_they_may_work(runtime, cluster, kind):
    """max.poll.interval.ms and a margin, whatever request.timeout.ms is."""
    settings = {"request_timeout_ms": 1000, "max_poll_interval_ms": 10_000}
    settings |= {"session_timeout_ms": 6000}
    world = ConsumerWorld(runtime, cluster, group_id="g", **settings)
    answer = world.join if kind is JoinGroupRequest else world.sync
    cluster[0].on(kind, *[answer] * (kind is JoinGroupRequest), "hold", answer)
    world.subscribe()
    for _ in range(12):
        world.poll(1000)
    (held,) = cluster[0].held
    held.answer(answer(held.request, 9))
    join(world)

    assert facts(world)["generation"] == 1
    assert cluster[0].sent(kind)[-1] is held.request


@pytest.mark.parametrize("instance_id", [None, "i"])
def test_static_member_names_its_instance_everywhere(runtime, cluster, instance_id):
    """The coordinator knows the member again by it, and finds out which one took its place."""
    settings = {} if instance_id is None else {"group_instance_id": instance_id}
    world = ConsumerWorld(runtime, cluster, group_id="g", **settings)
    world.subscribe()
    join(world)
    world.advance(3_100)

    for kind in (JoinGroupRequest, SyncGroupRequest, HeartbeatRequest):
        assert {r.group_instance_id for r in cluster[0].sent(kind)} == {instance_id}, kind


def test_leader_that_is_told_to_skip_the_assignment_sends_none(world, cluster):
    """A static leader that is back leaves its group as it was (KIP-814)."""

    def skip(request, version):
        response = world.join(request, version)
        response.skip_assignment = True
        return response

    member = DescribedGroupMember(member_assignment=world.give(0, 1).assignment)
    described = DescribeGroupsResponse(groups=[DescribedGroup(members=[member])])
    cluster[0].on(DescribeGroupsRequest, described)
    cluster[0].on(JoinGroupRequest, skip)
    cluster[0].on(SyncGroupRequest, world.give(0))
    join(world)

    assert [r.assignments for r in cluster[0].sent(SyncGroupRequest)] == [[]]


@pytest.mark.parametrize("version", [3, 5])
def test_coordinator_is_told_who_leaves_and_why(runtime, cluster, version):
    """From version 3 on a request has several members."""
    cluster[0].versions[LeaveGroupRequest.api_key] = (0, version)
    world = ConsumerWorld(runtime, cluster, group_id="g")
    world.subscribe()
    join(world)
    world.run(world.core.close(world.deadline()))

    (request,) = cluster[0].sent(LeaveGroupRequest)
    ((member,), group_id) = request.members, request.group_id
    assert (group_id, member.member_id) == ("g", "member-0")
    assert member.reason == ("the consumer is closed" if version == 5 else None)


@pytest.mark.parametrize("good", [0, 3])
def test_coordinator_is_looked_for_again_after_a_session_without_an_answer(runtime, cluster, good):
    """Counted from the join, or from the last heartbeat that was answered."""
    runtime.advance(3_600_000)
    world = ConsumerWorld(runtime, cluster, group_id="g", session_timeout_ms=6000)
    world.subscribe()
    join(world)
    before = len(cluster[0].sent(FindCoordinatorRequest))
    loading = HeartbeatResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    cluster[0].on(HeartbeatRequest, *[HeartbeatResponse()] * good, loading)
    counts = []
    for _ in range(good + 4):
        world.advance(3_000)
        counts.append(len(cluster[0].sent(FindCoordinatorRequest)) - before)

    assert counts == [0] * good + [0, 0, 0, 1]


def test_poll_that_waits_is_told_of_a_fenced_member_at_once(world, cluster):
    """The poll ends before its time is over."""
    join(world)
    fenced = HeartbeatResponse(error_code=ErrorCode.FENCED_INSTANCE_ID)
    cluster[0].on(HeartbeatRequest, fenced)
    cluster[0].on(FetchRequest, None)
    began_ms = world.runtime.clock.monotonic_ms()
    with pytest.raises(KafkaError, match="FENCED_INSTANCE_ID"):
        world.poll(60_000)

    assert world.runtime.clock.monotonic_ms() - began_ms <= 3_000


def test_application_polls_as_long_as_the_last_poll_is_not_too_long_ago(runtime):
    """The limit itself is inside."""
    watch = PollWatch(runtime.clock, 1000, "g")
    runtime.clock.advance(1000)
    assert not watch.is_over()
    runtime.clock.advance(1)
    assert watch.is_over()
    watch.note()

    assert not watch.is_over()


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.MEMBER_ID_REQUIRED,
    ],
)
def test_rounds_without_an_end_are_asked_for_slowly_and_told(runtime, cluster, code, caplog):
    """A few at once, as members come and go; a coordinator that goes on so is broken."""
    world = ConsumerWorld(runtime, cluster, group_id="g")
    cluster[0].on(JoinGroupRequest, JoinGroupResponse(error_code=code))
    world.subscribe()
    assert world.values(10_000) == []

    assert 10 < len(cluster[0].sent(JoinGroupRequest)) < 40
    (line,) = (r.getMessage() for r in caplog.records if "has failed for" in r.getMessage())
    assert line.startswith(
        f"the membership in group g has failed for 5 s, and is tried again: {code.name}"
    )
