"""Markers and verifications that go to other brokers."""

from __future__ import annotations

import struct
from itertools import pairwise
from uuid import UUID

import pytest

from ottla.coordinator.transaction.marker_sender import MARKERS_IN_A_STEP, TxnMarker
from ottla.errors import ErrorCode
from ottla.extensions.remote_transactions.cluster_transactions import (
    ANSWERED_AT_ONCE,
    PARTITIONS_IN_A_REQUEST,
    VERIFIED_IN_A_REQUEST,
    AskCoordinatorOnCluster,
    LeaderQueue,
    MarkersToCluster,
)
from ottla.protocol.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.structs import (
    TRANSACTIONS_TOPIC,
    LeaderAndIsr,
    PartitionState,
    TopicPartition,
    TxnProducer,
)

MARKER = TxnMarker(7, 3, True, 2, 1)
TRANSACTIONS = TopicPartition(TRANSACTIONS_TOPIC, 0)
OWN, OTHERS, NOBODYS = (TopicPartition("t", index) for index in range(3))


def led(topic_partition, leader):
    return PartitionState(
        topic_partition, UUID(int=1), 1, LeaderAndIsr(leader, 0, (leader,)), (leader,)
    )


class Writer:
    """The leader in this broker."""

    def write(self, marker, partitions, on_written):
        on_written(dict.fromkeys(partitions, ErrorCode.NONE))


class Coordinator:
    """The coordinator in this broker; every id is in partition 0."""

    def partition_for(self, transactional_id):
        return 0

    def verify_partitions(self, producer, partitions):
        return dict.fromkeys(partitions, ErrorCode.INVALID_TXN_STATE)


@pytest.fixture
def world(cluster_world):
    """Partition 0 is led here, 1 by broker 2, and 2 by nobody."""
    states = [led(OWN, 1), led(OTHERS, 2), led(NOBODYS, -1)]
    cluster_world.cache.update(states, [cluster_world.broker(1), cluster_world.broker(2)])
    cluster_world.serve(2)
    cluster_world.answers = {
        WriteTxnMarkersRequest: lambda _, body: WriteTxnMarkersResponse(
            markers=[written(marker) for marker in body.markers]
        ),
        AddPartitionsToTxnRequest: lambda _, body: AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id="x",
                    topic_results=[
                        AddPartitionsToTxnTopicResult(
                            name="t",
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(
                                    partition_index=1, partition_error_code=48
                                )
                            ],
                        )
                    ],
                )
            ]
        ),
    }
    yield cluster_world
    cluster_world.connections.close()
    cluster_world.advance()


def written(marker):
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(partition_index=index)
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )


def test_markers_go_to_whoever_leads(world):
    """One answer for all of them, and an error where nobody leads."""
    markers = MarkersToCluster(world.runtime, world.connections, world.cache, Writer())
    heard = []
    markers.write_markers(MARKER, {OWN, OTHERS, NOBODYS}, heard.append)
    world.advance(100)

    assert heard == [
        {
            OWN: ErrorCode.NONE,
            OTHERS: ErrorCode.NONE,
            NOBODYS: ErrorCode.LEADER_NOT_AVAILABLE,
        }
    ]
    ((broker_id, body),) = world.asked
    (marker,) = body.markers
    assert (broker_id, marker.producer_id, marker.producer_epoch) == (2, 7, 3)
    assert (marker.transaction_result, marker.coordinator_epoch) == (True, 2)
    assert marker.transaction_version == 1


def test_markers_that_wait_travel_together(world):
    """The second request has all that came while the first was under way."""
    markers = MarkersToCluster(world.runtime, world.connections, world.cache, Writer())
    heard = []
    markers.write_markers(MARKER, {OTHERS}, heard.append)
    world.runtime.scheduler.call_later(
        1, lambda: [markers.write_markers(MARKER, {OTHERS}, heard.append) for _ in range(3)]
    )
    world.advance(100)

    assert heard == [{OTHERS: ErrorCode.NONE}] * 4
    assert [len(body.markers) for _, body in world.asked] == [1, 3]


def test_markers_wait_for_the_answer_to_those_before_them(world):
    """A leader has one request with markers at a time."""
    world.delays_ms[2] = 1_000
    markers = MarkersToCluster(world.runtime, world.connections, world.cache, Writer())
    heard = []
    for _ in range(3):
        markers.write_markers(MARKER, {OTHERS}, heard.append)
        world.advance(100)
    assert [len(body.markers) for _, body in world.asked] == [1]
    world.advance(2_000)

    assert [len(body.markers) for _, body in world.asked] == [1, 2]
    assert heard == [{OTHERS: ErrorCode.NONE}] * 3


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_partition_without_a_result_is_not_verified(world, code, expected):
    """It has the error of the whole answer, or one that stands for none."""
    world.cache.update([led(TRANSACTIONS, 2)], world.cache.brokers.values())
    world.answers[AddPartitionsToTxnRequest] = lambda _, body: AddPartitionsToTxnResponse(
        error_code=code
    )
    heard = []
    asker(world)(TxnProducer("x", 7, 3), [OWN, OTHERS], heard.append, adds=False)
    world.advance(100)

    assert heard == [{OWN: expected, OTHERS: expected}]


def test_questions_that_wait_travel_together(world):
    """Each id once in a request, as an answer names it once; the others follow."""
    world.cache.update([led(TRANSACTIONS, 2)], world.cache.brokers.values())
    world.answers[AddPartitionsToTxnRequest] = confirm_all_but_those_of_odd_epochs
    world.delays_ms[2] = 1_000
    asking, heard = asker(world), []
    for number, name in enumerate(["a", "b", "a", "c", "a"]):
        producer, partition = TxnProducer(name, 7, number), TopicPartition("t", number)
        asking(producer, [partition], heard.append, adds=bool(number % 3))
        world.advance(100)
    assert [len(body.transactions) for _, body in world.asked] == [1]
    world.advance(5_000)

    assert [
        [
            (each.transactional_id, each.producer_epoch, each.verify_only)
            for each in body.transactions
        ]
        for _, body in world.asked
    ] == [
        [("a", 0, True)],
        [("b", 1, False), ("a", 2, False), ("c", 3, True)],
        [("a", 4, False)],
    ]
    found = {each.partition: error for answer in heard for each, error in answer.items()}
    assert found == {n: ErrorCode.INVALID_TXN_STATE if n % 2 else ErrorCode.NONE for n in range(5)}


def test_questions_about_very_many_partitions_go_out_in_requests_of_a_limited_size(world):
    """A coordinator answers each in one step."""
    world.cache.update([led(TRANSACTIONS, 2)], world.cache.brokers.values())
    world.answers[AddPartitionsToTxnRequest] = confirm_all_but_those_of_odd_epochs
    asking, heard = asker(world), {}
    each = [TopicPartition("t", number) for number in range(100)]
    for number in range(40):
        asking(TxnProducer(f"x{number}", 7, 0), each, heard.update, adds=True)
    world.advance(1_000)

    sizes = [len(body.transactions) for _, body in world.asked]
    assert sum(sizes) == 40
    assert max(sizes) == VERIFIED_IN_A_REQUEST // len(each)
    assert heard == dict.fromkeys(each, ErrorCode.NONE)


@pytest.mark.parametrize("kind", ["markers", "questions"])
def test_outcomes_of_a_request_are_used_some_at_a_time(world, kind):
    """Each may append to a log: others are served between them."""
    world.cache.update([led(TRANSACTIONS, 2)], world.cache.brokers.values())
    world.answers[AddPartitionsToTxnRequest] = confirm_all_but_those_of_odd_epochs
    heard, turns = [], []

    def note(errors):
        heard.append(errors)
        if not turns:
            count_turn()

    def count_turn():
        turns.append(len(heard))
        if len(heard) < 401:
            world.runtime.scheduler.call_soon(count_turn)

    markers = MarkersToCluster(world.runtime, world.connections, world.cache, Writer())
    asking = asker(world)
    for number in range(401):
        if kind == "markers":
            markers.write_markers(MARKER, {OTHERS}, note)
        else:
            asking(TxnProducer(f"x{number}", 7, 0), [OTHERS], note, adds=False)
    world.advance(1_000)

    assert heard == [{OTHERS: ErrorCode.NONE}] * 401
    assert max(after - before for before, after in pairwise(turns)) <= ANSWERED_AT_ONCE // 2


def asker(world):
    return AskCoordinatorOnCluster(world.runtime, world.connections, world.cache, Coordinator())


def confirm_all_but_those_of_odd_epochs(_, body):
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=asked.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(
                                partition_index=index,
                                partition_error_code=48 * (asked.producer_epoch % 2),
                            )
                            for index in topic.partitions
                        ],
                    )
                    for topic in asked.topics
                ],
            )
            for asked in body.transactions
        ]
    )


def test_request_that_fails_strangely_is_an_error_of_its_partitions(world, monkeypatch):
    """An answer that cannot be taken apart once left transactions without their end for ever."""
    markers = MarkersToCluster(world.runtime, world.connections, world.cache, Writer())
    heard = []

    async def broken(*args, **options):
        raise struct.error("required argument is not an integer")

    with monkeypatch.context() as patch:
        patch.setattr(world.connections, "ask", broken)
        markers.write_markers(MARKER, {OTHERS}, heard.append)
        world.advance(100)
        asking = AskCoordinatorOnCluster(
            world.runtime, world.connections, world.cache, Coordinator()
        )
        transactions = TopicPartition(TRANSACTIONS_TOPIC, 0)
        world.cache.update([led(transactions, 2)], world.cache.brokers.values())
        asking(TxnProducer("x", 7, 3), [OTHERS], heard.append, adds=False)
        world.advance(100)
    markers.write_markers(MARKER, {OTHERS}, heard.append)
    world.advance(100)

    assert heard == [
        {OTHERS: ErrorCode.UNKNOWN_SERVER_ERROR},
        {OTHERS: ErrorCode.COORDINATOR_NOT_AVAILABLE},
        {OTHERS: ErrorCode.NONE},
    ]


def test_broker_that_is_gone_is_an_error_of_its_partitions(world):
    """The sender of the markers tries again, and may find another leader."""
    world.runtime.network.stop_serving("host-2", 9092)
    markers = MarkersToCluster(world.runtime, world.connections, world.cache, Writer())
    heard = []
    markers.write_markers(MARKER, {OTHERS}, heard.append)
    world.advance(100)

    assert heard == [{OTHERS: ErrorCode.NETWORK_EXCEPTION}]


@pytest.mark.parametrize(
    ("leader", "expected"),
    [
        (1, ErrorCode.INVALID_TXN_STATE),
        (2, ErrorCode.INVALID_TXN_STATE),
        (-1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (9, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
    ids=["here", "elsewhere", "nobody", "dead"],
)
def test_coordinator_is_asked_wherever_it_is(world, leader, expected):
    """Without one, the producer is to try again."""
    brokers = [world.broker(1), world.broker(2)]
    world.cache.update([led(TopicPartition(TRANSACTIONS_TOPIC, 0), leader)], brokers)
    verification = AskCoordinatorOnCluster(
        world.runtime, world.connections, world.cache, Coordinator()
    )
    heard = []
    verification(TxnProducer("x", 7, 3), [OTHERS], heard.append, adds=False)
    world.advance(100)

    assert heard == [{OTHERS: expected}]
    if leader == 2:
        ((_, body),) = world.asked
        (asked,) = body.transactions
        assert (asked.transactional_id, asked.producer_id, asked.verify_only) == ("x", 7, True)


def test_marker_that_cannot_be_sent_keeps_no_other_back(world, monkeypatch, caplog):
    """Those that wait with it are written, and its own sender is told."""
    markers = MarkersToCluster(world.runtime, world.connections, world.cache, Writer())
    ask = LeaderQueue._ask
    poison = MARKER._replace(producer_id=666)

    async def fail_with_one(queue, sent):
        if any(each.marker == poison for each in sent):
            raise struct.error("planted")
        return await ask(queue, sent)

    monkeypatch.setattr(LeaderQueue, "_ask", fail_with_one)
    heard = []

    def fail(_):
        raise ValueError("planted")

    markers.write_markers(MARKER, {OTHERS}, fail)
    for marker in (MARKER, poison, MARKER):
        markers.write_markers(marker, {OTHERS}, heard.append)
    world.advance(100)

    assert heard == [
        {OTHERS: ErrorCode.NONE},
        {OTHERS: ErrorCode.UNKNOWN_SERVER_ERROR},
        {OTHERS: ErrorCode.NONE},
    ]
    assert "for broker 2 cannot be sent" in caplog.text


def test_many_markers_for_one_leader_go_out_in_requests_of_a_limited_size(world):
    """All that had come while one was on its way went out in one, which a leader refuses if it has
    too many elements: then none of them was ever written."""
    partitions = [TopicPartition("wide", number) for number in range(3 * PARTITIONS_IN_A_REQUEST)]
    world.cache.update([led(each, 2) for each in partitions], [world.broker(1), world.broker(2)])
    markers = MarkersToCluster(world.runtime, world.connections, world.cache, Writer())
    heard = {}
    for first in range(0, len(partitions), MARKERS_IN_A_STEP):
        markers.write_markers(MARKER, partitions[first : first + MARKERS_IN_A_STEP], heard.update)
    world.advance(1_000)

    assert heard == dict.fromkeys(partitions, ErrorCode.NONE)
    sizes = [
        sum(len(topic.partition_indexes) for marker in body.markers for topic in marker.topics)
        for _, body in world.asked
    ]
    assert sum(sizes) == len(partitions)
    assert max(sizes) < PARTITIONS_IN_A_REQUEST + MARKERS_IN_A_STEP
