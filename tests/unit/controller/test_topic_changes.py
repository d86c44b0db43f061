"""Topics that change in the registry by another hand, and what of them is forgotten."""

from __future__ import annotations

import pytest

from ottla.controller.controller_context import PartitionReplica, ReplicaAssignment, TopicContext
from ottla.controller.requested_topic import MorePartitions, RequestedTopic
from ottla.errors import ErrorCode, KafkaError
from ottla.registry import paths
from ottla.registry.tree import Delete
from ottla.registry.znodes import TopicNode
from ottla.structs import TopicPartition

T0 = TopicPartition("t", 0)
CHANGES = paths.CONFIG_CHANGE_PREFIX.rpartition("/")[0]


@pytest.fixture
def world(make_world):
    """Two brokers with a partition that is on both."""
    world = make_world(broker_count=2)
    world.create(RequestedTopic("t", assignment={0: (0, 1)}))
    return world


def remove(world, name="t"):
    """An operator removes the nodes of a topic by hand."""

    async def delete() -> None:
        state = paths.partition_state(name, 0)
        for path in (state, state.rpartition("/")[0], f"{paths.topic(name)}/partitions"):
            await world.registry.multi((Delete(path),))
        await world.registry.delete(paths.topic(name))

    world.run(delete())
    world.settle()


def write_node(world, node, name="t"):
    world.run(world.registry.set(paths.topic(name), node.encode(), -1))
    world.settle()


def test_topic_that_an_operator_has_removed_is_forgotten_by_all(world, caplog):
    """By the brokers, too; and nothing of it is left in the context."""
    context = world.controller.context
    topic_id = context.topics["t"].topic_id
    context.offline[1] = {T0}
    remove(world)

    assert world.orders.deleted == ["t", "t"]
    assert "topic t was removed from the registry by somebody else" in caplog.text
    assert context.topic_name(topic_id) is None
    assert context.state(T0) is None
    assert context.offline == {1: set()}
    assert PartitionReplica(T0, 0) not in context.replica_statuses
    assert T0 not in context.partition_statuses


def test_topic_that_was_removed_is_watched_no_more_and_once_more_when_it_is_back(world):
    """The one of the same name gets its partitions as any other."""
    remove(world)
    world.create(RequestedTopic("t", assignment={0: (0, 1)}))
    topic_id = world.controller.context.topics["t"].topic_id
    write_node(world, TopicNode({0: (0, 1), 1: (1, 0)}, topic_id))

    assert world.orders.metadata[TopicPartition("t", 1)].leader == 1


def test_node_of_a_topic_that_is_being_deleted_begins_no_partitions(world):
    """They would never be deleted."""
    world.kill(1)
    world.run(world.controller.delete_topics(["t"]))
    topic_id = world.controller.context.topics["t"].topic_id
    write_node(world, TopicNode({0: (0, 1), 1: (0,)}, topic_id))

    assert set(world.controller.context.topics["t"].assignment) == {0}


@pytest.mark.parametrize("target", [(0, 1, 2), (0,)])
def test_topic_on_the_move_gets_no_partitions(make_world, target):
    """Whether the reassignment adds replicas or only removes some."""
    world = make_world(broker_count=3)
    world.create(RequestedTopic("t", assignment={0: (0, 1)}))
    topic = world.controller.context.topics["t"]
    topic.set_assignment(0, topic.full_assignment(0).reassign_to(target))

    results = world.run(world.controller.create_partitions([MorePartitions("t", 2)]))

    assert results["t"].error is ErrorCode.REASSIGNMENT_IN_PROGRESS


@pytest.mark.parametrize("ask", ["create", "grow", "delete"])
def test_each_partition_that_a_client_asks_for_is_counted_against_its_quota(world, ask):
    """What is only tried costs nothing; a refusal by the quota changes nothing."""
    counted: list[int] = []

    def refuse(partitions: int) -> None:
        counted.append(partitions)
        raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "slower")

    controller = world.controller
    asked = {
        "create": lambda **more: controller.create_topics(
            [RequestedTopic("u", 3)], admit=refuse, **more
        ),
        "grow": lambda **more: controller.create_partitions(
            [MorePartitions("t", 3)], admit=refuse, **more
        ),
        "delete": lambda **_: controller.delete_topics(["t"], admit=refuse),
    }[ask]
    if ask != "delete":
        world.run(asked(validate_only=True))
    assert counted == []
    (refusal,) = world.run(asked()).values()

    assert refusal.error is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert counted == [{"create": 3, "grow": 2, "delete": 1}[ask]]
    assert world.run(world.registry.children(paths.TOPICS)) == ["t"]
    assert set(controller.context.topics["t"].assignment) == {0}


@pytest.mark.parametrize(
    ("adding", "removing", "expected"),
    [((), (), False), ((1,), (), True), ((), (1,), True), ((1,), (2,), True)],
)
def test_partition_is_on_the_move_while_replicas_come_or_go(adding, removing, expected):
    """Either is enough."""
    assert ReplicaAssignment((0, 1, 2), adding, removing).is_being_reassigned is expected


def test_partition_on_the_move_has_its_new_replicas_first_and_all_old_ones():
    """Those that were added by a move that is given up go, and come in no list."""
    first = ReplicaAssignment((0, 1, 2)).reassign_to((3, 1))
    second = first.reassign_to((2, 4))

    assert first == ReplicaAssignment((3, 1, 0, 2), adding=(3,), removing=(0, 2))
    assert (set(first.origin), first.target) == ({0, 1, 2}, (3, 1))
    assert second == ReplicaAssignment((2, 4, 1, 0), adding=(4,), removing=(1, 0))


def test_only_replicas_that_can_be_reached_are_told(world):
    """Their broker lives, and the log is in a directory that works."""
    context = world.controller.context
    context.add_topic(TopicContext("u", context.topics["t"].topic_id, {0: (0, 1, 7)}))
    context.offline[1] = {TopicPartition("u", 0)}

    assert context.reachable_replicas(TopicPartition("u", 0)) == [0]
    assert context.reachable_replicas(T0) == [0, 1]


def test_next_controller_tells_of_the_settings_of_topics_that_were_not_begun_alone(world):
    """Those of the others were told of when they were made; what is to go needs none."""
    world.create(RequestedTopic("u", config={"retention.ms": "5"}))
    world.orders.silent.add(1)
    world.runtime.scheduler.spawn(world.controller.delete_topics(["t"]), "delete")
    world.runtime.advance(0)
    before = world.run(world.registry.children(CHANGES))
    node = TopicNode({0: (0,)}, world.controller.context.topics["u"].topic_id)
    world.controller.shutdown()
    world.run(world.registry.create(paths.topic("half-made"), node.encode()))
    world.restart()
    new = [each for each in world.run(world.registry.children(CHANGES)) if each not in before]

    assert [world.data(f"{CHANGES}/{each}") for each in new] == [
        b'{"version":2,"entity_path":"topics/half-made"}'
    ]
