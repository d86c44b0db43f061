"""The log of a partition: appends, reads, rolling, searches by time, truncation, a full disk."""

from __future__ import annotations

import errno

import pytest
from log_world import DIR, NOW_MS, LogWorld, new_batch, numbers, read_all, values

from ottla.errors import ErrorCode, KafkaError
from ottla.log import time_search
from ottla.log.log_retention import delete_old_segments
from ottla.log.log_truncation import truncate_to
from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType
from ottla.record.memory_records import batches
from ottla.runtime.scheduler import at_once

ABORT_KEY = b"\0\0\0\0"


def error_of(call, *arguments, **named) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call(*arguments, **named)
    return caught.value.error


def read(log, offset: int, max_bytes: int = 10_000, max_offset: int | None = None, minimum=True):
    limit = log.log_end_offset if max_offset is None else max_offset
    return log.read(offset, max_bytes, max_offset=limit, min_one_message=minimum)


def test_read_that_may_have_nothing_does_not_look(world: LogWorld):
    """At the end of what is wanted, or where not a byte is."""
    world.append(b"a", b"b")
    world.append(b"c")
    log, calls = world.log(), []
    world.disk.on_call = lambda name, path: calls.append(name)
    found = [
        read(log, 2, max_offset=2),
        read(log, 3),
        read(log, 2, max_offset=1),
        read(log, 0, max_bytes=0, minimum=False),
        read(log, 0, max_bytes=-1, minimum=False),
    ]

    assert [(each.records, each.is_cut) for each in found] == [(None, False)] * 5
    assert [each.fetch_offset for each in found] == [2, 3, 2, 0, 0]
    assert calls == []
    assert read(log, 0, max_bytes=0).records is not None


# -- appending


def test_append_stamps_offset_and_epoch_in_place(world: LogWorld):
    """The producer's buffer is what is written."""
    world.append(b"a", b"b")
    data = memoryview(bytearray(new_batch(b"c", b"d", b"e")))
    info = world.log().append_as_leader(data, 5, now_ms=NOW_MS)
    stored = next(batches(read(world.log(), 2).records.read()))

    assert (info.first_offset, info.last_offset, info.record_count) == (2, 4, 3)
    assert (stored.base_offset, stored.partition_leader_epoch) == (2, 5)
    assert bytes(stored.view) == bytes(data)
    assert info.size_in_bytes == len(data)


def test_append_says_what_the_producer_wants_to_know(world: LogWorld):
    """Timestamps as they are, no append time unless the topic has it."""
    info = world.append(b"a", timestamp_ms=NOW_MS - 5)

    assert (info.max_timestamp_ms, info.log_append_time_ms) == (NOW_MS - 5, -1)
    assert info.log_start_offset == 0


def test_append_with_log_append_time_says_the_time(world: LogWorld):
    """A duplicate is told the time of the first copy."""
    world.configure(message_timestamp_type="LogAppendTime")
    sent = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    first = world.append(b"a", timestamp_ms=5, **sent)
    world.runtime.advance(100)
    again = world.append(b"a", timestamp_ms=5, **sent)

    assert first.log_append_time_ms == again.log_append_time_ms == NOW_MS
    assert read_all(world.log())[0].timestamp_ms == NOW_MS


def test_refused_batch_leaves_the_log_as_it_was(world: LogWorld):
    """Its end does not move."""
    world.append(b"a")
    wrong = bytearray(new_batch(b"b"))
    wrong[-1] ^= 1

    assert error_of(world.log().append_as_leader, memoryview(wrong), 0, now_ms=0) is (
        ErrorCode.CORRUPT_MESSAGE
    )
    assert world.log().log_end_offset == 1
    assert values(read_all(world.log())) == [b"a"]


def test_leader_of_an_older_epoch_cannot_append(world: LogWorld):
    """Epochs never fall within a log."""
    world.append(b"a", epoch=4)

    assert error_of(world.append, b"b", epoch=3) is ErrorCode.FENCED_LEADER_EPOCH
    assert world.append(b"b", epoch=4).first_offset == 1


def test_duplicate_is_answered_as_the_first_copy_was(world: LogWorld):
    """Nothing is appended."""
    sent = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    world.append(b"x")
    first = world.append(b"a", b"b", **sent)
    again = world.append(b"a", b"b", **sent)

    assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset)
    assert again.is_duplicate
    assert not first.is_duplicate
    assert world.log().log_end_offset == 3


# -- reading


def test_every_offset_can_be_read_across_segments(world: LogWorld):
    """With any limit, and in order."""
    world.append_many(60)
    log = world.log()

    assert len(log.segments) > 3
    for max_bytes in (1, 100, 350, 10_000):
        assert values(read_all(log, 0, max_bytes)) == numbers(0, 60)
    for offset in range(60):
        assert read_all(log, offset, 200)[0].value == b"%d" % offset


def test_read_outside_the_log_is_out_of_range(world: LogWorld):
    """The end itself is not outside: a consumer waits there."""
    world.append_many(10)
    log = world.log()
    log.maybe_increment_log_start_offset(4)

    assert error_of(read, log, 3) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert error_of(read, log, 11) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert read(log, 10).records is None
    assert read(log, 4).records is not None


@pytest.mark.parametrize("max_offset", [0, 1, 7, 13, 14, 25, 29, 30, 99])
def test_read_stops_at_the_high_watermark(world: LogWorld, max_offset):
    """Wherever it lies: in this segment, in a later one, at the end."""
    world.append_many(30)
    log = world.log()
    offset = 0
    while (data := read(log, offset, 150, max_offset)).records is not None:
        for batch in batches(data.records.read()):
            offset = batch.next_offset

    assert offset == min(max_offset, 30)


def test_read_says_whether_more_can_be_read_behind_it(world: LogWorld):
    """Cut by the reader's limit, by the end of a segment, or not at all."""
    world.append_many(30)
    log = world.log()
    is_cut_at = []
    for limit in (150, 1 << 20):
        offset = 0
        while (data := read(log, offset, limit, 25)).records is not None:
            *_, batch = batches(data.records.read())
            offset = batch.next_offset
            is_cut_at.append((offset, data.is_cut))

    assert len(log.segments) > 1
    assert is_cut_at == [(offset, offset < 25) for offset, _ in is_cut_at]


def test_batch_above_the_limit_comes_whole_or_not_at_all(world: LogWorld):
    """KIP-74: the first one is given whatever its size, if that is asked for."""
    world.append(b"x" * 500)
    log = world.log()

    assert len(list(batches(read(log, 0, 10).records.read()))) == 1
    small = read(log, 0, 10, minimum=False)
    assert small.records is None
    assert small.is_cut
    assert read(log, 0, 0, minimum=False).records is None


def test_read_of_the_end_touches_no_file(world: LogWorld):
    """What was just written is found in memory."""
    world.append_many(60)
    world.disk.fail("pread", times=100)
    log = world.log()

    region = read(log, 59).records
    assert region.size == len(new_batch(b"59"))
    assert region.position + region.size == log.segments.active.size


def test_old_reader_goes_on_while_its_segment_is_deleted(world: LogWorld):
    """What is on its way to the network stays readable for file.delete.delay.ms."""
    world.append_many(60)
    log = world.log()
    region = read(log, 0).records
    log.maybe_increment_log_start_offset(60)
    delete_old_segments(log, NOW_MS)
    world.runtime.advance(999)

    assert values(next(batches(region.read())).records())[0] == b"0"


def test_failed_read_takes_the_directory_offline(world: LogWorld):
    """Nobody is served from a disk that cannot be read; other errors pass."""
    world.append_many(60)
    world.restart(clean=True)
    log = world.log()
    world.disk.fail("open", "*.log", error=errno.EMFILE)
    assert error_of(read, log, 0) is ErrorCode.KAFKA_STORAGE_ERROR
    assert read(log, 0).records is not None

    log.segments.first.release_indexes()
    world.disk.fail("pread", times=10)
    assert error_of(read, log, 3, 100) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_dir.is_offline
    assert error_of(world.append, b"x") is ErrorCode.KAFKA_STORAGE_ERROR


# -- rolling


def test_segment_rolls_before_it_grows_too_large(world: LogWorld):
    """No segment exceeds segment.bytes, and each begins where the one before ends."""
    world.append_many(60)
    log = world.log()

    assert all(segment.size <= 1000 for segment in log.segments)
    assert all(segment.size > 800 for segment in log.segments.items[:-1])
    assert values(read_all(log)) == numbers(0, 60)


def test_segment_rolls_when_its_records_span_segment_ms(world: LogWorld):
    """By their own time, so that it does not depend on when they are written again."""
    world.configure(segment_ms=1000)
    for timestamp_ms in (NOW_MS, NOW_MS + 1000, NOW_MS + 1001, NOW_MS + 1500):
        world.append(b"x", timestamp_ms=timestamp_ms)

    assert world.log().segments.base_offsets == (0, 2)


def test_segment_without_timestamps_rolls_by_the_clock(world: LogWorld):
    """It counts from when it was made."""
    world.configure(segment_ms=1000)
    world.append(b"x", timestamp_ms=-1)
    world.runtime.advance(1000)
    world.append(b"x", timestamp_ms=-1)
    world.runtime.advance(1)
    world.append(b"x", timestamp_ms=-1)

    assert world.log().segments.base_offsets == (0, 2)


def test_jitter_makes_segments_roll_earlier(world: LogWorld):
    """By less than segment.jitter.ms, each by its own."""
    world.configure(segment_ms=1000, segment_jitter_ms=600)
    log = world.log()
    jitters = set()
    for number in range(10):
        world.append(b"x", timestamp_ms=NOW_MS + 10_000 * number)
        jitters.add(log.segments.active.roll_jitter_ms)

    assert len(jitters) > 3
    assert all(0 <= jitter < 600 for jitter in jitters)
    world.append(b"x", timestamp_ms=NOW_MS + 90_000 + 1000 - log.segments.active.roll_jitter_ms)
    assert len(log.segments) == 10


def test_segment_rolls_when_an_index_is_full(world: LogWorld):
    """segment.index.bytes limits the entries."""
    world.configure(segment_bytes=100_000, segment_index_bytes=40)
    world.log().roller.roll()
    world.append_many(60)
    closed = world.log().segments.items[1:-1]

    assert len(closed) > 3
    assert {len(segment.offset_index) for segment in closed} == {5}


def test_roll_of_an_empty_segment_does_nothing(world: LogWorld):
    """There cannot be two segments of one name."""
    world.append(b"x")
    world.log().roller.roll()
    world.log().roller.roll()

    assert world.log().segments.base_offsets == (0, 1)


def test_roll_leaves_a_snapshot_of_the_producers(world: LogWorld):
    """So that a restart need not read the whole log."""
    world.append_many(60)

    snapshots = [name for name in world.names() if name.endswith(".snapshot")]
    assert snapshots == [f"{o:020d}.snapshot" for o in world.log().segments.base_offsets[1:]]


# -- times


@pytest.mark.parametrize("codec", list(CompressionType))
def test_first_record_at_a_time_is_found_exactly(world: LogWorld, codec):
    """Within a batch, too, and when it is compressed."""
    log = world.log()
    for number in range(30):
        records = [(NOW_MS + 100 * number + 10 * i, b"k", b"v" * 20, ()) for i in range(3)]
        data = build_batch(records, codec)
        log.append_as_leader(memoryview(bytearray(data)), 3, now_ms=NOW_MS)

    assert at_once(log.fetch_offset_by_timestamp(0)) == (NOW_MS, 0, 3)
    assert at_once(log.fetch_offset_by_timestamp(NOW_MS + 1711)) == (NOW_MS + 1720, 53, 3)
    assert at_once(log.fetch_offset_by_timestamp(NOW_MS + 1720)) == (NOW_MS + 1720, 53, 3)
    assert at_once(log.fetch_offset_by_timestamp(NOW_MS + 1721)) == (NOW_MS + 1800, 54, 3)
    assert at_once(log.fetch_offset_by_timestamp(NOW_MS + 2921)) is None


def test_special_times_are_the_ends_and_the_latest_record(world: LogWorld):
    """-1 the end, -2 the start, -3 the first record with the largest timestamp."""
    for number in range(40):
        late = 500 if number in (17, 30) else 0
        world.append(b"%d" % number, timestamp_ms=NOW_MS + late, epoch=number // 20)
    log = world.log()
    log.maybe_increment_log_start_offset(5)

    assert at_once(log.fetch_offset_by_timestamp(-1)) == (-1, 40, 1)
    assert at_once(log.fetch_offset_by_timestamp(-2)) == (-1, 5, 0)
    assert at_once(log.fetch_offset_by_timestamp(-3)) == (NOW_MS + 500, 17, 0)
    assert at_once(log.fetch_offset_by_timestamp(0)) == (NOW_MS, 5, 0)


def test_empty_log_has_no_record_at_any_time(world: LogWorld):
    """Its ends are both 0."""
    log = world.log()

    assert at_once(log.fetch_offset_by_timestamp(0)) is None
    assert at_once(log.fetch_offset_by_timestamp(-3)) is None
    assert at_once(log.fetch_offset_by_timestamp(-1)) == (-1, 0, -1)
    assert at_once(log.fetch_offset_by_timestamp(-2)) == (-1, 0, -1)


# -- shortening


@pytest.mark.parametrize("offset", [0, 1, 13, 14, 15, 45, 59, 60, 99])
def test_truncated_log_goes_on_from_the_offset(world: LogWorld, offset):
    """Segments, indexes, epochs and producers are those of what is left."""
    world.configure(file_delete_delay_ms=0)
    for number in range(60):
        producer = {"producer_id": number % 3, "producer_epoch": 0, "base_sequence": number // 3}
        world.append(b"%d" % number, epoch=number // 10, **producer)
    log = world.log()
    truncate_to(log, offset)
    end = min(offset, 60)

    assert log.log_end_offset == log.high_watermark == end
    assert values(read_all(log)) == numbers(0, end)
    assert log.leader_epoch_cache.latest_epoch == (end - 1) // 10
    expected = {n % 3: n // 3 for n in range(end)}
    state = log.producer_state_manager.producers
    assert {producer: state[producer].last_sequence for producer in state} == expected
    world.append_many(5, epoch=9)
    assert values(read_all(world.restart())) == numbers(0, end + 5)


def test_truncation_at_the_end_forgets_an_epoch_without_records(world: LogWorld):
    """Its leader is not known to the new one, which would ask for the same cut for ever."""
    world.append_many(5, epoch=0)
    log = world.log()
    log.leader_epoch_cache.assign(1, 5)
    truncate_to(log, 5)

    assert (log.log_end_offset, log.leader_epoch_cache.entries) == (5, [(0, 0)])


def test_truncation_before_the_first_segment_empties_the_log(world: LogWorld):
    """A follower whose leader has less than it starts there."""
    world.append_many(60)
    log = world.log()
    log.maybe_increment_log_start_offset(50)
    delete_old_segments(log, NOW_MS)
    truncate_to(log, 5)

    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (5, 5, 5)
    assert world.append(b"x").first_offset == 5


def test_log_start_cannot_pass_the_high_watermark(world: LogWorld):
    """Records that are not committed cannot be deleted."""
    world.append_many(10)
    log = world.log()
    log.update_high_watermark(7)

    assert error_of(log.maybe_increment_log_start_offset, 8) is ErrorCode.OFFSET_OUT_OF_RANGE
    log.maybe_increment_log_start_offset(7)
    log.maybe_increment_log_start_offset(3)
    assert log.log_start_offset == 7


def test_high_watermark_stays_within_the_log(world: LogWorld):
    """Whatever a checkpoint or a leader says."""
    world.append_many(10)
    log = world.log()
    log.update_high_watermark(99)
    assert log.high_watermark == 10
    log.maybe_increment_log_start_offset(5)
    log.update_high_watermark(2)
    assert log.high_watermark == 5


# -- a disk that is full or broken


@pytest.mark.parametrize("room", [0, 1, 30, 61, 70])
def test_full_disk_refuses_the_batch_and_takes_it_later(world: LogWorld, room):
    """What was written of it is cut off."""
    world.append_many(10)
    world.disk.capacity_in_bytes = world.disk.root.size() + room
    assert error_of(world.append, b"x" * 200) is ErrorCode.KAFKA_STORAGE_ERROR
    log = world.log()
    assert not log.log_dir.is_offline
    assert log.segments.active.file.size() == log.segments.active.size

    world.disk.capacity_in_bytes = None
    world.append_many(2)
    assert values(read_all(world.restart())) == numbers(0, 12)


def test_full_disk_at_a_roll_refuses_the_batch_and_rolls_later(world: LogWorld):
    """The log goes on with the segment that it has."""
    world.append_many(11)
    world.disk.fail("open", "*.timeindex", error=errno.ENOSPC, times=3)
    for _ in range(3):
        assert error_of(world.append, b"x" * 600) is ErrorCode.KAFKA_STORAGE_ERROR
    world.append_many(30)

    assert len(world.log().segments) > 2
    assert values(read_all(world.restart())) == numbers(0, 41)


@pytest.mark.parametrize("path", ["*.log", "*.index", "*.timeindex", "*.snapshot"])
def test_roll_that_failed_leaves_no_segment_behind(world: LogWorld, path):
    """It would hide, after a restart, what was appended to the old one meanwhile."""
    world.append_many(11)
    world.disk.fail("open", path, error=errno.ENOSPC)
    assert error_of(world.append, b"x" * 600) is ErrorCode.KAFKA_STORAGE_ERROR
    world.append_many(2)

    for clean in (False, True):
        assert values(read_all(world.restart(clean=clean))) == numbers(0, 13)


def test_roll_that_cannot_be_undone_takes_the_directory_offline(world: LogWorld):
    """After a restart the new segment would hide what the old one gets next."""
    world.append_many(3)
    world.disk.fail("open", "*.timeindex", error=errno.ENOSPC, skip=1)
    world.disk.fail("unlink", error=errno.EMFILE)
    with pytest.raises(KafkaError):
        world.log().roller.roll()

    assert world.log().log_dir.is_offline


def test_producers_that_cannot_be_read_after_a_cut_take_the_directory_offline(world: LogWorld):
    """Those of what was cut off stayed: a batch that is lost counted as a repetition."""
    for sequence in range(40):
        world.append(b"v", producer_id=7, producer_epoch=0, base_sequence=sequence)
    log = world.log()
    world.disk.fail("read_bytes", "*.snapshot")

    assert error_of(truncate_to, log, 25) is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_dir.is_offline


def test_truncation_that_failed_takes_the_directory_offline(world: LogWorld):
    """Nobody can say what the files hold."""
    world.append_many(30)
    world.disk.fail("truncate", error=errno.ENOSPC)

    assert error_of(truncate_to, world.log(), 5) is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.log().log_dir.is_offline


def test_io_error_of_an_append_takes_the_directory_offline(world: LogWorld):
    """Nothing is appended there any more; other directories are not concerned."""
    world.append_many(3)
    world.disk.fail("pwrite", "*.log")

    assert error_of(world.append, b"x") is ErrorCode.KAFKA_STORAGE_ERROR
    assert world.log().log_dir.is_offline
    assert error_of(world.append, b"x") is ErrorCode.KAFKA_STORAGE_ERROR
    assert error_of(read, world.log(), 0) is ErrorCode.KAFKA_STORAGE_ERROR
    assert values(read_all(world.restart())) == numbers(0, 3)


def test_changed_configuration_counts_from_the_next_append(world: LogWorld):
    """A changed configuration counts from the next append, also for the open segment."""
    world.append_many(3)
    world.configure(max_message_bytes=80)
    assert error_of(world.append, b"x" * 100) is ErrorCode.MESSAGE_TOO_LARGE
    world.configure(max_message_bytes=800, segment_bytes=300)
    world.append_many(10)

    assert [segment.size <= 300 for segment in world.log().segments] == [True] * 4


def test_changed_interval_of_the_index_counts_from_the_next_batch(world: LogWorld):
    """A changed index interval counts from the next batch, also in the open segment."""
    world.append_many(3)
    entries = len(world.log().segments.active.offset_index)
    world.configure(index_interval_bytes=0)
    world.append_many(5)

    assert len(world.log().segments.active.offset_index) == entries + 5


def test_directory_is_the_one_of_the_partition(world: LogWorld):
    """Kafka's name, and the files of one segment."""
    log = world.log()

    assert log.dir == f"{DIR}/topic-0"
    assert world.names() == [f"{0:020d}{suffix}" for suffix in (".index", ".log", ".timeindex")]


def close_files(log):
    """As when a cleaner has replaced the segments, or the broker stops."""
    for segment in log.segments:
        segment.close()
        segment.file.close()


def move_away(log):
    log.dir = "/elsewhere/topic-0"


def cut(log):
    truncate_to(log, log.log_end_offset - 1)


@pytest.mark.parametrize("change", [close_files, move_away, cut])
def test_search_that_others_overtake_ends_and_blames_no_disk(world, monkeypatch, change):
    """A log that is moved, cleaned, cut or closed in a pause is asked for again by the client."""
    monkeypatch.setattr(time_search, "HEADERS_IN_A_SLICE", 1)
    log = world.log()
    for number in range(4):
        data = bytearray(build_batch([(NOW_MS + number, None, b"", ())]))
        log.append_as_leader(memoryview(data), 3, now_ms=NOW_MS)
    search = log.fetch_offset_by_timestamp(NOW_MS + 3)
    next(search)
    change(log)

    with pytest.raises(KafkaError) as caught:
        at_once(search)
    assert caught.value.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not log.log_dir.is_offline
