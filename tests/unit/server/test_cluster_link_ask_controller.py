"""The way to the controller, and AlterPartition on it."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.controller.broker_registration import ensure_persistent_paths, register_broker
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.leader_and_isr import (
    AlterPartitionPartitionResult,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicResult,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from ottla.registry import paths
from ottla.registry.embedded import EmbeddedRegistry
from ottla.registry.znodes import encode_controller
from ottla.server.cluster_link import AskController, IsrRequests
from ottla.structs import LeaderAndIsr, TopicPartition

T0 = TopicPartition("t", 0)
ID = UUID(int=7)
ASK = ControlledShutdownRequest(broker_id=1)


class ControllerWorld:
    """Broker 1, a registry, and brokers 2 and 3, of which one may be the controller."""

    def __init__(self, cluster) -> None:
        self.cluster = cluster
        self.runtime = cluster.runtime
        self.registry = EmbeddedRegistry(self.runtime, "/registry")
        self.ask_controller = AskController(self.runtime, self.registry, cluster.connections)
        cluster.serve(2, 3)
        self.runtime.scheduler.run(self.start())
        self.answer(ControlledShutdownRequest, lambda *_: ControlledShutdownResponse())

    async def start(self) -> None:
        await self.registry.start()
        await ensure_persistent_paths(self.registry)
        for broker_id in (1, 2, 3):
            await register_broker(
                self.registry, broker_id, self.cluster.broker(broker_id).endpoints, 0
            )

    def answer(self, request, answer) -> None:
        self.cluster.answers[request] = answer

    def elect(self, broker_id: int) -> None:
        async def write() -> None:
            if await self.registry.exists(paths.CONTROLLER) is not None:
                await self.registry.delete(paths.CONTROLLER)
            data = encode_controller(broker_id, 0)
            await self.registry.create(paths.CONTROLLER, data, ephemeral=True)

        self.runtime.scheduler.run(write())

    def ask(self, timeout_ms: int = 1000):
        return self.runtime.scheduler.spawn(self.ask_controller(ASK, timeout_ms), "ask")

    @property
    def askers(self) -> list[int]:
        return [broker_id for broker_id, _ in self.cluster.asked]


@pytest.fixture
def world(cluster_world) -> ControllerWorld:
    """No controller yet."""
    return ControllerWorld(cluster_world)


def test_controller_is_found_in_the_registry(world):
    """And remembered as long as it answers."""
    world.elect(2)
    first, second = world.ask(), world.ask()
    world.runtime.advance(10)

    assert first.result() == second.result() == ControlledShutdownResponse()
    assert world.askers == [2, 2]


def test_controller_that_is_none_any_more_is_looked_for_again(world):
    """Broker 2 says so; broker 3 has been elected meanwhile."""
    world.elect(2)
    refusal = ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER)

    def answer(broker_id, body):
        if broker_id == 2:
            return refusal
        return ControlledShutdownResponse()

    world.answer(ControlledShutdownRequest, answer)
    task = world.ask()
    world.runtime.advance(5)
    world.elect(3)
    world.runtime.advance(500)

    assert task.result() == ControlledShutdownResponse()
    assert world.askers[-1] == 3


def test_controller_that_hangs_is_waited_for_until_there_is_another(world):
    """Its session has expired: the one that was elected is asked at once."""
    world.elect(2)
    world.cluster.delays_ms[2] = 60_000
    task = world.ask(timeout_ms=30_000)
    world.runtime.advance(2_000)
    assert not task.done()
    world.elect(3)
    world.runtime.advance(500)

    assert task.result() == ControlledShutdownResponse()
    assert world.askers == [2, 3]


def test_closed_asker_follows_no_election(world):
    """Whatever is under way is left alone."""
    world.elect(2)
    world.cluster.delays_ms[2] = 1_000
    task = world.ask(timeout_ms=5_000)
    world.runtime.advance(500)
    world.ask_controller.close()
    world.elect(3)
    world.runtime.advance(1_000)

    assert task.result() == ControlledShutdownResponse()
    assert world.askers == [2]


def test_time_without_a_controller_has_a_limit(world):
    """The error says what was waited for."""
    task = world.ask(timeout_ms=300)
    world.runtime.advance(1000)

    with pytest.raises(KafkaError, match=r"did not answer within 300 ms .*no controller"):
        task.result()


def test_own_controller_is_called(world):
    """No connection to oneself."""
    world.elect(1)

    async def own(body):
        return ControlledShutdownResponse(error_code=42 if body is not ASK else 0)

    world.ask_controller.own[ControlledShutdownRequest] = own
    task = world.ask()
    world.runtime.advance(10)

    assert task.result() == ControlledShutdownResponse()
    assert world.askers == []


def altered(body, error: ErrorCode = ErrorCode.NONE) -> AlterPartitionResponse:
    """Every change is written, with the next version, or refused."""
    return AlterPartitionResponse(
        topics=[
            AlterPartitionTopicResult(
                topic_id=topic.topic_id,
                partitions=[
                    AlterPartitionPartitionResult(
                        partition_index=partition.partition_index,
                        error_code=int(error),
                        leader_id=body.broker_id,
                        leader_epoch=partition.leader_epoch,
                        isr=[each.broker_id for each in partition.new_isr_with_epochs],
                        partition_epoch=partition.partition_epoch + 1,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


@pytest.fixture
def isr(world):
    """AlterPartition of broker 1, registered in epoch 11; broker 2 is the controller."""
    world.elect(2)
    requests = IsrRequests(world.runtime, world.ask_controller, 1, lambda: 11, 1000)
    yield requests
    requests.close()
    world.runtime.advance(0)


def test_changes_travel_together_and_come_back_with_their_version(world, isr):
    """What is asked for while a request is under way goes with the next one."""
    world.answer(AlterPartitionRequest, lambda _, body: altered(body))
    done = []
    for index in range(3):
        state = LeaderAndIsr(1, 4, (1, 2), 8)
        isr.alter_isr(TopicPartition("t", index), ID, state, {2: 22}, done.append)
    world.runtime.advance(100)

    assert done == [LeaderAndIsr(1, 4, (1, 2), 9)] * 3
    ((_, body),) = world.cluster.asked
    assert (body.broker_id, body.broker_epoch) == (1, 11)
    (topic,) = body.topics
    epochs = [
        (each.broker_id, each.broker_epoch) for each in topic.partitions[0].new_isr_with_epochs
    ]
    assert epochs == [(1, -1), (2, 22)]


def test_refused_change_is_told(world, isr):
    """The leader decides what to do about it."""
    world.answer(
        AlterPartitionRequest, lambda _, body: altered(body, ErrorCode.INVALID_UPDATE_VERSION)
    )
    done = []
    isr.alter_isr(T0, ID, LeaderAndIsr(1, 4, (1,), 8), {}, done.append)
    world.runtime.advance(100)

    assert done == [ErrorCode.INVALID_UPDATE_VERSION]


def test_change_is_asked_for_until_the_controller_has_decided(world, isr):
    """A controller that knows less than the leader does, or nobody who answers, is no decision."""
    answers = [None, ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE]

    def answer(_, body):
        error = answers.pop(0)
        return None if error is None else altered(body, error)

    world.answer(AlterPartitionRequest, answer)
    done = []
    isr.alter_isr(T0, ID, LeaderAndIsr(1, 4, (1,), 8), {}, done.append)
    world.runtime.advance(3000)

    assert answers == []
    assert done == [LeaderAndIsr(1, 4, (1,), 9)]


@pytest.mark.parametrize("refusal", [ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH])
def test_controller_cut_off_from_the_registry_is_left_for_its_successor(world, isr, refusal):
    """Broker 2 knows neither this broker's last epochs nor of its end: it was asked for ever."""
    as_a_whole = refusal is ErrorCode.STALE_BROKER_EPOCH

    def answer(broker_id, body):
        if broker_id == 3:
            return altered(body)
        if as_a_whole:
            return AlterPartitionResponse(error_code=int(refusal))
        return altered(body, refusal)

    world.answer(AlterPartitionRequest, lambda _, body: altered(body))
    done = []
    isr.alter_isr(T0, ID, LeaderAndIsr(1, 4, (1, 2), 8), {}, done.append)
    world.runtime.advance(100)
    world.answer(AlterPartitionRequest, answer)
    world.elect(3)
    isr.alter_isr(T0, ID, LeaderAndIsr(1, 5, (1,), 10), {}, done.append)
    world.runtime.advance(1000)

    assert done[1:] == [LeaderAndIsr(1, 5, (1,), 11)]
    assert len(world.askers) < 5


def test_change_that_cannot_be_asked_for_holds_up_no_other(world, isr, monkeypatch, caplog):
    """Its leader is told, and may ask again; the others of the same request have their answers."""
    world.answer(AlterPartitionRequest, lambda _, body: altered(body))
    ask = IsrRequests._ask

    async def fail_with_one(requests, asked):
        if T0 in asked:
            raise ValueError("planted")
        return await ask(requests, asked)

    monkeypatch.setattr(IsrRequests, "_ask", fail_with_one)
    done = []
    state = LeaderAndIsr(1, 4, (1,), 8)
    for index in range(3):
        isr.alter_isr(TopicPartition("t", index), ID, state, {}, done.append)
    world.runtime.advance(1000)
    written = LeaderAndIsr(1, 4, (1,), 9)
    assert done == [ErrorCode.UNKNOWN_SERVER_ERROR, written, written]

    monkeypatch.undo()
    isr.alter_isr(T0, ID, state, {}, done.append)
    world.runtime.advance(1000)
    assert done[-1] == written


def test_outcome_that_a_leader_fails_with_holds_up_no_other(world, isr, caplog):
    """It is named, and the next change is asked for."""
    world.answer(AlterPartitionRequest, lambda _, body: altered(body))
    done = []

    def fail(_):
        raise ValueError("planted")

    isr.alter_isr(T0, ID, LeaderAndIsr(1, 4, (1,), 8), {}, fail)
    isr.alter_isr(TopicPartition("t", 1), ID, LeaderAndIsr(1, 4, (1,), 8), {}, done.append)
    world.runtime.advance(1000)

    assert done == [LeaderAndIsr(1, 4, (1,), 9)]
    assert "t-0 cannot be taken over" in caplog.text
