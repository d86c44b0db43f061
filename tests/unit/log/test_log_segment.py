"""A segment: its indexes, reads within limits, look-ups by time, and indexes that lie."""

from __future__ import annotations

import pytest
from log_world import NOW_MS, new_batch

from ottla.config.broker_config import BrokerConfig
from ottla.config.topic_config import TopicConfig
from ottla.log.index_checks import check_indexes
from ottla.log.index_file import CorruptIndexError
from ottla.log.log_segment import MAX_READ_HINTS, LogSegment
from ottla.log.segment_files import sync_files
from ottla.log.segments import Segments
from ottla.log.time_search import latest_of_segment, latest_record, search_segment
from ottla.log.transaction_index import AbortedTxn
from ottla.record.batch_builder import build_batch, with_records
from ottla.record.compression import CompressionType
from ottla.record.conversion import build_message_set
from ottla.record.memory_records import batch_at, batches
from ottla.record.record import Record
from ottla.record.record_batch import CorruptRecordError
from ottla.runtime.scheduler import at_once
from ottla.testing import MemoryDisk

BASE = 100
CONFIG = TopicConfig.of(BrokerConfig.parse({}), {"index.interval.bytes": "200"})


def new_segment(disk: MemoryDisk | None = None, count: int = 20) -> LogSegment:
    """Batches of two records, 10 ms apart, from offset 100 on."""
    segment = LogSegment(disk or MemoryDisk(), "", BASE, CONFIG, NOW_MS)
    segment.create()
    for number in range(count):
        add(segment, number)
    return segment


def add(segment: LogSegment, number: int, timestamp_ms: int | None = None) -> None:
    offset = BASE + 2 * number
    time = NOW_MS + 10 * number if timestamp_ms is None else timestamp_ms
    data = new_batch(b"a%d" % number, b"b", timestamp_ms=time, base_offset=offset)
    segment.append(data, offset, offset + 1, time)


def opened(disk: MemoryDisk) -> LogSegment:
    """The segment whose files are there."""
    segment = LogSegment(disk, "", BASE, CONFIG, NOW_MS)
    segment.open()
    check_indexes(segment)
    return segment


def reopened(segment: LogSegment) -> LogSegment:
    """The same segment in another life, as a closed one."""
    segment.become_inactive()
    return opened(segment._disk)


def offsets(segment: LogSegment, start: int, max_bytes: int, minimum: bool = True) -> list[int]:
    """The base offsets of the batches that a read gives."""
    region, _ = segment.read(start, max_bytes, segment.size, minimum)
    return [] if region is None else [batch.base_offset for batch in batches(region.read())]


def overwrite(segment: LogSegment, path: str, data: bytes, position: int = 0) -> None:
    segment._disk.open(path, create=True).pwrite(data, position)


def test_index_entries_name_the_last_offset_of_the_batch_at_their_position():
    """As Kafka's dump tool checks them."""
    segment = new_segment()

    entries = list(segment.offset_index.entries())
    assert len(entries) == 6
    for offset, position in entries:
        header = next(batches(segment.file.pread(200, position)))
        assert header.last_offset == offset


def test_time_index_names_the_latest_timestamp_so_far():
    """An entry has the latest timestamp, and the last offset of the batch it came with."""
    segment = new_segment()

    for timestamp_ms, offset in segment.time_index.entries():
        assert timestamp_ms == NOW_MS + 10 * ((offset - BASE) // 2)


@pytest.mark.parametrize("is_reopened", [False, True])
@pytest.mark.parametrize("start", range(BASE, BASE + 40))
def test_read_begins_with_the_batch_of_the_offset(start, is_reopened):
    """A read begins with the batch of an offset, also inside it, from memory and from the file."""
    segment = reopened(new_segment()) if is_reopened else new_segment()

    assert offsets(segment, start, 10_000) == list(range(start - start % 2, BASE + 40, 2))


@pytest.mark.parametrize("is_reopened", [False, True])
@pytest.mark.parametrize("max_bytes", [1, 84, 85, 300, 1000])
def test_read_gives_whole_batches_within_its_limit(max_bytes, is_reopened):
    """At least one, if that is wanted; else nothing, and the reader is told."""
    segment = reopened(new_segment()) if is_reopened else new_segment()
    region, incomplete = segment.read(BASE + 4, max_bytes, segment.size, False)
    sizes = [b.size_in_bytes for b in batches(segment.file.pread(segment.size, 0))][2:]

    wanted = [sum(sizes[:n]) for n in range(1, len(sizes)) if sum(sizes[:n]) <= max_bytes]
    assert incomplete == (not wanted)
    assert (0 if region is None else region.size) == max(wanted, default=0)
    assert len(offsets(segment, BASE + 4, max_bytes)) == max(1, len(wanted))


def test_recent_batches_are_found_in_memory():
    """From the first one that is remembered on, neither index nor file is read."""
    segment = new_segment()
    calls: list[str] = []
    segment._disk.on_call = lambda name, path: calls.append(name)

    assert [segment.position_of(BASE + 2 * n) is not None for n in range(20)] == [True] * 20
    assert segment.read(BASE, 300, segment.size, True)[0].size <= 300
    assert calls == []


@pytest.mark.parametrize("is_reopened", [False, True])
def test_read_may_end_just_at_its_limit(is_reopened):
    """The last byte of a batch may be the last one that is wanted."""
    segment = reopened(new_segment()) if is_reopened else new_segment()
    sizes = [batch.size_in_bytes for batch in batches(segment.file.pread(segment.size, 0))]
    for first in range(10):
        for count in range(1, 10):
            wanted = sum(sizes[first : first + count])
            assert len(offsets(segment, BASE + 2 * first, wanted)) == count
            assert len(offsets(segment, BASE + 2 * first, wanted - 1)) == max(1, count - 1)


def test_reading_on_needs_no_index():
    """A reader in sequence begins where the last read ended."""
    segment = reopened(new_segment())
    following = offsets(segment, BASE, 300)[-1] + 2
    segment.offset_index.truncate_entries(0)
    segment.release_indexes()
    segment._disk.fail("read_bytes")

    assert offsets(segment, following, 10_000)[0] == following


def test_reading_on_from_the_disk_alone_touches_nothing_that_was_not_sent(monkeypatch):
    """A header that is not in the page cache would hold up all clients until the disk has it."""
    segment = new_segment(count=1)
    for number in range(1, 20):
        offset = BASE + 2 * number
        data = new_batch(b"x" * 10_000, b"y", base_offset=offset)
        segment.append(data, offset, offset + 1, NOW_MS)
    segment = reopened(segment)
    segment._disk.is_cold = True
    sent_end, touched, read = 0, [], []
    pread = type(segment.file).pread

    def watched(file, length: int, position: int) -> bytes:
        touched.append(position + length)
        return pread(file, length, position)

    monkeypatch.setattr(type(segment.file), "pread", watched)
    while (start := read[-1] + 2 if read else BASE) < BASE + 40:
        touched.clear()
        region, _ = segment.read(start, 35_000, segment.size, True)
        assert max(touched, default=0) <= sent_end or not read
        assert region.position == sent_end
        assert 20_000 < region.size <= 35_000 or region.position + region.size == segment.size
        read += [batch.base_offset for batch in batches(region.read())]
        sent_end = region.position + region.size

    assert read == list(range(BASE, BASE + 40, 2))


def test_read_from_an_index_entry_on_is_not_shorter_for_a_cold_cache():
    """The header of its first batch is needed in any case, and tells of the next one."""
    for entry in new_segment().offset_index.entries():
        segment = reopened(new_segment())
        segment._disk.is_cold = True

        assert len(offsets(segment, entry.offset, 200)) == 2


def test_places_to_read_on_from_are_kept_for_a_bounded_number_of_readers():
    """Beyond it all are forgotten, and searched for again."""
    segment = reopened(new_segment(count=200))
    following = [offsets(segment, BASE + 2 * n, 100)[-1] + 2 for n in range(MAX_READ_HINTS)]
    calls: list[str] = []
    segment._disk.on_call = lambda name, path: calls.append(name)
    assert [segment.position_of(offset) is not None for offset in following]
    assert calls == []
    assert offsets(segment, BASE + 300, 100) == [BASE + 300]
    calls.clear()
    assert segment.position_of(following[0]) is not None
    assert calls.count("pread") > 0


def test_aborted_transactions_are_those_that_a_read_may_have_records_of():
    """A transaction that begins behind what was read is none of them, in whatever segment."""
    first = new_segment()
    second = LogSegment(first._disk, "", BASE + 40, CONFIG, NOW_MS)
    second.create()
    early, late = AbortedTxn(7, BASE, BASE + 9, BASE), AbortedTxn(8, BASE + 30, BASE + 33, BASE)
    later = AbortedTxn(7, BASE + 34, BASE + 41, BASE)
    for segment, aborted in ((first, early), (first, late), (second, later)):
        segment.txn_index.append(aborted)
    segments = Segments([first, second])

    def aborted(start: int, max_bytes: int) -> list[AbortedTxn]:
        region, _ = first.read(start, max_bytes, first.size, True)
        return segments.aborted_transactions(start, region, BASE + 44)

    assert aborted(BASE, 300) == [early]
    assert aborted(BASE + 10, 10_000) == [late, later]
    assert aborted(BASE, 10_000) == [early, late, later]
    assert segments.aborted_transactions(BASE, None, BASE + 44) == []
    region, _ = first.read(BASE, 10_000, first.position_of(BASE + 30), True)
    assert segments.aborted_transactions(BASE, region, BASE + 30) == [early]


def test_search_for_aborted_transactions_ends_where_all_before_was_stable():
    """No later entry can be of a transaction that has records before that end."""
    segment = new_segment()
    entries = [
        AbortedTxn(7, BASE, BASE + 9, BASE + 19),
        AbortedTxn(8, BASE + 2, BASE + 13, BASE + 20),
        AbortedTxn(9, BASE + 4, BASE + 15, BASE + 21),
    ]
    for entry in entries:
        segment.txn_index.append(entry)
    region, _ = segment.read(BASE, 10_000, segment.position_of(BASE + 20), True)

    assert Segments([segment]).aborted_transactions(BASE, region, BASE + 20) == entries[:2]
    assert Segments([segment]).aborted_transactions(BASE, region, BASE + 21) == entries


def test_latest_record_is_found_whatever_the_headers_say():
    """A batch that was emptied keeps its time; -1 is none; of equal ones the first counts."""
    times = [(5, 30), (70, -1), (40, 60), (0, 0), (60, 20), (90, 1), (60, -1), (-1, -1)]
    emptied = {1, 5}
    segments = []
    for base, numbers in ((BASE, range(4)), (BASE + 8, range(4, 8))):
        segment = LogSegment(MemoryDisk(), "", base, CONFIG, NOW_MS)
        segment.create()
        for number in numbers:
            offset = BASE + 2 * number
            records = [(each, b"k", b"v", ()) for each in times[number]]
            data = build_batch(records, base_offset=offset)
            if number in emptied:
                data = with_records(batch_at(data), b"", 0, -1, max(times[number]))
            segment.append(data, offset, offset + 1, max(times[number]))
        segments.append(segment)
    for start in range(BASE, BASE + 17):
        found = [
            (-time, BASE + 2 * number + place)
            for number, pair in enumerate(times)
            for place, time in enumerate(pair)
            if number not in emptied and time >= 0 and BASE + 2 * number + place >= start
        ]
        best = min(found, default=None)
        expected = None if best is None else (-best[0], best[1], -1)
        assert at_once(latest_record(Segments(segments), start)) == expected
        if start >= BASE + 8:
            assert at_once(latest_of_segment(segments[1], start)) == expected


def test_record_of_1970_is_the_latest_where_no_other_is_left():
    """The larger time of the segment is of a record before the start; 0 is a time, -1 is none."""
    segment = LogSegment(MemoryDisk(), "", BASE, CONFIG, NOW_MS)
    segment.create()
    for number, timestamp_ms in enumerate((5, 0, -1)):
        add(segment, number, timestamp_ms)

    assert at_once(latest_of_segment(segment, BASE + 2)) == (0, BASE + 2, -1)
    assert at_once(latest_of_segment(segment, BASE + 4)) is None


def test_cache_is_asked_about_all_that_would_be_read(monkeypatch):
    """From the index entry to the header of the batch at the limit of the read."""
    segment = reopened(new_segment())
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(
        type(segment.file), "is_cached", lambda _, *place: asked.append(place) or True
    )
    entry = segment.offset_index.lookup_position(700)
    segment.read(BASE, 700, segment.size, True)

    assert entry.position > 0
    assert asked == [(700 - entry.position + 1, entry.position)]


def test_read_behind_the_last_batch_gives_nothing():
    """The next segment has it."""
    segment = reopened(new_segment())

    assert offsets(segment, BASE + 40, 1000) == []
    assert segment.position_of(BASE + 40) is None


def test_read_stops_at_the_end_position():
    """The high watermark is below the end of the file."""
    segment = new_segment()
    end = segment.position_of(BASE + 10)
    region, _ = segment.read(BASE, 10_000, end, True)

    assert region.size == end
    assert segment.read(BASE + 10, 10_000, end, True) == (None, False)


@pytest.mark.parametrize("is_reopened", [False, True])
def test_record_is_found_by_its_time(is_reopened):
    """The first one that is as late, whatever the sparse index says."""
    segment = reopened(new_segment()) if is_reopened else new_segment()

    for number in range(20):
        for timestamp_ms in (NOW_MS + 10 * number, NOW_MS + 10 * number - 9):
            record = at_once(search_segment(segment, timestamp_ms, BASE))
            assert (record.offset, record.timestamp_ms) == (BASE + 2 * number, NOW_MS + 10 * number)
    assert at_once(search_segment(segment, NOW_MS + 191, BASE)) is None


def test_time_search_leaves_out_records_before_the_start_offset():
    """The log starts inside a batch."""
    record = at_once(search_segment(new_segment(), 0, BASE + 5))

    assert record.offset == BASE + 5


def test_largest_timestamp_survives_out_of_order_times():
    """The producer's clock went back; the largest one counts for retention."""
    segment = new_segment(count=3)
    add(segment, 3, NOW_MS + 5000)
    for number in range(4, 20):
        add(segment, number, NOW_MS)

    again = reopened(segment)
    assert again.max_timestamp_ms == segment.max_timestamp_ms == NOW_MS + 5000
    assert again.offset_of_max_timestamp == BASE + 7
    record = at_once(search_segment(again, NOW_MS + 4000, BASE))
    assert record.offset == BASE + 6


def test_load_tail_finds_timestamps_behind_the_last_index_entry():
    """The indexes of an active segment do not reach its end."""
    segment = new_segment()
    add(segment, 20, segment.max_timestamp_ms)
    segment.write_indexes()
    again = opened(segment._disk)
    again.load_tail()

    assert again.max_timestamp_ms == segment.max_timestamp_ms
    assert again.offset_of_max_timestamp == segment.offset_of_max_timestamp
    assert again.first_timestamp_ms == segment.first_timestamp_ms == NOW_MS
    entry = segment.offset_index.last_entry()
    assert again.bytes_since_last_index_entry == segment.size - entry.position


@pytest.mark.parametrize("offset", [BASE + 1, BASE + 16, BASE + 17, BASE + 39])
def test_truncate_drops_the_batch_with_the_offset(offset):
    """A cut drops the batch and all behind it, in file and indexes; appends continue there."""
    segment = new_segment()
    segment.truncate_to(offset)
    kept = (offset - BASE) // 2
    assert offsets(segment, BASE, 10_000) == [BASE + 2 * n for n in range(kept)]
    assert segment.file.size() == segment.size
    assert segment.offset_index.last_entry().offset < offset

    add(segment, kept)
    assert segment.position_of(BASE + 2 * kept) is not None
    again = reopened(segment)
    assert offsets(again, BASE, 10_000)[-1] == BASE + 2 * kept
    assert again.max_timestamp_ms == NOW_MS + 10 * kept


@pytest.mark.parametrize("path", ["index", "timeindex"])
@pytest.mark.parametrize("damage", ["missing", "torn", "zeroed", "empty"])
def test_open_refuses_an_index_that_does_not_fit(path, damage):
    """It is rebuilt then."""
    segment = new_segment()
    segment.become_inactive()
    name = f"/{BASE:020d}.{path}"
    size = segment._disk.file_size(name)
    if damage == "missing":
        segment._disk.unlink(name)
    elif damage == "zeroed":
        overwrite(segment, name, bytes(size))
    else:
        segment._disk.open(name).truncate(size - 3 if damage == "torn" else 0)

    with pytest.raises(CorruptIndexError):
        opened(segment._disk)


def test_rebuilt_indexes_are_those_of_the_appends():
    """Byte for byte."""
    disk = MemoryDisk()
    new_segment(disk).become_inactive()
    names = [f"/{BASE:020d}{suffix}" for suffix in (".index", ".timeindex")]
    before = [disk.read_bytes(name) for name in names]
    segment = opened(disk)
    segment.rebuild_indexes()
    segment.become_inactive()

    assert [disk.read_bytes(name) for name in names] == before


@pytest.mark.parametrize("garbage", [bytes(8), b"\0\0\0\x08\0\0\x01\x01", b"\x7f" * 8])
def test_index_entry_that_lies_is_found_out_when_it_is_used(garbage):
    """The index is rebuilt, and the answer is right."""
    segment = new_segment()
    segment.become_inactive()
    overwrite(segment, f"/{BASE:020d}.index", garbage * 5)
    again = opened(segment._disk)

    assert [offsets(again, start, 1)[0] for start in range(BASE, BASE + 40, 2)] == list(
        range(BASE, BASE + 40, 2)
    )
    for index in (again.offset_index, again.time_index):
        assert again._disk.contents(index.path) == bytes(index.raw_entries())
    assert again.time_index.last_entry() == (NOW_MS + 190, BASE + 39)


def test_time_index_that_lies_is_rebuilt_before_a_search():
    """Its entries are not in order."""
    segment = new_segment()
    segment.become_inactive()
    overwrite(segment, f"/{BASE:020d}.timeindex", b"\x7f" * 24, 12)
    again = opened(segment._disk)
    record = at_once(search_segment(again, NOW_MS + 50, BASE))

    assert record.offset == BASE + 10
    assert list(again.time_index.entries()) == list(segment.time_index.entries())


def test_damaged_batch_is_reported_and_the_others_are_served():
    """A bit that fell over in a length hides what follows up to the next index entry."""
    segment = new_segment()
    segment.become_inactive()
    position = segment.position_of(BASE + 20)
    overwrite(segment, f"/{BASE:020d}.log", b"\x70", position + 8)
    again = opened(segment._disk)

    assert offsets(again, BASE, 500)[0] == BASE
    with pytest.raises(CorruptRecordError):
        offsets(again, BASE + 22, 100)
    assert offsets(again, BASE + 30, 100) == [BASE + 30]
    assert again.size == segment.size


def test_indexes_of_a_damaged_segment_are_rebuilt_as_far_as_it_can_be_read():
    """What lies behind the damage is still in the file, and is not said to be its end."""
    segment = new_segment()
    size, position = segment.size, segment.position_of(BASE + 20)
    overwrite(segment, f"/{BASE:020d}.log", b"\x70", position + 8)
    with pytest.raises(CorruptRecordError):
        segment.rebuild_indexes()

    assert segment.size == size
    assert offsets(segment, BASE + 6, 100) == [BASE + 6]
    with pytest.raises(CorruptRecordError):
        segment.position_of(BASE + 38)


def test_flipped_bit_in_a_record_is_found_by_the_search_by_time():
    """The one search that decodes records checks their CRC."""
    segment = new_segment()
    position = segment.position_of(BASE + 20)
    overwrite(segment, f"/{BASE:020d}.log", b"\xff", position + 75)

    with pytest.raises(CorruptRecordError, match="CRC"):
        at_once(search_segment(segment, NOW_MS + 100, BASE))


def test_segment_without_timestamps_is_as_old_as_its_file():
    """Retention must not take it for one of 1970, nor for a new one after each start."""
    segment = new_segment(count=0)
    segment._disk.now_ms = lambda: NOW_MS
    for number in range(20):
        add(segment, number, -1)

    assert segment.largest_timestamp_ms() == NOW_MS
    segment.become_inactive()
    again = LogSegment(segment._disk, "", BASE, CONFIG, NOW_MS + 5)
    again.open()
    with pytest.raises(CorruptIndexError):
        check_indexes(again)
    again.rebuild_indexes()
    assert again.largest_timestamp_ms() == NOW_MS


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_batch_is_not_written_where_the_index_cannot_be_read(suffix):
    """Once it is written, nothing may fail any more: it would be in the file and nowhere else."""
    segment = new_segment(count=0)
    number = 0
    while segment.bytes_since_last_index_entry <= CONFIG.index_interval_bytes:
        add(segment, number)
        number += 1
    segment.become_inactive()
    segment.release_indexes()
    before = segment.size
    segment._disk.fail("read_bytes", f"*{suffix}")
    with pytest.raises(OSError, match="Input/output"):
        add(segment, number)
    assert segment.size == segment.file.size() == before
    add(segment, number)

    assert len(segment.offset_index) == 1


@pytest.mark.parametrize(("interval", "count"), [(83, 9), (84, 4)])
def test_index_has_an_entry_for_more_than_the_interval(interval, count):
    """Not for just as many bytes; the first batch has none."""
    config = TopicConfig.of(BrokerConfig.parse({}), {"index.interval.bytes": str(interval)})
    segment = LogSegment(MemoryDisk(), "", BASE, config, NOW_MS)
    segment.create()
    for number in range(10):
        data = new_batch(b"v" * 15, timestamp_ms=NOW_MS + number, base_offset=BASE + number)
        assert len(data) == 84
        segment.append(data, BASE + number, BASE + number, NOW_MS + number)

    assert len(segment.offset_index) == len(segment.time_index) == count
    for kept in (3, 2, 1):
        segment.truncate_to(BASE + kept)
        segment.become_inactive()
        again = LogSegment(segment._disk, "", BASE, config, NOW_MS)
        again.open()
        check_indexes(again)
        assert again.size == 84 * kept


def test_closed_segment_can_be_appended_to():
    """Its file is opened again when it is needed."""
    segment = new_segment()
    segment.close()
    add(segment, 20)

    assert offsets(segment, BASE + 38, 10_000) == [BASE + 38, BASE + 40]


@pytest.mark.parametrize("change", ["cut", "reset"])
def test_what_was_known_of_batches_that_are_gone_is_forgotten(change):
    """Others may lie at their places: nothing of the memory of readers and writers survives."""
    segment = new_segment()
    revision = segment.revision
    assert offsets(segment, BASE, 300)
    if change == "cut":
        segment.truncate_to(BASE + 2)
    else:
        segment.file.truncate(0)
        segment.reset()
        add(segment, 0)
    for number in range(1, 20):
        offset = BASE + 3 * number
        data = new_batch(b"other", b"b", b"c", timestamp_ms=NOW_MS + number, base_offset=offset)
        segment.append(data, offset, offset + 2, NOW_MS + number)
    again = reopened(segment)
    again.load_tail()

    assert segment.revision > revision
    for offset in range(BASE, BASE + 60):
        assert offsets(segment, offset, 300) == offsets(again, offset, 300)
    assert list(segment.offset_index.entries()) == list(again.offset_index.entries())
    assert segment.bytes_since_last_index_entry == again.bytes_since_last_index_entry
    assert segment.first_timestamp_ms == again.first_timestamp_ms == NOW_MS
    assert (segment.max_timestamp_ms, segment.offset_of_max_timestamp) == (NOW_MS + 19, BASE + 59)


@pytest.mark.parametrize("change", ["cut", "reset"])
def test_place_to_read_on_from_is_forgotten_with_what_was_there(change):
    """The reader finds that the segment ends before it."""
    segment = reopened(new_segment())
    following = offsets(segment, BASE, 300)[-1] + 2
    assert segment.position_of(following) > 0
    if change == "cut":
        segment.truncate_to(BASE + 2)
    else:
        segment.file.truncate(0)
        segment.reset()

    assert segment.position_of(following) is None
    assert segment.offset_of_max_timestamp == BASE + (change == "cut")


@pytest.mark.parametrize("jitter_ms", [0, 300])
def test_segment_is_due_after_its_time_less_its_jitter(jitter_ms):
    """By the times of the records, or where these have none by the clock; the limit is not over."""
    segment = new_segment(count=1)
    segment.roll_jitter_ms = jitter_ms
    limit = 1000 - jitter_ms

    assert [segment.is_due(NOW_MS + limit + ms, 0, 1000) for ms in (0, 1)] == [False, True]
    assert [segment.is_due(-1, NOW_MS + limit + ms, 1000) for ms in (0, 1)] == [False, True]
    empty = new_segment(count=0)
    assert [empty.is_due(NOW_MS, NOW_MS + 1000 + ms, 1000) for ms in (0, 1)] == [False, True]
    old = new_segment(count=0)
    add(old, 0, 0)
    assert [old.is_due(ms, NOW_MS + 9999, 1000) for ms in (0, 1000, 1001)] == [False, False, True]


def test_header_of_an_offset_is_that_of_its_batch_or_the_next():
    """None behind the last one."""
    segment = reopened(new_segment())
    segment_of = [segment.header_of(BASE + number) for number in range(40)]

    assert [header.base_offset for _, header in segment_of] == [
        BASE + number - number % 2 for number in range(40)
    ]
    assert segment.header_of(BASE + 40) is None


def test_search_by_time_reads_only_batches_that_may_hold_it():
    """Damage in the records of those before the start offset, or too old, does not matter."""
    for number in range(1, 20):
        segment = new_segment()
        overwrite(segment, f"/{BASE:020d}.log", b"\xff", segment.position_of(BASE + 2 * number) - 3)
        for found in (
            at_once(search_segment(segment, NOW_MS + 10 * number, BASE)),
            at_once(search_segment(segment, 0, BASE + 2 * number)),
        ):
            assert found.offset == BASE + 2 * number


def test_index_that_lies_again_is_the_fault_of_the_disk():
    """It is rebuilt once; a reader gets an error, and not an answer from the wrong place."""
    segment = reopened(new_segment())
    for _ in range(2):
        segment.release_indexes()
        overwrite(segment, segment.offset_index.path, b"\0\0\0\x08\0\0\x01\x01" * 5)
        if segment.revision:
            with pytest.raises(CorruptRecordError, match="is not so"):
                offsets(segment, BASE + 30, 1)
        else:
            assert offsets(segment, BASE + 30, 1) == [BASE + 30]


def test_released_indexes_are_read_again_when_they_are_needed():
    """Nothing of them is kept in memory, nor of the newest batches."""
    segment = new_segment()
    segment.txn_index.append(AbortedTxn(7, BASE, BASE + 1, BASE + 2))
    expected = (offsets(segment, BASE + 9, 300), segment.txn_index.entries())
    segment.become_inactive()
    read: list[str] = []
    segment._disk.on_call = lambda name, path: read.append(path) if name == "read_bytes" else None
    segment.release_indexes()
    assert (offsets(segment, BASE + 9, 300), segment.txn_index.entries()) == expected
    assert at_once(search_segment(segment, NOW_MS + 50, BASE)).offset == BASE + 10

    assert sorted(read) == sorted(segment.files()[1:])


def test_cut_forgets_the_transactions_that_end_behind_it():
    """Their markers are gone."""
    segment = new_segment()
    first, second = (
        AbortedTxn(7, BASE, BASE + 3, BASE + 4),
        AbortedTxn(8, BASE, BASE + 9, BASE + 10),
    )
    segment.txn_index.append(first)
    segment.txn_index.append(second)
    segment.truncate_to(BASE + 8)

    assert segment.txn_index.entries() == [first]


def test_segment_that_is_removed_leaves_no_file():
    """Neither on the disk nor open."""
    segment = new_segment()
    segment.remove()

    assert (segment._disk.list_dir("/"), segment._disk.open_files) == ([], [])


def test_segments_on_disk_survive_a_loss_of_power():
    """`sync_files` brings batches and indexes there; only their names are synced by others."""
    disk = MemoryDisk()
    segment = new_segment(disk)
    segment.txn_index.append(AbortedTxn(7, BASE, BASE + 1, BASE + 2))
    segment.become_inactive()
    disk.root.sync()
    sync_files(disk, segment)
    contents = {path: disk.contents(path) for path in segment.files()}
    open_files = list(disk.open_files)
    disk.crash()

    assert len(contents) == 4
    assert {path: disk.contents(path) for path in contents} == contents
    assert open_files == [segment.path]


@pytest.mark.parametrize("timestamps", [(0,), (0, -1), (-1, 0)])
def test_records_of_1970_have_a_timestamp(timestamps):
    """0 is one, and the indexes and the age of the segment show it."""
    segment = new_segment(count=0)
    for number, timestamp_ms in enumerate(timestamps):
        add(segment, number, timestamp_ms)

    assert segment.largest_timestamp_ms() == 0
    assert reopened(segment).largest_timestamp_ms() == 0
    first = timestamps.index(0)
    assert at_once(search_segment(segment, 0, BASE)).offset == BASE + 2 * first
    assert at_once(latest_record(Segments([segment]), BASE)) == (0, BASE + 2 * first, -1)


def test_empty_segment_and_one_of_old_messages_need_no_times():
    """Any other segment does, also one whose first batch cannot be read."""
    reopened(new_segment(count=0))
    old = new_segment(count=0)
    message = build_message_set([Record(BASE, -1, b"k", b"v", ())], 0, CompressionType.NONE)
    old.append(message, BASE, BASE, -1)
    assert reopened(old).size == len(message)
    garbage = new_segment(count=0)
    garbage.append(b"\xff" * 200, BASE, BASE, -1)
    with pytest.raises(CorruptIndexError, match="does not end with a timestamp"):
        reopened(garbage)


@pytest.mark.parametrize(("index_bytes", "count"), [(48, 3), (60, 4)])
def test_segment_is_full_with_the_first_of_its_indexes(index_bytes, count):
    """That of times has the larger entries, and keeps room for the one that closes it."""
    config = TopicConfig.of(
        BrokerConfig.parse({}),
        {"index.interval.bytes": "1", "segment.index.bytes": str(index_bytes)},
    )
    segment = LogSegment(MemoryDisk(), "", BASE, config, NOW_MS)
    segment.create()
    while not segment.is_full:
        add(segment, len(segment.offset_index) + (segment.size > 0))

    assert len(segment.offset_index) == count


def test_offsets_that_do_not_fit_in_31_bits_do_not_fit_the_segment():
    """They could not be written into the indexes."""
    segment = new_segment(count=0)

    assert segment.fits(BASE + 2**31 - 1)
    assert not segment.fits(BASE + 2**31)
    assert not segment.fits(BASE - 1)
