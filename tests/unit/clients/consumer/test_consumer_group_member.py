"""Membership in consumer groups (KIP-848): heartbeats, reconciliation, fencing, leaving."""

from __future__ import annotations

from uuid import UUID

import pytest
from consumer_world import ConsumerWorld
from mock_kafka import HANG_UP, MockCluster

from ottla.clients.consumer.subscription_state import RebalanceListener
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.consumer_group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
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

    def answer(self, request, version):
        self.requests.append(request)
        if self.errors:
            error = self.errors.pop(0)
            if error is HANG_UP:
                return HANG_UP
            return ConsumerGroupHeartbeatResponse(error_code=error)
        topics = [
            ConsumerGroupHeartbeatResponseTopicPartitions(
                topic_id=self.topic_id, partitions=self.target
            )
        ]
        return ConsumerGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=self.epoch if request.member_epoch >= 0 else request.member_epoch,
            heartbeat_interval_ms=INTERVAL_MS,
            assignment=ConsumerGroupHeartbeatResponseAssignment(topic_partitions=topics),
        )


class Journal(RebalanceListener):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, list[int]]] = []

    def on_partitions_assigned(self, partitions):
        self.events.append(("assigned", [p.partition for p in partitions]))

    def on_partitions_revoked(self, partitions):
        self.events.append(("revoked", [p.partition for p in partitions]))

    def on_partitions_lost(self, partitions):
        self.events.append(("lost", [p.partition for p in partitions]))


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
    """And not tried again in silence."""
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
    """A static one that it will be back."""
    world = new_world(runtime, cluster, coordinator, journal, group_instance_id=instance)
    world.run(world.core.close(world.deadline()))

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
    """At once, by the first poll."""
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
