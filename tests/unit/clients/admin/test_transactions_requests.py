"""Calls about transactions: what is asked of whom, and what comes back."""

from __future__ import annotations

import pytest
from admin_world import COORDINATOR, Call, OldBroker, asked

from ottla import KafkaError, TopicPartition
from ottla.clients.admin.transactions import (
    HangingTransaction,
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
)
from ottla.errors import ErrorCode
from ottla.protocol.group import FindCoordinatorRequest
from ottla.protocol.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsTransactionState,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsTransactionState,
    PartitionResponse,
    ProducerState,
    TopicData,
    TopicRequest,
    TopicResponse,
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

SECOND = TopicPartition("pages", 1)
DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def state(start_ms: int, code: int = 0) -> DescribeTransactionsResponse:
    described = DescribeTransactionsTransactionState(
        error_code=code,
        transactional_id="x",
        transaction_state="Ongoing",
        transaction_timeout_ms=60,
        transaction_start_time_ms=start_ms,
        producer_id=7,
        producer_epoch=2,
        topics=[TopicData(topic="pages", partitions=[0, 1])],
    )
    return DescribeTransactionsResponse(transaction_states=[described])


def description(start_ms: int | None) -> TransactionDescription:
    partitions = frozenset([TopicPartition("pages", 0), SECOND])
    return TransactionDescription(COORDINATOR, "Ongoing", 7, 2, 60, start_ms, partitions)


def producers(code: int = 0) -> DescribeProducersResponse:
    states = [
        ProducerState(
            producer_id=7,
            producer_epoch=2,
            last_sequence=9,
            last_timestamp=1000,
            coordinator_epoch=4,
            current_txn_start_offset=offset,
        )
        for offset in (30, -1)
    ]
    row = PartitionResponse(
        partition_index=1, error_code=code, active_producers=[] if code else states
    )
    return DescribeProducersResponse(topics=[TopicResponse(name="pages", partitions=[row])])


def markers(code: int = 0) -> WriteTxnMarkersResponse:
    row = WritableTxnMarkerPartitionResult(partition_index=1, error_code=code)
    topic = WritableTxnMarkerTopicResult(name="pages", partitions=[row])
    marker = WritableTxnMarkerResult(producer_id=7, topics=[topic])
    return WriteTxnMarkersResponse(markers=[marker])


def abort(coordinator_epoch: int) -> WriteTxnMarkersRequest:
    marker = WritableTxnMarker(
        producer_id=7,
        producer_epoch=2,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name="pages", partition_indexes=[1])],
        coordinator_epoch=coordinator_epoch,
    )
    return WriteTxnMarkersRequest(markers=[marker])


PRODUCERS = DescribeProducersRequest(topics=[TopicRequest(name="pages", partition_indexes=[1])])
DESCRIBED = {
    SECOND: [ProducerDescription(7, 2, 9, 1000, 4, start_offset) for start_offset in (30, None)]
}
FENCE = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1)
CALLS = {
    "describe one that is open": Call(
        lambda admin: admin.describe_transactions(iter(["x"])),
        COORDINATOR,
        DescribeTransactionsRequest(transactional_ids=["x"]),
        state(1000),
        {"x": description(1000)},
    ),
    "describe one that is not": Call(
        lambda admin: admin.describe_transactions(["x"]),
        COORDINATOR,
        DescribeTransactionsRequest(transactional_ids=["x"]),
        state(-1),
        {"x": description(None)},
    ),
    "describe in vain": Call(
        lambda admin: admin.describe_transactions(["x"]),
        COORDINATOR,
        DescribeTransactionsRequest(transactional_ids=["x"]),
        state(-1, int(DENIED)),
        DENIED,
    ),
    "producers as the leader knows them": Call(
        lambda admin: admin.describe_producers(iter([SECOND])),
        1,
        PRODUCERS,
        producers(),
        DESCRIBED,
    ),
    "producers as another broker knows them": Call(
        lambda admin: admin.describe_producers([SECOND], 2),
        2,
        PRODUCERS,
        producers(),
        DESCRIBED,
    ),
    "producers in vain": Call(
        lambda admin: admin.describe_producers([SECOND]),
        1,
        PRODUCERS,
        producers(int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)),
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ),
    "abort": Call(
        lambda admin: admin.abort_transaction(HangingTransaction(SECOND, 7, 2, 4)),
        1,
        abort(4),
        markers(),
        None,
    ),
    "abort what has seen no marker": Call(
        lambda admin: admin.abort_transaction(HangingTransaction(SECOND, 7, 2, -1)),
        1,
        abort(0),
        markers(int(REFUSED)),
        REFUSED,
    ),
    "fence": Call(
        lambda admin: admin.fence_producers(iter(["x"])),
        COORDINATOR,
        FENCE,
        InitProducerIdResponse(producer_id=7, producer_epoch=3),
        {"x": (7, 3)},
    ),
    "fence in vain": Call(
        lambda admin: admin.fence_producers(["x"]),
        COORDINATOR,
        FENCE,
        InitProducerIdResponse(error_code=DENIED),
        DENIED,
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_each_call_asks_for_what_it_was_given(virtual_admin, cluster, call):
    """One request, to the coordinator or the broker of the partition; its answer is returned."""
    call.check(virtual_admin, cluster)


OLD = {
    "durations": OldBroker(
        lambda admin: admin.list_transactions(longer_than_ms=0), ListTransactionsRequest, 1
    ),
    "patterns": OldBroker(
        lambda admin: admin.list_transactions(id_pattern="x"), ListTransactionsRequest, 2
    ),
    "coordinators of transactional ids": OldBroker(
        lambda admin: admin.describe_transactions(["x"]), FindCoordinatorRequest, 1
    ),
}


@pytest.mark.parametrize("call", OLD.values(), ids=OLD)
def test_calls_that_a_broker_is_too_old_for_are_not_sent(virtual_admin, cluster, call):
    """The error says which versions this client needs."""
    call.check(virtual_admin, cluster)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, ListTransactionsRequest()),
        (
            {"states": ["Ongoing"], "producer_ids": [7], "longer_than_ms": 5, "id_pattern": "x.*"},
            ListTransactionsRequest(
                state_filters=["Ongoing"],
                producer_id_filters=[7],
                duration_filter=5,
                transactional_id_pattern="x.*",
            ),
        ),
    ],
)
def test_transactions_are_listed_by_all_brokers(virtual_admin, cluster, filters, expected):
    """One list, by id, with the brokers that coordinate them; each is asked with the filters."""
    for node_id, broker in cluster.brokers.items():
        row = ListTransactionsTransactionState(
            transactional_id=f"x{9 - node_id}", producer_id=7, transaction_state="Ongoing"
        )
        broker.on(ListTransactionsRequest, ListTransactionsResponse(transaction_states=[row]))

    assert virtual_admin.list_transactions(**filters) == [
        TransactionListing(f"x{9 - node_id}", node_id, 7, "Ongoing") for node_id in (2, 1, 0)
    ]
    assert asked(cluster, ListTransactionsRequest) == [(node_id, expected) for node_id in (0, 1, 2)]


def test_list_without_a_broker_is_an_error(virtual_admin, cluster):
    """Part of the transactional ids would be missing; the error has those of other brokers."""
    for broker in cluster.brokers.values():
        row = ListTransactionsTransactionState(transactional_id="x", producer_id=7)
        broker.on(ListTransactionsRequest, ListTransactionsResponse(transaction_states=[row]))
    cluster[1].on(ListTransactionsRequest, ListTransactionsResponse(error_code=DENIED))
    with pytest.raises(KafkaError, match="transactions of broker 1") as caught:
        virtual_admin.list_transactions()

    assert [each.transactional_id for each in caught.value.results[2]] == ["x"]
    assert caught.value.error is DENIED
