"""A segment: its indexes, reads within limits, look-ups by time, and indexes that lie."""

from __future__ import annotations

import pytest
from log_world import NOW_MS, new_batch

from ottla.config.broker_config import BrokerConfig
from ottla.config.topic_config import TopicConfig
from ottla.log.index_file import CorruptIndexError
from ottla.log.log_segment import LogSegment
from ottla.record.record_batch import CorruptRecordError, batches
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


def reopened(segment: LogSegment) -> LogSegment:
    """The same segment in another life, as a closed one."""
    segment.become_inactive()
    again = LogSegment(segment._disk, "", BASE, CONFIG, NOW_MS)
    again.open()
    return again


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
    """And the last offset of the batch that it came with."""
    segment = new_segment()

    for timestamp_ms, offset in segment.time_index.entries():
        assert timestamp_ms == NOW_MS + 10 * ((offset - BASE) // 2)


@pytest.mark.parametrize("is_reopened", [False, True])
@pytest.mark.parametrize("start", range(BASE, BASE + 40))
def test_read_begins_with_the_batch_of_the_offset(start, is_reopened):
    """Also for an offset inside a batch; from memory and from the file."""
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


def test_read_behind_the_last_batch_gives_nothing():
    """The next segment has it."""
    assert offsets(reopened(new_segment()), BASE + 40, 1000) == []


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
            record, _ = segment.find_offset_by_timestamp(timestamp_ms, BASE)
            assert (record.offset, record.timestamp_ms) == (BASE + 2 * number, NOW_MS + 10 * number)
    assert segment.find_offset_by_timestamp(NOW_MS + 191, BASE) is None


def test_time_search_leaves_out_records_before_the_start_offset():
    """The log starts inside a batch."""
    record, _ = new_segment().find_offset_by_timestamp(0, BASE + 5)

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
    record, _ = again.find_offset_by_timestamp(NOW_MS + 4000, BASE)
    assert record.offset == BASE + 6


def test_load_tail_finds_timestamps_behind_the_last_index_entry():
    """The indexes of an active segment do not reach its end."""
    segment = new_segment()
    segment.write_indexes()
    again = LogSegment(segment._disk, "", BASE, CONFIG, NOW_MS)
    again.open()
    again.load_tail()

    assert again.max_timestamp_ms == segment.max_timestamp_ms
    assert again.offset_of_max_timestamp == segment.offset_of_max_timestamp
    assert again.first_timestamp_ms == segment.first_timestamp_ms == NOW_MS
    entry = segment.offset_index.last_entry()
    assert again.bytes_since_last_index_entry == segment.size - entry.position


@pytest.mark.parametrize("offset", [BASE + 1, BASE + 16, BASE + 17, BASE + 39])
def test_truncate_drops_the_batch_with_the_offset(offset):
    """And all behind it, in file and indexes; appends go on from there."""
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
        LogSegment(segment._disk, "", BASE, CONFIG, NOW_MS).open()


def test_rebuilt_indexes_are_those_of_the_appends():
    """Byte for byte."""
    disk = MemoryDisk()
    new_segment(disk).become_inactive()
    names = [f"/{BASE:020d}{suffix}" for suffix in (".index", ".timeindex")]
    before = [disk.read_bytes(name) for name in names]
    segment = LogSegment(disk, "", BASE, CONFIG, NOW_MS)
    segment.open()
    segment.rebuild_indexes()
    segment.become_inactive()

    assert [disk.read_bytes(name) for name in names] == before


@pytest.mark.parametrize("garbage", [bytes(8), b"\0\0\0\x08\0\0\x01\x01", b"\x7f" * 8])
def test_index_entry_that_lies_is_found_out_when_it_is_used(garbage):
    """The index is rebuilt, and the answer is right (F16)."""
    segment = new_segment()
    segment.become_inactive()
    overwrite(segment, f"/{BASE:020d}.index", garbage * 5)
    again = LogSegment(segment._disk, "", BASE, CONFIG, NOW_MS)
    again.open()

    assert [offsets(again, start, 1)[0] for start in range(BASE, BASE + 40, 2)] == list(
        range(BASE, BASE + 40, 2)
    )


def test_time_index_that_lies_is_rebuilt_before_a_search():
    """Its entries are not in order."""
    segment = new_segment()
    segment.become_inactive()
    overwrite(segment, f"/{BASE:020d}.timeindex", b"\x7f" * 24, 12)
    again = LogSegment(segment._disk, "", BASE, CONFIG, NOW_MS)
    again.open()
    record, _ = again.find_offset_by_timestamp(NOW_MS + 50, BASE)

    assert record.offset == BASE + 10


def test_damaged_batch_is_reported_and_the_others_are_served():
    """A bit that fell over in a length hides what follows up to the next index entry (F14)."""
    segment = new_segment()
    segment.become_inactive()
    position = segment.position_of(BASE + 20)
    overwrite(segment, f"/{BASE:020d}.log", b"\x70", position + 8)
    again = LogSegment(segment._disk, "", BASE, CONFIG, NOW_MS)
    again.open()

    assert offsets(again, BASE, 500)[0] == BASE
    with pytest.raises(CorruptRecordError):
        offsets(again, BASE + 22, 100)
    assert offsets(again, BASE + 30, 100) == [BASE + 30]
    assert again.size == segment.size


def test_flipped_bit_in_a_record_is_found_by_the_search_by_time():
    """The one search that decodes records checks their CRC."""
    segment = new_segment()
    position = segment.position_of(BASE + 20)
    overwrite(segment, f"/{BASE:020d}.log", b"\xff", position + 75)

    with pytest.raises(CorruptRecordError, match="CRC"):
        segment.find_offset_by_timestamp(NOW_MS + 100, BASE)


def test_segment_without_timestamps_is_as_old_as_its_file():
    """Retention must not take it for one of 1970, nor for a new one after each start."""
    segment = new_segment(count=0)
    segment._disk.now_ms = lambda: NOW_MS
    for number in range(20):
        add(segment, number, -1)

    assert segment.largest_timestamp_ms() == NOW_MS
    segment.become_inactive()
    again = LogSegment(segment._disk, "", BASE, CONFIG, NOW_MS + 5)
    with pytest.raises(CorruptIndexError):
        again.open()
    again.rebuild_indexes()
    assert again.largest_timestamp_ms() == NOW_MS


def test_offsets_that_do_not_fit_in_31_bits_do_not_fit_the_segment():
    """They could not be written into the indexes."""
    segment = new_segment(count=0)

    assert segment.fits(BASE + 2**31 - 1)
    assert not segment.fits(BASE + 2**31)
    assert not segment.fits(BASE - 1)
