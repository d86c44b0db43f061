"""Leaders go back to where they belong, by request, by a node, and by themselves."""

from __future__ import annotations

import pytest

from ottla.controller.active_controller import FIRST_REBALANCE_MS
from ottla.controller.requested_topic import RequestedTopic
from ottla.errors import ErrorCode
from ottla.registry import paths
from ottla.registry.znodes import encode_preferred_elections
from ottla.structs import ElectionType, TopicPartition

T0 = TopicPartition("t", 0)


def lead_elsewhere(world):
    """Broker 1 was away and is in sync again: broker 2 leads."""
    world.create(RequestedTopic("t", assignment={0: (1, 2)}))
    world.kill(1)
    world.come(1)
    world.report_in_sync(T0, 2, 1)
    return world


@pytest.fixture
def world(make_world):
    """A partition that is not led by its preferred leader."""
    return lead_elsewhere(make_world(broker_count=3, auto_leader_rebalance_enable=False))


def elect(world, partitions, election=ElectionType.PREFERRED):
    """The error of each partition, or None."""
    results = world.run(world.controller.elect_leaders(election, partitions))
    return {each: None if error is None else error.error for each, error in results.items()}


def test_preferred_leader_is_elected_on_request(world):
    """Once: then there is nothing to do."""
    unknown = TopicPartition("t", 9)

    assert elect(world, [T0, unknown]) == {T0: None, unknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert world.state(T0).leader == 1
    assert elect(world, [T0]) == {T0: ErrorCode.ELECTION_NOT_NEEDED}
    assert elect(world, None) == {}


def test_preferred_leader_that_is_not_in_sync_is_not_available(world):
    """The one that leads goes on."""
    world.report_in_sync(T0, 2)

    assert elect(world, [T0]) == {T0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert world.state(T0).leader == 2


def test_unclean_leader_is_elected_on_request_only(world):
    """Whoever asks knows what may be lost (KIP-460)."""
    world.report_in_sync(T0, 2)
    world.kill(2)
    unclean = ElectionType.UNCLEAN

    assert world.state(T0).leader == -1
    assert elect(world, [T0], unclean) == {T0: None}
    assert (world.state(T0).leader, world.state(T0).isr) == (1, (1,))
    assert elect(world, [T0], unclean) == {T0: ErrorCode.ELECTION_NOT_NEEDED}
    world.kill(1)
    assert elect(world, [T0], unclean) == {T0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


@pytest.mark.parametrize(
    ("data", "leader"), [(encode_preferred_elections([T0]), 1), (b"[not what it should be", 2)]
)
def test_older_tools_ask_by_a_node(world, data, leader):
    """It is removed when the leader is elected, and when nobody can read it."""
    world.write(paths.PREFERRED_REPLICA_ELECTION, data)

    assert world.state(T0).leader == leader
    assert world.run(world.registry.exists(paths.PREFERRED_REPLICA_ELECTION)) is None


def test_node_of_an_older_tool_that_asks_in_vain_is_logged(world, caplog):
    """Nobody reads an answer; a partition that is led by the right one already is no failure."""
    elect(world, [T0])
    wanted = encode_preferred_elections([T0, TopicPartition("t", 9)])
    world.write(paths.PREFERRED_REPLICA_ELECTION, wanted)

    assert "t-9 gets no preferred leader" in caplog.text
    assert "t-0 gets no preferred leader" not in caplog.text


def test_replicas_are_told_of_the_preferred_leader(world):
    """It leads, and the one that led before follows."""
    world.orders.leader_and_isr_calls.clear()
    elect(world, [T0])

    assert {
        broker: [(state.topic_partition, state.leader) for state in states]
        for broker, states in world.orders.leader_and_isr_calls
    } == {1: [(T0, 1)], 2: [(T0, 1)]}


@pytest.mark.parametrize(("percentage", "leader"), [(10, 1), (100, 2)])
def test_leaders_are_balanced_from_time_to_time(make_world, percentage, leader):
    """Of brokers of whose partitions too many are led by others."""
    world = lead_elsewhere(
        make_world(broker_count=3, leader_imbalance_per_broker_percentage=percentage)
    )
    world.runtime.advance(FIRST_REBALANCE_MS)
    world.settle()

    assert world.state(T0).leader == leader


@pytest.mark.parametrize("is_deleted", [False, True])
def test_balance_leaves_alone_what_it_need_not_or_may_not_move(make_world, is_deleted):
    """That is, partitions that are led by their preferred leader, and topics that are to go."""
    world = make_world(broker_count=3)
    well_led = TopicPartition("well-led", 0)
    lead_elsewhere(world)
    world.create(RequestedTopic("well-led", assignment={0: (1, 2)}))
    if is_deleted:
        world.orders.silent.add(1)
        world.runtime.scheduler.spawn(world.controller.delete_topics(["t"]), "delete")
        world.runtime.advance(0)
    before = world.state(T0), world.state(well_led)
    world.runtime.advance(FIRST_REBALANCE_MS)
    world.settle()

    assert world.state(well_led) == before[1]
    assert (world.state(T0) == before[0]) is is_deleted
