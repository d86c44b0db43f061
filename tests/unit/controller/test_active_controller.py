"""What the active controller watches, what it does by itself, and what is left when it resigns."""

from __future__ import annotations

import pytest

from ottla.controller.active_controller import FIRST_REBALANCE_MS
from ottla.controller.broker_registration import broker_node
from ottla.controller.requested_topic import RequestedTopic
from ottla.controller.topic_changes import TopicChanges
from ottla.registry import paths
from ottla.structs import EndPoint, TopicPartition

T0 = TopicPartition("t", 0)
PERIOD_MS = 60_000


def lead_elsewhere(world) -> None:
    """Broker 1 was away and is in sync again: broker 2 leads in its place."""
    world.kill(1)
    world.come(1)
    world.report_in_sync(T0, 2, 1)
    assert world.state(T0).leader == 2


def pass_time(world, ms: int) -> None:
    world.runtime.advance(ms)
    world.settle()


@pytest.fixture
def world(make_world):
    """Three brokers, and leaders that go back each minute."""
    world = make_world(broker_count=3, leader_imbalance_check_interval_seconds=60)
    world.create(RequestedTopic("t", assignment={0: (1, 2)}))
    return world


def move(world, broker_id: int, host: str) -> None:
    """A broker that lives changes where it listens."""
    node = broker_node([EndPoint("PLAINTEXT", "PLAINTEXT", host, 9092)], 0)
    world.run(world.registry.set(paths.broker(broker_id), node))
    world.settle()


def hosts(world) -> dict[int, str]:
    """Where the brokers are, as all of them were told last."""
    return {broker.id: broker.endpoints[0].host for broker in world.orders.brokers}


def test_leaders_go_back_again_and_again(world):
    """The first time soon after the start, then in each period."""
    lead_elsewhere(world)
    pass_time(world, FIRST_REBALANCE_MS)
    assert world.state(T0).leader == 1
    for _ in range(2):
        lead_elsewhere(world)
        pass_time(world, PERIOD_MS - 1)
        assert world.state(T0).leader == 2
        pass_time(world, 1)
        assert world.state(T0).leader == 1


def test_events_do_not_put_the_balance_off(world):
    """A cluster in which something happens all the time is balanced as well."""
    lead_elsewhere(world)
    for number in range(4):
        world.create(RequestedTopic(f"other-{number}"))
        pass_time(world, FIRST_REBALANCE_MS // 4)

    assert world.state(T0).leader == 1


def test_leaders_stay_where_balancing_is_switched_off(make_world):
    """An operator balances by hand."""
    world = make_world(broker_count=3, auto_leader_rebalance_enable=False)
    world.create(RequestedTopic("t", assignment={0: (1, 2)}))
    lead_elsewhere(world)
    pass_time(world, FIRST_REBALANCE_MS + PERIOD_MS * 10)

    assert world.state(T0).leader == 2


def test_broker_that_is_alone_balances_nothing_until_others_come(world):
    """It leads everything; the time of the next balance begins anew when another one is there."""
    for broker_id in (1, 2):
        world.kill(broker_id)
    assert world.controller._active._timer is None
    for broker_id in (2, 1):
        world.come(broker_id)
    world.report_in_sync(T0, 2, 1)
    assert world.state(T0).leader == 2
    pass_time(world, FIRST_REBALANCE_MS)

    assert world.state(T0).leader == 1


def test_listeners_of_brokers_are_followed_from_the_start(world):
    """Listeners of brokers are followed, also those of a broker that came later."""
    move(world, 1, "elsewhere")
    assert hosts(world)[1] == "elsewhere"
    world.kill(2)
    world.come(2)
    move(world, 2, "moved")
    assert hosts(world)[2] == "moved"
    move(world, 2, "moved again")
    assert hosts(world)[2] == "moved again"
    world.come(3)
    move(world, 3, "moved as well")
    assert hosts(world)[3] == "moved as well"


def test_broker_that_is_gone_is_not_watched(world):
    """It may never come back."""
    world.kill(2)

    assert set(world.controller._active.brokers._watches) == {0, 1}


def test_controller_that_resigns_watches_nothing_and_balances_nothing(world):
    """What the registry says from then on is the business of the next one."""
    active = world.controller._active
    lead_elsewhere(world)
    told = list(world.orders.order)
    events: list[str] = []
    world.controller.resign()
    world.controller.events.on_event = lambda name, *times: events.append(name)
    world.run(world.registry.delete(paths.broker(2)))
    move(world, 1, "elsewhere")
    world.runtime.advance(FIRST_REBALANCE_MS + PERIOD_MS)

    assert world.orders.order == told
    assert events == []
    assert not active.brokers._watches
    assert not active.topics._watches
    assert not active._watches
    assert active._timer is None
    assert world.orders.added == []


def test_deleted_topics_are_no_longer_watched(world):
    """Their nodes are gone, and another topic of the name has a watch of its own."""
    world.create(RequestedTopic("gone"))
    assert "gone" in world.controller._active.topics._watches
    world.run(world.controller.delete_topics(["gone"]))
    world.settle()

    assert "gone" not in world.controller._active.topics._watches


def test_brokers_are_named_in_the_order_of_their_ids(world):
    """Whatever the order in which they came."""
    world.kill(1)
    world.come(1)

    assert list(world.controller.context.brokers) == [0, 1, 2]


def test_balance_of_a_broker_that_is_alone_does_not_go_on(world):
    """Its timer is cancelled: else there would be two when others come back."""
    names: list[str] = []
    world.controller.events.on_event = lambda name, *times: names.append(name)
    for broker_id in (1, 2):
        world.kill(broker_id)
    pass_time(world, FIRST_REBALANCE_MS + PERIOD_MS)
    alone = names.count("leader rebalance")
    world.come(1)
    pass_time(world, FIRST_REBALANCE_MS)

    assert (alone, names.count("leader rebalance")) == (0, 1)


def test_next_controller_tells_all_replicas_who_leads(world):
    """Its predecessor may have died between the registry and the brokers."""
    world.controller.resign()
    world.run(world.registry.delete(paths.CONTROLLER))
    world.orders.leader_and_isr_calls.clear()
    world.run(world.controller.startup())
    told = {
        broker_id: [state.topic_partition for state in states]
        for broker_id, states in world.orders.leader_and_isr_calls
    }

    assert told == {1: [T0], 2: [T0]}


def test_broker_that_moves_while_a_controller_begins_is_followed(world, monkeypatch):
    """Its node is watched before anything else is read."""
    world.controller.resign()
    world.run(world.registry.delete(paths.CONTROLLER))
    begun = TopicChanges.load

    async def move_meanwhile(self):
        node = broker_node([EndPoint("PLAINTEXT", "PLAINTEXT", "elsewhere", 9092)], 0)
        await world.registry.set(paths.broker(1), node)
        return await begun(self)

    monkeypatch.setattr(TopicChanges, "load", move_meanwhile)
    world.run(world.controller.startup())
    world.settle()

    assert hosts(world)[1] == "elsewhere"
