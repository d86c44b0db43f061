"""The controller's operations, and what is left of them after a crash."""

from __future__ import annotations

import asyncio
import json

import pytest

from ottla.controller.requested_topic import MorePartitions, RequestedTopic
from ottla.controller.topic_changes import PARTITIONS_AT_ONCE
from ottla.errors import ErrorCode, KafkaError
from ottla.registry.znodes import TopicNode
from ottla.structs import NO_UUID, LeaderAndIsr, TopicPartition


def errors(results) -> dict[str, ErrorCode | None]:
    """The error of each topic, or None."""
    return {
        name: outcome.error if isinstance(outcome, KafkaError) else None
        for name, outcome in results.items()
    }


def test_new_topic_is_in_the_registry_and_told_to_its_broker(world):
    """The nodes are Kafka's; the broker leads and its clients may know."""
    created = world.create(RequestedTopic("t", 2, 1, config={"retention.ms": "5"}))["t"]
    node = TopicNode.decode("t", world.data("/brokers/topics/t"))
    broker_id, states = world.orders.leader_and_isr_calls[-1]

    assert created.num_partitions == 2
    assert node == TopicNode({0: (0,), 1: (0,)}, created.topic_id)
    assert world.data("/brokers/topics/t/partitions/1/state") == (
        b'{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0]}'
    )
    assert json.loads(world.data("/config/topics/t"))["config"] == {"retention.ms": "5"}
    assert (broker_id, [state.topic_partition for state in states]) == (
        0,
        [TopicPartition("t", 0), TopicPartition("t", 1)],
    )
    assert all(state.is_new for state in states)
    assert world.orders.metadata[TopicPartition("t", 0)].leader == 0
    assert [broker.id for broker in world.orders.brokers] == world.orders.added == [0]


def test_replicas_of_a_large_topic_begin_part_by_part(world):
    """Other clients are served in between; they are told of the whole topic, once."""
    world.orders.leader_and_isr_calls.clear()
    world.orders.order.clear()
    count = 2 * PARTITIONS_AT_ONCE + 1
    created = world.create(RequestedTopic("t", count, 1))["t"]
    parts = [len(states) for _, states in world.orders.leader_and_isr_calls]

    assert created.num_partitions == count
    assert parts == [PARTITIONS_AT_ONCE, PARTITIONS_AT_ONCE, 1]
    assert world.orders.order == ["LeaderAndIsr 0"] * 3 + ["changed metadata 0"]
    assert len(world.orders.metadata) == count


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (RequestedTopic("old"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (RequestedTopic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (RequestedTopic("o_d.x"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (RequestedTopic("__consumer_offsets"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (RequestedTopic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (RequestedTopic("t", 2**31 - 1), ErrorCode.INVALID_PARTITIONS),
        (RequestedTopic("t", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (RequestedTopic("t", 1, -5), ErrorCode.INVALID_REPLICATION_FACTOR),
        (RequestedTopic("t", 1, 1, {0: (0,)}), ErrorCode.INVALID_REQUEST),
        (RequestedTopic("t", assignment={0: (5,)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (RequestedTopic("t", config={"no.such": "1"}), ErrorCode.INVALID_CONFIG),
        (RequestedTopic("t", config={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
    ],
)
def test_topic_that_cannot_be_is_refused(world, topic, error):
    """With the code that Kafka gives, and without a trace."""
    world.create(RequestedTopic("old"), RequestedTopic("o.d_x"))
    results = world.create(topic)

    assert errors(results) == {topic.name: error}
    assert world.run(world.registry.children("/brokers/topics")) == ["o.d_x", "old"]


def test_topics_of_one_request_succeed_or_fail_alone(world):
    """One that is there twice is not created at all."""
    results = world.create(
        RequestedTopic("a"), RequestedTopic("b"), RequestedTopic("/"), RequestedTopic("b")
    )

    assert errors(results) == {
        "a": None,
        "b": ErrorCode.INVALID_REQUEST,
        "/": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert list(world.controller.context.topics) == ["a"]


def test_one_request_cannot_ask_for_too_many_partitions_in_all(world):
    """Each of the topics alone would be allowed."""
    results = world.create(RequestedTopic("a", 6000), RequestedTopic("b", 6000), validate_only=True)

    assert errors(results) == {"a": None, "b": ErrorCode.INVALID_PARTITIONS}


def test_one_request_cannot_add_too_many_partitions_in_all(world):
    """As many as one request may ask for can be of one topic, beside those that it has."""
    world.create(RequestedTopic("a", 2), RequestedTopic("b", 2))

    def grow(**totals: int) -> dict[str, ErrorCode | None]:
        wishes = [MorePartitions(name, total) for name, total in totals.items()]
        return errors(world.run(world.controller.create_partitions(wishes, validate_only=True)))

    assert grow(a=10_002) == {"a": None}
    assert grow(a=10_003) == {"a": ErrorCode.INVALID_PARTITIONS}
    assert grow(a=6_000, b=6_000) == {"a": None, "b": ErrorCode.INVALID_PARTITIONS}


def test_validation_alone_creates_nothing(world):
    """Validation creates nothing, but returns the topic that would be created."""
    created = world.create(RequestedTopic("t", 3), validate_only=True)["t"]

    assert (created.num_partitions, created.topic_id) == (3, NO_UUID)
    assert world.run(world.registry.children("/brokers/topics")) == []


def test_counts_come_from_the_broker_when_nobody_says(make_world):
    """num.partitions and default.replication.factor (KIP-464)."""
    world = make_world(broker_count=3, num_partitions=4, default_replication_factor=2)
    created = world.create(RequestedTopic("t"))["t"]

    assert (created.num_partitions, created.replication_factor) == (4, 2)


def test_assignment_by_hand_is_followed(make_world):
    """Each broker hears of its own replicas only."""
    world = make_world(broker_count=3)
    world.create(RequestedTopic("t", assignment={1: (2, 1), 0: (1, 2)}))
    told = {
        broker: [state.topic_partition.partition for state in states]
        for broker, states in world.orders.leader_and_isr_calls
    }

    assert told == {1: [0, 1], 2: [0, 1]}
    assert world.orders.metadata[TopicPartition("t", 1)].leader == 2


def test_automatic_topic_has_the_brokers_defaults(world):
    """It may be there already, because somebody else was faster."""
    for _ in range(2):
        world.run(world.controller.auto_create_topic("t"))

    assert list(world.controller.context.topics) == ["t"]
    with pytest.raises(KafkaError, match="cannot be a topic's name"):
        world.run(world.controller.auto_create_topic("a b"))


def test_offsets_topic_is_compacted_and_as_replicated_as_it_can_be(world):
    """Three replicas are wanted, one broker lives."""
    world.run(world.controller.auto_create_topic("__consumer_offsets"))
    topic = world.controller.context.topics["__consumer_offsets"]
    config = json.loads(world.data("/config/topics/__consumer_offsets"))["config"]

    assert (len(topic.assignment), topic.replication_factor) == (50, 1)
    assert config == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }


def test_transactions_topic_is_safe_as_far_as_the_cluster_allows(world):
    """Two in-sync replicas are wanted, of one that there can be."""
    world.run(world.controller.auto_create_topic("__transaction_state"))
    config = json.loads(world.data("/config/topics/__transaction_state"))["config"]

    assert len(world.controller.context.topics["__transaction_state"].assignment) == 50
    assert config == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }


def test_topics_are_there_after_a_crash_in_a_new_epoch(world):
    """Same ids, same overrides; leaders and controller are in the next epoch."""
    created = world.create(RequestedTopic("t", 2))["t"]
    world.restart()
    state = world.orders.metadata[TopicPartition("t", 1)]

    assert state.topic_id == created.topic_id
    assert state.leader_and_isr == LeaderAndIsr(0, 1, (0,), version=1)
    assert state.controller_epoch == 2
    assert world.data("/controller_epoch") == b"2"
    assert json.loads(world.data("/controller"))["brokerid"] == 0


@pytest.mark.parametrize("path", ["/brokers/topics/t/partitions", "/config/topics/t"])
def test_topic_half_created_is_completed_by_the_next_controller(world, path):
    """The topic's node decides: before it there is nothing, after it all will be there."""
    world.runtime.disk.fail("fsync", "*/journal", skip=3 if "brokers" in path else 0)
    with pytest.raises(KafkaError, match="journal could not be written"):
        world.create(RequestedTopic("t", 2, config={"retention.ms": "5"}))
    world.restart()

    if "brokers" in path:
        assert set(world.controller.context.topics["t"].states) == {0, 1}
    else:
        assert not world.controller.context.topics
        assert errors(world.create(RequestedTopic("t"))) == {"t": None}


def test_partition_whose_replicas_are_dead_has_no_leader(make_world):
    """It gets one back when a replica that was in sync returns."""
    world = make_world(broker_count=2)
    world.create(RequestedTopic("t", assignment={0: (1,)}))
    world.restart(broker_count=1)
    dead = world.orders.metadata[TopicPartition("t", 0)].leader_and_isr
    world.restart(broker_count=2)
    alive = world.orders.metadata[TopicPartition("t", 0)].leader_and_isr

    assert (dead.leader, dead.leader_epoch, dead.isr) == (-1, 1, (1,))
    assert (alive.leader, alive.leader_epoch, alive.isr) == (1, 2, (1,))


@pytest.mark.parametrize("where", ["broker", "topic"])
def test_unclean_election_is_a_matter_of_settings(make_world, where):
    """The topic's own before the broker's."""
    key = "unclean.leader.election.enable"
    settings = {"unclean_leader_election_enable": True} if where == "broker" else {}
    world = make_world(broker_count=2, **settings)
    config = {key: "true"} if where == "topic" else {}
    world.create(RequestedTopic("t", assignment={0: (1, 0)}, config=config))
    path = "/brokers/topics/t/partitions/0/state"
    state = json.loads(world.data(path)) | {"isr": [1]}
    world.run(world.registry.set(path, json.dumps(state).encode()))
    world.restart(broker_count=1)

    assert world.orders.metadata[TopicPartition("t", 0)].leader_and_isr.isr == (0,)


def test_topic_of_an_older_version_gets_an_id(world):
    """Written before 2.8, without states even."""
    data = b'{"version":1,"partitions":{"0":[0]}}'
    world.run(world.registry.create("/brokers/topics/old", data))
    world.restart()
    topic_id = world.controller.context.topics["old"].topic_id
    world.restart()

    assert topic_id != NO_UUID
    assert world.controller.context.topics["old"].topic_id == topic_id
    assert world.orders.metadata[TopicPartition("old", 0)].leader == 0


def test_tools_of_an_older_version_add_partitions(world):
    """They write the node without the topic's id, which it keeps."""
    world.create(RequestedTopic("t"))
    topic_id = world.controller.context.topics["t"].topic_id
    data = b'{"version":1,"partitions":{"0":[0],"1":[0]}}'
    world.run(world.registry.set("/brokers/topics/t", data))
    world.settle()

    node = TopicNode.decode("t", world.data("/brokers/topics/t"))
    assert node == TopicNode({0: (0,), 1: (0,)}, topic_id)
    assert world.orders.metadata[TopicPartition("t", 1)].leader == 0


def test_deleted_topic_leaves_nothing(world):
    """Not in the registry, not on the broker, not in its clients' metadata."""
    world.create(RequestedTopic("t", 2, config={"retention.ms": "5"}))
    results = world.run(world.controller.delete_topics(["t"]))

    assert errors(results) == {"t": None}
    assert world.orders.deleted == ["t"]
    assert world.orders.stopped == [
        (0, TopicPartition("t", 0), True),
        (0, TopicPartition("t", 1), True),
    ]
    for path in ("/brokers/topics", "/config/topics", "/admin/delete_topics"):
        assert world.run(world.registry.children(path)) == []


def test_topic_of_the_same_name_is_another_one(world):
    """It has an id of its own and none of the old overrides."""
    first = world.create(RequestedTopic("t", config={"retention.ms": "5"}))["t"]
    world.run(world.controller.delete_topics(["t"]))
    second = world.create(RequestedTopic("t"))["t"]

    assert first.topic_id != second.topic_id
    assert world.run(world.registry.get("/config/topics/t"))[0] == b'{"version":1,"config":{}}'


def test_deletion_that_a_crash_interrupted_is_completed(world):
    """The mark survives; the next controller has the logs removed and forgets the topic."""
    world.create(RequestedTopic("t", 2))
    world.controller.shutdown()
    world.run(world.registry.create("/admin/delete_topics/t", b""))
    world.run(world.registry.create("/admin/delete_topics/unknown", b""))
    world.restart()

    assert world.orders.stopped == [
        (0, TopicPartition("t", 0), True),
        (0, TopicPartition("t", 1), True),
    ]
    assert not world.controller.context.topics
    assert world.run(world.registry.children("/admin/delete_topics")) == []


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("../no", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("__consumer_offsets", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_what_cannot_be_deleted_is_refused(world, name, error):
    """The offsets topic is there and stays."""
    world.run(world.controller.auto_create_topic("__consumer_offsets"))

    assert errors(world.run(world.controller.delete_topics([name]))) == {name: error}
    assert list(world.controller.context.topics) == ["__consumer_offsets"]


def test_deletion_can_be_switched_off(make_world):
    """delete.topic.enable."""
    world = make_world(delete_topic_enable=False)
    world.create(RequestedTopic("t"))
    results = world.run(world.controller.delete_topics(["t"]))

    assert errors(results) == {"t": ErrorCode.TOPIC_DELETION_DISABLED}


def test_partitions_are_added(make_world):
    """By themselves, or where the user wants them; the old ones are not touched."""
    world = make_world(broker_count=2)
    world.create(RequestedTopic("t", assignment={0: (0,), 1: (1,)}))
    wishes = [MorePartitions("t", 4)]
    assert errors(world.run(world.controller.create_partitions(wishes))) == {"t": None}
    wishes = [MorePartitions("t", 5, [(1,)])]
    assert errors(world.run(world.controller.create_partitions(wishes))) == {"t": None}
    world.restart()

    assert world.controller.context.topics["t"].assignment == {
        0: (0,),
        1: (1,),
        2: (0,),
        3: (1,),
        4: (1,),
    }
    assert world.orders.metadata[TopicPartition("t", 4)].leader == 1


@pytest.mark.parametrize(
    ("wish", "error"),
    [
        (MorePartitions("no", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (MorePartitions("__consumer_offsets", 60), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (MorePartitions("t", 2), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("t", 1), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("t", -1), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("t", 2**31 - 1), ErrorCode.INVALID_PARTITIONS),
        (MorePartitions("t", 3, [(0,), (0,)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (MorePartitions("t", 3, [(5,)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_partitions_that_cannot_be_added_are_refused(world, wish, error):
    """The number must grow, and the assignment be of the new ones."""
    world.create(RequestedTopic("t", 2))
    results = world.run(world.controller.create_partitions([wish]))

    assert errors(results) == {wish.name: error}
    assert len(world.controller.context.topics["t"].assignment) == 2


def test_validation_alone_adds_no_partitions(world):
    """The answer is the same."""
    world.create(RequestedTopic("t", 1))
    wishes = [MorePartitions("t", 2)]
    results = world.run(world.controller.create_partitions(wishes, validate_only=True))

    assert errors(results) == {"t": None}
    assert len(world.controller.context.topics["t"].assignment) == 1


def test_second_controller_waits(make_world):
    """Whoever comes second decides nothing."""
    world = make_world()
    first = world.controller
    second = type(first)(world.runtime, world.registry, world.config, world.orders, 1)
    world.run(second.startup())

    assert not second.is_active
    assert not second.context.topics
    assert not second.context.brokers
    with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
        world.run(second.create_topics([RequestedTopic("t")]))


def test_concurrent_creations_of_a_topic_make_one(world):
    """One operation ends before the next one begins."""

    async def create_twice():
        creations = [world.controller.create_topics([RequestedTopic("t")]) for _ in range(2)]
        return await asyncio.gather(*creations)

    outcomes = [errors(results)["t"] for results in world.run(create_twice())]

    assert outcomes == [None, ErrorCode.TOPIC_ALREADY_EXISTS]


def test_failed_log_directory_moves_leaders_to_live_replicas(make_world):
    """The next in-sync replica leads what was in it, and all are told which replica is offline."""
    world = make_world(broker_count=2)
    world.create(RequestedTopic("pages", 2, 2))
    before = {tp: state.leader for tp, state in world.orders.metadata.items()}
    lost = next(tp for tp, leader in before.items() if leader == 1)

    world.orders.offline = {1: {lost}}
    world.run(world.controller.on_log_dir_event(1))
    world.settle()

    state = world.orders.metadata[lost]
    assert (state.leader, state.leader_and_isr.isr, state.offline_replicas) == (0, (0,), (1,))
    assert lost in [told.topic_partition for told in world.orders.leader_and_isr_calls[-2][1]]
    others = {tp: state.leader for tp, state in world.orders.metadata.items() if tp != lost}
    assert others == {tp: leader for tp, leader in before.items() if tp != lost}


def test_only_replica_in_a_failed_log_directory_leaves_no_leader(world):
    """Nobody leads the partition, the ISR is kept for the day when the directory is back."""
    world.create(RequestedTopic("pages", 1, 1))
    lost = TopicPartition("pages", 0)

    world.orders.offline = {0: {lost}}
    world.run(world.controller.on_log_dir_event(0))
    world.settle()

    state = world.orders.metadata[lost]
    assert (state.leader, state.leader_and_isr.isr, state.offline_replicas) == (-1, (0,), (0,))
    world.restart()
    assert world.orders.metadata[lost].leader == 0
