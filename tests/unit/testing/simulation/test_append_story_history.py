"""What a history of transactions may be like, and what Elle would call an anomaly."""

from __future__ import annotations

import pytest

from ottla.structs import TopicPartition
from ottla.testing.simulation.append_story import AppendHistory, End
from ottla.testing.simulation.story import TOPIC

P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


def history(*transactions):
    """Transactions as (begin, end, how it ended, what it wrote, what it had read)."""
    appends = AppendHistory()
    for begun_ms, ended_ms, end, writes, *reads in transactions:
        transaction = appends.begin(begun_ms, *reads or [()])
        transaction.ended_ms, transaction.end, transaction.writes = ended_ms, end, writes
    return appends


def visible(p0, p1=()):
    return {P0: dict(enumerate(p0)), P1: dict(enumerate(p1))}


@pytest.mark.parametrize(("p0", "p1"), [([b"a", b"b"], [b"c", b"d"]), ([b"b", b"a"], [b"c", b"d"])])
def test_transactions_that_overlap_may_write_in_any_order(p0, p1):
    """Kafka takes no locks: both orders at once are no anomaly."""
    appends = history(
        (0, 10, End.COMMITTED, {b"a": P0, b"c": P1}),
        (5, 15, End.COMMITTED, {b"b": P0, b"d": P1}),
    )

    assert list(appends.check(visible(p0, p1))) == []


@pytest.mark.parametrize(
    ("end", "there"),
    [(End.COMMITTED, [b"a"]), (End.ABORTED, [b"a"]), (End.UNKNOWN, [b"a"]), (End.COMMITTED, [])],
)
def test_part_of_a_transaction_is_noticed(end, there):
    """Of a committed one all must be there, of an aborted one nothing, of others all or nothing."""
    assert list(history((0, 9, end, {b"a": P0, b"b": P1})).check(visible(there)))


@pytest.mark.parametrize(
    ("end", "p0", "p1"),
    [
        (End.COMMITTED, [b"a"], [b"b"]),
        (End.ABORTED, [], []),
        (End.UNKNOWN, [], []),
        (End.UNKNOWN, [b"a"], [b"b"]),
    ],
)
def test_whole_transaction_is_right(end, p0, p1):
    """A transaction whose end nobody knows is right if it is there in all partitions or in none."""
    assert list(history((0, 9, end, {b"a": P0, b"b": P1})).check(visible(p0, p1))) == []


def test_read_of_an_aborted_record_is_noticed():
    """G1a: what was read is not there in the end."""
    appends = history(
        (0, 5, End.ABORTED, {b"a": P0}),
        (6, 9, End.COMMITTED, {b"b": P0}, [b"a"]),
    )

    assert list(appends.check(visible([b"b"])))


def test_writes_against_the_order_of_time_are_noticed():
    """G0: the second transaction began when the first had ended, and stands before it."""
    appends = history((0, 5, End.COMMITTED, {b"a": P0}), (6, 9, End.COMMITTED, {b"b": P0}))

    assert list(appends.check(visible([b"a", b"b"]))) == []
    assert list(appends.check(visible([b"b", b"a"])))


def test_circle_of_reads_is_noticed():
    """G1c: each has read what another wrote; no order explains that."""
    appends = history(
        (0, 9, End.COMMITTED, {b"a": P0}, [b"c"]),
        (0, 9, End.COMMITTED, {b"b": P0}, [b"a"]),
        (0, 9, End.COMMITTED, {b"c": P0}, [b"b"]),
    )

    assert list(appends.check(visible([b"a", b"b", b"c"])))
