"""`ottla transactions list`, `describe` and `describe-producers`."""

import json

from ottla.structs import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def cells(outcome):
    """The lines as lists of cells; every cell ends with a tab, as in Kafka's table."""
    assert all(line.endswith("\t") for line in outcome.lines)
    return [[cell.strip() for cell in line.split("\t")[:-1]] for line in outcome.lines]


def test_list_has_a_line_for_each_id(transactions, cluster):
    """In columns as wide as their widest cells."""
    cluster.add_id("a-rather-long-transactional-id", 7, T0)
    cluster.add_id("b", 8)
    outcome = transactions("list")

    assert cells(outcome) == [
        ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"],
        ["a-rather-long-transactional-id", "1", "7", "Ongoing"],
        ["b", "1", "8", "CompleteAbort"],
    ]
    assert len({len(line) for line in outcome.lines}) == 1


def test_list_passes_its_filters_on(transactions, cluster):
    """The brokers do the filtering."""
    transactions("list", "--duration-filter", 500, "--transactional-id-pattern", "t.*")
    outcome = transactions("list", "--transactional-id-pattern", "(")

    assert cluster.asked[0] == (500, "t.*")
    assert "'(' is no regular expression" in outcome.err


def test_described_transaction_has_its_partitions_and_age(transactions, cluster):
    """None stands for the start of a transaction that is not there."""
    cluster.add_id("x", 7, T1, T0)
    cluster.add_id("y", 8)
    header, row = cells(transactions("describe", "--transactional-id", "x"))
    described = dict(zip(header, row, strict=True))
    idle = cells(transactions("describe", "--transactional-id", "y"))[1]

    assert int(described.pop("TransactionDurationMs")) >= 5000
    assert int(described.pop("CurrentTransactionStartTimeMs")) > 0
    assert described == {
        "CoordinatorId": "1",
        "TransactionalId": "x",
        "ProducerId": "7",
        "ProducerEpoch": "3",
        "TransactionState": "Ongoing",
        "TransactionTimeoutMs": "60000",
        "TopicPartitions": "t-0,t-1",
    }
    assert idle[-3:] == ["None", "None", ""]
    assert "no z" in transactions("describe", "--transactional-id", "z").err


def test_producers_are_described_as_the_leader_or_a_replica_knows_them(transactions, cluster):
    """With the offset at which an open transaction begins."""
    cluster.add_producer(T0, 7, 120)
    cluster.add_producer(T0, 8, None)
    words = ("describe-producers", "--topic", "t", "--partition", 0)
    header, open_one, idle = cells(transactions(*words))
    transactions(*words, "--broker-id", 4)

    assert header[-1] == "CurrentTransactionStartOffset"
    assert [open_one[0], open_one[2], open_one[-1]] == ["7", "5", "120"]
    assert [idle[0], idle[-1]] == ["8", "None"]
    assert [each.broker_id for each in cluster.asked] == [None, 4]


def test_transactions_can_be_listed_as_json(transactions, cluster):
    """Under names with underscores."""
    cluster.add_id("b", 8)

    assert json.loads(transactions("list", "--format", "json").out) == [
        {
            "transactional_id": "b",
            "coordinator": 1,
            "producer_id": 8,
            "transaction_state": "CompleteAbort",
        }
    ]
