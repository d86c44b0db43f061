"""A broker that is about to stop, and the controller that has others lead in its place."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from uuid import UUID

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.controller.broker_registration import ensure_persistent_paths, register_broker
from ottla.controller.requested_topic import UNASSIGNED
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.controller_requests import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from ottla.protocol.group import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.registry import paths
from ottla.registry.embedded import EmbeddedRegistry
from ottla.registry.znodes import encode_controller
from ottla.server.broker_connections import Purpose
from ottla.server.cluster_link import CREATION_TIMEOUT_MS, METADATA_TIMEOUT_MS, ClusterLink
from ottla.structs import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    LeaderAndIsr,
    MetadataUpdate,
    PartitionState,
    TopicPartition,
)

BROKER_EPOCH = 11
LED = ControlledShutdownResponse(
    remaining_partitions=[RemainingPartition(topic_name="t", partition_index=0)]
)


class LeavingWorld:
    """Broker 1 is to stop; broker 2 is the controller."""

    def __init__(self, cluster, **settings) -> None:
        self.cluster = cluster
        self.runtime = cluster.runtime
        keys = {name.replace("_", "."): value for name, value in settings.items()}
        config = BrokerConfig.parse({"zookeeper.connect": "here:2181", **keys})
        self.registry = EmbeddedRegistry(self.runtime, "/registry")
        self.link = ClusterLink(
            self.runtime, config, self.registry, cluster.cache, 1, lambda: BROKER_EPOCH
        )
        cluster.cache.update([], [cluster.broker(1), cluster.broker(2)])
        cluster.serve(2)
        self.runtime.scheduler.run(self.start())
        self.answer(ControlledShutdownResponse())

    async def start(self) -> None:
        await self.registry.start()
        await ensure_persistent_paths(self.registry)
        await register_broker(self.registry, 2, self.cluster.broker(2).endpoints, 0)
        await self.registry.create(paths.CONTROLLER, encode_controller(2, 0), ephemeral=True)

    def answer(self, *answers: ControlledShutdownResponse) -> None:
        """One after the other; the last one again and again."""
        left = list(answers)
        self.cluster.answers[ControlledShutdownRequest] = lambda broker_id, body: (
            left.pop(0) if len(left) > 1 else left[0]
        )

    def leave(self):
        return self.runtime.scheduler.spawn(self.link.controlled_shutdown(), "leave")

    @property
    def asked(self) -> list[tuple[int, int]]:
        return [(body.broker_id, body.broker_epoch) for _, body in self.cluster.asked]


@pytest.fixture
def leaving(cluster_world):
    """Makes the world; the link is closed after the test."""
    worlds = []

    def make(**settings) -> LeavingWorld:
        worlds.append(LeavingWorld(cluster_world, **settings))
        return worlds[-1]

    yield make
    for world in worlds:
        world.link.close()
        world.runtime.advance(0)


def test_controller_with_very_much_to_move_is_asked_once(leaving):
    """It was asked again after each session that it took, and moved everything anew."""
    world = leaving(zookeeper_session_timeout_ms="2000")
    world.cluster.delays_ms[2] = 20_000
    task = world.leave()
    world.runtime.advance(19_000)
    assert not task.done()
    world.runtime.advance(2_000)

    assert task.done()
    assert world.asked == [(1, BROKER_EPOCH)]


def test_broker_that_leads_still_asks_again(leaving, caplog):
    """controlled.shutdown.max.retries times at most, with a pause before each."""
    world = leaving(controlled_shutdown_retry_backoff_ms="300")
    world.answer(LED, ControlledShutdownResponse())
    first = world.leave()
    world.runtime.advance(200)
    assert len(world.asked) == 1
    world.runtime.advance(200)
    assert first.done()
    assert len(world.asked) == 2
    world.answer(LED)
    second = world.leave()
    world.runtime.advance(2_000)

    assert second.done()
    assert len(world.asked) == 5
    assert "nobody else can lead 1 partitions yet" in caplog.text
    assert "others will be elected" in caplog.text


def test_stop_without_a_controller_takes_no_longer_than_one_answer_may(leaving, caplog):
    """With ZooKeeper gone it took three times that: whoever stops servers kills them before."""
    world = leaving(controller_socket_timeout_ms="30000")
    world.runtime.scheduler.run(world.registry.delete(paths.CONTROLLER))
    task = world.leave()
    world.runtime.advance(29_000)
    assert not task.done()
    world.runtime.advance(2_000)

    assert task.done()
    assert "others will be elected" in caplog.text


def test_broker_without_others_asks_nobody(leaving):
    """There is nobody who could lead."""
    world = leaving()
    world.cluster.cache.update([], [world.cluster.broker(1)])
    task = world.leave()
    world.runtime.advance(0)

    assert task.done()
    assert world.asked == []


def test_controlled_shutdown_may_be_switched_off(leaving):
    """controlled.shutdown.enable=false: others are elected when the broker is gone."""
    world = leaving(controlled_shutdown_enable="false")
    task = world.leave()
    world.runtime.advance(0)

    assert task.done()
    assert world.asked == []


# What a broker knows of the others, and the topics that it has made


def test_live_brokers_are_those_of_the_metadata(leaving):
    """They are asked for with every change of leaders, and put together after an update alone."""
    world = leaving()
    live = world.link.replication().live_brokers
    first = live()
    assert first.keys() == {1, 2}
    assert live() is first
    world.cluster.cache.update([], [world.cluster.broker(2)])

    assert live().keys() == {2}


@pytest.mark.parametrize("is_told", [True, False])
def test_broker_waits_for_its_first_metadata_within_limits(leaving, caplog, is_told):
    """It serves in any case, and says so if no controller has told it anything."""
    world = leaving()
    world.cluster.cache.update([], [])
    told = world.runtime.scheduler.spawn(world.link.until_told(), "wait")
    waiting = world.runtime.scheduler.spawn(world.link.wait_for_metadata(), "wait")
    world.runtime.advance(METADATA_TIMEOUT_MS - 1)
    assert not told.done()
    if is_told:
        world.cluster.cache.update([], [world.cluster.broker(1)])
    world.runtime.advance(1)

    assert (told.result(), waiting.done()) == (is_told, True)
    assert ("no controller has told this broker" in caplog.text) is not is_told


class Controller:
    """The controller in this broker, where it is one."""

    def __init__(self, *, is_active=False):
        self.is_active = is_active
        self.made = []
        self.refusal = None

    async def auto_create_topic(self, name, assignment=UNASSIGNED):
        if self.refusal is not None:
            raise self.refusal
        self.made.append(name)
        self.assignment = assignment


def known(name):
    """A partition of a topic."""
    state = LeaderAndIsr(2, 0, (2,))
    return [PartitionState(TopicPartition(name, 0), UUID(int=5), 1, state, (2,))]


def create(world, name, controller=None):
    world.link.serve(controller or Controller())
    task = world.runtime.scheduler.spawn(world.link.create_topic(name), "create")
    world.runtime.advance(100)
    return task


def created(error=ErrorCode.NONE, message=None):
    result = CreatableTopicResult(name="t", error_code=int(error), error_message=message)
    return lambda broker_id, body: CreateTopicsResponse(topics=[result])


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS])
def test_topic_is_created_by_the_controller_and_waited_for(leaving, error):
    """A client that asks again finds it, whoever was faster to have it made."""
    world = leaving()
    world.cluster.answers[CreateTopicsRequest] = created(error)
    task = create(world, "t")
    assert not task.done()
    world.cluster.cache.update(known("t"), [world.cluster.broker(2)])
    world.runtime.advance(0)

    assert task.exception() is None
    ((_, body),) = world.cluster.asked
    (topic,) = body.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("t", -1, -1)


def test_client_asks_again_for_a_topic_that_does_not_come(leaving):
    """It is not kept waiting for ever."""
    world = leaving()
    world.cluster.answers[CreateTopicsRequest] = created()
    task = create(world, "t")
    world.runtime.advance(CREATION_TIMEOUT_MS)

    assert task.exception() is None


@pytest.mark.parametrize(
    ("message", "told"),
    [("no room", "no room"), (None, "The request breaks a policy of the cluster.")],
)
def test_refusal_of_a_topic_is_handed_on(leaving, message, told):
    """With the words of the controller, where it has any."""
    world = leaving()
    world.cluster.answers[CreateTopicsRequest] = created(ErrorCode.POLICY_VIOLATION, message)
    error = create(world, "t").exception()

    assert error.error is ErrorCode.POLICY_VIOLATION
    assert error.message == told


@pytest.mark.parametrize(("name", "key_type"), [(OFFSETS_TOPIC, 0), (TRANSACTIONS_TOPIC, 1)])
def test_internal_topic_is_made_for_those_who_ask_for_a_coordinator(leaving, name, key_type):
    """Clients cannot create it themselves."""
    world = leaving()
    world.cluster.answers[FindCoordinatorRequest] = lambda *_: FindCoordinatorResponse()
    create(world, name)

    ((_, body),) = world.cluster.asked
    assert (body.key_type, body.coordinator_keys) == (key_type, [name])


def test_controller_in_this_broker_makes_topics_itself(leaving):
    """It asks nobody, and does not wait: it knows them at once."""
    world, controller = leaving(), Controller(is_active=True)

    assert create(world, "t", controller).exception() is None
    assert (controller.made, world.cluster.asked) == (["t"], [])


@pytest.mark.parametrize("refusal", [None, KafkaError(ErrorCode.POLICY_VIOLATION, "no room")])
def test_broker_that_has_become_the_controller_answers_what_it_asked(leaving, refusal):
    """The election came between the question and the answer."""
    world, controller = leaving(), Controller()
    controller.refusal = refusal
    world.link.serve(controller)
    own, run = world.link.ask_controller.own, world.runtime.scheduler.run
    replicas = [CreatableReplicaAssignment(partition_index=0, broker_ids=[2, 1])]
    body = CreateTopicsRequest(topics=[CreatableTopic(name="t", assignments=replicas)])
    (result,) = run(own[CreateTopicsRequest](body)).topics
    assert result.name == "t"
    if refusal is None:
        assert controller.assignment == {0: (2, 1)}
        run(own[FindCoordinatorRequest](FindCoordinatorRequest(coordinator_keys=["x"])))
        assert (result.error_code, controller.made) == (0, ["t", "x"])
    else:
        assert result.error_code == ErrorCode.POLICY_VIOLATION
        assert result.error_message == "no room"


def test_link_that_is_closed_sends_nothing_more(leaving):
    """Neither orders, nor changes of in-sync replicas, nor anything on a kept connection."""
    world = leaving()
    orders = world.link.orders_to_brokers(SimpleNamespace(broker_id=1))
    orders.add_broker(world.cluster.broker(2))
    world.answer(ControlledShutdownResponse())
    task = world.leave()
    world.runtime.advance(10)
    assert task.done()
    world.cluster.delays_ms[2] = 10_000
    node = world.link.connections.node(2)
    request = ControlledShutdownRequest()
    waiting = world.runtime.scheduler.spawn(
        world.link.connections.ask(node, Purpose.CONTROLLER, request), "ask"
    )
    world.runtime.advance(10)
    before = len(world.cluster.asked)
    world.link.close()
    orders.update_metadata(1, [2], MetadataUpdate())
    state = LeaderAndIsr(1, 4, (1,), 8)
    world.link.isr_requests.alter_isr(TopicPartition("t", 0), UUID(int=7), state, {}, print)
    looks, watch_data = [], world.registry.watch_data
    world.registry.watch_data = lambda *arguments: (looks.append(1), watch_data(*arguments))[1]
    world.runtime.advance(1_000)
    assert waiting.done()
    assert len(world.cluster.asked) == before
    world.leave()
    world.runtime.advance(10)

    assert looks == [1]
    tasks = [task.get_name() for task in asyncio.all_tasks(world.runtime.scheduler.loop)]
    assert "alter partitions" not in tasks
