"""Which segments are put together, and how large the map of a round is."""

from __future__ import annotations

import pytest
from log_world import DIR, NOW_MS, new_batch

from ottla.config.broker_config import BrokerConfig
from ottla.config.topic_config import TopicConfig
from ottla.extensions.cleaner.cleaned_segment import CleanedSegment
from ottla.extensions.cleaner.cleaned_transactions import CleanedTransactions
from ottla.extensions.cleaner.cleaning import SourceSegment, group_segments
from ottla.extensions.cleaner.offset_map import OffsetMap
from ottla.log.transaction_index import AbortedTxn
from ottla.record.batch_builder import build_batch, build_end_transaction_marker, with_records
from ottla.record.control_record import ControlRecordType, EndTransactionMarker
from ottla.record.record_batch import RecordBatch, assign_offset
from ottla.testing import MemoryDisk

SECRET = bytes(16)


def source(
    base_offset: int, end_offset: int, size: int, index_bytes: int = 0, time_index_bytes: int = 0
) -> SourceSegment:
    return SourceSegment(base_offset, end_offset, size, index_bytes, time_index_bytes, 0)


@pytest.mark.parametrize(
    ("sources", "groups"),
    [
        ([source(0, 10, 40), source(10, 20, 60), source(20, 30, 1)], [[0, 10], [20]]),
        ([source(0, 10, 500), source(10, 20, 1)], [[0], [10]]),
        ([source(0, 10, 1, 80), source(10, 20, 1, 30)], [[0], [10]]),
        ([source(0, 10, 1, 80), source(10, 20, 1, 20)], [[0, 10]]),
        ([source(0, 10, 1, 0, 80), source(10, 20, 1, 0, 30)], [[0], [10]]),
        ([source(0, 10, 1, 0, 80), source(10, 20, 1, 0, 20)], [[0, 10]]),
        ([source(0, 10, 1), source(10, 2**31 + 1, 1)], [[0], [10]]),
        ([source(0, 10, 1), source(10, 2**31, 1)], [[0, 10]]),
        ([source(0, 10, 1), source(10, 2**32, 0), source(2**32, 2**33, 1)], [[0, 10], [2**32]]),
        ([source(10, 20, 1), source(20, 10 + 2**31, 1)], [[10, 20]]),
        ([source(10, 20, 1), source(20, 11 + 2**31, 1)], [[10], [20]]),
        ([], []),
    ],
)
def test_neighbours_are_put_together_up_to_the_limits(sources, groups):
    """segment.bytes, segment.index.bytes, and offsets of batches that fit into 31 bits."""
    config = TopicConfig.of(
        BrokerConfig.parse({}), {"segment.bytes": "100", "segment.index.bytes": "100"}
    )
    found = group_segments(sources, config)

    assert [[one.base_offset for one in group] for group in found] == groups


def test_map_takes_24_bytes_a_key():
    """No more memory than there is, and no more than is wanted."""
    full = OffsetMap.within(24_000, 0.9, 10**9, SECRET, 0)
    small = OffsetMap.within(24_000, 0.9, 9, SECRET, 0)

    assert full.capacity == 900
    assert len(full._table) <= 24_000 + 48
    assert small.capacity == 9
    assert OffsetMap.within(240, 1.0, 10**9, SECRET, 0).capacity == 9
    assert len(small._table) < 400


@pytest.mark.parametrize("load_factor", [0.01, 0.5, 1.0])
def test_map_ends_where_the_next_key_does_not_fit(load_factor):
    """It goes on in the next round from there."""
    batch = RecordBatch(build_batch([(0, b"%d" % key, b"v", ()) for key in (1, 1, 2, 3, 1)]))
    offsets = OffsetMap.within(24 * 300, load_factor, 2, SECRET, 0)

    assert not offsets.note(batch)
    assert (offsets.count, offsets.end_offset) == (2, 3)
    assert [offsets.last_offset(b"%d" % key) for key in (1, 2, 3)] == [1, 2, -1]


def test_map_has_room_for_its_capacity_over_several_batches():
    """The keys of the batches before count, and a full map still tells that it lacks a key."""
    offsets = OffsetMap(4, 0, SECRET, 0)
    first, second = (
        RecordBatch(build_batch([(0, b"%d" % key, b"v", ()) for key in keys], base_offset=base))
        for base, keys in ((0, (1, 2)), (2, (2, 3, 4, 5)))
    )

    assert offsets.note(first)
    assert not offsets.note(second)
    assert (offsets.count, offsets.end_offset) == (4, 5)
    assert [offsets.last_offset(b"%d" % key) for key in range(1, 6)] == [0, 2, 3, 4, -1]


# -- transactions


def of_transaction(offset: int, producer_id: int) -> RecordBatch:
    header = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
    return RecordBatch(new_batch(b"v", base_offset=offset, is_transactional=True, **header))


def marker(offset: int, producer_id: int, kind: ControlRecordType) -> RecordBatch:
    data = bytearray(
        build_end_transaction_marker(EndTransactionMarker(kind, 0), NOW_MS, producer_id, 0)
    )
    assign_offset(data, 0, offset, 0)
    return RecordBatch(data)


def of_leader(offset: int) -> RecordBatch:
    record = (NOW_MS, b"\0\0\0\2", b"", ())
    return RecordBatch(build_batch([record], base_offset=offset, is_control=True))


def test_walk_finds_the_data_and_markers_of_transactions_that_may_go():
    """Aborted data go; a marker goes once it has no data, and is needed in the index until then."""
    abort, commit = ControlRecordType.ABORT, ControlRecordType.COMMIT
    first, second, third = AbortedTxn(7, 0, 2, 3), AbortedTxn(7, 6, 8, 9), AbortedTxn(7, 9, 11, 12)
    emptied = marker(14, 7, abort)
    walk = [
        (of_transaction(0, 7), True),
        (of_transaction(1, 8), False),
        (marker(2, 7, abort), False),
        (marker(3, 8, commit), False),
        (marker(4, 8, commit), True),
        (marker(5, 7, abort), True),
        (of_transaction(6, 7), True),
        (RecordBatch(new_batch(b"v", base_offset=7)), False),
        (marker(8, 7, abort), False),
        (of_transaction(10, 8), False),
        (marker(11, 7, abort), True),
        (of_transaction(12, 7), False),
        (of_leader(13), False),
        (RecordBatch(with_records(emptied, b"", 0, -1, NOW_MS)), True),
        (marker(15, 7, commit), False),
    ]
    transactions = CleanedTransactions([third, first, second])
    found = [transactions.is_obsolete(batch) for batch, _ in walk]

    assert found == [is_obsolete for _, is_obsolete in walk]
    assert transactions.still_needed == [first, second]


# -- the segment that is written


def cleaned_segment(disk: MemoryDisk, buffer_bytes: int) -> CleanedSegment:
    config = TopicConfig.of(BrokerConfig.parse({}), {"index.interval.bytes": "100"})
    disk.make_dirs(DIR)
    return CleanedSegment(disk, DIR, 0, config, NOW_MS, buffer_bytes)


def test_batches_are_written_a_buffer_full_at_a_time():
    """In their order, and each of them once."""
    disk = MemoryDisk()
    batches = [new_batch(b"v" * 20, base_offset=offset) for offset in range(7)]
    cleaned = cleaned_segment(disk, 2 * len(batches[0]))
    path, written = cleaned.segment.path, []
    for batch in batches:
        cleaned.append(batch)
        written.append(disk.file_size(path) // len(batch))
    segment = cleaned.finish()

    assert written == [0, 2, 2, 4, 4, 6, 6]
    assert disk.contents(path) == b"".join(batches)
    for index in (segment.offset_index, segment.time_index):
        assert disk.contents(index.path) == bytes(index.raw_entries()) != b""
    assert segment.time_index.last_entry() == (NOW_MS, 0)
    assert disk.open_files == []


def test_cleaned_segment_is_on_disk_and_holds_no_memory():
    """Its sources are renamed next, and thousands of segments may be cleaned one after another."""
    disk = MemoryDisk()
    cleaned = cleaned_segment(disk, 1000)
    for offset in range(9):
        cleaned.append(new_batch(b"v" * 20, base_offset=offset))
    segment = cleaned.finish()
    contents = {path: disk.contents(path) for path in segment.files()}
    read: list[str] = []
    disk.on_call = lambda name, path: read.append(path) if name == "read_bytes" else None
    segment.load_indexes()
    disk.on_call = None
    disk.root.entries[DIR.strip("/")].sync()
    disk.root.sync()
    disk.crash()

    assert read == [segment.offset_index.path, segment.time_index.path]
    assert {path: disk.contents(path) for path in contents} == contents


@pytest.mark.parametrize(("timestamp_ms", "is_of_source"), [(-1, True), (0, False)])
def test_cleaned_segment_without_timestamps_is_as_old_as_its_sources(timestamp_ms, is_of_source):
    """Retention goes by the time of its file; a record of 1970 has a timestamp."""
    disk = MemoryDisk(now_ms=lambda: NOW_MS + 9)
    cleaned = cleaned_segment(disk, 1000)
    cleaned.append(new_batch(b"v", timestamp_ms=timestamp_ms))
    segment = cleaned.finish()

    assert disk.modified_ms(segment.path) == NOW_MS + (0 if is_of_source else 9)


def test_files_of_an_earlier_attempt_are_begun_anew():
    """It could not remove them when it was given up; a segment that is discarded leaves none."""
    disk = MemoryDisk()
    earlier = cleaned_segment(disk, 1)
    earlier.append(new_batch(b"v" * 99))
    earlier.append_aborted(AbortedTxn(7, 0, 1, 2))
    cleaned = cleaned_segment(disk, 1)

    assert cleaned.segment.txn_index.entries() == []
    assert disk.file_size(cleaned.segment.path) == 0
    cleaned.append(new_batch(b"v"))
    cleaned.discard()
    earlier.segment.close()
    assert disk.list_dir(DIR) == []
    assert disk.open_files == []
