"""DescribeTransactions, ListTransactions and DescribeProducers over real logs."""

import pytest
from transaction_broker import TransactionBroker

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    TopicRequest,
)


@pytest.fixture
def broker():
    """A broker with an open transaction of "x" in partition 0."""
    broker = TransactionBroker()
    _, *broker.producer = broker.init()
    broker.add(broker.producer, 0)
    broker.produce(broker.producer, 0, b"v")
    return broker


def listed(broker, version=2, **filters):
    answer = broker.call(ListTransactionsRequest(**filters), version)
    assert not answer.error_code
    return [
        (state.transactional_id, state.producer_id, state.transaction_state)
        for state in answer.transaction_states
    ]


def test_described_transaction_has_all_that_is_known(broker):
    """An id that does not exist is an error of its own."""
    answer = broker.call(DescribeTransactionsRequest(transactional_ids=["x", "nobody"]), 0)
    known, unknown = answer.transaction_states

    assert (known.error_code, known.transaction_state) == (0, "Ongoing")
    assert (known.producer_id, known.producer_epoch) == (100, 0)
    assert known.transaction_timeout_ms == 60_000
    assert known.transaction_start_time_ms == broker.runtime.clock.now_ms()
    assert [(topic.topic, topic.partitions) for topic in known.topics] == [("t", [0])]
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("filters", "is_listed"),
    [
        ({}, True),
        ({"state_filters": ["Ongoing", "Empty"]}, True),
        ({"state_filters": ["CompleteCommit"]}, False),
        ({"producer_id_filters": [1, 100]}, True),
        ({"producer_id_filters": [1]}, False),
        ({"duration_filter": 4_000}, True),
        ({"duration_filter": 5_000}, False),
        ({"duration_filter": 6_000}, False),
        ({"transactional_id_pattern": "[xy]"}, True),
        ({"transactional_id_pattern": ""}, True),
        ({"transactional_id_pattern": "y|xx"}, False),
    ],
)
def test_list_has_what_passes_all_filters(broker, filters, is_listed):
    """Empty filters let everything pass."""
    broker.runtime.advance(5_000)

    assert listed(broker, **filters) == ([("x", 100, "Ongoing")] if is_listed else [])


@pytest.mark.parametrize("pattern", ["(", r"(a)\1"])
def test_pattern_that_is_no_regular_expression_is_refused(broker, pattern):
    """With an error of its own (KIP-1152); also one that RE2 does not take."""
    with pytest.raises(KafkaError) as refused:
        broker.call(ListTransactionsRequest(transactional_id_pattern=pattern), 2)

    assert refused.value.error is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_unknown_states_are_told(broker):
    """They may be those of a newer broker."""
    answer = broker.call(ListTransactionsRequest(state_filters=["Ongoing", "Dreaming"]), 0)

    assert answer.unknown_state_filters == ["Dreaming"]
    assert len(answer.transaction_states) == 1


def test_transaction_that_has_ended_has_no_duration(broker):
    """However long ago it began."""
    broker.end(broker.producer)
    broker.runtime.advance(5_000)

    assert listed(broker) == [("x", 100, "CompleteCommit")]
    assert listed(broker, duration_filter=-1) == listed(broker)
    assert listed(broker, duration_filter=0) == []
    assert listed(broker, duration_filter=1_000) == []


def test_producers_of_a_partition_are_described(broker):
    """With the beginning of their open transactions, to find those that hang."""
    body = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 9])])
    known, unknown = broker.call(body, 0).topics[0].partitions
    (producer,) = known.active_producers

    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (100, 0, 0)
    assert (producer.current_txn_start_offset, producer.coordinator_epoch) == (0, -1)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.end(broker.producer)
    (producer,) = broker.call(body, 0).topics[0].partitions[0].active_producers
    assert (producer.current_txn_start_offset, producer.coordinator_epoch) == (-1, 0)
