"""The way to the controller, and AlterPartition on it."""

from __future__ import annotations

import logging
from itertools import pairwise
from types import SimpleNamespace
from uuid import UUID

import pytest

from ottla.controller.broker_registration import ensure_persistent_paths, register_broker
from ottla.errors import ErrorCode, KafkaError, NotKafkaError, SaslAuthenticationError, TlsError
from ottla.protocol.controller_requests import (
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
from ottla.runtime.scheduler import pause
from ottla.server.ask_controller import AskController
from ottla.server.broker_connections import BrokerConnections
from ottla.server.isr_requests import IsrRequests
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
    """The controller is found in the registry, and remembered as long as it answers."""
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


def test_changes_that_are_refused_together_are_asked_for_again(world, isr):
    """A leader that hears nothing of its change asks for no other one."""
    stale = AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    refusals, done = [stale], []
    world.answer(
        AlterPartitionRequest, lambda _, body: refusals.pop() if refusals else altered(body)
    )
    isr.alter_isr(TopicPartition("t", 0), ID, LeaderAndIsr(1, 4, (1, 2), 8), {}, done.append)
    world.runtime.advance(10_000)

    assert not refusals
    assert done == [LeaderAndIsr(1, 4, (1, 2), 9)]


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


def test_controller_that_answers_with_an_error_is_looked_up_again(world):
    """It may be a former one, which does not know it yet; the answer is handed on all the same."""
    world.elect(2)
    refusal = ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    world.answer(
        ControlledShutdownRequest,
        lambda broker_id, _: refusal if broker_id == 2 else ControlledShutdownResponse(),
    )
    first = world.ask()
    world.runtime.advance(100)
    world.registry.watch_data = None
    looked_up, get = [], world.registry.get

    async def look(path):
        looked_up.append(path)
        return await get(path)

    world.registry.get = look
    second = world.ask()
    world.runtime.advance(100)

    assert first.result() == second.result() == refusal
    assert paths.CONTROLLER in looked_up


def test_answer_without_an_error_needs_no_further_look_at_the_registry(world):
    """It is asked when a broker is elected, or does not answer."""
    world.elect(2)
    world.ask()
    world.runtime.advance(100)
    world.registry.get = None
    task = world.ask()
    world.runtime.advance(100)

    assert task.result() == ControlledShutdownResponse()


@pytest.mark.parametrize(
    ("error", "may_pass"),
    [
        (ErrorCode.UNKNOWN_SERVER_ERROR, True),
        (ErrorCode.NETWORK_EXCEPTION, True),
        (ErrorCode.UNSUPPORTED_VERSION, False),
    ],
)
def test_failure_that_cannot_pass_is_told_at_once(world, error, may_pass):
    """Other failures are tried again until the time is over."""
    world.elect(1)
    tries = []

    async def fail(body):
        tries.append(body)
        raise KafkaError.of(error, "planted")

    world.ask_controller.own[ControlledShutdownRequest] = fail
    task = world.ask(timeout_ms=300)
    world.runtime.advance(1_000)

    expected = ErrorCode.REQUEST_TIMED_OUT if may_pass else error
    assert task.exception().error is expected
    assert (len(tries) > 1) is may_pass


def test_asker_that_was_closed_follows_elections_again_when_it_is_asked(world):
    """Its watch ends with it, and begins with the next request."""
    world.elect(2)
    world.ask()
    world.runtime.advance(100)
    world.ask_controller.close()
    world.ask()
    world.runtime.advance(100)
    world.elect(3)
    world.ask()
    world.runtime.advance(100)

    assert world.askers == [2, 2, 3]


def test_closed_requests_are_not_sent(world, isr):
    """Neither the one under way is answered, nor those that wait, nor any that come later."""
    world.answer(AlterPartitionRequest, lambda _, body: altered(body))
    world.cluster.delays_ms[2] = 500
    done, state = [], LeaderAndIsr(1, 4, (1,), 8)
    isr.alter_isr(T0, ID, state, {}, done.append)
    world.runtime.advance(100)
    isr.alter_isr(TopicPartition("t", 1), ID, state, {}, done.append)
    isr.close()
    isr.alter_isr(TopicPartition("t", 2), ID, state, {}, done.append)
    world.runtime.advance(5_000)

    assert done == []
    assert len(world.cluster.asked) == 1


def test_one_change_at_a_time_is_under_way(world, isr):
    """What comes meanwhile goes with the next request."""
    world.answer(AlterPartitionRequest, lambda _, body: altered(body))
    world.cluster.delays_ms[2] = 500
    done, state = [], LeaderAndIsr(1, 4, (1,), 8)
    for index in range(3):
        isr.alter_isr(TopicPartition("t", index), ID, state, {}, done.append)
        world.runtime.advance(100)
    assert len(world.cluster.asked) == 1
    world.runtime.advance(1_000)

    assert [len(body.topics[0].partitions) for _, body in world.cluster.asked] == [1, 2]
    assert len(done) == 3


def test_newer_change_of_a_partition_takes_the_place_of_one_that_failed(world, isr):
    """The one that failed is sent again where there is none."""
    failures = [KafkaError.of(ErrorCode.UNSUPPORTED_VERSION, "planted")]
    world.elect(1)
    asked = []

    async def own(body):
        asked.append([p.partition_epoch for topic in body.topics for p in topic.partitions])
        if failures:
            newer = LeaderAndIsr(1, 4, (1, 2), 9)
            isr.alter_isr(T0, ID, newer, {}, done.append)
            raise failures.pop()
        return altered(body)

    world.ask_controller.own[AlterPartitionRequest] = own
    done, state = [], LeaderAndIsr(1, 4, (1,), 8)
    isr.alter_isr(T0, ID, state, {}, done.append)
    isr.alter_isr(TopicPartition("t", 1), ID, state, {}, done.append)
    world.runtime.advance(2_000)

    assert asked == [[8, 8], [9, 8]]
    assert sorted(each.version for each in done) == [9, 10]


def test_change_whose_controller_is_away_when_it_is_asked_for_alone_waits(world, isr, monkeypatch):
    """It is not the one that is wrong, and goes with the next request."""
    world.answer(AlterPartitionRequest, lambda _, body: altered(body))
    ask, tries = IsrRequests._ask, []

    async def fail_together(requests, asked):
        tries.append(len(asked))
        if len(asked) > 1 and len(tries) == 1:
            raise ValueError("planted")
        if len(tries) == 2:
            raise KafkaError.of(ErrorCode.NETWORK_EXCEPTION, "planted")
        return await ask(requests, asked)

    monkeypatch.setattr(IsrRequests, "_ask", fail_together)
    done = []
    for index in range(2):
        state = LeaderAndIsr(1, 4, (1,), 8)
        isr.alter_isr(TopicPartition("t", index), ID, state, {}, done.append)
    world.runtime.advance(1_000)

    assert tries == [2, 1, 1, 1]
    assert done == [LeaderAndIsr(1, 4, (1,), 9)] * 2


def test_change_that_is_wrong_by_itself_is_tried_once(world, isr, monkeypatch):
    """Nothing would come of asking for it alone again."""
    tries = []

    async def fail(requests, asked):
        tries.append(len(asked))
        raise ValueError("planted")

    monkeypatch.setattr(IsrRequests, "_ask", fail)
    done = []
    isr.alter_isr(T0, ID, LeaderAndIsr(1, 4, (1,), 8), {}, done.append)
    world.runtime.advance(1_000)

    assert (tries, done) == ([1], [ErrorCode.UNKNOWN_SERVER_ERROR])


def test_broker_that_says_it_is_no_controller_is_not_asked_again(world, monkeypatch):
    """Whatever the notifications of the registry are doing."""
    silent = SimpleNamespace(cancel=lambda: None)
    monkeypatch.setattr(world.registry, "watch_data", lambda path, callback: silent)
    world.elect(2)
    refusal = ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER)
    world.answer(
        ControlledShutdownRequest,
        lambda broker_id, _: refusal if broker_id == 2 else ControlledShutdownResponse(),
    )
    task = world.ask()
    world.runtime.advance(5)
    world.elect(3)
    world.runtime.advance(500)

    assert task.result() == ControlledShutdownResponse()
    assert world.askers[-1] == 3


@pytest.mark.parametrize("kind", [TlsError, SaslAuthenticationError, NotKafkaError])
def test_controller_that_refuses_this_broker_is_asked_until_it_does_not(world, monkeypatch, kind):
    """Its certificate may be replaced, and the brokers' password be set, while both run."""
    world.elect(2)
    tries, ask = [], BrokerConnections.ask

    async def refuse(connections, *question, **versions):
        tries.append(world.runtime.clock.monotonic_ms())
        if len(tries) <= 5:
            raise kind("planted")
        return await ask(connections, *question, **versions)

    monkeypatch.setattr(BrokerConnections, "ask", refuse)
    task = world.ask(10_000)
    world.runtime.advance(5_000)

    assert task.result() == ControlledShutdownResponse()
    waits = [later - earlier for earlier, later in pairwise(tries)]
    assert len(waits) == 5
    assert waits[-1] > 100


@pytest.mark.parametrize("takes_ms", [0, 1, 7, 90])
def test_error_of_a_controller_that_refuses_this_broker_says_why(world, monkeypatch, takes_ms):
    """The last attempt ends with the time: it knows no reason but that."""
    world.elect(2)

    async def refuse(connections, *question, **versions):
        await pause(world.runtime.scheduler, takes_ms)
        raise TlsError("certificate has expired")

    monkeypatch.setattr(BrokerConnections, "ask", refuse)
    task = world.ask(10_000)
    world.runtime.advance(15_000)

    with pytest.raises(KafkaError, match=r"within 10000 ms \(.*certificate has expired\)"):
        task.result()


def test_changes_that_are_refused_for_another_reason_are_logged_again(world, isr, caplog):
    """The first one may have passed by itself; the second one waits for somebody who reads it."""
    caplog.set_level(logging.INFO)
    errors = [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    answers = iter([errors[0]] * 3)
    world.answer(
        AlterPartitionRequest,
        lambda *_: AlterPartitionResponse(error_code=int(next(answers, errors[1]))),
    )
    isr.alter_isr(T0, ID, LeaderAndIsr(1, 4, (1,), 8), {}, [].append)
    world.runtime.advance(60_000)

    lines = [each.message for each in caplog.records if "in-sync replicas of" in each.message]
    assert [error.name in line for error, line in zip(errors, lines, strict=True)] == [True] * 2


@pytest.mark.parametrize(
    "error",
    [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NONE],
)
def test_changes_that_are_refused_for_long_are_asked_for_now_and_then(world, isr, caplog, error):
    """One line of the log says so, and soon after the refusals have ended the change is made."""
    caplog.set_level(logging.INFO)
    tries, is_over = [], False

    def answer(_, body):
        tries.append(body)
        if is_over:
            return altered(body)
        return AlterPartitionResponse(error_code=int(error)) if error else None

    world.answer(AlterPartitionRequest, answer)
    done = []
    isr.alter_isr(T0, ID, LeaderAndIsr(1, 4, (1,), 8), {}, done.append)
    world.runtime.advance(60_000)
    assert len(tries) < 60_000 / 200
    assert len([each for each in caplog.records if "in-sync replicas of" in each.message]) == 1
    is_over = True
    world.runtime.advance(2_000)

    assert done == [LeaderAndIsr(1, 4, (1,), 9)]
