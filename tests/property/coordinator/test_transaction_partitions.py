"""The partitions of a transaction are a set, and are stored as the codec of records has them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.transaction.transaction import Transaction, TransactionState
from ottla.coordinator.transaction.transaction_partitions import (
    NO_PARTITIONS,
    TransactionPartitions,
)
from ottla.coordinator.transaction.transaction_records import (
    encode_transaction,
    read_transaction,
)
from ottla.protocol.message import LONG_VALUE_BYTES, decode_versioned, encode_versioned
from ottla.protocol.transaction_log import TransactionLogValue
from ottla.runtime.scheduler import at_once
from ottla.structs import TopicPartition

NAMES = st.sampled_from(["a", "b", "x" * 127, "x" * 128, "ä"])
SETS = st.frozensets(st.builds(TopicPartition, NAMES, st.integers(0, 200)))


def ongoing(partitions, version):
    """A transaction, whose record has that version."""
    state = TransactionState.ONGOING
    return Transaction(7, 3, 60_000, state, partitions, 98, 99, client_version=2 * version)


@given(st.lists(SETS, max_size=4))
def test_partitions_are_the_set_of_all_that_were_added(added):
    """In any order, and again; what was there before stays as it was."""
    known, sets = NO_PARTITIONS, [NO_PARTITIONS]
    for each in added:
        known = known.with_added(each)
        sets.append(known)

    for count, each in enumerate(sets):
        expected = frozenset().union(*added[:count])
        assert each == expected
        assert frozenset(each) == expected
        assert len(each) == len(expected)
        assert all((tp in each) is (tp in expected) for tp in frozenset().union(*added))
    assert TransactionPartitions.of(frozenset().union(*added)) == known


@pytest.mark.parametrize("version", [0, 1])
@given(added=st.lists(SETS, max_size=3), topics=st.sampled_from([0, 1, 126, 127, 128, 1500]))
def test_record_is_what_the_codec_makes_of_it(version, added, topics):
    """With counts and names of one byte and of two in the newer version, and in slices too."""
    known = NO_PARTITIONS
    for each in (*added, [TopicPartition(f"t{n}", n) for n in range(topics)]):
        known = known.with_added(each)
    transaction = ongoing(known, version)
    value = encode_transaction(transaction)
    stored = decode_versioned(TransactionLogValue, value)

    assert value == encode_versioned(stored, version)
    assert {
        TopicPartition(each.topic, index)
        for each in stored.transaction_partitions
        for index in each.partition_ids
    } == known
    assert at_once(read_transaction(value)) == transaction
    assert (len(value) > LONG_VALUE_BYTES) is (topics == 1500)
