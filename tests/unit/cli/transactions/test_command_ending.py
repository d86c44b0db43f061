"""`ottla transactions abort` and `force-terminate`."""

import pytest

from ottla.clients.admin.transactions import HangingTransaction
from ottla.structs import TopicPartition

T0 = TopicPartition("t", 0)


def test_transaction_is_aborted_by_the_offset_at_which_it_begins(transactions, cluster):
    """Who writes it is looked up."""
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
