"""Brokers come, go, return as new processes, shut down, or lose a log directory."""

from __future__ import annotations

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.controller.broker_registration import broker_node, register_broker
from ottla.controller.requested_topic import RequestedTopic
from ottla.controller.statuses import ReplicaStatus
from ottla.errors import ErrorCode, KafkaError
from ottla.registry import paths
from ottla.registry.tree import Create, NoNodeError
from ottla.registry.znodes import encode_log_dir_event, encode_partition_state
from ottla.runtime.scheduler import at_once
from ottla.structs import NO_LEADER, EndPoint, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def world(make_world):
    """Three brokers; one partition is on two of them, the other one on broker 1 alone."""
    world = make_world(broker_count=3)
    world.create(RequestedTopic("t", assignment={0: (1, 2)}))
    world.create(RequestedTopic("alone", assignment={0: (1,)}))
    return world


def test_dead_leader_is_followed_by_a_replica_in_sync(world):
    """In the next epoch, without the dead one; what it had alone has no leader."""
    before = world.state(T0)
    world.kill(1)

    state = world.state(T0)
    assert (state.leader, state.isr) == (2, (2,))
    assert state.leader_epoch > before.leader_epoch
    assert world.orders.added == [0, 2]
    alone = world.state(TopicPartition("alone", 0))
    assert (alone.leader, alone.isr) == (NO_LEADER, (1,))
    assert world.orders.metadata[T0].leader == 2


def test_broker_that_returns_follows(world):
    """It is told so; only what it had alone it leads again."""
    world.kill(1)
    world.orders.leader_and_isr_calls.clear()
    world.come(1)

    assert world.state(T0).leader == 2
    assert world.state(TopicPartition("alone", 0)).leader == 1
    told = {
        state.topic_partition for to, states in world.orders.leader_and_isr_calls if to == 1
        for state in states
    }  # fmt: skip
    assert told == {T0, TopicPartition("alone", 0)}


def test_broker_that_returns_knows_all_topics_before_its_first_order(world):
    """It may be told to coordinate transactions: what it does not know it must not think gone."""
    world.kill(1)
    world.orders.order.clear()
    world.come(1)

    orders = world.orders.order
    assert orders.index("all metadata 1") < orders.index("LeaderAndIsr 1")
    assert orders.index("changed metadata 2") < orders.index("LeaderAndIsr 1")


def test_new_controller_tells_all_topics_before_its_first_order(world):
    """Its predecessor may have made topics that not every broker has heard of."""
    world.restart()

    orders = world.orders.order
    first = min(number for number, order in enumerate(orders) if order.startswith("Leader"))
    assert orders[:first] == ["all metadata 0", "all metadata 1", "all metadata 2"]


def test_nothing_of_an_event_whose_orders_fail_is_sent_with_the_next(world, monkeypatch):
    """It would be sent with a later state, or to brokers that have other orders by then."""
    batch = world.controller._active.core.batch

    def broken(*arguments):
        raise ValueError("a bug")

    batch.add_leader_and_isr((1, 2), T0)
    batch.add_full_metadata((1,))
    with monkeypatch.context() as patch:
        patch.setattr(world.orders, "leader_and_isr", broken)
        with pytest.raises(ValueError, match="a bug"):
            at_once(batch.send())
    world.orders.order.clear()
    at_once(batch.send())

    assert world.orders.order == []


def test_process_that_was_replaced_unseen_is_dead_and_new(world):
    """The registration has another epoch: the old process led, the new one does not (KIP-380)."""

    async def bounce():
        await world.registry.delete(paths.broker(1))
        await register_broker(
            world.registry, 1, [EndPoint("PLAINTEXT", "PLAINTEXT", "host-1", 9092)], 0
        )

    world.run(bounce())
    world.settle()

    assert world.state(T0).leader == 2
    assert world.orders.added == [0, 2, 1]


def test_shutdown_moves_leaders_away(world):
    """What the broker has alone does not count: nobody else can lead it."""
    epoch = world.controller.context.brokers[1].epoch
    with pytest.raises(KafkaError) as stale:
        world.run(world.controller.controlled_shutdown(1, epoch - 1))
    remaining = world.run(world.controller.controlled_shutdown(1, epoch))

    assert stale.value.error is ErrorCode.STALE_BROKER_EPOCH
    assert remaining == []
    assert (world.state(T0).leader, world.state(T0).isr) == (2, (2,))
    assert world.state(TopicPartition("alone", 0)).leader == 1


def test_shutdown_names_what_cannot_be_led_elsewhere(world):
    """The other replica is not in sync."""
    world.report_in_sync(T0, 1)
    remaining = world.run(world.controller.controlled_shutdown(1, -1))

    assert remaining == [T0]


def test_failed_log_directory_is_told_by_a_node(world):
    """The broker's answer to LeaderAndIsr says which partitions; the node goes."""
    world.orders.offline[1] = {T0}
    world.write(f"{paths.LOG_DIR_EVENTS}/log_dir_event_0000000007", encode_log_dir_event(1))
    world.settle()

    assert (world.state(T0).leader, world.state(T0).isr) == (2, (2,))
    assert world.state(TopicPartition("alone", 0)).leader == 1
    assert world.run(world.registry.children(paths.LOG_DIR_EVENTS)) == []


def test_note_of_a_log_directory_that_is_spoilt_or_gone_keeps_no_other_back(
    world, monkeypatch, caplog
):
    """The controller before may read notes and remove them at the same time."""
    world.orders.offline[1] = {T0}
    get = world.registry.get

    async def gone_by_now(path):
        if path == f"{paths.LOG_DIR_EVENTS}/log_dir_event_0000000001":
            raise NoNodeError(path)
        return await get(path)

    monkeypatch.setattr(world.registry, "get", gone_by_now)
    notes = (b"", b"{spoilt", encode_log_dir_event(1))
    operations = [
        Create(f"{paths.LOG_DIR_EVENTS}/log_dir_event_{number:010}", data)
        for number, data in enumerate(notes, 1)
    ]
    world.run(world.registry.multi(operations))
    world.settle()

    assert (world.state(T0).leader, world.state(T0).isr) == (2, (2,))
    assert world.run(world.registry.children(paths.LOG_DIR_EVENTS)) == []
    assert "log_dir_event_0000000002 is dropped" in caplog.text


def test_answer_of_a_process_that_is_gone_says_nothing_of_the_next(world):
    """Its logs are not taken for offline in the next one as well, not even for a moment."""
    alone = TopicPartition("alone", 0)
    leader_and_isr, late = world.orders.leader_and_isr, []

    def keep(controller_epoch, broker_id, states, brokers, on_answer):
        if broker_id == 1 and not late:
            late.append(on_answer)
        else:
            leader_and_isr(controller_epoch, broker_id, states, brokers, on_answer)

    world.orders.leader_and_isr = keep
    world.run(world.controller.on_log_dir_event(1))
    world.kill(1)
    late[0]({alone: ErrorCode.KAFKA_STORAGE_ERROR})
    world.settle()
    offline = dict(world.controller.context.offline)
    world.come(1)

    assert 1 not in offline
    assert world.state(alone).leader == 1


def test_unclean_election_may_be_allowed_while_the_controller_runs(world):
    """By the brokers' settings, for every topic without one of its own."""
    world.report_in_sync(T0, 1)
    world.kill(1)
    leaderless = world.state(T0).leader
    world.controller.update_config(BrokerConfig(unclean_leader_election_enable=True))
    world.run(world.controller.on_unclean_election_allowed())

    assert leaderless == NO_LEADER
    assert (world.state(T0).leader, world.state(T0).isr) == (2, (2,))


def test_all_brokers_are_told_of_a_listener_that_was_added(world):
    """The registration and its epoch are as before: nothing is elected, nothing is dropped."""
    before, epoch = world.state(T0), world.controller.context.brokers[1].epoch
    calls = len(world.orders.leader_and_isr_calls)
    end_points = [EndPoint(name, "PLAINTEXT", "h", port) for name, port in (("A", 1), ("B", 2))]

    async def add() -> None:
        await world.registry.set(paths.broker(1), broker_node(end_points, 0))

    world.run(add())
    world.settle()

    told = {broker.id: broker for broker in world.orders.brokers}
    assert told[1].endpoints == tuple(end_points)
    assert told[1].epoch == epoch
    assert world.state(T0) == before
    assert len(world.orders.leader_and_isr_calls) == calls


def test_other_brokers_know_of_a_death_before_the_new_process_has_orders(world):
    """It is told of everything only after the others follow another leader."""
    world.orders.order.clear()

    async def bounce() -> None:
        await world.registry.delete(paths.broker(1))
        await register_broker(
            world.registry, 1, [EndPoint("PLAINTEXT", "PLAINTEXT", "host-1", 9092)], 0
        )

    world.run(bounce())
    world.settle()

    assert world.orders.order[:4] == [
        "LeaderAndIsr 2",
        "changed metadata 0",
        "changed metadata 2",
        "changed metadata 0",
    ]
    assert "all metadata 1" in world.orders.order


def test_broker_without_replicas_comes_and_goes_and_clients_are_told(world):
    """It may have been the one that they were to ask next."""
    world.come(3)
    come = [broker.id for broker in world.orders.brokers]
    world.kill(3)

    assert come == [0, 1, 2, 3]
    assert [broker.id for broker in world.orders.brokers] == [0, 1, 2]


def test_broker_that_was_shut_down_leads_again_when_it_is_back(world):
    """The shutdown was that of the process before."""
    world.run(world.controller.controlled_shutdown(1, -1))
    world.kill(1)
    world.come(1)

    assert world.state(TopicPartition("alone", 0)).leader == 1
    assert world.report_in_sync(T0, 2, 1).isr == (2, 1)


def test_broker_that_returns_with_its_directory_mended_leads_again(world):
    """What was offline there is forgotten with the process that said so."""
    alone = TopicPartition("alone", 0)
    world.orders.offline[1] = {alone}
    world.run(world.controller.on_log_dir_event(1))
    world.settle()
    leaderless = world.state(alone).leader
    world.kill(1)
    world.orders.offline.clear()
    world.come(1)

    assert leaderless == NO_LEADER
    assert world.state(alone).leader == 1
    assert world.orders.metadata[alone].offline_replicas == ()


def test_leader_is_told_of_a_place_in_sync_that_was_given_up_before_the_death(world):
    """The start of a broker that has lost its log has written that, and nobody else knows it."""
    state, epoch = world.state(T0), world.controller.context.epoch
    data = encode_partition_state(state._replace(isr=(1,)), epoch)
    world.run(world.registry.set(paths.partition_state(*T0), data, state.version))
    world.orders.leader_and_isr_calls.clear()
    world.kill(2)

    (told,) = [
        each.leader_and_isr
        for to, states in world.orders.leader_and_isr_calls if to == 1
        for each in states if each.topic_partition == T0
    ]  # fmt: skip
    assert told == world.state(T0)
    assert (told.leader, told.isr) == (1, (1,))
    assert told.version > state.version


def test_failed_log_directory_takes_away_only_what_was_in_it(world):
    """The broker goes on with its other logs, and is asked of all of them again and again."""
    for _ in range(2):
        world.orders.offline[2] = {T0, TopicPartition("unknown", 0)}
        world.run(world.controller.on_log_dir_event(2))
        world.settle()
    world.orders.offline[1] = {TopicPartition("alone", 0)}
    world.run(world.controller.on_log_dir_event(1))
    world.settle()
    state = world.state(T0)
    world.run(world.controller.on_log_dir_event(1))
    world.settle()

    assert (state.leader, state.isr) == (1, (1,))
    assert world.state(T0) == state
    assert world.orders.metadata[T0].offline_replicas == (2,)


def test_log_that_a_broker_has_a_moment_later_is_not_called_offline(world):
    """Both answers come before the controller has looked at the first one.

    The order to stop, for the first one, is not the last one: the broker would never copy again.
    """
    leader_and_isr, answers = world.orders.leader_and_isr, []

    def answer_later(controller_epoch, broker_id, states, brokers, on_answer):
        leader_and_isr(controller_epoch, broker_id, states, brokers, answers.append)
        if broker_id != 2 or len(answers) > 1:
            on_answer(answers[-1])
        else:
            on_answer({T0: ErrorCode.KAFKA_STORAGE_ERROR})
            on_answer({T0: ErrorCode.NONE})

    world.orders.leader_and_isr = answer_later
    world.orders.order.clear()
    world.run(world.controller.on_log_dir_event(2))
    world.settle()

    assert world.controller.context.is_online(T0, 2)
    assert world.orders.stopped == [(2, T0, False)]
    assert [each for each in world.orders.order if "metadata" not in each][-1] == "LeaderAndIsr 2"
    assert world.controller.context.replica_statuses[T0, 2] is ReplicaStatus.ONLINE


@pytest.mark.parametrize("replicas", [(1,), (2,), (1, 2), (2, 0, 1)])
def test_partition_without_a_leader_has_one_once_a_log_can_be_made(world, replicas):
    """All disks were full when it was created: the last one that was in sync comes to lead."""
    made = TopicPartition("made", 0)
    world.orders.offline = {broker_id: {made} for broker_id in replicas}
    world.create(RequestedTopic("made", assignment={0: replicas}))
    world.settle()
    leaderless = world.state(made)
    world.orders.offline.clear()
    for broker_id in replicas:
        world.run(world.controller.on_log_dir_event(broker_id))
        world.settle()

    assert leaderless.leader == NO_LEADER
    assert world.state(made).leader in leaderless.isr
    assert world.orders.metadata[made].leader in leaderless.isr
    assert world.orders.metadata[made].offline_replicas == ()


def test_log_that_a_broker_has_again_is_not_called_offline_any_more(world):
    """Its answer to the next order says so, and its replica may be in sync again."""
    world.orders.offline[2] = {T0}
    world.run(world.controller.on_log_dir_event(2))
    world.settle()
    world.orders.offline.clear()
    world.run(world.controller.on_log_dir_event(2))
    world.settle()
    world.report_in_sync(T0, 1, 2)

    assert world.orders.metadata[T0].offline_replicas == ()
    world.kill(1)
    assert world.state(T0).leader == 2
