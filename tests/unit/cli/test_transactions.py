"""`ottla transactions`: its options, and what each action prints and asks for."""

from __future__ import annotations

import json

import pytest
from transaction_cluster import TransactionCluster

from ottla.clients.admin.admin_client import checked
from ottla.clients.admin.descriptions import TopicDescription, TopicPartitionInfo
from ottla.clients.admin.transactions import HangingTransaction
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import TRANSACTIONS_TOPIC, TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@pytest.fixture
def cluster(clients):
    """The cluster that the commands of a test talk to."""
    clients.client = TransactionCluster()
    return clients.client


@pytest.fixture
def transactions(tool, cluster):
    """Run `ottla transactions` with these words."""
    return lambda *words: tool("transactions", *words)


# Which options belong to which action.


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("describe", "missing required option --transactional-id"),
        ("describe-producers --topic t", "missing required option --partition"),
        ("abort --partition 1 --start-offset 3", "missing required option --topic"),
        ("abort --topic t --partition 1", "the transaction to abort is named by --start-offset"),
        (
            "abort --topic t --partition 1 --start-offset 3 --producer-id 5",
            "option --start-offset cannot be used with option --producer-id",
        ),
        (
            "abort --topic t --partition 1 --producer-id 5 --producer-epoch 1",
            "missing required option --coordinator-epoch",
        ),
        ("find-hanging", "find-hanging needs --topic or --broker-id"),
        ("find-hanging --partition 3", "option --partition needs --topic"),
        ("list --topic t", "option --topic cannot be used with list"),
        ("force-terminate", "missing required option --transactional-id"),
        ("forget", "not 'forget'"),
    ],
)
def test_options_that_do_not_fit_are_refused(transactions, words, complaint):
    """The option is named before any broker is asked."""
    outcome = transactions(*words.split())

    assert outcome.status == 1
    assert complaint in outcome.err
    assert outcome.out == ""


# `ottla transactions abort` and `force-terminate`.


def test_transaction_is_aborted_by_the_offset_at_which_it_begins(transactions, cluster):
    """The producer of the transaction is looked up."""
    cluster.add_producer(T0, 6, None)
    cluster.add_producer(T0, 7, 120)
    words = ("abort", "--topic", "t", "--partition", 0, "--start-offset")

    assert transactions(*words, 120).status == 0
    assert cluster.changes == [HangingTransaction(T0, 7, 3, 5)]
    outcome = transactions(*words, 121)
    assert "no open transaction begins at offset 121 of partition t-0" in outcome.err
    assert len(cluster.changes) == 1


def test_transaction_is_aborted_by_its_producer(transactions, cluster):
    """For brokers that cannot be asked about producers."""
    words = ("--producer-id", 7, "--producer-epoch", 0, "--coordinator-epoch", -1)
    outcome = transactions("abort", "--topic", "t", "--partition", 0, *words)

    assert outcome.status == 0
    assert cluster.changes == [HangingTransaction(T0, 7, 0, -1)]


@pytest.mark.parametrize(
    "words",
    ["force-terminate --transactional-id x", "forceTerminateTransaction --transactionalId x"],
)
def test_id_is_terminated_by_fencing_its_producer(transactions, cluster, words):
    """In the spelling of Apache Kafka 4.1 as well."""
    assert transactions(*words.split()).status == 0
    assert cluster.changes == [["x"]]


# `ottla transactions list`, `describe` and `describe-producers`.


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
    """A producer has the offset at which its open transaction begins."""
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


HANGS = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "it hangs")


def test_transactions_of_brokers_that_answer_are_listed_beside_one_that_hangs(
    transactions, cluster
):
    """All of them were missing, after a minute; the other broker is named."""
    cluster.add_id("till-1", 7)
    lists = {0: cluster.list_transactions(), 1: HANGS}
    cluster.list_transactions = lambda **_: checked(lists)

    outcome = transactions("list")

    assert outcome.status == 1
    assert outcome.err == "Error: no transactions of broker 1: REQUEST_TIMED_OUT: it hangs\n"
    assert outcome.lines[1].split()[0] == "till-1"


def test_transactions_without_a_coordinator_are_not_left_out_silently(transactions, cluster):
    """No broker lists them, while the partition that has them is without a leader."""
    cluster.add_id("till-1", 7)
    cluster.producers[TopicPartition(TRANSACTIONS_TOPIC, 4)] = []
    infos = [TopicPartitionInfo(4, -1, 0, (0,), ())]
    away = {TRANSACTIONS_TOPIC: TopicDescription(TRANSACTIONS_TOPIC, partitions=infos)}
    cluster.describe_topics = lambda names: away

    outcome = transactions("list")

    assert outcome.status == 1
    assert outcome.err.startswith("Error: partitions 4 of __transaction_state have no leader: ")
    assert outcome.lines[1].split()[0] == "till-1"


# `ottla transactions find-hanging`.


@pytest.mark.parametrize("is_led", [True, False])
def test_partition_that_cannot_be_searched_hides_no_other(transactions, cluster, is_led):
    """Without a leader it is named at once: a minute went by before that said so."""
    for partition in (T0, T1):
        cluster.add_producer(partition, 1, 10, minutes=16)
    infos = [
        TopicPartitionInfo(number, leader, 0, (0,), (0,))
        for number, leader in ((0, 0), (1, 0 if is_led else -1))
    ]
    cluster.describe_topics = lambda names: {"t": TopicDescription("t", partitions=infos)}
    describe = cluster.describe_producers
    cluster.describe_producers = lambda asked, broker: checked(
        {each: HANGS if each == T1 else describe([each])[each] for each in asked}
    )

    outcome = transactions("find-hanging", "--topic", "t")

    assert outcome.status == 1
    assert [row[0] for row in found(outcome)] == ["t-0"]
    assert outcome.err == (
        "Error: partition t-1 is not searched: REQUEST_TIMED_OUT: it hangs\n"
        if is_led
        else "Error: partition t-1 does not have a leader. It is skipped.\n"
    )


def found(outcome):
    """Partition, producer, start offset and minutes of each line below the header."""
    rows = [[cell.strip() for cell in line.split("\t")] for line in outcome.lines[1:]]
    return [(f"{row[0]}-{row[1]}", row[2], row[5], row[7]) for row in rows]


@pytest.mark.parametrize(
    ("words", "partitions"),
    [
        ("--topic t", ["t-0", "t-1"]),
        ("--topic t --partition 1", ["t-1"]),
        ("--broker-id 0", ["t-0", "t-1", "u-0"]),
        ("--broker-id 0 --topic u", ["u-0"]),
        ("--broker-id 9", []),
    ],
)
def test_search_is_where_the_options_say(transactions, cluster, words, partitions):
    """Topics, single partitions, or what a broker has a replica of."""
    for number, partition in enumerate((T0, T1, U0)):
        cluster.add_producer(partition, number, 10 + number, minutes=20)

    assert [row[0] for row in found(transactions("find-hanging", *words.split()))] == partitions


def test_transaction_hangs_when_its_coordinator_does_not_have_it(transactions, cluster):
    """The id is unknown, or has nothing open, or has other partitions in what is open."""
    for producer_id, name, partitions in ((1, "a", (T0,)), (2, "b", (T1,)), (3, "c", ())):
        cluster.add_producer(T0, producer_id, producer_id * 10, minutes=16)
        cluster.add_id(name, producer_id, *partitions)
    cluster.add_producer(T0, 4, 40, minutes=16)

    outcome = transactions("find-hanging", "--topic", "t")
    assert found(outcome) == [("t-0", str(n), str(n * 10), "16") for n in (2, 3, 4)]


def test_without_a_coordinator_nothing_is_said_to_hang(transactions, cluster, monkeypatch):
    """Its ids are listed by no broker: who aborts their transactions loses what they commit."""
    cluster.add_producer(T0, 1, 10, minutes=16)
    cluster.producers[TopicPartition(TRANSACTIONS_TOPIC, 4)] = []
    infos = [TopicPartitionInfo(4, -1, 0, (0,), ())]
    away = {TRANSACTIONS_TOPIC: TopicDescription(TRANSACTIONS_TOPIC, partitions=infos)}
    described = cluster.describe_topics(["t"]) | away
    monkeypatch.setattr(cluster, "describe_topics", lambda names: {n: described[n] for n in names})

    outcome = transactions("find-hanging", "--topic", "t")

    assert (outcome.status, outcome.out) == (1, "")
    assert "partitions 4 of __transaction_state have no leader" in outcome.err


def test_without_a_right_to_all_ids_nothing_is_said_to_hang(transactions, cluster, monkeypatch):
    """Brokers list only those that a user may see."""
    cluster.add_producer(T0, 1, 10, minutes=16)

    def refuse(names):
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "not yours")

    monkeypatch.setattr(cluster, "describe_transactions", refuse)

    outcome = transactions("find-hanging", "--topic", "t")

    assert (outcome.status, outcome.out) == (1, "")
    assert "this user may not describe all transactional ids" in outcome.err


def test_what_may_still_end_by_itself_is_not_shown(transactions, cluster):
    """Producers that wrote within the longest timeout, and those with nothing open."""
    cluster.add_producer(T0, 1, 10, minutes=14)
    cluster.add_producer(T0, 2, None, minutes=60)
    words = ("find-hanging", "--topic", "t")

    assert found(transactions(*words)) == []
    shorter = transactions(*words, "--max-transaction-timeout", 13)
    assert found(shorter) == [("t-0", "1", "10", "14")]


def test_id_that_expires_during_the_search_does_not_end_a_transaction(
    transactions, cluster, monkeypatch
):
    """Listed, and gone when it is to be described."""
    cluster.add_producer(T0, 1, 10, minutes=16)
    cluster.add_id("a", 1, T0)
    listed = cluster.list_transactions()
    monkeypatch.setattr(cluster, "list_transactions", lambda **_: listed)
    del cluster.ids["a"]

    assert found(transactions("find-hanging", "--topic", "t")) == [("t-0", "1", "10", "16")]


def test_hanging_transactions_can_be_shown_as_json(transactions, cluster):
    """Under names with underscores, as those of the other actions."""
    words = ("find-hanging", "--topic", "t", "--format", "json")
    cluster.add_producer(T0, 8, None, minutes=60)
    assert json.loads(transactions(*words).out) == []
    cluster.add_producer(T0, 7, 120, minutes=60)

    (row,) = json.loads(transactions(*words).out)
    assert (row["topic"], row["partition"], row["producer_id"]) == ("t", 0, 7)
    assert (row["start_offset"], row["duration_min"]) == (120, 60)


def test_id_that_looks_like_no_value_is_one_in_json(transactions, cluster):
    """Kafka's text has None where there is none."""
    cluster.add_id("None", 8)

    (row,) = json.loads(transactions("list", "--format", "json").out)
    assert row["transactional_id"] == "None"
