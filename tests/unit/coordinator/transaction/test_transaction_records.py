"""Transactional ids as records: what is written is read back, and damage is left out."""

import logging

import pytest
from coordinator_world import T0, T1, S

from ottla.coordinator.coordinator_partitions import RECORDS_PER_STEP
from ottla.coordinator.group.group_records import offset_key
from ottla.coordinator.group.partition_loader import PartitionLoader
from ottla.coordinator.transaction.transaction import Transaction, TransactionState
from ottla.coordinator.transaction.transaction_loader import TransactionLoader
from ottla.coordinator.transaction.transaction_partitions import TransactionPartitions
from ottla.coordinator.transaction.transaction_records import read_transaction, transaction_batch
from ottla.protocol.message import LONG_VALUE_BYTES, decode_versioned, encode_versioned
from ottla.protocol.transaction_log import TransactionLogKey, TransactionLogValue
from ottla.record.batch_builder import BatchBuilder, build_batch
from ottla.record.record_batch import RecordBatch
from ottla.runtime.scheduler import at_once
from ottla.structs import TopicPartition


def load(*buffers):
    """The transactions by id after everything is read."""
    loader = TransactionLoader(0, iter(map(memoryview, buffers)))
    while loader.step():
        pass
    return at_once(loader.transactions())


@pytest.mark.parametrize("state", set(TransactionState) - {S.DEAD, S.EMPTY})
def test_transaction_is_read_back(state):
    """All that a coordinator needs to go on."""
    written = Transaction(7, 3, 60_000, state, TransactionPartitions.of({T0, T1}), 98, 99)

    assert load(transaction_batch("x", written, 99)) == {"x": written}


@pytest.mark.parametrize("client_version", [0, 2])
def test_long_record_is_read_in_slices_as_it_would_be_at_once(client_version):
    """With all its partitions, in either version of the record."""
    partitions = TransactionPartitions.of(
        TopicPartition(f"topic-{n:04}", index) for n in range(2_000) for index in (0, n % 7)
    )
    written = Transaction(
        7, 3, 60_000, S.PREPARE_COMMIT, partitions, 98, 99, client_version=client_version
    )
    (record,) = RecordBatch(transaction_batch("x", written, 99)).records()

    assert len(record.value) > LONG_VALUE_BYTES
    assert len(list(read_transaction(record.value))) > 1
    assert at_once(read_transaction(record.value)) == written


def test_new_producer_id_needs_the_newer_version():
    """Of producers that follow transaction.version 2 only; others stay readable for old brokers."""
    plain = Transaction(7, 3, 60_000, S.COMPLETE_COMMIT)
    bumped = plain._replace(client_version=2, next_producer_id=8, previous_producer_id=6)
    versions = []
    for transaction in (plain, bumped):
        batch = transaction_batch("x", transaction, 99)
        (record,) = RecordBatch(batch).records()
        versions.append(int.from_bytes(record.value[:2], "big"))
        assert load(batch) == {"x": transaction}

    assert versions == [0, 1]


def test_id_without_a_transaction_has_null_partitions():
    """As Kafka writes it."""
    batch = RecordBatch(transaction_batch("x", Transaction(7, 3, 60_000), 0))
    (record,) = batch.records()

    assert decode_versioned(TransactionLogValue, record.value).transaction_partitions is None
    assert load(batch.view) == {"x": Transaction(7, 3, 60_000)}


def test_last_state_of_an_id_wins_and_a_dead_one_is_gone():
    """Records that compaction has not removed yet do not count."""
    empty, ongoing, dead = (
        Transaction(7, 3, 60_000, state) for state in (S.EMPTY, S.ONGOING, S.DEAD)
    )
    batches = [transaction_batch("x", value, 0) for value in (empty, ongoing, dead)]

    assert load(*batches[:2]) == {"x": ongoing}
    assert load(*batches) == {}


def test_damaged_records_are_left_out_and_named(caplog):
    """One record that cannot be read does not take the others with it."""
    key = encode_versioned(TransactionLogKey(transactional_id="bad"), 0)
    odd_state = encode_versioned(TransactionLogValue(transaction_status=42), 0)
    good = Transaction(7, 3, 60_000)
    with caplog.at_level(logging.ERROR):
        loaded = load(
            build_batch([(0, key, odd_state, ()), (0, b"\x00\x63new", b"x", ())]),
            build_batch([(0, b"\x00\x00\x00\x09short", b"x", ())]),
            transaction_batch("x", good, 0),
        )

    assert loaded == {"x": good}
    assert "42 is no state" in caplog.text
    assert "record 0 is left out" in caplog.text


def test_long_partitions_are_read_in_steps():
    """The broker stays responsive meanwhile."""
    batch = transaction_batch("x", Transaction(7, 3, 60_000), 0)
    loader = TransactionLoader(0, iter([memoryview(batch * (RECORDS_PER_STEP + 1))]))

    assert loader.step()
    assert not loader.step()


def test_large_batches_are_read_in_steps():
    """An atomic commit of ten thousand offsets is one batch."""
    builder = BatchBuilder()
    for number in range(RECORDS_PER_STEP + 1):
        builder.append(0, offset_key("g", TopicPartition("t", number)), None)
    loader = PartitionLoader(0, iter([memoryview(builder.build())]))

    assert loader.step()
    assert not loader.step()
    assert loader.record_count == RECORDS_PER_STEP + 1
