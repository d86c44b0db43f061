"""The controller's requests to other brokers: in order, until they are answered."""

from __future__ import annotations

import asyncio
import struct
from uuid import UUID

import pytest
from cluster_world import PORT, Peer

from ottla.errors import ErrorCode, LocalProtocolError
from ottla.protocol.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from ottla.protocol.update_metadata import (
    FULL_TYPE,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from ottla.runtime.scheduler import at_once
from ottla.server import order_messages, orders_to_cluster
from ottla.server.broker_sender import BrokerSender
from ottla.server.controller_orders import OrdersToOwnBroker
from ottla.server.order_messages import (
    leader_nodes,
    live_brokers,
    metadata_update,
    ordered_states,
    stopped_partitions,
)
from ottla.server.orders_to_cluster import OrdersToCluster
from ottla.structs import (
    LeaderAndIsr,
    MetadataUpdate,
    Node,
    PartitionState,
    StopReplicaPartition,
    TopicPartition,
)

T0 = TopicPartition("t", 0)
STATE = PartitionState(
    T0, UUID(int=7), 5, LeaderAndIsr(2, 3, (2, 1), 4), (1, 2), True, (), (1,), (9,)
)


@pytest.fixture
def orders(cluster_world):
    """The orders that broker 1 gives; nothing is told to that broker itself."""
    local = OrdersToOwnBroker(None, 1)
    orders = OrdersToCluster(cluster_world.runtime, local, cluster_world.connections, 1000)
    yield orders
    orders.close()
    cluster_world.advance()


def answered(world):
    """Brokers that accept everything."""
    world.answers = {
        LeaderAndIsrRequest: lambda broker_id, body: LeaderAndIsrResponse(
            topics=[
                LeaderAndIsrTopicError(
                    topic_id=UUID(int=7),
                    partition_errors=[LeaderAndIsrPartitionError(partition_index=0, error_code=56)],
                )
            ]
        ),
        StopReplicaRequest: lambda broker_id, body: StopReplicaResponse(
            partition_errors=[StopReplicaPartitionError(topic_name="t", partition_index=0)]
        ),
        UpdateMetadataRequest: lambda broker_id, body: UpdateMetadataResponse(),
    }


def test_requests_arrive_as_they_were_meant(cluster_world, orders):
    """With the epochs of the controller and of the broker, one after the other."""
    world, answers = cluster_world, []
    answered(world)
    world.serve(2)
    broker = world.broker(2, epoch=77)
    orders.add_broker(broker)
    stopped = [StopReplicaPartition(T0, 3, delete=True)]
    orders.leader_and_isr(5, 2, [STATE], [Node(2, "host-2", 9092), Node(3, "x", 1)], answers.append)
    orders.stop_replica(5, 2, stopped, answers.append)
    orders.update_metadata(5, [2], MetadataUpdate([STATE], [broker], ["gone"], is_full=True))
    world.advance(100)

    lead, stop, metadata = (body for _, body in world.asked)
    for body in (lead, stop, metadata):
        assert (body.controller_id, body.controller_epoch, body.broker_epoch) == (1, 5, 77)
    assert ordered_states(lead) == [STATE]
    assert leader_nodes(lead) == [Node(2, "host-2", 9092)]
    assert stopped_partitions(stop) == stopped
    told = STATE._replace(is_new=False, adding_replicas=(), removing_replicas=())
    update = at_once(metadata_update(metadata))
    assert (update.states, update.deleted_topics) == ([told], ["gone"])
    assert metadata.type == FULL_TYPE
    assert [each.node("PLAINTEXT") for each in live_brokers(metadata)] == [broker.node("PLAINTEXT")]
    assert answers == [{T0: ErrorCode.KAFKA_STORAGE_ERROR}, {T0: ErrorCode.NONE}]


def long_update(topic, count=5):
    """So many partitions, each of which is a slice."""
    states = [STATE._replace(topic_partition=TopicPartition(topic, n)) for n in range(count)]
    return MetadataUpdate(states)


def told(world, broker_id):
    """The topics of the updates that a broker got."""
    updates = [body for other, body in world.asked if other == broker_id]
    return [
        [(t.topic_name, len(t.partition_states)) for t in body.topic_states] for body in updates
    ]


@pytest.fixture
def slow(cluster_world, monkeypatch):
    """Each partition is a slice; brokers 2 and 3 accept everything."""
    monkeypatch.setattr(order_messages, "STATES_AT_ONCE", 1)
    answered(cluster_world)
    cluster_world.serve(2, 3)
    return cluster_world


def test_brokers_share_an_update_but_for_their_epochs(slow, orders, monkeypatch):
    """It is encoded once."""
    made = []
    encode = orders_to_cluster.encoded_update
    monkeypatch.setattr(
        orders_to_cluster, "encoded_update", lambda *all: made.append(all) or encode(*all)
    )
    for broker_id in (2, 3):
        orders.add_broker(slow.broker(broker_id, epoch=70 + broker_id))
    orders.update_metadata(5, [2, 3, 4], long_update("t"))
    orders.update_metadata(5, [4], long_update("u"))  # which is not there
    slow.advance(100)

    assert [(other, body.broker_epoch) for other, body in slow.asked] == [(2, 72), (3, 73)]
    assert told(slow, 2) == told(slow, 3) == [[("t", 5)]]
    assert len(made) == 1


def test_orders_keep_their_places_behind_one_that_is_still_encoded(slow, orders):
    """Nothing overtakes it, however short it is."""
    orders.add_broker(slow.broker(2))
    orders.update_metadata(5, [2], long_update("t", 50))
    orders.leader_and_isr(5, 2, [STATE], [], lambda answers: None)
    orders.update_metadata(5, [2], long_update("u", 1))
    slow.advance(200)

    kinds = [type(body) for _, body in slow.asked]
    assert kinds == [UpdateMetadataRequest, LeaderAndIsrRequest, UpdateMetadataRequest]
    del slow.asked[1]
    assert told(slow, 2) == [[("t", 50)], [("u", 1)]]


@pytest.mark.parametrize("returns", [False, True])
def test_update_goes_on_without_a_broker_that_goes_while_it_is_encoded(slow, orders, returns):
    """The other one gets it, and the first, when it is back, none of its former registration."""
    for broker_id in (2, 3):
        orders.add_broker(slow.broker(broker_id))
    orders.update_metadata(5, [2, 3], long_update("t", 50))
    slow.runtime.scheduler.call_soon(lambda: orders.remove_broker(2))
    if returns:
        slow.runtime.scheduler.call_soon(lambda: orders.add_broker(slow.broker(2, epoch=2)))
    slow.advance(200)

    assert (told(slow, 2), told(slow, 3)) == ([], [[("t", 50)]])


def test_broker_that_does_not_answer_is_tried_again(cluster_world, orders):
    """It must hear what was decided, and nothing overtakes it."""
    world, answers = cluster_world, []
    answered(world)
    orders.add_broker(world.broker(2))
    orders.leader_and_isr(5, 2, [STATE], [], answers.append)
    orders.stop_replica(5, 2, [], answers.append)
    world.advance(500)
    assert answers == []
    world.serve(2)
    world.advance(2000)

    assert [type(body) for _, body in world.asked] == [LeaderAndIsrRequest, StopReplicaRequest]
    assert len(answers) == 2


def test_broker_that_has_answered_all_gets_the_next_request(cluster_world, orders):
    """Its sender waits for work meanwhile."""
    world, answers = cluster_world, []
    answered(world)
    world.serve(2)
    orders.add_broker(world.broker(2))
    for count in (1, 2, 3):
        orders.stop_replica(5, 2, [], answers.append)
        world.advance(100)
        assert len(answers) == count


def test_removed_broker_hears_nothing_more(cluster_world, orders):
    """A removed broker gets nothing more, and its next registration no orders of the former."""
    world, answers = cluster_world, []
    answered(world)
    orders.add_broker(world.broker(2, epoch=1))
    orders.leader_and_isr(5, 2, [STATE], [], answers.append)
    orders.remove_broker(2)
    orders.stop_replica(5, 2, [], answers.append)
    world.serve(2)
    orders.add_broker(world.broker(2, epoch=2))
    orders.update_metadata(5, [2], MetadataUpdate())
    world.advance(1000)

    assert [(type(body), body.broker_epoch) for _, body in world.asked] == [
        (UpdateMetadataRequest, 2)
    ]
    assert answers == []


def test_refused_request_is_answered_by_nobody(cluster_world, orders):
    """The broker knows a newer controller: what this one thinks does not matter any more."""
    world, answers = cluster_world, []
    world.answers = {
        LeaderAndIsrRequest: lambda broker_id, body: LeaderAndIsrResponse(
            error_code=ErrorCode.STALE_CONTROLLER_EPOCH
        )
    }
    world.serve(2)
    orders.add_broker(world.broker(2))
    orders.leader_and_isr(5, 2, [STATE], [], answers.append)
    world.advance(100)

    assert len(world.asked) == 1
    assert answers == []


def test_drained_orders_have_been_answered(cluster_world, orders):
    """However long it takes, as long as answers come: a broker may have much to do."""
    world = cluster_world
    answered(world)
    world.delays_ms[2] = 800
    world.serve(2)
    orders.add_broker(world.broker(2))
    for _ in range(3):
        orders.update_metadata(5, [2], MetadataUpdate())
    draining = world.runtime.scheduler.spawn(orders.drain(900), "drain")
    world.advance(2_300)
    assert not draining.done()
    world.advance(200)

    assert draining.done()
    assert len(world.asked) == 3


def test_broker_that_answers_nothing_is_not_drained_for_ever(cluster_world, orders):
    """It may be dead; the next controller will find out."""
    world = cluster_world
    orders.add_broker(world.broker(2))
    orders.update_metadata(5, [2], MetadataUpdate())
    draining = world.runtime.scheduler.spawn(orders.drain(900), "drain")
    world.advance(890)
    assert not draining.done()
    world.advance(20)

    assert draining.done()


@pytest.mark.parametrize("error", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_refusal_of_a_deletion_is_one_of_each_replica(cluster_world, orders, error):
    """Nobody would answer for them later: the topic waited for its deletion for ever."""
    world, answers = cluster_world, []
    world.answers = {StopReplicaRequest: lambda _, body: StopReplicaResponse(error_code=error)}
    world.serve(2)
    orders.add_broker(world.broker(2))
    t1 = TopicPartition("t", 1)
    stopped = [StopReplicaPartition(each, 3, True) for each in (T0, t1)]
    orders.stop_replica(5, 2, stopped, answers.append)
    world.advance(100)

    assert answers == [{T0: error, t1: error}]


@pytest.mark.parametrize(
    "error", [struct.error("planted"), ValueError("planted"), LocalProtocolError("planted")]
)
def test_request_that_cannot_be_sent_holds_up_none_behind_it(
    cluster_world, orders, monkeypatch, caplog, error
):
    """It is named, counts as refused, and the next ones go out."""
    world, answers = cluster_world, []
    answered(world)
    world.serve(2)
    orders.add_broker(world.broker(2))
    ask = BrokerSender._ask

    async def fail_for_one(sender, request):
        if isinstance(request, StopReplicaRequest):
            raise error
        return await ask(sender, request)

    monkeypatch.setattr(BrokerSender, "_ask", fail_for_one)
    orders.stop_replica(5, 2, [StopReplicaPartition(T0, 3, True)], answers.append)
    orders.leader_and_isr(5, 2, [STATE], [], answers.append)
    world.advance(100)

    assert answers[0] == {T0: ErrorCode.UNKNOWN_SERVER_ERROR}
    assert len(answers) == 2
    assert "StopReplicaRequest to " in caplog.text


@pytest.mark.parametrize("is_long", [False, True])
def test_update_that_cannot_be_encoded_holds_up_none_behind_it(slow, orders, is_long):
    """A registration in ZooKeeper may have a text that has no bytes."""
    answers = []
    for broker_id in (2, 3):
        orders.add_broker(slow.broker(broker_id))
    update = long_update("t", 50 if is_long else 0)
    update = update._replace(brokers=[slow.broker(2)._replace(rack="\ud800")])
    orders.update_metadata(5, [2, 3], update)
    for broker_id in (2, 3):
        orders.leader_and_isr(5, broker_id, [STATE], [], answers.append)
    slow.advance(200)

    assert len(answers) == 2
    assert [type(body) for _, body in slow.asked] == [LeaderAndIsrRequest] * 2


def test_answer_that_cannot_be_used_holds_up_none_behind_it(cluster_world, orders, caplog):
    """The controller's own failure with one answer is not the end of its orders."""
    world, answers = cluster_world, []
    answered(world)
    world.serve(2)
    orders.add_broker(world.broker(2))

    def fail(_):
        raise ValueError("planted")

    orders.leader_and_isr(5, 2, [STATE], [], fail)
    orders.leader_and_isr(5, 2, [STATE], [], answers.append)
    world.advance(100)

    assert len(answers) == 1
    assert "cannot be used" in caplog.text


@pytest.fixture
def peers(cluster_world):
    """The connections to broker 2, as they are made."""
    made = []

    def accept():
        made.append(Peer(cluster_world, 2))
        return made[-1]

    answered(cluster_world)
    cluster_world.runtime.network.serve("host-2", PORT, accept)
    return made


def under_way(world):
    """The tasks that control a broker."""
    names = [task.get_name() for task in asyncio.all_tasks(world.runtime.scheduler.loop)]
    return [name for name in names if name.startswith("control broker")]


def test_connection_ends_with_the_registration_that_it_was_for(cluster_world, orders, peers):
    """The next one has a connection of its own, and hears nothing that was meant for the first."""
    world = cluster_world
    world.delays_ms[2] = 10_000
    for epoch in (1, 2):
        orders.add_broker(world.broker(2, epoch=epoch))
        orders.update_metadata(5, [2], MetadataUpdate())
        orders.update_metadata(5, [2], MetadataUpdate())
        world.advance(500)
    assert [peer.transport.is_closing() for peer in peers] == [True, False]
    assert [body.broker_epoch for _, body in world.asked] == [1, 2]
    assert under_way(world) == ["control broker 2"]
    orders.close()
    world.advance(500)

    assert peers[1].transport.is_closing()
    assert under_way(world) == []
    assert len(world.asked) == 2


def test_broker_that_does_not_know_the_newest_version_is_asked_nothing(
    cluster_world, orders, peers, monkeypatch
):
    """An older request would leave out what the controller has decided."""
    world = cluster_world
    known = world.answer_of

    def know_less(broker_id, body):
        answer = known(broker_id, body)
        if isinstance(answer, ApiVersionsResponse):
            answer.api_keys = [
                ApiVersion(api_key=each.api_key, max_version=each.max_version - 1)
                for each in answer.api_keys
            ]
        return answer

    monkeypatch.setattr(world, "answer_of", know_less)
    orders.add_broker(world.broker(2))
    orders.update_metadata(5, [2], MetadataUpdate())
    world.advance(3_000)

    assert len(peers) == 1
    assert world.asked == []


def test_broker_that_is_away_is_told_once_in_the_log(cluster_world, orders, caplog):
    """It is tried several times a second."""
    caplog.set_level("INFO")
    orders.add_broker(cluster_world.broker(2))
    orders.update_metadata(5, [2], MetadataUpdate())
    cluster_world.advance(10_000)

    lines = [each for each in caplog.messages if "UpdateMetadata to" in each]
    assert len(lines) == 1


def test_own_broker_is_told_by_calls(cluster_world):
    """It needs no connection to itself."""
    told = []

    class Own:
        broker_id = 1

        def __getattr__(self, name):
            return lambda *arguments: told.append((name, arguments[:2]))

    orders = OrdersToCluster(cluster_world.runtime, Own(), cluster_world.connections, 1000)
    orders.add_broker(cluster_world.broker(1))
    orders.leader_and_isr(5, 1, [STATE], [], None)
    orders.stop_replica(5, 1, [], None)
    orders.update_metadata(5, [1], MetadataUpdate())
    cluster_world.advance(100)

    assert told == [
        ("leader_and_isr", (5, 1)),
        ("stop_replica", (5, 1)),
        ("update_metadata", (5, [1])),
    ]
    assert under_way(cluster_world) == []


def test_listener_without_a_name_has_that_of_its_protocol():
    """As before listeners had names."""
    end_points = [
        UpdateMetadataEndpoint(listener=name, security_protocol=1, host="h", port=9)
        for name in ("INSIDE", "")
    ]
    body = UpdateMetadataRequest(live_brokers=[UpdateMetadataBroker(id=2, endpoints=end_points)])
    (broker,) = live_brokers(body)

    assert [each[:2] for each in broker.endpoints] == [("INSIDE", "SSL"), ("SSL", "SSL")]
