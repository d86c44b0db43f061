"""The sender: retries, order, idempotence, and how things end."""

from __future__ import annotations

import asyncio
from functools import partial
from uuid import UUID

import pytest
from mock_kafka import HANG_UP, Later, MockCluster
from producer_world import ProducerWorld

from ottla.clients.producer.producer_batch import record_size
from ottla.clients.producer.sender import compression_level
from ottla.config.client_config import ProducerConfig
from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError
from ottla.network.channel import Channel
from ottla.protocol.metadata import MetadataRequest
from ottla.protocol.produce import ProduceRequest, ProduceResponse
from ottla.protocol.transactions import InitProducerIdRequest, InitProducerIdResponse
from ottla.record.compression import CompressionType
from ottla.record.record_batch import RecordBatch


@pytest.fixture
def world(runtime, cluster) -> ProducerWorld:
    """An idempotent producer without linger."""
    return ProducerWorld(runtime, cluster)


def test_records_are_sent_as_one_batch(world):
    """What is queued before the sender's turn travels together, numbered from 0."""
    futures = [world.send(value) for value in "abc"]
    world.run()

    assert world.log == [b"a", b"b", b"c"]
    assert world.batches == [(0, 0, 3)]
    assert [future.result(0).offset for future in futures] == [0, 1, 2]


def test_linger_waits_for_more(runtime, cluster):
    """Nothing is sent before linger.ms."""
    world = ProducerWorld(runtime, cluster, linger_ms=20)
    world.send("a")
    world.run(19)
    assert world.log == []
    world.send("b")
    world.run(2)
    assert world.batches == [(0, 0, 2)]


@pytest.mark.parametrize(
    "answer",
    [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, HANG_UP],
    ids=["not leader", "not enough replicas", "hang up"],
)
def test_batch_is_sent_again_after_what_may_pass(world, cluster, answer):
    """The retry has the same sequence number, and comes after a pause."""
    world.run(100_000)
    refusal = answer if answer is HANG_UP else world.refuse(answer)
    cluster[0].on(ProduceRequest, refusal, world.append)
    future = world.send("a")
    world.run(50)
    assert not future.done()
    world.run(1000)

    assert future.result(0).offset == 0
    assert world.batches == [(0, 0, 1)]


def test_reason_of_a_retry_is_logged_at_once(world, cluster, caplog):
    """Below min.insync.replicas the user reads NOT_ENOUGH_REPLICAS after a moment, and once."""
    cluster[0].on(ProduceRequest, *[world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)] * 9, world.append)
    world.send("a")
    world.run(1)
    (line,) = caplog.messages
    assert line.startswith("retrying: the batch for pages-0 was refused: Fewer replicas")
    assert line.endswith("(NOT_ENOUGH_REPLICAS)")
    world.run(20_000)

    assert world.log == [b"a"]
    assert caplog.messages == [line]


def test_wrong_leader_refreshes_the_metadata(runtime):
    """The retry goes to the broker that leads by now."""
    cluster = MockCluster(runtime, 2)
    cluster.topics["pages"] = 2
    world = ProducerWorld(runtime, cluster)
    cluster[0].on(ProduceRequest, world.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    cluster.leaders["pages", 0] = 1
    cluster.epochs["pages", 0] = 1
    future = world.send("a")
    world.run(1000)

    assert future.result(0).offset == 0
    assert len(cluster[1].sent(ProduceRequest)) == 1


BEFORE, AFTER = UUID(int=1), UUID(int=2)


@pytest.mark.parametrize("ids", [{}, {"pages": BEFORE}, {"pages": BEFORE, "visits": AFTER}])
def test_topics_are_given_by_their_ids_where_all_are_known(runtime, cluster, ids):
    """One without an id has the request give names; the answers are found by either."""
    cluster.topics["visits"] = 1
    cluster.topic_ids = ids
    world = ProducerWorld(runtime, cluster, enable_idempotence=False, linger_ms=5)
    visits = runtime.scheduler.run(world.core.queues_of("visits", 1000))
    versions = []

    def append(request, version):
        versions.append(version)
        assert [bool(topic.name) for topic in request.topic_data] == [version <= 12] * 2
        return world.append(request, version)

    cluster[0].on(ProduceRequest, append)
    record = (0, None, b"v", ())
    futures = [
        world.send("a"),
        world.core.accumulator.append(visits, visits.queues[0], record, record_size(record)),
    ]
    world.run(1000)

    assert [future.result(0).offset for future in futures] == [0, 1]
    assert versions == [13 if len(ids) == 2 else 12]


def test_topic_that_is_made_again_is_sent_to_by_its_new_id(runtime, cluster):
    """The leader refuses the id of the topic before, and metadata name the new one."""
    cluster.topic_ids = {"pages": BEFORE}
    world = ProducerWorld(runtime, cluster)

    def append(request, version):
        (topic,) = request.topic_data
        is_there = topic.topic_id == AFTER
        return world.answer(request, 0 if is_there else ErrorCode.UNKNOWN_TOPIC_ID)

    cluster[0].on(ProduceRequest, append)
    cluster.topic_ids = {"pages": AFTER}
    future = world.send("a")
    world.run(1000)

    assert future.result(0).offset == 0
    asked = [request.topic_data[0].topic_id for request in cluster[0].sent(ProduceRequest)]
    assert asked == [BEFORE, AFTER]


def test_partition_without_a_leader_waits_for_one(world, cluster):
    """Nothing is sent, and metadata are asked for, until there is a leader."""
    cluster.leaders["pages", 0] = -1
    world.core.metadata.request_update()
    world.run(1000)
    future = world.send("a")
    world.run(1000)
    assert not future.done()
    cluster.leaders["pages", 0] = 0
    cluster.epochs["pages", 0] = 1
    world.run(2000)

    assert future.result(0).offset == 0


@pytest.mark.parametrize("leader", ["unknown", "dead"])
def test_metadata_are_asked_for_a_leader_that_can_be_reached(runtime, leader):
    """A broker that nobody knows, or that does not listen, leads the partition no longer."""
    cluster = MockCluster(runtime, 2)
    cluster.topics["pages"] = 2
    cluster.leaders["pages", 0] = 7 if leader == "unknown" else 0
    world = ProducerWorld(runtime, cluster)
    if leader == "dead":
        world.run(5000)
        cluster[0].stop()
    future = world.send("a")
    world.run(300)
    assert not future.done()
    cluster.leaders["pages", 0], cluster.epochs["pages", 0] = 1, 1
    world.run(3000)

    assert future.result(0).offset == 0
    assert len(cluster[1].sent(ProduceRequest)) == 1


def test_batch_that_is_not_full_lingers_although_one_before_it_is_sent(runtime, cluster):
    """It may still grow."""
    world = ProducerWorld(runtime, cluster, linger_ms=20, batch_size=60)
    for value in "abc":
        world.send(value)
    world.run(19)
    assert world.batches == [(0, 0, 2)]
    world.run(2)
    assert world.batches == [(0, 0, 2), (0, 2, 1)]


@pytest.mark.parametrize(("most", "count"), [(2 * 1022, 1), (2 * 1022 - 1, 2)])
def test_request_has_batches_of_several_partitions(runtime, cluster, most, count):
    """Together they are no larger than max.request.size."""
    world = ProducerWorld(
        runtime, cluster, max_request_size=most, max_in_flight_requests_per_connection=1
    )
    for partition in (0, 1):
        world.send("x" * 1001, partition)
    world.run(10)

    assert len(world.log) == 2
    assert len(world.sent()) == count


def test_order_is_kept_when_the_first_of_several_fails(runtime, cluster):
    """The batches behind a failed one are refused too, and all return in their order."""
    world = ProducerWorld(runtime, cluster, batch_size=1)
    cluster[0].on(ProduceRequest, world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS), world.append)
    for value in "abcd":
        world.send(value)
    world.run(5000)

    assert world.log == [b"a", b"b", b"c", b"d"]
    assert world.batches == [(0, sequence, 1) for sequence in range(4)]


def test_order_is_kept_when_an_answer_is_lost(runtime, cluster):
    """What was appended without our knowing is recognised; what was not comes behind it."""
    world = ProducerWorld(runtime, cluster, batch_size=1)
    lost = []

    def append_and_hang_up(request, version):
        lost.append(world.append(request, version))
        return HANG_UP

    def duplicate_or_append(request, version):
        (topic,) = request.topic_data
        if RecordBatch(topic.partition_data[0].records).base_sequence == 0:
            return world.refuse(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)(request, version)
        return world.append(request, version)

    cluster[0].on(ProduceRequest, append_and_hang_up, duplicate_or_append)
    for value in "abcd":
        world.send(value)
    world.run(5000)

    assert len(lost) == 1
    assert world.log == [b"a", b"b", b"c", b"d"]


def test_at_most_so_many_requests_are_in_flight(runtime, cluster):
    """max.in.flight.requests.per.connection bounds what is unanswered."""
    world = ProducerWorld(runtime, cluster, batch_size=1, max_in_flight_requests_per_connection=2)
    world.send("known")
    world.run(10)
    cluster[0].on(ProduceRequest, "hold")
    for value in "abcd":
        world.send(value)
    world.run(10)
    assert len(cluster[0].held) == 2
    held = cluster[0].held.pop(0)
    held.answer(world.append(held.request, 9))
    world.run(10)

    assert len(world.sent()) == 4


def test_batch_expires(runtime, cluster):
    """After delivery.timeout.ms the record fails; the text says how often it was tried, and why.

    Below min.insync.replicas it said that nine attempts had timed out, and nothing else.
    """
    world = ProducerWorld(runtime, cluster, delivery_timeout_ms=2000, request_timeout_ms=500)
    cluster[0].on(ProduceRequest, world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS))
    future = world.send("a")
    world.run(3100)

    expected = (
        r"delivery\.timeout\.ms=2000 \(after \d attempts; the last error was "
        r"NOT_ENOUGH_REPLICAS: Fewer replicas are in sync"
    )
    with pytest.raises(KafkaTimeoutError, match=expected) as caught:
        future.result(0)
    assert caught.value.__cause__.error is ErrorCode.NOT_ENOUGH_REPLICAS


def test_batch_expires_without_a_broker(runtime, cluster):
    """Nobody answers for as long as it lasts."""
    world = ProducerWorld(runtime, cluster, delivery_timeout_ms=2000, request_timeout_ms=500)
    cluster[0].stop()
    future = world.send("a")
    world.run(3000)

    assert isinstance(future.exception(0), KafkaTimeoutError)


@pytest.mark.parametrize("comes_back", [False, True])
def test_partition_that_a_topic_has_no_longer_is_not_waited_for(runtime, cluster, comes_back):
    """It was made again with fewer: without a limit for the delivery its records waited for good.

    Brokers may have heard late of partitions that were added, and so a minute goes by.
    """
    cluster.topics["pages"] = 2
    world = ProducerWorld(runtime, cluster, delivery_timeout_ms=2**31 - 1)
    cluster.topics["pages"] = 1
    world.run(400_000)  # metadata are asked for anew
    first, other = world.send("a", partition=1), world.send("b")
    world.run(50_000)
    assert not first.done()
    assert other.result(0).offset == 0
    cluster.topics["pages"] = 1 + comes_back
    world.run(20_000)

    if comes_back:
        assert first.exception(0) is None
        cluster.topics["pages"] = 1
        world.run(400_000)
        second = world.send("c", partition=1)
        world.run(50_000)
        assert not second.done()
    else:
        with pytest.raises(
            KafkaError, match="no partition pages-1: the topic has 1 part"
        ) as caught:
            first.result(0)
        assert caught.value.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert world.core.accumulator.unfinished_count == 0


def test_retries_are_bounded(runtime, cluster):
    """retries=1 is one more attempt."""
    world = ProducerWorld(runtime, cluster, enable_idempotence=False, retries=1)
    cluster[0].on(ProduceRequest, world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS))
    future = world.send("a")
    world.run(5000)

    assert future.exception(0).error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert len(world.sent()) == 2


def test_final_error_fails_the_records_and_begins_a_new_epoch(world, cluster):
    """The numbers of the failed batch are missing, so the next one counts from 0 again."""
    cluster[0].on(ProduceRequest, world.refuse(ErrorCode.INVALID_RECORD), world.append)
    first = world.send("a")
    world.run(10)
    second = world.send("b")
    world.run(10)

    with pytest.raises(KafkaError, match="INVALID_RECORD"):
        first.result(0)
    assert second.result(0).offset == 0
    assert world.batches == [(1, 0, 1)]


@pytest.mark.parametrize(
    "code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID]
)
def test_broker_that_forgot_the_producer_is_told_a_new_epoch(world, cluster, code):
    """A batch that must be the next one is numbered anew and sent again (KIP-360)."""
    world.send("a")
    world.run(10)
    cluster[0].on(ProduceRequest, world.refuse(code), world.append)
    future = world.send("b")
    world.run(1000)

    assert future.result(0).offset == 1
    assert world.batches == [(0, 0, 1), (1, 0, 1)]


@pytest.mark.parametrize("end", ["refused", "hang up"])
def test_new_epoch_waits_for_what_is_on_the_wire(runtime, cluster, end):
    """A broker could still append it; whatever becomes of it, all is numbered anew then."""
    world = ProducerWorld(runtime, cluster, batch_size=1)
    world.send("known")
    world.run(10)
    cluster[0].on(ProduceRequest, "hold")
    futures = []
    for value in "ab":
        futures.append(world.send(value))
        world.run(10)
    first, second = cluster[0].held
    refuse = world.refuse(ErrorCode.UNKNOWN_PRODUCER_ID)
    first.answer(refuse(first.request, 9))
    world.run(1000)
    assert len(world.sent()) == 3
    cluster[0].on(ProduceRequest, world.append)
    if end == "refused":
        second.answer(refuse(second.request, 9))
    else:
        for connection in list(cluster[0].connections):
            connection.transport.close()
    world.run(1000)

    assert [future.result(0).offset for future in futures] == [1, 2]
    assert world.batches == [(0, 0, 1), (1, 0, 1), (1, 1, 1)]


def test_producer_id_is_asked_for_once(runtime, cluster):
    """However many batches become ready before it is there."""
    world = ProducerWorld(runtime, cluster)
    cluster[0].on(InitProducerIdRequest, "hold")
    for partition in (0, 1):
        world.send("a", partition)
        world.run(10)
    (held,) = cluster[0].held
    held.answer(InitProducerIdResponse(producer_id=42))
    world.run(10)

    assert world.batches == [(0, 0, 1), (0, 0, 1)]


def test_fenced_producer_gets_a_new_id(world, cluster):
    """INVALID_PRODUCER_EPOCH: everything begins anew under another producer id."""
    cluster[0].on(ProduceRequest, world.refuse(ErrorCode.INVALID_PRODUCER_EPOCH), world.append)
    future = world.send("a")
    world.run(1000)

    assert future.result(0).offset == 0
    assert len(cluster[0].sent(InitProducerIdRequest)) == 2


def test_duplicate_counts_as_delivered(world, cluster):
    """DUPLICATE_SEQUENCE_NUMBER: it is there, where is not known."""
    cluster[0].on(ProduceRequest, world.refuse(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
    future = world.send("a")
    world.run(10)

    assert future.result(0).offset == -1


def test_batch_that_may_be_there_holds_back_new_ones_only(runtime, cluster):
    """An uncertain loss is settled by the batch behind it before new ones are numbered."""
    world = ProducerWorld(
        runtime, cluster, batch_size=1, delivery_timeout_ms=1000, request_timeout_ms=900
    )
    cluster[0].on(ProduceRequest, None)
    lost = world.send("a")
    world.run(2000)
    assert isinstance(lost.exception(0), KafkaError)
    cluster[0].on(ProduceRequest, world.append)
    future = world.send("b")
    world.run(1000)

    assert future.result(0).offset == 0
    assert world.batches == [(1, 0, 1)]


def test_refused_producer_id_fails_what_waits_for_it(runtime, cluster):
    """Nothing can be sent without permission, and nothing hangs."""
    world = ProducerWorld(runtime, cluster)
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    cluster[0].on(InitProducerIdRequest, InitProducerIdResponse(error_code=code))
    future = world.send("a")
    world.run(100)

    with pytest.raises(KafkaError, match=r"enable\.idempotence=false"):
        future.result(0)


def test_batches_without_idempotence_have_no_numbers(runtime, cluster):
    """No producer id is asked for."""
    world = ProducerWorld(runtime, cluster, enable_idempotence=False)
    world.send("a")
    world.run(10)

    assert world.batches == [(-1, -1, 1)]
    assert cluster[0].sent(InitProducerIdRequest) == []


def test_acks_none_does_not_wait(runtime, cluster):
    """The record counts as sent as soon as it is written."""
    world = ProducerWorld(runtime, cluster, acks="0")
    cluster[0].on(ProduceRequest, None)
    future = world.send("a")
    world.run(10)

    assert future.result(0).offset == -1


@pytest.fixture
def unwritten(monkeypatch) -> list[asyncio.Future[None]]:
    """Requests without a response that the system does not take until a test says so."""
    found: list[asyncio.Future[None]] = []
    send = Channel.send_without_response

    def hold(channel: Channel, request: ProduceRequest, version: int) -> asyncio.Future[None]:
        send(channel, request, version)
        found.append(asyncio.get_running_loop().create_future())
        return found[-1]

    monkeypatch.setattr(Channel, "send_without_response", hold)
    return found


def test_acks_none_keeps_no_more_in_memory_than_it_may(runtime, cluster, unwritten):
    """Of a broker that reads slowly, as what it has not read counts as buffer.memory."""
    world = ProducerWorld(runtime, cluster, acks="0", batch_size=100, buffer_memory=1000)
    cluster[0].on(ProduceRequest, None)
    futures = [world.send("x" * 80) for _ in range(8)]
    world.run(10)

    assert len(unwritten) == 5, "max.in.flight.requests.per.connection"
    assert world.core.accumulator.available_bytes < 300
    assert not any(future.done() for future in futures)
    while unwritten:
        unwritten.pop(0).set_result(None)
        world.run(10)
    assert [future.result(0).offset for future in futures] == [-1] * 8
    assert world.core.accumulator.available_bytes == 1000


def test_acks_none_sends_again_what_was_not_written(runtime, cluster, unwritten):
    """The connection has ended before; a flush waits for it."""
    world = ProducerWorld(runtime, cluster, acks="0")
    cluster[0].on(ProduceRequest, None)
    future = world.send("a")
    world.run(10)
    unwritten.pop().set_exception(KafkaError.of(ErrorCode.NETWORK_EXCEPTION, "it has ended"))
    world.run(1000)
    assert not future.done()
    unwritten.pop().set_result(None)
    assert runtime.scheduler.run(world.core.flush(1000))

    assert future.result(0).offset == -1
    assert len(world.sent()) == 2


def test_broker_that_takes_nothing_in_is_given_up(runtime, cluster, unwritten):
    """After request.timeout.ms, as one that does not answer."""
    limits = {"request_timeout_ms": 1000, "delivery_timeout_ms": 5000}
    world = ProducerWorld(runtime, cluster, acks="0", **limits)
    cluster[0].on(ProduceRequest, None)
    world.run(2000)  # the connection that found the brokers is closed then
    world.send("a")
    world.run(10)
    before = set(cluster[0].connections)
    world.run(1100)

    assert len(unwritten) == 1
    assert len(before - set(cluster[0].connections)) == 1


def test_closing_fails_what_is_left(world, runtime, cluster):
    """After close every future is done."""
    cluster[0].on(ProduceRequest, None)
    future = world.send("a")
    world.run(10)
    runtime.scheduler.run(world.core.close())

    with pytest.raises(KafkaError, match="closed before the record was delivered"):
        future.result(0)
    assert not world.core.accumulator.has_unfinished


def test_closed_producer_leaves_nothing_to_do(runtime, cluster):
    """No timer for what lingers, for what may be too old, for metrics or for metadata."""
    world = ProducerWorld(runtime, cluster, linger_ms=2000)
    for number in range(6):
        world.send("a", partition=number % 2)
        world.run(700)
    runtime.scheduler.run(world.core.close())
    world.run()

    assert runtime.scheduler.loop.next_due_ms() is None
    assert cluster[0].connections == []


def looks_of(world, monkeypatch) -> list[int]:
    """When the sender looks for batches from now on."""
    looks, ready = [], world.core.accumulator.ready

    def look(now_ms: int):
        looks.append(now_ms)
        return ready(now_ms)

    monkeypatch.setattr(world.core.accumulator, "ready", look)
    return looks


@pytest.mark.usefixtures("core_source")
def test_sender_sleeps_while_batches_linger(runtime, cluster, monkeypatch):
    """It looks when one was begun, and when that one may be sent, and not between."""
    world = ProducerWorld(runtime, cluster, linger_ms=2000)
    world.run(1000)
    looks = looks_of(world, monkeypatch)
    world.send("a")
    world.run(1999)
    assert looks == [1000]
    world.run(1)
    assert looks[:2] == [1000, 3000]


@pytest.mark.usefixtures("core_source")
def test_several_causes_make_one_turn(world, monkeypatch):
    """The next cause after that makes another one."""
    looks = looks_of(world, monkeypatch)
    for number in (1, 2):
        for _ in range(3):
            world.core.sender.wakeup()
        world.run()
        assert len(looks) == number


def test_too_large_batch_is_split(world, cluster):
    """MESSAGE_TOO_LARGE halves the batch until it fits."""

    def small_only(request, version):
        (topic,) = request.topic_data
        size = len(bytes(topic.partition_data[0].records))
        return world.answer(request, 0 if size < 250 else ErrorCode.MESSAGE_TOO_LARGE)

    cluster[0].on(ProduceRequest, small_only)
    futures = [world.send(f"{number:050d}") for number in range(10)]
    world.run(5000)

    assert [int(value) for value in world.log] == list(range(10))
    assert [future.result(0).offset for future in futures] == list(range(10))
    assert {epoch for epoch, _, _ in world.batches} == {0}
    assert not world.core.accumulator.has_unfinished


def test_metadata_are_refreshed_when_they_are_old(world, cluster):
    """metadata.max.age.ms without any error is enough."""
    before = len(cluster[0].sent(MetadataRequest))
    world.run(300_001)

    assert len(cluster[0].sent(MetadataRequest)) == before + 1


def test_batch_that_cannot_be_encoded_fails_alone(world):
    """The records of other partitions are sent."""
    queue = world.queues.queues[0]
    record = (0, None, b"v", (("header", "text, which is no bytes"),))
    broken = world.core.accumulator.append(world.queues, queue, record, 100)
    fine = world.send("a", partition=1)
    world.run(100)

    assert fine.result(0).offset == 0
    assert broken.exception(0).error is ErrorCode.INVALID_RECORD
    assert "cannot be encoded" in str(broken.exception(0))
    assert world.log == [b"a"]


def test_answer_that_leaves_a_partition_out_fails_its_batch(world, cluster):
    """Nobody knows what became of it."""
    cluster[0].on(ProduceRequest, ProduceResponse())
    future = world.send("a")
    world.run(100)

    assert future.exception(0).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "leaves the partition out" in str(future.exception(0))


def test_answer_that_cannot_be_read_fails_the_batch(world, monkeypatch):
    """The error says so, and what comes later is sent as before."""
    send_on = world.core.client.send_on

    def unreadable(connection, request, version):
        answer = send_on(connection, request, version)
        broken = world.runtime.scheduler.loop.create_future()
        answer.add_done_callback(lambda done: broken.set_exception(ValueError("garbage")))
        return broken

    world.send("a")
    world.run(100)
    monkeypatch.setattr(world.core.client, "send_on", unreadable)
    future = world.send("b")
    world.run(100)
    monkeypatch.undo()

    assert future.exception(0).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "the answer could not be read: garbage" in str(future.exception(0))
    world.send("c")
    world.run(1000)
    assert world.log[-1] == b"c"


@pytest.mark.parametrize("codec", ["zstd", "gzip"])
def test_zstd_needs_a_broker_that_knows_it(runtime, cluster, codec):
    """Those before version 7 of Produce have the other codecs alone."""
    cluster[0].versions[ProduceRequest.api_key] = (0, 6)
    world = ProducerWorld(runtime, cluster, enable_idempotence=False, compression_type=codec)
    future = world.send("a")
    world.run(100)

    error = future.exception(0)
    assert (error and error.error) == (ErrorCode.UNSUPPORTED_VERSION if codec == "zstd" else None)


@pytest.mark.parametrize(
    ("settings", "codec", "level"),
    [
        ({}, "GZIP", None),
        ({"compression_gzip_level": 9, "compression_lz4_level": 3}, "GZIP", 9),
        ({"compression_gzip_level": -1}, "GZIP", None),
        ({"compression_gzip_level": 9, "compression_lz4_level": 3}, "LZ4", 3),
        ({"compression_zstd_level": 4}, "ZSTD", 4),
        ({"compression_gzip_level": 9}, "SNAPPY", None),
        ({"compression_gzip_level": 9}, "NONE", None),
    ],
)
def test_level_of_a_codec_is_its_own_unless_it_is_set(settings, codec, level):
    """The setting of another codec has no effect."""
    config = ProducerConfig.parse({"bootstrap.servers": "mock:1"}, **settings)
    assert compression_level(config, CompressionType[codec]) == level


def test_broker_that_is_too_old_fails_the_batch(runtime, cluster):
    """Its version of Produce has no place for batches."""
    cluster[0].versions[ProduceRequest.api_key] = (0, 2)
    world = ProducerWorld(runtime, cluster, enable_idempotence=False)
    future = world.send("a")
    world.run(100)

    assert future.exception(0).error is ErrorCode.UNSUPPORTED_VERSION
    assert world.sent() == []


def test_batch_whose_time_has_passed_is_not_sent_again(runtime, cluster):
    """delivery.timeout.ms counts from the first attempt on; an answer is waited for."""
    settings = {"delivery_timeout_ms": 1500, "request_timeout_ms": 1000}
    world = ProducerWorld(runtime, cluster, **settings)
    refusal = world.refuse(ErrorCode.NOT_ENOUGH_REPLICAS)
    cluster[0].on(ProduceRequest, lambda *asked: Later(800, refusal(*asked)))
    future = world.send("a")
    world.run(5000)

    assert isinstance(future.exception(0), KafkaTimeoutError)
    assert "delivery.timeout.ms=1500" in str(future.exception(0))
    assert len(world.sent()) == 2


def test_batch_that_is_refused_at_its_last_moment_is_not_queued_again(runtime, cluster):
    """It waited so long that the answer comes exactly at delivery.timeout.ms."""
    settings = {"delivery_timeout_ms": 1100, "request_timeout_ms": 900}
    world = ProducerWorld(runtime, cluster, max_in_flight_requests_per_connection=1, **settings)
    cluster[0].on(ProduceRequest, "hold")
    world.send("ahead", partition=1)
    world.run()
    future = world.send("a")
    for ms, code in ((500, 0), (600, ErrorCode.NOT_ENOUGH_REPLICAS)):
        world.run(ms)
        held = cluster[0].held.pop()
        held.answer(world.answer(held.request, code))
        world.run()

    assert "after 1 attempts" in str(future.exception(0))


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (42, -1), (-1, -1), (-(2**63), 3)])
def test_producer_id_that_is_none_fails_the_batches(world, cluster, producer_id, epoch):
    """The next answer would be the same, and come at once."""
    answer = InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)
    cluster[0].on(InitProducerIdRequest, answer)
    future = world.send("a")
    world.run(1000)

    with pytest.raises(KafkaError, match="the answer leaves the producer id out"):
        future.result(0)
    assert len(cluster[0].sent(InitProducerIdRequest)) == 1


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        ("dead", r"leader 0; broker mock:9000 .*cannot connect to mock:9000"),
        ("throttles", r"leader 0; broker mock:9000 .*throttles this client for \d+ ms"),
        ("slow", r"after 2 attempts; the last error was NETWORK_EXCEPTION: .*no answer to Produce"),
    ],
)
def test_record_that_is_too_late_says_what_the_leader_does(runtime, cluster, trouble, why):
    """Not only which broker it is."""
    limits = {"delivery_timeout_ms": 5000, "request_timeout_ms": 4000}
    world = ProducerWorld(runtime, cluster, **limits)
    world.send("a")
    world.run(1000)
    if trouble == "dead":
        cluster[0].stop()
    elif trouble == "throttles":
        throttle = ProduceResponse(throttle_time_ms=2**31 - 1)
        cluster[0].on(ProduceRequest, lambda request, version: throttle)
        world.send("b")
        world.run(100)
    else:
        cluster[0].on(ProduceRequest, lambda request, version: None)
    future = world.send("c")
    world.run(10_000)

    with pytest.raises(KafkaTimeoutError, match=why):
        future.result(0)


class TwoTopics(ProducerWorld):
    """Broker 0 leads the topic, which is made again under another id, and led by broker 1."""

    def __init__(self, runtime, **settings):
        cluster = MockCluster(runtime, 2)
        cluster.topics["pages"] = 2
        cluster.topic_ids = {"pages": BEFORE}
        super().__init__(runtime, cluster, **settings)
        self.send("0")
        self.send("1", partition=1)
        self.run(1000)
        self.log.clear()

    def make_again(self):
        self.cluster[1].on(ProduceRequest, self.append_to_new)
        self.cluster.topic_ids = {"pages": AFTER}
        self.cluster.leaders["pages", 0] = 1
        self.expected.clear()
        self.core.metadata.request_update(is_urgent=True)
        self.run(100)

    def append_to_new(self, request, version):
        """A leader takes any number first of a producer that it does not know."""
        (topic,) = request.topic_data
        if version >= 13 and topic.topic_id != AFTER:
            return self.answer(request, ErrorCode.UNKNOWN_TOPIC_ID)
        batch = RecordBatch(topic.partition_data[0].records)
        self.expected.setdefault(0, (batch.producer_epoch, batch.base_sequence))
        return self.append(request, version)


@pytest.mark.parametrize("last", [12, 13])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_batches_for_a_topic_that_was_made_again_stay_in_order(runtime, last, count):
    """Those that are on their way to the topic before come first."""
    world = TwoTopics(runtime)
    for broker in world.cluster.brokers.values():
        broker.versions[ProduceRequest.api_key] = (0, last)
    world.cluster[0].on(ProduceRequest, "hold")
    futures = []
    for letter in "abc"[:count]:
        futures.append(world.send(letter))
        world.run(1)
    world.make_again()
    for letter in "de":
        futures.append(world.send(letter))
        world.run(100)
    world.cluster[0].on(ProduceRequest, world.refuse(ErrorCode.UNKNOWN_TOPIC_ID))
    for held in world.cluster[0].held:
        held.answer(world.answer(held.request, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    world.run(10_000)

    assert [future.exception(0) for future in futures] == [None] * len(futures)
    assert world.log == [*[b"a", b"b", b"c"][:count], b"d", b"e"]


@pytest.mark.parametrize("every_ms", [1, 10, 500])
@pytest.mark.parametrize("change", ["id", "leader"])
def test_producer_without_answers_looks_for_the_topic_where_a_broker_hangs_up(
    runtime, every_ms, change
):
    """A broker has no other way to say that it refuses: all was lost for metadata.max.age.ms."""
    cluster = MockCluster(runtime, 2 if change == "leader" else 1)
    cluster.topics["pages"] = 2
    cluster.topic_ids = {"pages": BEFORE}
    world = ProducerWorld(runtime, cluster, enable_idempotence=False, acks=0)
    taken = []

    def append(request, version, node_id):
        (topic,) = request.topic_data
        is_known = topic.topic_id == cluster.topic_ids["pages"]
        if not is_known or cluster.leader("pages", 0) != node_id:
            return HANG_UP
        taken.append(RecordBatch(topic.partition_data[0].records))
        return None

    for node_id, broker in cluster.brokers.items():
        broker.on(ProduceRequest, partial(append, node_id=node_id))
    world.send("first")
    world.run(1000)
    if change == "id":
        cluster.topic_ids = {"pages": AFTER}
    else:
        cluster.leaders["pages", 0], cluster.epochs["pages", 0] = 1, 1
    for number in range(2000 // every_ms):
        world.send(str(number))
        world.run(every_ms)
    world.run(1000)

    found = [record.value for batch in taken for record in batch.records()]
    assert found[0] == b"first"
    assert found[-3:] == [b"%d" % number for number in range(2000 // every_ms)][-3:]
