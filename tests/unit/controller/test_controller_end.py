"""A controller ends: it stops, resigns, or gives up after an error of its own."""

from __future__ import annotations

import asyncio

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.controller.requested_topic import RequestedTopic
from ottla.errors import ErrorCode, KafkaError
from ottla.registry import paths
from ottla.registry.tree import REGISTRY_RETRY_MS, Create, RegistryFailedError, SessionEndedError
from ottla.structs import TopicPartition

T0 = TopicPartition("t", 0)


@pytest.fixture
def world(make_world):
    """Two brokers with a partition that is on both."""
    world = make_world(broker_count=2)
    world.create(RequestedTopic("t", assignment={0: (0, 1)}))
    return world


def wait_for_retry(world):
    world.runtime.advance(REGISTRY_RETRY_MS)
    world.runtime.scheduler.run_ready()


def break_once(world, monkeypatch, name="send"):
    """The next event fails with an error that no code expects."""
    batch, whole = world.controller._active.core.batch, monkeypatch.context()
    patch = whole.__enter__()

    def broken(*arguments):
        whole.__exit__(None, None, None)
        raise ValueError("a bug")

    patch.setattr(batch, name, broken)


def test_broker_that_stops_is_not_elected_again(world):
    """Though the node of the controller goes, which another broker needs."""
    world.controller.shutdown()
    watches = {kind_and_path for kind_and_path, those in world.registry._watches.items() if those}
    world.run(world.registry.delete(paths.CONTROLLER))
    wait_for_retry(world)

    assert not world.controller.is_active
    assert watches == set()
    assert world.run(world.registry.exists(paths.CONTROLLER)) is None
    with pytest.raises(KafkaError) as caught:
        world.run(world.controller.startup())
    assert caught.value.error is ErrorCode.NOT_CONTROLLER


def test_broker_that_stops_after_it_gave_up_does_not_try_again(world, monkeypatch):
    """The timer of its next attempt is cancelled."""
    break_once(world, monkeypatch)
    with pytest.raises(ValueError, match="a bug"):
        world.create(RequestedTopic("u"))
    world.runtime.scheduler.run_ready()  # it makes room for another one
    world.controller.shutdown()

    assert world.runtime.scheduler.loop.next_due_ms() is None
    wait_for_retry(world)
    assert world.run(world.registry.exists(paths.CONTROLLER)) is None


def test_broker_that_was_never_started_can_be_stopped(world):
    """Its start may have failed before."""
    world.controller.shutdown()
    world.controller.shutdown()

    assert not world.controller.is_active


def test_bug_in_an_event_ends_the_epoch_and_the_next_one_begins_from_the_registry(
    world, monkeypatch, caplog
):
    """What it had changed in memory may not be what is written."""
    epoch = world.controller.context.epoch
    break_once(world, monkeypatch)
    with pytest.raises(ValueError, match="a bug"):
        world.create(RequestedTopic("u"))
    is_active_at_once = world.controller.is_active
    wait_for_retry(world)
    world.settle()

    assert not is_active_at_once
    assert world.controller.context.epoch > epoch
    assert set(world.controller.context.topics) == {"t", "u"}
    assert "The controller's event 'create topics' failed" in caplog.text


def test_refusal_of_a_request_is_no_failure(world, caplog):
    """A client may ask for anything; nothing else is sent later, either."""
    epoch = world.controller.context.epoch
    with pytest.raises(KafkaError):
        world.run(world.controller.auto_create_topic("a b"))

    assert world.controller.is_active
    assert world.controller.context.epoch == epoch
    assert "failed" not in caplog.text


def test_resigned_controller_refuses_what_was_queued_behind(world):
    """NOT_CONTROLLER: the client asks the next one."""

    async def resign_under_way() -> list[object]:
        first = asyncio.ensure_future(world.controller.create_topics([RequestedTopic("a")]))
        second = asyncio.ensure_future(world.controller.create_topics([RequestedTopic("b")]))
        await asyncio.sleep(0)
        world.controller.resign()
        return await asyncio.gather(first, second, return_exceptions=True)

    refused = world.run(resign_under_way())

    assert refused[1].error is ErrorCode.NOT_CONTROLLER
    assert "b" not in world.run(world.registry.children(paths.TOPICS))
    assert not world.controller.is_active


def test_resignation_refuses_at_once_what_waits_behind_an_event_that_hangs(world, monkeypatch):
    """Clients need not wait for the registry to hear that they have to ask another broker."""
    gate, children = asyncio.Event(), world.registry.children

    async def wait_at_the_gate(path):
        await gate.wait()
        return await children(path)

    monkeypatch.setattr(world.registry, "children", wait_at_the_gate)
    spawn = world.runtime.scheduler.spawn
    world.run(world.registry.delete(paths.broker(1)))
    waiting = spawn(world.controller.create_topics([RequestedTopic("b")]), "waiting")
    world.runtime.advance(0)
    assert not waiting.done()
    world.controller.resign()
    late = spawn(world.controller.create_topics([RequestedTopic("c")]), "late")
    world.runtime.advance(0)

    assert not world.controller.events.is_idle
    for refused in (waiting, late):
        with pytest.raises(KafkaError) as caught:
            refused.result()
        assert caught.value.error is ErrorCode.NOT_CONTROLLER
    gate.set()
    world.runtime.advance(0)
    assert world.controller.events.is_idle


def fail_once(world, monkeypatch, path, error):
    """The next write that makes this node fails, and nothing of it is done."""
    multi, errors = world.registry.multi, [error]

    async def fail(operations):
        if errors and any(isinstance(each, Create) and each.path == path for each in operations):
            raise errors.pop()
        return await multi(operations)

    monkeypatch.setattr(world.registry, "multi", fail)


@pytest.mark.parametrize("error", [RegistryFailedError("no answer"), ValueError("a bug")])
def test_election_that_fails_is_held_again_later(world, monkeypatch, caplog, error):
    """Nothing else would bring one about: the node of the controller is not written any more."""
    fail_once(world, monkeypatch, paths.CONTROLLER, error)
    world.run(world.registry.delete(paths.CONTROLLER))
    world.runtime.advance(0)
    is_active_at_once = world.controller.is_active
    wait_for_retry(world)

    assert not is_active_at_once
    assert world.controller.is_active
    assert "The controller's event 'election' failed" in caplog.text


def test_controller_that_gives_up_twice_waits_its_time_after_the_second(world, monkeypatch):
    """The time after the first is over then, and others have as long to try as before."""
    break_once(world, monkeypatch)
    with pytest.raises(ValueError, match="a bug"):
        world.create(RequestedTopic("u"))
    world.runtime.advance(REGISTRY_RETRY_MS // 2)
    world.run(world.controller.startup())
    break_once(world, monkeypatch)
    with pytest.raises(ValueError, match="a bug"):
        world.create(RequestedTopic("v"))
    world.runtime.advance(REGISTRY_RETRY_MS - 1)
    is_active_before = world.controller.is_active
    world.runtime.advance(1)

    assert not is_active_before
    assert world.controller.is_active


def test_controller_whose_session_has_ended_waits_until_it_is_registered_again(world, monkeypatch):
    """A broker without a session could not hold the node, nor be found as the controller."""
    error = SessionEndedError("the session has expired")
    fail_once(world, monkeypatch, paths.topic("u"), error)
    with pytest.raises(KafkaError) as caught:
        world.create(RequestedTopic("u"))
    world.run(world.registry.delete(paths.CONTROLLER))
    wait_for_retry(world)
    was_active = world.controller.is_active
    world.run(world.controller.startup())

    assert caught.value.error is ErrorCode.NOT_CONTROLLER
    assert not was_active
    assert world.controller.is_active


def test_lost_leaders_are_counted_over_all_epochs(world, monkeypatch):
    """A controller that is elected again has not forgotten them."""
    world.controller.update_config(BrokerConfig(unclean_leader_election_enable=True))
    world.report_in_sync(T0, 0)
    world.kill(0)
    after_one = world.controller.unclean_elections
    world.controller.resign()
    resigned = world.controller.unclean_elections
    world.run(world.registry.delete(paths.CONTROLLER))
    world.come(0)
    world.run(world.controller.startup())
    world.settle()
    again = world.controller.unclean_elections
    world.report_in_sync(T0, 1)
    world.kill(1)

    assert [after_one, resigned, again, world.controller.unclean_elections] == [1, 1, 1, 2]


def test_lost_leader_counts_where_the_answer_of_the_registry_does_not_come(world, monkeypatch):
    """The election is written down, and the controller ends: nobody else knows of it."""
    world.controller.update_config(BrokerConfig(unclean_leader_election_enable=True))
    world.report_in_sync(T0, 0)
    states = world.controller._active.core.partitions.states
    change = states.change

    async def end_after(partitions, choose):
        await change(partitions, choose)
        world.controller.resign()
        raise SessionEndedError("the answer is lost with the session")

    monkeypatch.setattr(states, "change", end_after)
    world.kill(0)

    assert world.controller.unclean_elections == 1


def test_clean_elections_are_not_counted(world):
    """Where the next leader was in sync, nothing is lost."""
    world.controller.update_config(BrokerConfig(unclean_leader_election_enable=True))
    world.kill(0)

    assert world.state(T0).leader == 1
    assert world.controller.unclean_elections == 0


def test_controller_that_sees_itself_in_the_node_stays(world):
    """The watch may fire for nothing."""
    epoch = world.controller.context.epoch
    data = world.data(paths.CONTROLLER)
    world.run(world.registry.set(paths.CONTROLLER, data, -1))
    world.settle()

    assert world.controller.context.epoch == epoch
