"""Markers that end a transaction, as bytes and back."""

import pytest

from ottla.record.batch_builder import build_end_transaction_marker
from ottla.record.control_record import (
    ControlRecordType,
    EndTransactionMarker,
    parse_end_transaction_marker,
)
from ottla.record.record import CorruptRecordError, Record
from ottla.record.record_batch import RecordBatch


def control_record(key: str | None, value: str | None = None) -> Record:
    return Record(
        9,
        0,
        None if key is None else bytes.fromhex(key),
        None if value is None else bytes.fromhex(value),
        (),
    )


@pytest.mark.parametrize("type_", [ControlRecordType.ABORT, ControlRecordType.COMMIT])
def test_marker_survives_its_bytes(type_):
    """Flags, producer, and the coordinator's epoch."""
    marker = EndTransactionMarker(type_, 12)
    batch = RecordBatch(build_end_transaction_marker(marker, 1000, 4000, 3))
    batch.verify()
    [record] = batch.records()

    assert (batch.is_control, batch.is_transactional) == (True, True)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4000, 3, -1)
    assert record.timestamp_ms == 1000
    assert parse_end_transaction_marker(record) == marker
    assert marker.is_commit is (type_ is ControlRecordType.COMMIT)


def test_marker_has_the_bytes_of_the_format():
    """Version 0 and type 1; version 0 and epoch 12."""
    marker = EndTransactionMarker(ControlRecordType.COMMIT, 12)
    [record] = RecordBatch(build_end_transaction_marker(marker, 0, 1, 0)).records()

    assert record.key.hex() == "00000001"
    assert record.value.hex() == "00000000000c"


def test_only_commit_and_abort_end_a_transaction():
    """Other types are not built, and not taken for a marker."""
    with pytest.raises(ValueError, match="LEADER_CHANGE does not end a transaction"):
        build_end_transaction_marker(
            EndTransactionMarker(ControlRecordType.LEADER_CHANGE, 1), 0, 1, 0
        )
    assert parse_end_transaction_marker(control_record("00000002")) is None


def test_types_of_newer_brokers_are_passed_over():
    """An unknown type is nothing to fail on."""
    assert ControlRecordType.of(control_record("00000063")) is ControlRecordType.UNKNOWN


@pytest.mark.parametrize("key", [None, "", "000000"])
def test_a_key_that_is_too_short_is_refused(key):
    """Every control record says what it is."""
    with pytest.raises(CorruptRecordError, match="control record at offset 9: its key"):
        ControlRecordType.of(control_record(key))


@pytest.mark.parametrize("value", [None, "0000000000"])
def test_a_marker_without_epoch_is_refused(value):
    """The value of a marker has six bytes."""
    with pytest.raises(CorruptRecordError, match="control record at offset 9: its value"):
        parse_end_transaction_marker(control_record("00000000", value))
