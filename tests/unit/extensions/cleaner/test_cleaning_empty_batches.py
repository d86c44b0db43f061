"""Batches and segments that compaction has left without a record, for each of their readers."""

from __future__ import annotations

import pytest
from cleaner_world import CleanerWorld
from log_world import values

from ottla.log import readable_log
from ottla.log.log import Log
from ottla.log.log_retention import delete_old_segments
from ottla.log.log_segment import LogSegment
from ottla.record.batch_builder import with_records
from ottla.record.memory_records import batches
from ottla.record.record_batch import BATCH_OVERHEAD, Record, RecordBatch
from ottla.structs import NO_TIMESTAMP

FOREVER = 1_000_000
DAY_MS = 86_400_000
IDEMPOTENT = {"producer_id": 7, "producer_epoch": 0}


def overwrite_one_key(compacted: CleanerWorld, count: int = 30) -> Log:
    """Several segments of which only the last record is needed, and an active one with another."""
    for number in range(count):
        compacted.put((b"k", b"%d" % number))
    compacted.roll()
    compacted.put((b"other", b"x"))
    assert len(compacted.log().segments) > 4
    return compacted.log()


def leave_empty_batches(segment: LogSegment, keep: int = 1) -> None:
    """Leave the headers of the last `keep` batches, as older cleaners left one in each segment."""
    last = list(batches(segment.file.pread(segment.size, 0)))[-keep:]
    data = b"".join(with_records(each, b"", 0, NO_TIMESTAMP, each.max_timestamp) for each in last)
    segment.truncate_bytes(0)
    segment.file.pwrite(data, 0)
    segment.size = len(data)
    segment.rebuild_indexes()


def as_consumer(log: Log, offset: int, max_bytes: int = 1 << 20) -> list[RecordBatch]:
    """The batches of one answer to a consumer, up to the high watermark."""
    data = log.read(
        offset,
        max_bytes,
        max_offset=log.high_watermark,
        min_one_message=True,
        skips_empty=True,
    )
    return [] if data.records is None else list(batches(data.records.read()))


def as_librdkafka(log: Log, max_bytes: int = 1 << 20) -> list[Record]:
    """Read to the end; an answer without a record is an error, except the one at the end."""
    offset, records = log.log_start_offset, []
    while offset < log.high_watermark:
        found = as_consumer(log, offset, max_bytes)
        assert found, f"no answer at offset {offset}"
        assert found[-1].next_offset > offset
        offset = found[-1].next_offset
        assert any(batch.record_count for batch in found) or offset == log.high_watermark
        records += [record for batch in found for record in batch.records()]
    return records


# -- what the cleaner leaves


def test_segments_without_records_become_files_of_0_bytes(compacted):
    """librdkafka read none of the records behind segments that held nothing but a header."""
    log = overwrite_one_key(compacted)
    compacted.clean()

    assert [segment.size for segment in log.segments][:3] == [0, 0, 0]
    assert all(batch.record_count for batch in compacted.batches())
    assert values(as_librdkafka(log)) == [b"29", b"x"]


def test_batch_at_the_high_watermark_stays_without_its_records(compacted):
    """A replica that copies the log has to come to its end (KAFKA-17076), until it goes on."""
    compacted.put((b"a", b"1"))
    compacted.put((b"a", None))
    compacted.roll_and_clean()
    compacted.runtime.advance(6000)
    compacted.clean()
    (batch,) = compacted.batches()
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (1, 1, 0)

    compacted.put((b"b", b"2"))
    compacted.roll_and_clean()
    assert [(each.base_offset, each.record_count) for each in compacted.batches()] == [(2, 1)]


def test_marker_at_the_high_watermark_stays_without_its_record(compacted):
    """Once delete.retention.ms has passed, a transaction without data leaves its header."""
    compacted.put((b"a", b"1"), is_transactional=True, base_sequence=0, **IDEMPOTENT)
    compacted.end_transaction(7, commit=False)
    compacted.log().producer_state_manager.producers.clear()
    for _ in range(2):
        compacted.roll_and_clean()
        compacted.runtime.advance(6000)
        compacted.log().cleaned_offset = 0
        compacted.clean()

    (batch,) = compacted.batches()
    assert (batch.base_offset, batch.is_control, batch.record_count) == (1, True, 0)
    assert as_librdkafka(compacted.log()) == []


def test_older_empty_batches_go_with_the_next_round(compacted):
    """Those that an older cleaner has left, one in each segment."""
    log = overwrite_one_key(compacted)
    for segment in log.segments.items[:-1]:
        leave_empty_batches(segment)
    compacted.roll_and_clean()

    assert [batch.base_offset for batch in compacted.batches()] == [30]


def test_gaps_of_a_round_that_was_given_up_are_no_lost_records():
    """The checkpoint of cleaned offsets does not know them yet, the recovery point has to."""
    compacted = CleanerWorld(**{"log.cleaner.io.max.bytes.per.second": "500"})
    log = overwrite_one_key(compacted)
    compacted.clean()
    while log.segments.first.size:
        compacted.runtime.advance(100)
    compacted.stop_cleaning()
    assert [segment.size > 0 for segment in log.segments][:2] == [False, True]
    assert not log.cleaned_offset
    count = len(compacted.records())

    log = compacted.restart()
    assert len(compacted.records()) == count
    assert log.log_end_offset == 31


def test_nothing_is_cleaned_while_the_recovery_point_cannot_be_written(compacted):
    """A full disk ends the round before its first swap."""
    log = overwrite_one_key(compacted)
    compacted.disk.fail("replace", "*recovery-point-offset-checkpoint", error=28, times=1)
    compacted.clean()
    assert len(compacted.records()) == 31

    compacted.clean()
    assert values(as_librdkafka(log)) == [b"29", b"x"]


def test_retention_passes_over_emptied_segments(compacted):
    """They have no time of their own: they go with the first segment behind them that is old."""
    compacted.configure(cleanup_policy="compact,delete", retention_ms=DAY_MS, delete_retention_ms=0)
    log = overwrite_one_key(compacted)
    compacted.clean()
    assert not delete_old_segments(log, compacted.runtime.clock.now_ms())
    compacted.runtime.advance(DAY_MS + 1)
    compacted.put((b"new", b"y"))
    compacted.restart()

    compacted.log().update_high_watermark(32)
    assert delete_old_segments(compacted.log(), compacted.runtime.clock.now_ms()) > 4
    assert compacted.log().log_start_offset == 30


# -- what readers get


def test_consumer_gets_past_empty_batches_of_many_segments(compacted):
    """A directory that an older cleaner went over: the first answer has the first record."""
    log = overwrite_one_key(compacted)
    for segment in log.segments.items[:-1]:
        leave_empty_batches(segment, keep=2)

    assert [batch.base_offset for batch in as_consumer(log, 0)] == [30]
    assert [batch.base_offset for batch in as_consumer(log, 17)] == [30]
    assert values(as_librdkafka(log)) == [b"x"]


def test_consumer_gets_past_empty_batches_within_a_segment(compacted):
    """A consumer passes empty batches, also with fewer bytes asked for than these have."""
    compacted.configure(segment_bytes=100_000)
    for number in range(8):
        compacted.put((b"k", b"%d" % number), base_sequence=number, **IDEMPOTENT)
    compacted.roll()
    segment = compacted.log().segments.first
    leave_empty_batches(segment, keep=5)
    compacted.put((b"k", b"8"))

    for max_bytes in (1, BATCH_OVERHEAD, 3 * BATCH_OVERHEAD, 1 << 20):
        assert [batch.base_offset for batch in as_consumer(compacted.log(), 4, max_bytes)] == [8]
    data = compacted.log().read(4, 62, max_offset=9, min_one_message=False, skips_empty=True)
    assert (data.records, data.is_cut) == (None, True)


def test_follower_gets_every_empty_batch(compacted):
    """Its log has to become the same."""
    log = overwrite_one_key(compacted)
    for segment in log.segments.items[:-1]:
        leave_empty_batches(segment)
    data = log.read(0, 1 << 20, max_offset=log.log_end_offset, min_one_message=True)

    (batch,) = batches(data.records.read())
    assert (batch.record_count, batch.next_offset) == (0, log.segments.base_offsets[1])


@pytest.mark.parametrize("end", ["the high watermark", "the last stable offset"])
def test_consumer_gets_to_the_end_by_the_last_empty_batch(compacted, end):
    """Its position moves up to where nothing can be read yet: partition EOF there."""
    log = overwrite_one_key(compacted)
    for segment in log.segments.items[:-1]:
        leave_empty_batches(segment)
    if end == "the high watermark":
        log.high_watermark = 30
    data = log.read(0, 1 << 20, max_offset=30, min_one_message=True, skips_empty=True)

    (batch,) = batches(data.records.read())
    assert (batch.record_count, batch.next_offset) == (0, 30)


def test_one_read_passes_over_a_bounded_number_of_batches(compacted, monkeypatch):
    """The loop is not held for long; the reader goes on from the last batch that was passed."""
    monkeypatch.setattr(readable_log, "MAX_SKIPPED_BATCHES", 40)
    log = overwrite_one_key(compacted)
    for segment in log.segments.items[:-1]:
        leave_empty_batches(segment, keep=3)
    reads = []
    offset = 0
    while offset < 31:
        found = as_consumer(log, offset)
        offset = found[-1].next_offset
        reads.append(sum(batch.record_count for batch in found))

    assert len(reads) > 2
    assert reads[:-1] == [0] * (len(reads) - 1)
    assert reads[-1] == 1


def test_records_are_read_without_a_look_at_their_headers(compacted, monkeypatch):
    """Only what has the size of headers alone is looked at, so that other reads cost nothing."""
    for number in range(20):
        compacted.put((b"%d" % number, b"v" * 20))

    def fail(*_) -> None:
        raise AssertionError("the headers were looked at")

    monkeypatch.setattr(LogSegment, "skip_empty", fail)
    assert len(as_librdkafka(compacted.log())) == 20


def test_records_with_the_size_of_headers_are_read(compacted):
    """A batch of just 122 bytes is no two empty ones."""
    compacted.put((b"k", b"v" * (2 * BATCH_OVERHEAD - 69)))
    assert compacted.log().size_in_bytes == 2 * BATCH_OVERHEAD

    assert len(as_librdkafka(compacted.log())) == 1
