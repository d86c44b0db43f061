"""What a controller says to this broker: carried out, unless it is stale."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import groupby
from types import SimpleNamespace
from uuid import UUID

import pytest

from ottla.controller.broker_request_batch import STATES_IN_A_REQUEST
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicV1,
)
from ottla.protocol.message import encode
from ottla.protocol.update_metadata import (
    FULL_TYPE,
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.server.controller_orders import (
    COST_OF_DELETED,
    COST_OF_NEW,
    PARTITIONS_AT_ONCE,
    ControllerOrders,
    OrdersToOwnBroker,
)
from ottla.server.handlers.controller_orders import ControllerOrdersHandler
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    NO_UUID,
    BrokerEndPoints,
    LeaderAndIsr,
    MetadataUpdate,
    Node,
    PartitionState,
    StopReplicaPartition,
    TopicPartition,
)

ID = UUID(int=7)
T0 = TopicPartition("t", 0)
OFFSETS = "__consumer_offsets"


class Replicas:
    """A replica manager of broker 1 that accepts everything, or has a failed disk."""

    broker_id = 1

    def __init__(self) -> None:
        self.log_manager = self
        self.partitions = {}
        self.offline_partitions = set()
        self.logs = {}
        self.get_log = self.logs.get
        self.led = []
        self.stopped = []
        self.put_away = []
        self.live = []
        self.error = ErrorCode.NONE

    def all_logs(self):
        return list(self.logs.values())

    def put_stray_away(self, topic_partition, topic_id):
        self.put_away.append((topic_partition, topic_id))
        if self.error:
            raise KafkaError(self.error)

    def become_leader_or_follower(self, states, brokers):
        self.led += states
        return {state.topic_partition: self.error for state in states}

    is_stopping = False

    def stop_replica(self, partitions):
        self.stopped += partitions
        return {each.topic_partition: ErrorCode.NONE for each in partitions}

    def when_deletions_are_noted(self, go_on):
        go_on()

    def on_brokers_changed(self):
        self.live.append(sorted(self.cache.brokers))


class Coordinator:
    """Writes down which partitions it has."""

    def __init__(self) -> None:
        self.heard = []

    def on_election(self, partition):
        self.heard.append(("elected", partition))

    def on_resignation(self, partition):
        self.heard.append(("resigned", partition))

    def on_topics_deleted(self, topics, is_full):
        self.heard.append(("all but" if is_full else "deleted", *topics))


class World:
    """Broker 1, registered in epoch 10."""

    def __init__(self) -> None:
        self.replicas, self.groups = Replicas(), Coordinator()
        coordinators = SimpleNamespace(
            coordinator={OFFSETS: self.groups, "__transaction_state": Coordinator()}.get,
            on_topics_deleted=self.groups.on_topics_deleted,
        )
        self.cache = self.replicas.cache = MetadataCache("cluster")
        self.turns = deque()
        scheduler = SimpleNamespace(call_soon=self.turns.append)
        self.orders = ControllerOrders(self.replicas, self.cache, coordinators, scheduler)
        self.handler = ControllerOrdersHandler(self.orders, lambda: 10)

    def ask(self, name, body, version, connection=1):
        """The answer, which must have bytes in this version."""
        handle = getattr(self.handler, f"handle_{name}")
        answers = []
        context = SimpleNamespace(
            api_version=version,
            respond=answers.append,
            connection=SimpleNamespace(number=connection),
        )
        answer = handle(context, body)
        answer = answer or answers.pop()
        encode(answer, version)
        return answer

    def lead(
        self, leader=1, leader_epoch=0, topic="t", version=7, controller_epoch=5, broker_epoch=10
    ):
        state = LeaderAndIsrPartitionState(leader=leader, leader_epoch=leader_epoch, isr=[leader])
        body = LeaderAndIsrRequest(
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            topic_states=[
                LeaderAndIsrTopicState(topic_name=topic, topic_id=ID, partition_states=[state])
            ],
        )
        return self.ask("leader_and_isr", body, version)


@pytest.fixture
def world() -> World:
    """A broker that has heard nothing yet."""
    return World()


def test_older_controller_is_refused(world):
    """Whatever it wants, once a newer one was heard."""
    world.lead(controller_epoch=5)
    for name, body in (
        ("leader_and_isr", LeaderAndIsrRequest(controller_epoch=4)),
        ("stop_replica", StopReplicaRequest(controller_epoch=4)),
        ("update_metadata", UpdateMetadataRequest(controller_epoch=4)),
    ):
        with pytest.raises(KafkaError) as caught:
            world.ask(name, body, 0)
        assert caught.value.error is ErrorCode.STALE_CONTROLLER_EPOCH
    assert len(world.replicas.led) == 1
    world.lead(controller_epoch=6)
    assert len(world.replicas.led) == 2


def test_other_controller_is_refused_once_the_own_broker_was_elected(world):
    """Its orders are called, and come on no connection."""
    OrdersToOwnBroker(world.orders, 1).update_metadata(6, [1], MetadataUpdate())
    for name, body in (
        ("leader_and_isr", LeaderAndIsrRequest(controller_epoch=5)),
        ("stop_replica", StopReplicaRequest(controller_epoch=5)),
        ("update_metadata", UpdateMetadataRequest(controller_epoch=5)),
    ):
        assert world.ask(name, body, 0).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert world.replicas.led == []


def test_order_that_comes_late_on_a_connection_given_up_is_refused(world):
    """It was sent again on the next one, and others after it: a topic made again was deleted."""
    deletion = StopReplicaRequest(controller_epoch=5, delete_partitions=True)
    world.ask("stop_replica", deletion, 0, connection=2)
    for name, body in (
        ("leader_and_isr", LeaderAndIsrRequest(controller_epoch=5)),
        ("stop_replica", deletion),
        ("update_metadata", UpdateMetadataRequest(controller_epoch=5)),
    ):
        with pytest.raises(KafkaError, match="connection") as caught:
            world.ask(name, body, 0, connection=1)
        assert caught.value.error is ErrorCode.STALE_CONTROLLER_EPOCH
    world.ask("stop_replica", deletion, 0, connection=3)
    world.ask("stop_replica", StopReplicaRequest(controller_epoch=6), 0, connection=2)


def full_update(*replicas, topic_id=ID):
    """A controller that has just been elected says where the partition is."""
    state = UpdateMetadataPartitionState(leader=2, leader_epoch=4, replicas=list(replicas))
    topic = UpdateMetadataTopicState(topic_name="t", topic_id=topic_id, partition_states=[state])
    return UpdateMetadataRequest(controller_epoch=5, topic_states=[topic], type=FULL_TYPE)


def test_replica_that_was_moved_away_unsaid_is_given_up(world):
    """The broker was down, or the controller died before it could say so: it was kept for ever.

    After a start the broker has the log, and does not know yet of which partitions it is a replica.
    """
    world.replicas.logs[T0] = SimpleNamespace(topic_id=ID)
    world.ask("update_metadata", full_update(2, 1), 8)
    world.ask("update_metadata", full_update(2, 3, topic_id=UUID(int=8)), 8)
    assert world.replicas.stopped == []
    world.ask("update_metadata", full_update(2, 3), 8)

    assert world.replicas.stopped == [(T0, 4, True)]


@pytest.mark.parametrize("end_offset", [0, 1])
def test_log_whose_creation_was_cut_short_is_given_up(world, end_offset):
    """The disk was full before its topic id was written, and the partition was moved elsewhere.

    One with records is of a broker that knew no ids, and nobody can say which topic's they are.
    """
    world.replicas.logs[T0] = SimpleNamespace(topic_id=NO_UUID, log_end_offset=end_offset)
    update = full_update(2, 3)
    update.type = 0
    world.ask("update_metadata", full_update(2, 1), 8)
    world.ask("update_metadata", update, 8)
    assert world.replicas.stopped == []
    world.ask("update_metadata", full_update(2, 3), 8)

    assert world.replicas.stopped == ([] if end_offset else [(T0, 4, True)])


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR])
def test_log_of_a_topic_that_was_made_again_elsewhere_is_put_away(world, error):
    """It was open under the name of a partition that this broker has no replica of."""
    world.replicas.logs[T0] = SimpleNamespace(topic_id=ID)
    world.replicas.error = error
    again = UUID(int=8)
    world.ask("update_metadata", full_update(2, 1, topic_id=again), 8)
    assert world.replicas.put_away == []
    world.ask("update_metadata", full_update(2, 3, topic_id=again), 8)
    assert world.replicas.put_away == [(T0, again)]
    assert world.cache.topic_id(T0) == again

    world.replicas.partitions[T0] = object()
    update = full_update(2, 3, topic_id=again)
    update.type = 0
    world.ask("update_metadata", update, 8)
    assert len(world.replicas.put_away) == 1, "it is in use, and is stopped when that is told"
    assert world.replicas.stopped == []


@pytest.mark.parametrize("topic_id", [UUID(int=8), NO_UUID])
def test_broker_that_was_cut_off_gives_up_what_is_elsewhere_by_another_id(world, topic_id):
    """Its session had ended while its partition was moved, and the topic deleted and made again:
    nobody told it to stop, and it led the old topic for ever."""
    world.replicas.logs[T0] = SimpleNamespace(topic_id=ID)
    world.replicas.partitions[T0] = object()
    world.ask("update_metadata", full_update(2, 3, topic_id=topic_id), 8)

    is_known = topic_id != NO_UUID
    assert world.replicas.stopped == [(T0, EPOCH_DURING_DELETE, False)] * is_known
    assert world.replicas.put_away == [(T0, topic_id)] * is_known


@pytest.mark.parametrize("is_hosted", [True, False])
@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR])
def test_role_in_a_topic_that_is_gone_is_given_up(world, error, is_hosted):
    """The broker was cut off while its replica was moved elsewhere, and then the topic deleted: no
    order is sent to it. Its log is kept, but not under the name of a partition."""
    other = TopicPartition("other", 0)
    for each in (T0, other):
        world.replicas.logs[each] = SimpleNamespace(topic_partition=each, topic_id=ID)
        if is_hosted:
            world.replicas.partitions[each] = object()
    world.replicas.error = error
    world.ask("update_metadata", full_update(2, 1), 8)
    nothing = UpdateMetadataRequest(controller_epoch=5, topic_states=[])
    world.ask("update_metadata", nothing, 8)
    assert world.replicas.stopped == []
    nothing.type = FULL_TYPE
    world.ask("update_metadata", nothing, 8)

    assert world.replicas.stopped == [(T0, EPOCH_DURING_DELETE, False)] * is_hosted
    assert world.replicas.put_away == [(T0, None)]


def test_log_of_a_topic_that_is_made_again_elsewhere_is_put_away_at_once(world):
    """It does not wait for the next controller; a replica that is moved waits for its order."""
    world.replicas.logs[T0] = SimpleNamespace(topic_id=ID)
    update = full_update(2, 3)
    update.type = 0
    world.ask("update_metadata", update, 8)
    assert (world.replicas.stopped, world.replicas.put_away) == ([], [])
    update = full_update(2, 3, topic_id=UUID(int=8))
    update.type = 0
    world.ask("update_metadata", update, 8)

    assert world.replicas.put_away == [(T0, UUID(int=8))]


@pytest.mark.parametrize("role", ["none", "replica", "offline"])
def test_log_without_a_role_goes_with_its_topic(world, role):
    """The controller has assigned replicas deleted alone: this one was moved away while down.

    One that could not be taken over is assigned: its deletion is an order, which is answered.
    """
    world.replicas.logs[T0] = SimpleNamespace(topic_id=ID, topic_partition=T0)
    other = TopicPartition("other", 0)
    world.replicas.logs[other] = SimpleNamespace(topic_id=ID, topic_partition=other)
    if role == "replica":
        world.replicas.partitions[T0] = object()
    elif role == "offline":
        world.replicas.offline_partitions.add(T0)
    deleted = UpdateMetadataPartitionState(leader=LEADER_DURING_DELETE)
    topic = UpdateMetadataTopicState(topic_name="t", topic_id=ID, partition_states=[deleted])
    world.ask("update_metadata", UpdateMetadataRequest(controller_epoch=5, topic_states=[topic]), 8)

    assert world.replicas.stopped == [(T0, EPOCH_DURING_DELETE, True)] * (role == "none")


def test_nothing_is_certainly_deleted_before_the_controller_has_told_all(world):
    """A former controller may have died before it told this broker of its last topics."""
    other = TopicPartition("other", 0)
    assert not world.cache.is_deleted(other)
    world.ask("update_metadata", UpdateMetadataRequest(controller_epoch=5), 8)
    assert not world.cache.is_deleted(other)
    world.ask("update_metadata", full_update(2), 8)
    assert world.cache.is_deleted(other)
    assert not world.cache.is_deleted(T0)
    assert world.groups.heard == [("deleted",), ("all but",)]

    world.lead(controller_epoch=5)
    assert world.cache.is_deleted(other)
    world.lead(controller_epoch=6)
    assert not world.cache.is_deleted(other)


def test_what_was_meant_for_an_older_process_is_refused(world):
    """An epoch that is not known here yet is that of the registration under way."""
    with pytest.raises(KafkaError) as caught:
        world.lead(broker_epoch=9)
    assert caught.value.error is ErrorCode.STALE_BROKER_EPOCH
    world.lead(broker_epoch=11)
    world.lead(broker_epoch=-1)

    assert len(world.replicas.led) == 2


def test_results_are_named_as_the_version_wants(world):
    """By id from v5 on, by name before."""
    world.replicas.error = ErrorCode.KAFKA_STORAGE_ERROR
    for version in (5, 7):
        (topic,) = world.lead(version=version).topics
        assert (topic.topic_id, topic.partition_errors[0].error_code) == (ID, 56)
    (result,) = world.lead(version=4).partition_errors
    assert (result.topic_name, result.error_code) == ("t", 56)

    old = LeaderAndIsrRequest(
        controller_epoch=5,
        ungrouped_partition_states=[LeaderAndIsrPartitionState(topic_name="old", leader=1)],
    )
    (result,) = world.ask("leader_and_isr", old, 1).partition_errors
    assert (result.topic_name, result.error_code) == ("old", 56)


def test_old_forms_of_stop_replica_are_read(world):
    """One flag for all partitions, which had no epochs."""
    v0 = StopReplicaRequest(
        delete_partitions=True,
        ungrouped_partitions=[StopReplicaPartitionV0(topic_name="t", partition_index=3)],
    )
    v1 = StopReplicaRequest(topics=[StopReplicaTopicV1(name="t", partition_indexes=[4])])
    world.ask("stop_replica", v0, 0)
    world.ask("stop_replica", v1, 1)

    assert world.replicas.stopped == [
        (TopicPartition("t", 3), -1, True),
        (TopicPartition("t", 4), -1, False),
    ]


def test_old_form_of_update_metadata_is_read(world):
    """Brokers had one address each, and listeners no names."""
    body = UpdateMetadataRequest(
        controller_id=3,
        ungrouped_partition_states=[UpdateMetadataPartitionState(topic_name="t", leader=2)],
        live_brokers=[UpdateMetadataBroker(id=2, v0_host="h", v0_port=9)],
    )
    world.ask("update_metadata", body, 0)

    assert world.cache.controller_id == 3
    assert world.cache.leader(TopicPartition("t", 0)) == 2
    assert world.cache.alive_brokers("PLAINTEXT") == [Node(2, "h", 9)]


def test_replicas_hear_of_brokers_that_come_and_go(world):
    """Once the metadata say so; not of each update."""
    for ids in ([1, 2], [1, 2], [2, 1], [1], [1, 3]):
        update = MetadataUpdate([], [BrokerEndPoints(each, 1, ()) for each in ids])
        world.orders.update_metadata(1, 5, update, lambda done: None, pytest.fail)

    assert world.replicas.live == [[1, 2], [1], [1, 3]]


def test_coordinator_follows_the_leadership_of_its_partitions(world):
    """Once for each epoch; a failed disk is as good as another leader."""
    world.lead(leader=1, leader_epoch=0, topic=OFFSETS)
    world.lead(leader=1, leader_epoch=0, topic=OFFSETS)
    world.lead(leader=2, leader_epoch=1, topic=OFFSETS)
    world.lead(leader=1, leader_epoch=2, topic=OFFSETS)
    world.replicas.error = ErrorCode.KAFKA_STORAGE_ERROR
    world.lead(leader=1, leader_epoch=3, topic=OFFSETS)

    assert world.groups.heard == [("elected", 0), ("resigned", 0)] * 2


def test_coordinator_gives_up_what_is_no_longer_here(world):
    """Where the replica comes back as the leader of the same epoch it takes it over again."""
    world.lead(leader=1, leader_epoch=0, topic=OFFSETS)
    topics = [StopReplicaTopicV1(name=OFFSETS, partition_indexes=[0])]
    stop = StopReplicaRequest(controller_epoch=5, topics=topics)
    world.ask("stop_replica", stop, 1)
    world.lead(leader=1, leader_epoch=0, topic=OFFSETS)

    assert world.groups.heard == [("elected", 0), ("resigned", 0), ("elected", 0)]


def test_refused_leadership_changes_nothing_for_the_coordinator(world):
    """The replica knows a newer epoch: what it was told with that one is in force."""
    world.lead(leader=1, leader_epoch=4, topic=OFFSETS)
    world.replicas.error = ErrorCode.FENCED_LEADER_EPOCH
    world.lead(leader=2, leader_epoch=3, topic=OFFSETS)

    assert world.groups.heard == [("elected", 0)]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("planted"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "x"), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_own_broker_that_fails_is_a_broker_that_refuses(world, error, expected):
    """The event of the controller goes on: what is left of it is sent to the other brokers."""
    orders, answers = OrdersToOwnBroker(world.orders, 1), []

    def fail(*arguments):
        raise error

    world.replicas.stop_replica = world.replicas.become_leader_or_follower = fail
    tp = TopicPartition("t", 0)
    orders.stop_replica(5, 1, [StopReplicaPartition(tp, 0, True)], answers.append)
    state = PartitionState(tp, ID, 5, LeaderAndIsr(1, 0, (1,)), (1,))
    orders.leader_and_isr(5, 1, [state], [], answers.append)
    orders.update_metadata(4, [1], MetadataUpdate())  # of an older controller

    assert answers == [{tp: expected}] * 2


MANY = 3 * PARTITIONS_AT_ONCE // COST_OF_NEW


def states_of(topic, count):
    """So many partitions of a topic, all led by broker 1."""
    first = LeaderAndIsr(1, 0, (1,))
    return [PartitionState(TopicPartition(topic, n), ID, 5, first, (1,)) for n in range(count)]


def run_turns(world, watch=lambda: None):
    """Run the loop until nothing is scheduled; returns how many turns that took."""
    count = 0
    while world.turns:
        world.turns.popleft()()
        watch()
        count += 1
    return count


def test_long_order_is_carried_out_in_slices_and_keeps_its_place(world):
    """What comes behind it waits, also where it is short; each is answered when all is done."""
    own, answers = OrdersToOwnBroker(world.orders, 1), []
    states = states_of("t", MANY)
    own.leader_and_isr(5, 1, states, [], lambda errors: answers.append(("led", len(errors))))
    stop = [StopReplicaPartition(T0, 0, False)]
    own.stop_replica(5, 1, stop, lambda errors: answers.append(("stopped", len(errors))))
    own.update_metadata(5, [1], MetadataUpdate(states))
    steps = [len(world.replicas.led)]
    assert (answers, world.replicas.stopped) == ([], [])
    run_turns(world, lambda: steps.append(len(world.replicas.led)))

    assert max(b - a for a, b in zip([0, *steps], steps, strict=False)) == MANY // 3
    assert world.replicas.led == states
    assert answers == [("led", MANY), ("stopped", 1)]
    assert len(world.cache.topic("t").partitions) == MANY


def test_partitions_that_are_known_cost_little(world):
    """A broker that comes back is told of all its partitions."""
    states = states_of("t", MANY)
    world.replicas.partitions = {state.topic_partition: None for state in states}
    own, answers = OrdersToOwnBroker(world.orders, 1), []
    own.leader_and_isr(5, 1, states, [], answers.append)

    assert len(answers[0]) == MANY
    assert not world.turns


def test_many_replicas_are_deleted_in_slices(world):
    """Each is the renaming of a directory."""
    count = 2 * PARTITIONS_AT_ONCE // COST_OF_DELETED
    own, answers = OrdersToOwnBroker(world.orders, 1), []
    gone = [StopReplicaPartition(TopicPartition("t", n), 0, True) for n in range(count)]
    own.stop_replica(5, 1, gone, answers.append)
    assert (len(world.replicas.stopped), answers) == (count // 2, [])
    run_turns(world)

    assert world.replicas.stopped == gone
    assert [len(errors) for errors in answers] == [count]


def test_clients_never_see_a_part_of_a_topic(world):
    """A slice of an update ends with a topic, and the topics that are gone go first."""
    own = OrdersToOwnBroker(world.orders, 1)
    own.update_metadata(5, [1], MetadataUpdate(states_of("old", 1)))
    topics = {"a": 3, "b": STATES_IN_A_REQUEST, "c": STATES_IN_A_REQUEST, "d": 4}
    states = [state for topic, count in topics.items() for state in states_of(topic, count)]
    own.update_metadata(5, [1], MetadataUpdate(states, is_full=True))
    seen = []

    def look():
        seen.append({topic.name: len(topic.partitions) for topic in world.cache.topics()})
        assert world.cache.is_complete == (len(seen[-1]) == len(topics))

    look()
    assert run_turns(world, look) > 1
    while seen[0] == {"old": 1}:  # what is new is put in parts
        del seen[0]
    assert seen[0] == {"a": 3}
    assert seen[-1] == topics
    assert all(shown.items() <= topics.items() for shown in seen)


def test_slice_of_an_update_has_as_many_topics_as_fit(world):
    """Their number is that of the partitions; a topic that would be too many begins the next."""
    own = OrdersToOwnBroker(world.orders, 1)
    topics = {"a": 800, "b": 800, "c": STATES_IN_A_REQUEST - 1_600, "d": 1}
    states = [state for topic, count in topics.items() for state in states_of(topic, count)]
    own.update_metadata(5, [1], MetadataUpdate(states))
    seen = []
    run_turns(world, lambda: seen.append([topic.name for topic in world.cache.topics()]))

    assert [names for names, _ in groupby(seen)] == [["a", "b", "c"], ["a", "b", "c", "d"]]


def test_replicas_are_not_given_up_while_the_logs_are_being_closed(world):
    """The controller sends it again when the broker is back."""
    own, answers = OrdersToOwnBroker(world.orders, 1), []
    world.replicas.log_manager.is_stopping = True
    own.stop_replica(5, 1, [StopReplicaPartition(T0, 0, True)], answers.append)

    assert world.replicas.stopped == []
    assert answers == [{T0: ErrorCode.BROKER_NOT_AVAILABLE}]


def test_order_that_fails_late_is_answered_and_those_behind_it_are_carried_out(world):
    """The handler is told by another turn; the broker is stopping, and its logs are closed."""
    own, answers = OrdersToOwnBroker(world.orders, 1), []
    own.leader_and_isr(5, 1, states_of("t", MANY), [], answers.append)
    own.leader_and_isr(4, 1, states_of("t", 1), [], answers.append)  # of an older controller
    own.update_metadata(5, [1], MetadataUpdate(states_of("u", 1)))
    world.replicas.log_manager.is_stopping = True
    run_turns(world)

    assert len(world.replicas.led) == MANY // 3
    assert [set(errors.values()) for errors in answers] == [{ErrorCode.BROKER_NOT_AVAILABLE}]
    assert world.cache.topic("u") is not None


@pytest.mark.parametrize("count", [1, MANY])
def test_event_of_the_controller_ends_when_its_own_broker_is_done(world, count):
    """Who has made a topic finds its partitions."""

    async def check():
        own, answers = OrdersToOwnBroker(world.orders, 1), []
        own.leader_and_isr(5, 1, states_of("t", count), [], answers.append)
        settled = asyncio.ensure_future(own.settle())
        await asyncio.sleep(0)
        assert settled.done() == (count == 1)
        run_turns(world)
        await settled
        assert len(answers[0]) == count

    asyncio.run(check())


def update_in_slices(topic, count):
    """An update that is read a partition at a time."""
    yield from range(count)
    return MetadataUpdate(states_of(topic, count), is_full=True)


def test_update_that_is_read_in_slices_keeps_its_place(world):
    """A short one behind it is newer, and is not undone."""
    done = []
    for topic, count in (("t", 9), ("u", 1)):
        update = update_in_slices(topic, count)
        world.orders.update_metadata(
            1, 5, update, lambda errors, t=topic: done.append(t), done.append
        )
    assert (done, [topic.name for topic in world.cache.topics()]) == ([], [])
    run_turns(world)

    assert done == ["t", "u"]
    assert [topic.name for topic in world.cache.topics()] == ["u"]


def test_update_of_an_older_controller_is_not_read(world):
    """A newer one was heard while it waited for its turn."""
    failures = []
    later = OrdersToOwnBroker(world.orders, 1)
    world.orders.update_metadata(1, 5, update_in_slices("t", 3), failures.append, failures.append)
    later.update_metadata(6, [1], MetadataUpdate(states_of("u", 1)))
    old = update_in_slices("v", 3)
    world.orders.update_metadata(2, 5, old, failures.append, failures.append)
    run_turns(world)

    assert [getattr(each, "error", each) for each in failures] == [
        {},
        ErrorCode.STALE_CONTROLLER_EPOCH,
    ]
    assert old.gi_frame is not None
    assert [topic.name for topic in world.cache.topics()] == ["t", "u"]
