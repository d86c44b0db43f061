"""Membership in consumer groups (KIP-848): heartbeats, reconciliation, fencing, leaving."""

from __future__ import annotations

import asyncio
import re
from uuid import UUID

import pytest
from consumer_world import ConsumerWorld, Journal
from mock_kafka import HANG_UP, Later, MockCluster

from ottla.clients.consumer.subscription_state import RebalanceKind
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.consumer_group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from ottla.protocol.fetch import FetchRequest
from ottla.protocol.metadata import MetadataRequest
from ottla.protocol.offsets import OffsetCommitRequest
from ottla.structs import TopicPartition

INTERVAL_MS = 1000


class Coordinator:
    """Gives `target` to its one member, in `epoch`; `errors` come first."""

    def __init__(self) -> None:
        self.epoch = 1
        self.target = [0, 1]
        self.errors: list[object] = []
        self.requests: list[ConsumerGroupHeartbeatRequest] = []
        self.topic_id = None
        self.others: dict[UUID, list[int]] = {}
        self.interval_ms = INTERVAL_MS

    def answer(self, request, version):
        self.requests.append(request)
        if self.errors:
            error = self.errors.pop(0)
            if error is HANG_UP:
                return HANG_UP
            return ConsumerGroupHeartbeatResponse(error_code=error)
        topics = [
            ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in [(self.topic_id, self.target), *self.others.items()]
        ]
        return ConsumerGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=self.epoch if request.member_epoch >= 0 else request.member_epoch,
            heartbeat_interval_ms=self.interval_ms,
            assignment=ConsumerGroupHeartbeatResponseAssignment(topic_partitions=topics),
        )


@pytest.fixture
def coordinator(cluster) -> Coordinator:
    coordinator = Coordinator()
    for broker in cluster.brokers.values():
        broker.on(ConsumerGroupHeartbeatRequest, coordinator.answer)
    return coordinator


@pytest.fixture
def journal() -> Journal:
    return Journal()


def new_world(runtime, cluster, coordinator, journal, **settings) -> ConsumerWorld:
    """A consumer that has subscribed to `pages`, and has its partitions."""
    world = ConsumerWorld(runtime, cluster, group_id="g", group_protocol="consumer", **settings)
    world.subscribe(journal)
    world.run(world.core.metadata.update(world.deadline()))
    coordinator.topic_id = world.core.metadata.cluster.topics["pages"].topic_id
    poll_for(world, {0, 1})
    return world


@pytest.fixture
def world(runtime, cluster, coordinator, journal) -> ConsumerWorld:
    return new_world(runtime, cluster, coordinator, journal)


def poll_for(world, numbers) -> None:
    for _ in range(40):
        world.poll(100)
        if {p.partition for p in world.core.subscriptions.assigned} == numbers:
            return
    raise AssertionError(world.core.subscriptions.assigned)


def test_member_joins_with_an_id_of_its_own_and_says_what_it_has(world, coordinator, journal):
    """Everything in the first heartbeat, and then only what is new."""
    world.poll(2500)
    first, second, third = coordinator.requests[:3]

    assert len(first.member_id) == 36
    assert (first.member_epoch, first.subscribed_topic_names) == (0, ["pages"])
    assert first.topic_partitions == []
    assert [topic.partitions for topic in second.topic_partitions] == [[0, 1]]
    assert (second.member_epoch, second.subscribed_topic_names) == (1, None)
    assert (third.topic_partitions, third.rebalance_timeout_ms) == (None, -1)
    assert journal.events == [("assigned", [0, 1])]


def test_member_gives_up_before_it_says_so(world, coordinator, journal):
    """The listener hears of it first; what stays is not touched."""
    coordinator.target = [1]
    poll_for(world, {1})
    world.poll(200)

    assert journal.events == [("assigned", [0, 1]), ("revoked", [0])]
    owned = [r.topic_partitions for r in coordinator.requests if r.topic_partitions]
    assert [topic.partitions for topic in owned[-1]] == [[1]]


@pytest.mark.parametrize("others", [{UUID(int=9): [0]}, {UUID(int=9): [0, 1], UUID(int=8): [3]}])
def test_partitions_that_were_never_owned_are_given_up_all_the_same(world, coordinator, others):
    """Their topic was deleted before its name was known, and the coordinator waits for that.

    A group whose topic was made again and again stood still for max.poll.interval.ms.
    """
    world.poll(2 * INTERVAL_MS)
    coordinator.others = others
    world.poll(2 * INTERVAL_MS)
    coordinator.requests.clear()
    coordinator.others = {}
    world.poll(3 * INTERVAL_MS)

    told = [r.topic_partitions for r in coordinator.requests if r.topic_partitions is not None]
    assert [[topic.partitions for topic in each] for each in told] == [[[0, 1]]]


@pytest.mark.parametrize("error", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_fenced_member_joins_anew(world, coordinator, journal, error):
    """Its partitions are lost; it comes with epoch 0 and the same id."""
    coordinator.errors.append(error)
    world.poll(INTERVAL_MS + 500)
    poll_for(world, {0, 1})

    assert journal.events == [("assigned", [0, 1]), ("lost", [0, 1]), ("assigned", [0, 1])]
    joins = [r for r in coordinator.requests if r.member_epoch == 0]
    assert len(joins) == 2
    assert joins[0].member_id == joins[1].member_id
    assert [r.subscribed_topic_names for r in joins] == [["pages"]] * 2
    assert [r.topic_partitions for r in joins] == [[]] * 2
    assert all(r.rebalance_timeout_ms > 0 for r in joins)
    coordinator.target = [0]
    poll_for(world, {0})
    assert journal.events[3:] == [("revoked", [1])], "it is a member as any other again"


def test_member_says_everything_after_a_lost_answer(world, coordinator):
    """Nobody knows what of the last heartbeat has arrived."""
    world.poll(200)
    coordinator.errors.append(HANG_UP)
    before = len(coordinator.requests)
    world.poll(2 * INTERVAL_MS + 500)

    again = coordinator.requests[before + 1]
    assert again.subscribed_topic_names == ["pages"]
    assert again.topic_partitions
    assert again.rebalance_timeout_ms > 0


def test_refusal_for_good_is_raised_by_poll(world, coordinator):
    """A final refusal is raised, and not tried again in silence."""
    coordinator.errors.append(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaError) as caught:
        world.poll(4 * INTERVAL_MS)
    assert caught.value.error is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_commit_is_tried_again_in_the_new_epoch(world, coordinator, cluster):
    """The epoch may change while the commit is under way."""
    answers = [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.NONE]
    seen = []

    def commit(request, version):
        seen.append(request.generation_id_or_member_epoch)
        coordinator.epoch = 2
        return world.commit(request, version) if len(seen) > 1 else refused(request)

    def refused(request):
        response = world.commit(request, 9)
        for topic in response.topics:
            for partition in topic.partitions:
                partition.error_code = answers[0]
        return response

    for broker in cluster.brokers.values():
        broker.on(OffsetCommitRequest, commit)
    offsets = {TopicPartition("pages", 0): OffsetAndMetadata(1)}
    world.run(world.core.commit(offsets, world.deadline(10_000)))
    assert seen == [1, 2]


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_member_says_that_it_leaves(runtime, cluster, coordinator, journal, instance, epoch):
    """A static one that it will be back; nothing goes on after that."""
    tasks = asyncio.all_tasks(runtime.scheduler.loop)
    world = new_world(runtime, cluster, coordinator, journal, group_instance_id=instance)
    world.run(world.core.close(world.deadline()))
    world.advance(100)

    assert asyncio.all_tasks(runtime.scheduler.loop) <= tasks
    assert coordinator.requests[-1].member_epoch == epoch
    assert coordinator.requests[-1].instance_id == instance


def test_member_that_polls_too_rarely_leaves(runtime, cluster, coordinator, journal):
    """It joins as somebody new with the next poll."""
    world = new_world(runtime, cluster, coordinator, journal, max_poll_interval_ms=5000)
    world.advance(8000)
    left = coordinator.requests[-1]
    assert left.member_epoch == -1
    poll_for(world, {0, 1})
    assert coordinator.requests[-1].member_id != left.member_id
    assert ("lost", [0, 1]) in journal.events


def test_partitions_of_a_topic_that_was_created_again_are_others(runtime, cluster, journal):
    """They are revoked and assigned, and read from where the new topic begins."""
    cluster.topic_ids["pages"] = UUID(int=1)
    coordinator = Coordinator()
    cluster[0].on(ConsumerGroupHeartbeatRequest, coordinator.answer)
    world = new_world(runtime, cluster, coordinator, journal)
    world.write("old 0", "old 1", epoch=0)
    assert world.values(2000) == ["old 0", "old 1"]
    cluster.topic_ids["pages"] = coordinator.topic_id = UUID(int=2)
    world.logs = {0: [], 1: []}
    for number in range(3):
        world.write(f"new {number}", epoch=0)
    found = []
    for _ in range(40):
        found += world.values(200)

    assert found == ["new 0", "new 1", "new 2"]
    assert journal.events == [("assigned", [0, 1]), ("revoked", [0, 1]), ("assigned", [0, 1])]


@pytest.mark.parametrize(
    "error",
    [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID, HANG_UP],
    ids=["loading", "unknown", "hang up"],
)
def test_first_heartbeat_is_repeated_after_what_may_pass(
    runtime, cluster, coordinator, journal, error
):
    """Until the member has its partitions; the listener hears of nothing else."""
    coordinator.errors += [error, error]
    new_world(runtime, cluster, coordinator, journal)

    assert [request.member_epoch for request in coordinator.requests[:3]] == [0, 0, 0]
    assert journal.events == [("assigned", [0, 1])]


def test_first_heartbeat_goes_to_the_coordinator_that_is_there(runtime, coordinator, journal):
    """One that says that it is none any more is asked no more."""
    cluster = MockCluster(runtime, 2)
    cluster.topics["pages"] = 2
    cluster.topic_ids["pages"] = UUID(int=1)
    for broker in cluster.brokers.values():
        broker.on(ConsumerGroupHeartbeatRequest, coordinator.answer)

    def move(request, version):
        cluster.coordinator = 1
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)

    cluster[0].on(ConsumerGroupHeartbeatRequest, move)
    new_world(runtime, cluster, coordinator, journal)

    assert len(cluster[0].sent(ConsumerGroupHeartbeatRequest)) == 1
    assert journal.events == [("assigned", [0, 1])]


def test_member_that_may_not_join_is_told(runtime, cluster, coordinator, journal):
    """The first poll raises the refusal."""
    coordinator.errors.append(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaError) as caught:
        new_world(runtime, cluster, coordinator, journal)

    assert caught.value.error is ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert len(coordinator.requests) == 1


def test_partitions_of_a_topic_whose_id_is_not_known_yet_are_taken_later(
    runtime, cluster, coordinator, journal
):
    """The metadata bring it; until then they are asked for with pauses, and polls go on."""
    world = new_world(runtime, cluster, coordinator, journal)
    asked = len(cluster[0].sent(MetadataRequest))
    stranger = UUID(int=9)
    coordinator.topic_id, coordinator.epoch = stranger, 2
    world.poll(10 * INTERVAL_MS)
    assert world.core.subscriptions.assigned == {}
    assert 1 < len(cluster[0].sent(MetadataRequest)) - asked < 150
    cluster.topic_ids["pages"] = stranger
    poll_for(world, {0, 1})

    assert [name for name, _ in journal.events] == ["assigned", "revoked", "assigned"]


def test_metadata_that_do_not_come_are_no_error_of_the_poll(runtime, cluster, coordinator, journal):
    """The partitions are taken when they come."""
    world = new_world(runtime, cluster, coordinator, journal)
    stranger = UUID(int=9)
    coordinator.topic_id, coordinator.epoch = stranger, 2
    metadata = cluster[0].answers[MetadataRequest]
    cluster[0].on(MetadataRequest, None)
    world.poll(120 * INTERVAL_MS)
    cluster.topic_ids["pages"] = stranger
    cluster[0].on(MetadataRequest, metadata)
    world.poll(60_000)

    assert {p.partition for p in world.core.subscriptions.assigned} == {0, 1}


def facts(world) -> dict[str, object]:
    """What a member tells of itself."""
    member = world.core.coordinator.member
    names = ["epoch", "target", "owned", "is_lost", "needs_join", "error", "is_joined"]
    generation = {"generation": member.membership.generation, "is_joining": member.is_joining}
    return {name: getattr(member, name) for name in names} | generation


@pytest.mark.parametrize("is_lost", [False, True])
def test_member_that_is_not_in_the_group_any_more_is_as_one_that_never_was(
    runtime, cluster, coordinator, journal, is_lost
):
    """Only a lost one knows that it was."""
    before = facts(ConsumerWorld(runtime, cluster, group_id="g", group_protocol="consumer"))
    world = new_world(runtime, cluster, coordinator, journal)
    joined = facts(world)
    if is_lost:
        coordinator.errors.append(ErrorCode.FENCED_MEMBER_EPOCH)
        world.advance(2 * INTERVAL_MS)
    else:
        world.run(world.core.unsubscribe())

    assert (joined["epoch"], joined["generation"], joined["is_joining"]) == (1, 1, False)
    assert (before["epoch"], before["generation"], before["is_joining"]) == (0, -1, False)
    assert (before["needs_join"], before["is_lost"]) == (True, False)
    assert facts(world) == {**before, "is_lost": is_lost}


def test_member_that_has_left_sends_no_heartbeats_until_it_is_back(world, coordinator):
    """Then one in each interval, as before."""
    counts = []

    def count() -> None:
        before = len(coordinator.requests)
        world.advance(10 * INTERVAL_MS)
        counts.append(len(coordinator.requests) - before)

    count()
    world.run(world.core.unsubscribe())
    count()
    left = len(coordinator.requests)
    world.subscribe()
    poll_for(world, {0, 1})
    world.poll(10)
    count()
    back = coordinator.requests[left]
    assert (back.subscribed_topic_names, back.topic_partitions) == (["pages"], [])
    assert back.rebalance_timeout_ms > 0

    assert counts[1] == 0
    assert 10 <= counts[0] <= 11
    assert 10 <= counts[2] <= 11


def subscriptions(coordinator) -> list[list[str]]:
    """The subscriptions that heartbeats have told, in turn."""
    return [r.subscribed_topic_names for r in coordinator.requests if r.subscribed_topic_names]


@pytest.mark.parametrize("under_way", [False, True], ids=["at rest", "while one is under way"])
def test_other_subscription_is_told_with_a_heartbeat_at_once(
    world, coordinator, cluster, under_way
):
    """It does not wait for its time, nor for metadata."""
    cluster[0].on(MetadataRequest, None)
    world.advance(200)
    if under_way:
        cluster[0].on(ConsumerGroupHeartbeatRequest, "hold")
        world.advance(INTERVAL_MS)
    world.call(world.core.subscribe, ["orders"], None)
    assert not world.core.is_settled
    assert world.core.coordinator.member.needs_join
    cluster[0].on(ConsumerGroupHeartbeatRequest, coordinator.answer)
    if under_way:
        (held,) = cluster[0].held
        held.answer(coordinator.answer(held.request, 1))
    world.advance(50)

    assert subscriptions(coordinator) == [["pages"], ["orders"]]


def test_topic_that_fits_a_pattern_is_told_with_a_heartbeat_at_once(runtime, cluster, coordinator):
    """The heartbeat goes as soon as the metadata have the topic."""
    world = ConsumerWorld(runtime, cluster, group_id="g", group_protocol="consumer")
    world.run(world.core.subscribe_pattern(re.compile("p.*"), None, world.deadline()))
    coordinator.topic_id = world.core.metadata.cluster.topics["pages"].topic_id
    poll_for(world, {0, 1})
    world.poll(200)
    cluster.topics["posts"] = 1
    world.run(world.core.metadata.update(world.deadline()))
    world.advance(50)

    assert subscriptions(coordinator) == [["pages"], ["pages", "posts"]]


def test_waiting_poll_takes_what_a_heartbeat_gives_back(world, coordinator):
    """It does not wait for its own time: after a loss, and after another assignment."""
    for _ in range(2):
        began_ms = world.runtime.clock.monotonic_ms()
        if began_ms and not coordinator.errors:
            coordinator.errors.append(ErrorCode.FENCED_MEMBER_EPOCH)
        world.runtime.scheduler.call_later(1500, lambda: world.write("late", partition=1))
        assert world.values(60_000)[-1] == "late"
        assert world.runtime.clock.monotonic_ms() - began_ms < 2500
    coordinator.target = [0]
    poll_for(world, {0})
    coordinator.target = [0, 1]
    began_ms = world.runtime.clock.monotonic_ms()

    assert "late" in world.values(60_000), "there are no commits"
    assert world.runtime.clock.monotonic_ms() - began_ms < 1500


def test_waiting_poll_is_told_of_a_loss_at_once(world, coordinator, cluster):
    """The poll ends before its time is over; nothing else wakes it."""
    cluster[0].on(FetchRequest, None)
    world.advance(600)
    coordinator.errors.append(ErrorCode.FENCED_MEMBER_EPOCH)
    began_ms = world.runtime.clock.monotonic_ms()
    event = world.run(world.core.poll(world.deadline(60_000)))

    assert event.kind is RebalanceKind.LOST
    assert world.runtime.clock.monotonic_ms() - began_ms < 1500


def test_waiting_poll_is_told_of_a_refusal_at_once(world, coordinator, cluster):
    """The poll ends before its time is over; nothing else wakes it."""
    cluster[0].on(FetchRequest, None)
    world.advance(600)
    coordinator.errors.append(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    began_ms = world.runtime.clock.monotonic_ms()
    with pytest.raises(KafkaError):
        world.poll(60_000)

    assert world.runtime.clock.monotonic_ms() - began_ms < 1500


def test_heartbeat_goes_to_the_coordinator_that_is_there(runtime, coordinator, journal):
    """One that says that it is none any more is asked no more."""
    cluster = MockCluster(runtime, 2)
    cluster.topics["pages"] = 2
    for broker in cluster.brokers.values():
        broker.on(ConsumerGroupHeartbeatRequest, coordinator.answer)
    world = new_world(runtime, cluster, coordinator, journal)
    coordinator.errors.append(ErrorCode.NOT_COORDINATOR)
    cluster.coordinator = 1
    world.advance(3 * INTERVAL_MS)

    assert cluster[1].sent(ConsumerGroupHeartbeatRequest)
    assert journal.events == [("assigned", [0, 1])]


def test_assignor_of_the_broker_is_named_once(runtime, cluster, coordinator, journal):
    """Only the first heartbeat names the assignor."""
    world = new_world(runtime, cluster, coordinator, journal, group_remote_assignor="range")
    world.poll(2 * INTERVAL_MS)

    assert [r.server_assignor for r in coordinator.requests[:3]] == ["range", None, None]


def test_names_that_come_with_metadata_are_used_at_once(runtime, cluster, coordinator, journal):
    """Partitions whose topic was not known are taken without another heartbeat."""
    world = new_world(runtime, cluster, coordinator, journal)
    coordinator.topic_id, coordinator.epoch = UUID(int=9), 2
    poll_for(world, set())
    cluster[0].on(ConsumerGroupHeartbeatRequest, None)
    world.poll(5 * INTERVAL_MS)
    cluster.topic_ids["pages"] = UUID(int=9)
    world.run(world.core.metadata.update(world.deadline()))
    world.poll(10)

    assert {p.partition for p in world.core.subscriptions.assigned} == {0, 1}


def test_member_that_knows_its_topics_asks_for_no_metadata(world, cluster):
    """Heartbeats that bring nothing new need none."""
    before = len(cluster[0].sent(MetadataRequest))
    world.poll(10 * INTERVAL_MS)

    assert len(cluster[0].sent(MetadataRequest)) == before


def test_partition_of_a_topic_that_was_created_again_is_not_paused(runtime, cluster, journal):
    """It has nothing of the one of the same name."""
    cluster.topic_ids["pages"] = UUID(int=1)
    coordinator = Coordinator()
    cluster[0].on(ConsumerGroupHeartbeatRequest, coordinator.answer)
    world = new_world(runtime, cluster, coordinator, journal)
    world.call(world.core.pause, list(world.core.subscriptions.assigned), True)
    cluster.topic_ids["pages"] = coordinator.topic_id = UUID(int=2)
    world.run(world.core.metadata.update(world.deadline()))
    for _ in range(20):
        world.poll(100)

    assert len(journal.events) == 3
    assert not any(state.is_paused for state in world.core.subscriptions.assigned.values())


@pytest.mark.parametrize(
    ("code", "tries", "least_ms"),
    [(ErrorCode.STALE_MEMBER_EPOCH, 5, 1000), (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 1, 0)],
)
def test_commit_that_is_refused_again_and_again_is_an_error(world, cluster, code, tries, least_ms):
    """A heartbeat may bring a newer epoch between the tries; other refusals are final."""
    cluster[0].on(OffsetCommitRequest, world.refuse_commit(code))
    began_ms = world.runtime.clock.monotonic_ms()
    offsets = {TopicPartition("pages", 0): OffsetAndMetadata(1)}
    with pytest.raises(KafkaError) as caught:
        world.run(world.core.commit_once(offsets, world.deadline(60_000)))

    assert caught.value.error is code
    assert len(cluster[0].sent(OffsetCommitRequest)) == tries
    assert least_ms <= world.runtime.clock.monotonic_ms() - began_ms < 3000


def test_commit_with_a_stale_epoch_keeps_to_its_time(world, cluster):
    """It is not tried again when that is over."""
    late = world.refuse_commit(ErrorCode.STALE_MEMBER_EPOCH)
    cluster[0].on(OffsetCommitRequest, lambda request, v: Later(500, late(request, v)))
    offsets = {TopicPartition("pages", 0): OffsetAndMetadata(1)}
    with pytest.raises(KafkaError):
        world.run(world.core.commit_once(offsets, world.deadline(100)))

    assert len(cluster[0].sent(OffsetCommitRequest)) == 1


def test_member_that_is_closed_while_it_joins_leaves(runtime, cluster, coordinator, journal):
    """The coordinator has taken it in: others would wait for its session to end."""
    cluster[0].on(ConsumerGroupHeartbeatRequest, "hold", coordinator.answer)
    world = ConsumerWorld(runtime, cluster, group_id="g", group_protocol="consumer")
    world.subscribe(journal)
    world.poll(100)
    (held,) = cluster[0].held
    assert held.request.member_epoch == 0
    world.run(world.core.close(world.deadline()))

    (left,) = coordinator.requests
    assert (left.member_id, left.member_epoch) == (held.request.member_id, -1)


@pytest.mark.parametrize(
    "error",
    [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, HANG_UP],
    ids=["loading", "moved", "hang up"],
)
def test_heartbeats_that_fail_are_repeated_with_growing_pauses(world, coordinator, error):
    """A coordinator that is about to come back is not asked hundreds of times a second."""
    before = len(coordinator.requests)
    coordinator.errors = [error] * 10_000
    world.poll(10_000)

    assert 5 < len(coordinator.requests) - before < 30
    coordinator.errors.clear()
    world.poll(2 * INTERVAL_MS)
    assert {p.partition for p in world.core.subscriptions.assigned} == {0, 1}


def test_refusal_for_good_is_not_asked_for_at_once_again(world, coordinator):
    """Each poll raises it, and the coordinator has its peace between them."""
    before = len(coordinator.requests)
    coordinator.errors = [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 10_000
    for _ in range(10):
        with pytest.raises(KafkaError, match="group"):
            world.poll(10_000)
    world.advance(1000)

    assert len(coordinator.requests) - before < 20


def test_stale_commit_that_is_repeated_does_not_undo_a_later_one(world, coordinator, cluster):
    """The epoch changes while the first one is under way."""
    stale = world.refuse_commit(ErrorCode.STALE_MEMBER_EPOCH)
    cluster[0].on(OffsetCommitRequest, stale, world.commit)
    place = TopicPartition("pages", 0)
    first = world.core.commit_once({place: OffsetAndMetadata(1)}, world.deadline(10_000))
    task = world.runtime.scheduler.spawn(first, "first")
    world.advance(10)
    world.run(world.core.commit({place: OffsetAndMetadata(5)}, world.deadline(10_000)))
    world.advance(5000)

    assert task.result() is None
    assert world.committed == {place: 5}


@pytest.mark.parametrize("interval_ms", [0, -1, -(2**31)])
def test_heartbeats_have_pauses_whatever_the_coordinator_says(
    runtime, cluster, coordinator, journal, interval_ms
):
    """Its interval may be none."""
    world = new_world(runtime, cluster, coordinator, journal)
    coordinator.interval_ms = interval_ms
    world.poll(INTERVAL_MS)
    count = len(coordinator.requests)
    world.poll(5000)

    assert 10 < len(coordinator.requests) - count <= 55


def test_member_that_gets_no_epoch_asks_slowly(runtime, cluster):
    """An answer without an error, and without a membership."""
    refusal = ConsumerGroupHeartbeatResponse(member_epoch=0, heartbeat_interval_ms=1000)
    cluster[0].on(ConsumerGroupHeartbeatRequest, refusal)
    world = ConsumerWorld(runtime, cluster, group_id="g", group_protocol="consumer")
    world.subscribe()
    world.poll(5000)

    assert 3 < len(cluster[0].sent(ConsumerGroupHeartbeatRequest)) < 20
