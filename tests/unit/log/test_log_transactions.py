"""Transactions in the log of a partition: markers, aborted transactions, and when they go."""

from __future__ import annotations

import pytest
from log_world import NOW_MS, LogWorld

from ottla.errors import ErrorCode, KafkaError
from ottla.log.log_validator import AppendOrigin
from ottla.log.recovery import rebuild_txn_indexes
from ottla.record.batch_builder import build_batch, build_end_transaction_marker
from ottla.record.control_record import ControlRecordType, EndTransactionMarker
from ottla.record.memory_records import batches

ABORT_KEY = b"\0\0\0\0"


def test_append_of_an_abort_marker_is_kept_in_the_transaction_index(world: LogWorld):
    """Coordinators may write control batches; clients may not."""
    producer = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    world.append(b"a", base_sequence=0, **producer)
    marker = build_batch([(NOW_MS, ABORT_KEY, b"\0" * 6, ())], is_control=True, **producer)
    log = world.log()
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(memoryview(marker), 0, now_ms=0)
    assert caught.value.error is ErrorCode.INVALID_RECORD
    log.append_as_leader(memoryview(marker), 0, now_ms=0, origin=AppendOrigin.COORDINATOR)

    assert log.segments.active.txn_index.entries() == [(7, 0, 1, 2)]
    assert log.last_stable_offset == 0
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 2


def test_ended_transactions_are_forgotten_though_nobody_reads(world: LogWorld):
    """Only those above the high watermark are kept in mind."""
    producer = {"producer_id": 7, "producer_epoch": 0}
    end = EndTransactionMarker(ControlRecordType.COMMIT, 0)
    for number in range(5):
        world.append(b"x", base_sequence=number, is_transactional=True, **producer)
        marker = build_end_transaction_marker(end, NOW_MS, **producer)
        log = world.log()
        log.append_as_leader(memoryview(marker), 0, now_ms=0, origin=AppendOrigin.COORDINATOR)
        log.update_high_watermark(log.log_end_offset)

    assert len(log.producer_state_manager.unreplicated_txns) == 1
    assert log.last_stable_offset == 10


def test_aborted_transactions_are_those_within_what_was_read(world: LogWorld):
    """Over several segments; nothing that ended before, and nothing behind the end."""
    log = world.log()
    aborted = []
    for number in range(20):
        producer = {"producer_id": number, "producer_epoch": 0}
        first = world.append(b"x" * 50, base_sequence=0, is_transactional=True, **producer)
        end = EndTransactionMarker(ControlRecordType(number % 2), 0)
        marker = build_end_transaction_marker(end, NOW_MS, **producer)
        log.append_as_leader(memoryview(marker), 0, now_ms=0, origin=AppendOrigin.COORDINATOR)
        if number % 2 == 0:
            aborted.append((number, first.first_offset))
    log.update_high_watermark(log.log_end_offset)
    assert len(log.segments) > 2

    for start in range(0, log.log_end_offset, 3):
        data = log.read(start, 400, max_offset=40, min_one_message=True)
        end = list(batches(data.records.read()))[-1].next_offset
        told = [(a.producer_id, a.first_offset) for a in log.aborted_transactions(data, 40)]
        needed = [(p, first) for p, first in aborted if first < end and first + 1 >= start]
        assert told[: len(needed)] == needed
        assert set(told) <= {(p, first) for p, first in aborted if first + 1 >= start}
        assert len(told) <= len(needed) + 3
    assert log.aborted_transactions(log.read(40, 1, max_offset=40, min_one_message=True), 40) == []


def test_aborted_transaction_is_told_of_though_its_marker_is_segments_away(world: LogWorld):
    """Its records are read long before its end."""
    producer = {"producer_id": 7, "producer_epoch": 0}
    world.append(b"x", base_sequence=0, is_transactional=True, **producer)
    world.append_many(60)
    end = EndTransactionMarker(ControlRecordType.ABORT, 0)
    marker = build_end_transaction_marker(end, NOW_MS, **producer)
    log = world.log()
    log.append_as_leader(memoryview(marker), 0, now_ms=0, origin=AppendOrigin.COORDINATOR)
    log.update_high_watermark(log.log_end_offset)
    assert len(log.segments) > 2

    for start in (0, 5, 60):
        data = log.read(start, 100, max_offset=62, min_one_message=True)
        assert log.aborted_transactions(data, 62) == [(7, 0, 61, 62)]


def test_damaged_transaction_index_is_made_anew_by_the_read_that_finds_it(world: LogWorld):
    """Torn in a segment that was closed long ago, whose transactions began before it."""
    end = EndTransactionMarker(ControlRecordType.ABORT, 0)
    log = world.log()
    for number in range(30):
        producer = {"producer_id": number % 3, "producer_epoch": 0}
        world.append(b"x" * 50, base_sequence=number // 3, is_transactional=True, **producer)
        if number % 3 == 2:
            for producer_id in range(3):
                marker = build_end_transaction_marker(end, NOW_MS, producer_id, 0)
                log.append_as_leader(
                    memoryview(marker), 0, now_ms=0, origin=AppendOrigin.COORDINATOR
                )
    log.update_high_watermark(log.log_end_offset)
    before = [segment.txn_index.entries() for segment in log.segments]
    assert sum(map(len, before)) == 30
    torn = [segment for segment in log.segments if segment.txn_index.entries()][1]
    world.overwrite(torn.txn_index.path, b"\0" * 50)
    torn.txn_index.release()

    assert log.aborted_transactions(log.read(8, 10_000, max_offset=60, min_one_message=True), 60)
    assert [segment.txn_index.entries() for segment in log.segments] == before
    world.overwrite(torn.txn_index.path, b"\0" * 50)
    torn.txn_index.release()
    torn.file.pwrite(b"\xff" * 40, 0)
    with pytest.raises(KafkaError, match="no whole entries") as caught:
        rebuild_txn_indexes(log.log_dir, log.segments, log.producer_state_manager, 0)
    assert caught.value.error is ErrorCode.KAFKA_STORAGE_ERROR
