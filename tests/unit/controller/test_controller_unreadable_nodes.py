"""Nodes that somebody else has spoilt: what they are about suffers, and nothing beside it."""

from __future__ import annotations

import pytest

from ottla.controller.entity_configs import TOPICS, EntityConfigs
from ottla.controller.partition_state_machine import PartitionStateMachine
from ottla.controller.requested_topic import RequestedTopic
from ottla.controller.topic_changes import TopicChanges
from ottla.errors import ErrorCode, KafkaError
from ottla.registry import paths
from ottla.registry.embedded import EmbeddedRegistry
from ottla.registry.tree import Create, Delete, RegistryError, RegistryFailedError, create_or_set
from ottla.registry.znodes import decode_controller, encode_preferred_elections
from ottla.structs import NO_EPOCH, NO_LEADER, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def world(make_world):
    """Two brokers with two partitions, the first of which is broker 0's alone."""
    world = make_world(broker_count=2)
    world.create(RequestedTopic("t", assignment={0: (0, 1), 1: (1, 0)}))
    return world


def spoil(world, path):
    world.run(create_or_set(world.registry, path, b"{spoilt"))


def test_partition_whose_state_cannot_be_read_has_no_leader(world, caplog):
    """The next controller led nothing at all, and was the controller all the same."""
    spoil(world, paths.partition_state(*T0))
    world.restart()

    assert world.controller.is_active
    assert world.controller.context.state(T0) is None
    assert world.state(T1).leader == 1
    assert "/brokers/topics/t/partitions/0/state is not readable" in caplog.text
    world.kill(1)
    assert world.state(T1).leader == 0


@pytest.mark.parametrize("count", [1, 2])
def test_topic_without_a_state_that_can_be_read_is_not_called_gone(world, count):
    """Brokers put its logs away, as those of a deleted topic, and groups forgot their offsets."""
    for each in (T0, T1)[:count]:
        spoil(world, paths.partition_state(*each))
    world.restart()
    told = world.orders.metadata

    assert world.orders.full_updates
    assert [told[each].leader for each in (T0, T1)] == [NO_LEADER, 1 if count == 1 else NO_LEADER]
    assert told[T0].leader_epoch == NO_EPOCH
    assert told[T0].topic_id == world.controller.context.topics["t"].topic_id


def test_partition_whose_state_was_removed_is_led_in_an_epoch_that_no_broker_knows(world, caplog):
    """They refused the first epoch of all, led on as they had, and clients were sent elsewhere."""
    world.runtime.clock.advance(50 * 60_000)
    world.kill(0)
    world.come(0)
    before = world.state(T0)
    for path in (paths.partition_state(*T0), paths.CONTROLLER):
        world.run(world.registry.delete(path))
    world.runtime.advance(0)
    state = world.state(T0)

    assert state.leader_epoch > before.leader_epoch > 0
    assert (state.leader, state.isr) == (0, (0, 1))
    assert world.controller.context.state(T0) == state
    assert "t-0 had no state" in caplog.text
    world.kill(0)
    assert world.state(T0).leader_epoch == state.leader_epoch + 1


def forbid(monkeypatch, forbidden):
    """The ACL of a node is somebody else's."""
    get = EmbeddedRegistry.get

    async def get_what_is_permitted(self, path):
        if path == forbidden:
            raise RegistryError(f"{path}: ZooKeeper's ACLs do not permit it")
        return await get(self, path)

    monkeypatch.setattr(EmbeddedRegistry, "get", get_what_is_permitted)


@pytest.mark.parametrize("is_forbidden", [False, True])
def test_topic_that_cannot_be_read_is_not_called_gone(world, monkeypatch, is_forbidden):
    """Brokers forgot it, and groups the offsets that they had committed in it."""
    world.create(RequestedTopic("u", assignment={0: (1, 0)}))
    if is_forbidden:
        forbid(monkeypatch, paths.topic("t"))
    else:
        spoil(world, paths.topic("t"))
    world.restart()

    assert world.controller.is_active
    assert world.state(TopicPartition("u", 0)).leader == 1
    assert world.orders.full_updates == 0


@pytest.mark.parametrize("path", [paths.REASSIGN_PARTITIONS, paths.PREFERRED_REPLICA_ELECTION])
def test_wish_that_nobody_may_read_is_passed_over(world, monkeypatch, caplog, path):
    """One broker after the other was elected, and gave up because of it."""
    if path == paths.REASSIGN_PARTITIONS:
        moves = pytest.importorskip("ottla.extensions.moves.reassignment", reason="it is deleted")
        monkeypatch.setattr(type(world), "features", [moves.PartitionReassigner])
    forbid(monkeypatch, path)
    world.write(path, b"{}")
    world.restart()

    assert world.controller.is_active
    assert world.state(T1).leader == 1
    assert f"{path} is passed over" in caplog.text


@pytest.mark.parametrize("is_forbidden", [False, True])
def test_overrides_that_cannot_be_read_keep_nobody_from_leading(
    world, monkeypatch, caplog, is_forbidden
):
    """An election of one topic asked for them, and those of all others were forgotten with it.

    Where an ACL forbade them, one controller after the other gave up at it.
    """
    world.create(RequestedTopic("a", assignment={0: (1,)}))
    if is_forbidden:
        forbid(monkeypatch, paths.config(TOPICS, "a"))
    else:
        spoil(world, paths.config(TOPICS, "a"))
    world.kill(1)

    assert world.controller.context.epoch == 1
    assert world.state(T1).leader == 0
    assert world.state(TopicPartition("a", 0)).leader == NO_LEADER
    assert "no unclean leader of a:" in caplog.text


def test_partition_whose_state_nobody_may_read_has_no_leader(world, monkeypatch, caplog):
    """The controller gave up because of this one, and each of its successors after it."""
    state = paths.partition_state(*T0)
    before = world.data(state)
    with monkeypatch.context() as context:
        forbid(context, state)
        world.run(world.registry.delete(paths.CONTROLLER))
        world.runtime.advance(0)

    assert world.controller.is_active
    assert world.controller.context.state(T0) is None
    assert world.state(T1).leader == 1
    assert f"t-0 is led by nobody: UNKNOWN_SERVER_ERROR: {state}" in caplog.text
    assert world.data(state) == before


def test_broker_whose_registration_nobody_may_read_is_taken_for_dead(world, monkeypatch, caplog):
    """No broker could be the controller as long as it was there."""
    forbid(monkeypatch, paths.broker(1))
    world.run(world.registry.delete(paths.CONTROLLER))
    world.runtime.advance(0)

    assert world.controller.is_active
    assert list(world.controller.context.brokers) == [0]
    assert world.state(T1).leader == 0
    assert "broker 1 is taken for dead" in caplog.text


def fail_once(monkeypatch, name, is_meant):
    """One call of the registry gets no answer; returns the list that is empty after it."""
    works, failures = getattr(EmbeddedRegistry, name), [RegistryFailedError("no answer")]

    async def call(self, asked):
        if failures and is_meant(asked):
            raise failures.pop()
        return await works(self, asked)

    monkeypatch.setattr(EmbeddedRegistry, name, call)
    return failures


@pytest.mark.parametrize(
    "path",
    [
        paths.broker(1),
        paths.topic("t"),
        paths.partition_state(*T0),
        paths.PREFERRED_REPLICA_ELECTION,
    ],
)
def test_node_that_the_registry_does_not_answer_for_is_read_again(world, monkeypatch, caplog, path):
    """No answer is none: nobody is dead, led by nobody, ignored or passed over because of it."""
    operations = [Delete(paths.CONTROLLER)]
    if path == paths.PREFERRED_REPLICA_ELECTION:
        world.kill(0)
        world.come(0)
        world.report_in_sync(T0, 1, 0)
        operations.append(Create(path, encode_preferred_elections([T0])))
    failures = fail_once(monkeypatch, "get", path.__eq__)
    world.run(world.registry.multi(operations))
    world.runtime.advance(0)
    world.runtime.advance(2000)
    context = world.controller.context

    assert not failures
    assert world.controller.is_active
    assert sorted(context.brokers) == [0, 1]
    assert not context.unreadable
    assert [world.state(each).leader for each in (T0, T1)] == [0, 1]
    assert "is led by nobody" not in caplog.text


def test_overrides_that_the_registry_does_not_answer_for_are_read_again(world, monkeypatch):
    """The election that they allow was held for ever without them."""
    allowed = {"unclean.leader.election.enable": "true"}
    world.create(RequestedTopic("a", assignment={0: (1, 0)}, config=allowed))
    partition = TopicPartition("a", 0)
    world.report_in_sync(partition, 1)
    failures = fail_once(monkeypatch, "get", paths.config(TOPICS, "a").__eq__)
    world.kill(1)
    world.runtime.advance(2000)

    assert not failures
    assert world.state(partition).leader == 0


def test_topic_whose_removal_is_not_answered_is_removed_by_the_next_controller(world, monkeypatch):
    """Nobody asks for it again, as one does where the registry has refused it."""
    failures = fail_once(
        monkeypatch, "multi", lambda operations: Delete(paths.topic("t")) in operations
    )
    with pytest.raises(KafkaError) as told:
        world.run(world.controller.delete_topics(["t"]))
    world.runtime.advance(2000)

    assert not failures
    assert told.value.error is ErrorCode.NOT_CONTROLLER
    assert world.run(world.registry.children(paths.TOPICS)) == []
    assert world.run(world.registry.children(paths.DELETE_TOPICS)) == []


def test_node_beside_the_brokers_is_no_broker(world):
    """Whatever somebody has put there, brokers come and go."""
    world.write(f"{paths.BROKER_IDS}/notes", b"")
    world.kill(1)

    assert list(world.controller.context.brokers) == [0]
    assert world.state(T1).leader == 0


@pytest.mark.parametrize("path", [paths.config(TOPICS, "t"), paths.partition("t", 0)])
def test_topic_whose_nodes_may_not_be_removed_waits(world, monkeypatch, caplog, path):
    """One controller after the other gave up at it, and the client never got an answer."""
    multi = EmbeddedRegistry.multi

    async def do_what_is_permitted(self, operations):
        if Delete(path) in operations:
            raise RegistryError(f"{path}: ZooKeeper's ACLs do not permit it")
        return await multi(self, operations)

    with monkeypatch.context() as context:
        context.setattr(EmbeddedRegistry, "multi", do_what_is_permitted)
        refused = world.run(world.controller.delete_topics(["t"]))["t"]
        world.runtime.advance(10_000)

        assert path in str(refused)
        assert world.controller.context.epoch == 1
        assert list(world.controller.context.topics_to_delete) == ["t"]
        assert caplog.text.count("topic t has no records left, but it cannot be deleted") == 1
        world.create(RequestedTopic("u", assignment={0: (1, 0)}))
        assert world.state(TopicPartition("u", 0)).leader == 1
    assert world.run(world.controller.delete_topics(["t"])) == {"t": None}
    assert world.run(world.registry.children(paths.TOPICS)) == ["u"]
    assert world.run(world.registry.children(paths.DELETE_TOPICS)) == []


def test_topic_whose_nodes_may_not_be_removed_is_tried_by_the_next_controller(world, monkeypatch):
    """The mark of its deletion is in the registry, whichever controller reads it."""

    async def refuse(self, entity_type, entity_name, config):
        raise RegistryError("ZooKeeper's ACLs do not permit it")

    with monkeypatch.context() as context:
        context.setattr(EntityConfigs, "plan", refuse)
        world.run(world.controller.delete_topics(["t"]))
    world.restart()

    assert world.run(world.registry.children(paths.TOPICS)) == []


def test_epoch_that_was_overwritten_is_counted_by_its_node(world, caplog):
    """No controller was elected any more: each attempt failed at the node, once a second."""
    world.run(world.registry.set(paths.CONTROLLER_EPOCH, b"{spoilt"))
    world.kill(1)
    world.runtime.advance(2000)

    assert world.controller.is_active
    assert world.controller.context.epoch == 3
    assert world.data(paths.CONTROLLER_EPOCH) == b"3"
    assert world.state(T0).leader == 0
    assert caplog.text.count("/controller_epoch: ") == 1


def test_controller_that_cannot_begin_makes_room(world, monkeypatch, caplog):
    """It stayed what it was, half a controller, and nobody else could be elected."""

    async def fail(self):
        raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, "cannot be read")

    monkeypatch.setattr(TopicChanges, "load", fail)
    world.run(world.registry.delete(paths.CONTROLLER))
    world.runtime.advance(0)
    assert not world.controller.is_active
    assert world.run(world.registry.exists(paths.CONTROLLER)) is None
    monkeypatch.undo()
    world.runtime.advance(2000)

    assert world.controller.is_active
    assert world.state(T1).leader == 1


def test_controller_whose_node_was_written_over_is_elected_anew(world, caplog):
    """It could not tell whether it was the controller, asked in vain, and nobody found it."""
    world.run(world.registry.set(paths.CONTROLLER, b"nobody"))
    world.runtime.advance(0)

    assert world.controller.is_active
    assert world.controller.context.epoch == 2
    assert decode_controller(world.data(paths.CONTROLLER)) == 0
    assert "/controller: " in caplog.text
    assert "not readable: b'nobody'" in caplog.text


def test_controller_that_gives_up_takes_its_node_away_though_it_was_written_over(
    world, monkeypatch
):
    """It was there in this session for ever, and no election came to an end."""

    async def fail(self, partitions, elect):
        await world.registry.set(paths.CONTROLLER, b"nobody")
        raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, "unforeseen")

    monkeypatch.setattr(PartitionStateMachine, "bring_online", fail)
    world.run(world.registry.delete(paths.broker(1)))
    world.runtime.advance(0)
    monkeypatch.undo()
    world.runtime.advance(2000)

    assert world.controller.is_active
    assert world.state(T0).leader == 0


def test_node_in_the_place_of_the_controller_is_waited_for(world, caplog):
    """Whoever made it is taken for the controller until it is gone."""
    usurper = (Delete(paths.CONTROLLER), Create(paths.CONTROLLER, b"nobody"))
    world.run(world.registry.multi(usurper))
    world.runtime.advance(5000)
    was_active = world.controller.is_active
    world.run(world.registry.delete(paths.CONTROLLER))
    world.runtime.advance(0)

    assert not was_active
    assert world.controller.is_active
    assert world.controller.context.epoch == 2
    assert "not readable: b'nobody'" in caplog.text
    assert "/controller has to go before a controller can be elected" in caplog.text


def test_event_that_fails_is_carried_out_by_the_next_controller(world, monkeypatch):
    """A dead broker was forgotten, and what it led was led by nobody for ever."""

    async def fail(self, partitions, elect):
        raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR, "unforeseen")

    monkeypatch.setattr(PartitionStateMachine, "bring_online", fail)
    world.run(world.registry.delete(paths.broker(1)))
    world.runtime.advance(0)
    monkeypatch.undo()
    world.runtime.advance(2000)

    assert world.state(T1).leader == 0


def test_topic_that_can_be_read_again_is_told_of_with_all_others(world):
    """Brokers that come then are told that these are all topics there are."""
    world.create(RequestedTopic("u", assignment={0: (1, 0)}))
    sound = world.data(paths.topic("u"))
    spoil(world, paths.topic("u"))
    world.restart()
    full_updates_before = world.orders.full_updates
    world.run(world.registry.set(paths.topic("u"), sound))
    world.create(RequestedTopic("v"))
    world.settle()
    world.come(2)

    assert world.state(TopicPartition("u", 0)).leader == 1
    assert (full_updates_before, world.orders.full_updates) == (0, 1)
