"""`ottla transactions find-hanging`."""

import pytest

from ottla.structs import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


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
