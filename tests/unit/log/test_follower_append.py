"""Batches that a leader has sent, and what a follower's log makes of them."""

from __future__ import annotations

import errno

import pytest
from log_world import NOW_MS, parts_of_live, read_all

from ottla.errors import KafkaError
from ottla.log.follower_append import UnexpectedAppendOffsetError, append_as_follower
from ottla.log.log_truncation import truncate_fully_and_start_at, truncate_to
from ottla.record.batch_builder import build_batch, with_records
from ottla.record.compression import CompressionType
from ottla.record.conversion import build_message_set
from ottla.record.memory_records import batches
from ottla.record.record import Record
from ottla.record.record_batch import BATCH_OVERHEAD, CorruptRecordError, assign_offset
from ottla.runtime.scheduler import at_once
from ottla.structs import NO_TIMESTAMP
from ottla.testing.memory_disk import MemoryFile


def batch(base_offset, epoch=0, count=2, size=10):
    """A batch as it lies in the leader's log."""
    records = [(1_000, b"k", bytes(size), ()) for _ in range(count)]
    data = bytearray(build_batch(records))
    assign_offset(data, 0, base_offset, epoch)
    return bytes(data)


def take(log, *found, epoch=9):
    return append_as_follower(log, b"".join(found), epoch, 1_000)


def test_run_of_batches_is_written_by_one_call(world, monkeypatch):
    """Offsets and epochs are the leader's; gaps are what compaction has left."""
    log = world.log()
    run = [batch(0), batch(2, 1), batch(7, 3)]
    calls = []
    write = MemoryFile.pwrite

    def counted(file, data, position):
        calls.append(len(data))
        write(file, data, position)

    monkeypatch.setattr(MemoryFile, "pwrite", counted)

    assert take(log, *run) == sum(map(len, run))
    assert calls == [sum(map(len, run))]
    assert log.log_end_offset == 9
    assert log.leader_epoch_cache.entries == [(0, 0), (1, 2), (3, 7)]
    data = log.read(0, 1 << 20, max_offset=9, min_one_message=True)
    assert data.records.read() == b"".join(run)


@pytest.mark.parametrize("max_bytes", [1, 300, 700, 100_000])
def test_log_of_a_follower_is_as_that_of_its_leader(eventful, world, max_bytes):
    """Segments, indexes, producers, transactions and epochs, however much comes at a time."""
    leader, log = eventful.log(), world.log()
    while log.log_end_offset < leader.log_end_offset:
        data = leader.read(
            log.log_end_offset, max_bytes, max_offset=leader.log_end_offset, min_one_message=True
        )
        taken = append_as_follower(log, data.records.read(), 99, NOW_MS)
        assert taken == data.records.size
        log.update_high_watermark(log.log_end_offset)

    assert parts_of_live(log) == parts_of_live(leader)
    assert log.last_stable_offset == leader.last_stable_offset


def test_run_that_does_not_fit_goes_on_in_the_next_segment(world):
    """Each segment takes what it has room for."""
    world.configure(segment_bytes=2 * len(batch(0)))
    log = world.log()
    take(log, *(batch(2 * index) for index in range(5)))

    assert log.segments.base_offsets == (0, 4, 8)
    assert log.log_end_offset == 10


def test_batch_that_is_cut_off_is_left_out(world):
    """The leader fills its answer to the limit; the rest comes with the next one."""
    log = world.log()

    assert take(log, batch(0), batch(2)[:-1]) == len(batch(0))
    assert log.log_end_offset == 2


@pytest.mark.parametrize(
    "run",
    [
        [batch(0), batch(2)[:-1] + b"?"],
        [batch(0), batch(1)],
        [batch(0, 2), batch(2, 1)],
        [batch(0, 10)],
    ],
    ids=["damaged", "offsets overlap", "epoch falls", "epoch ahead of the leader's"],
)
def test_bad_run_leaves_nothing_behind(world, run):
    """Not even the good batches before the bad one."""
    log = world.log()

    with pytest.raises(CorruptRecordError):
        take(log, *run)
    assert (log.log_end_offset, log.segments.active.size) == (0, 0)


def test_batch_that_begins_before_the_end_is_named(world):
    """The log has to be cut to where it begins, then it can come whole."""
    log = world.log()
    truncate_fully_and_start_at(log, 5)
    with pytest.raises(UnexpectedAppendOffsetError) as caught:
        take(log, batch(4))
    truncate_to(log, caught.value.base_offset)
    take(log, batch(4))

    assert (log.log_start_offset, log.log_end_offset) == (4, 6)


def test_old_formats_are_taken_as_they_come(world):
    """A leader may hold segments from before Kafka 0.11: they have no epochs."""
    log = world.log()
    data = build_message_set([Record(0, 1_000, b"k", b"v", ())], 1, CompressionType.NONE)
    take(log, data)

    assert (log.log_end_offset, log.leader_epoch_cache.entries) == (1, [])


def test_full_truncation_starts_the_log_anew(world):
    """Nothing is left of segments, epochs, producers or snapshots; a restart finds it so."""
    log = world.log()
    for base in range(0, 20, 2):
        take(log, batch(base))
        log.roller.roll()
    truncate_fully_and_start_at(log, 100)

    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (100, 100, 100)
    assert (len(log.segments), log.leader_epoch_cache.entries) == (1, [])
    take(log, batch(100))
    assert [b.base_offset for b in batches(log.segments.active.file.pread(1 << 20, 0))] == [100]


def test_full_truncation_to_the_start_of_a_segment_empties_it(world):
    """The leader's log may begin where ours does."""
    log = world.log()
    take(log, batch(0), batch(2))
    truncate_fully_and_start_at(log, 0)
    take(log, batch(0, 1))

    assert (log.log_end_offset, log.leader_epoch_cache.entries) == (2, [(1, 0)])


def test_deleted_log_takes_nothing(world):
    """The replica was given up while the answer was on its way."""
    log = world.log()
    log.delete(f"{log.dir}-gone")

    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        take(log, batch(0))


FAR = 2**31 - 1
"""The widest distance that a segment can have between its base offset and a record."""
EDGE = 2**63 - 1


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("distance", [FAR - 1, FAR, FAR + 1, FAR + 2, 2 * FAR + 5, 2**62])
@pytest.mark.parametrize("written", [0, 6])
def test_gap_of_any_width_survives_a_restart(world, written, distance, clean):
    """A compacted log may have one; what is behind it cannot be written relative to the start."""
    log = world.log()
    found = [batch(offset) for offset in range(0, written, 2)]
    found += [batch(distance + offset) for offset in (0, 2, 4)]
    take(log, *found)
    assert log.log_end_offset == distance + 6
    log = world.restart(clean=clean)
    if not written and not clean:
        log.update_high_watermark(log.log_end_offset)
    offsets = [record.offset for record in read_all(log)]
    wanted = [*range(written), *range(distance, distance + 6)]

    assert (offsets, log.log_end_offset) == (wanted, distance + 6)
    for position in (distance, distance + 3):
        data = log.read(position, 1 << 20, max_offset=distance + 6, min_one_message=True)
        behind = position - distance
        assert next(batches(data.records.read())).base_offset == distance + behind // 2 * 2
    take(log, batch(distance + 6))
    assert log.log_end_offset == distance + 8


def test_log_behind_a_gap_can_be_cut_on_either_side(world):
    """Behind the gap, in it, and before it."""
    log = world.log()
    base = 3 * FAR
    for cut, kept in ((base + 2, [0, base]), (base, [0]), (FAR, [0]), (1000, [0]), (0, [])):
        truncate_to(log, 0)
        take(log, batch(0), batch(base), batch(base + 2))
        truncate_to(log, cut)
        assert [each.offset for each in read_all(log)] == [
            offset + each for offset in kept for each in (0, 1)
        ]
        assert log.log_end_offset == cut
        take(log, batch(cut))
        assert read_all(log)[-1].offset == cut + 1


def test_batch_that_could_not_be_written_behind_a_gap_leaves_the_way_free_for_another(world):
    """Its segment was begun; then another leader has records in the gap."""
    log = world.log()
    take(log, batch(0))
    world.disk.fail("pwrite", "*.log", error=errno.ENOSPC)
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        take(log, batch(3 * FAR))
    assert log.log_end_offset == 2

    take(log, batch(2), batch(4))
    assert [name for name in world.names() if name.startswith(f"{3 * FAR:020d}")] == []
    assert max(log.producer_state_manager.snapshot_offsets, default=0) <= log.log_end_offset
    take(log, batch(3 * FAR))
    wanted = [*range(6), 3 * FAR, 3 * FAR + 1]
    assert [each.offset for each in read_all(log)] == wanted
    log = world.restart()
    assert [each.offset for each in read_all(log)] == wanted


def test_last_offset_of_all_is_never_given_away(world):
    """Behind it no other could be counted: neither a leader's batch nor a client's is taken."""
    log = world.log()
    truncate_fully_and_start_at(log, EDGE - 5)
    take(log, batch(EDGE - 5))
    with pytest.raises(CorruptRecordError, match="no offset follows"):
        take(log, batch(EDGE - 1))
    world.append(b"w", b"x", b"y", epoch=9)
    with pytest.raises(KafkaError, match="no offset is left"):
        world.append(b"z", epoch=9)

    log = world.restart()
    assert [each.offset for each in read_all(log)] == list(range(EDGE - 5, EDGE))
    assert log.log_end_offset == EDGE


@pytest.mark.parametrize("latest", [2**31 - 2, 2**31 - 1])
def test_largest_leader_epochs_are_like_others(world, latest):
    """They are written, found again, and cut."""
    log = world.log()
    take(log, batch(0, latest - 1), batch(2, latest), epoch=latest)
    world.append(b"x", epoch=latest)
    assert log.leader_epoch_cache.entries == [(latest - 1, 0), (latest, 2)]
    log = world.restart()
    assert log.leader_epoch_cache.end_offset_for(latest - 1, 5) == (latest - 1, 2)
    truncate_to(log, 2)

    assert log.leader_epoch_cache.latest_epoch == latest - 1


def test_part_of_a_fetch_that_was_written_is_flushed_before_it_counts(world):
    """The second segment could not be begun; flush.messages holds for the first all the same."""
    world.configure(segment_bytes=2 * len(batch(0)), flush_messages=1)
    log = world.log()
    world.disk.fail("open", "*4.log", error=errno.ENOSPC)
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        take(log, batch(0), batch(2), batch(4))

    assert (log.log_end_offset, log.safe_end_offset) == (4, 0)
    world.runtime.scheduler.run_ready()
    assert log.safe_end_offset == 4


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_run_is_not_written_where_an_index_cannot_be_read(eventful, suffix):
    """Once it is written, indexing it must need no disk."""
    log = eventful.restart(clean=True)
    end, size = log.log_end_offset, log.segments.active.file.size()
    log.segments.active.release_indexes()
    eventful.disk.fail("read_bytes", f"*{suffix}", error=errno.EMFILE)
    with pytest.raises(KafkaError):
        take(log, batch(end, 50), epoch=99)
    assert (log.log_end_offset, log.segments.active.file.size()) == (end, size)

    assert take(log, batch(end, 50), epoch=99) > 0


@pytest.mark.parametrize("ask", ["roll", "time", "end", "start"])
@pytest.mark.parametrize("is_deleted", [False, True])
def test_log_that_is_not_there_answers_nothing(world, ask, is_deleted):
    """A log that is not there answers nothing, and no file is made of it."""
    log = world.log()
    take(log, batch(0))
    if is_deleted:
        log.is_deleted = True
    else:
        log.log_dir.fail(OSError("gone"))
    times = {"time": 1_000, "end": -1, "start": -2}
    with pytest.raises(KafkaError):
        log.roller.roll() if ask == "roll" else at_once(log.fetch_offset_by_timestamp(times[ask]))

    assert len(log.segments) == 1


@pytest.mark.parametrize("max_bytes", [1, BATCH_OVERHEAD, 2 * BATCH_OVERHEAD, 10_000])
def test_consumer_gets_past_batches_without_records(world, max_bytes):
    """Compaction of the leader has left them; where nothing follows yet the last one is read."""
    log = world.log()
    for base_offset in (0, 2, 4, 6):
        (full,) = batches(batch(base_offset))
        take(log, with_records(full, b"", 0, NO_TIMESTAMP, full.max_timestamp))
        if base_offset == 2:
            log.roller.roll()
    take(log, batch(8))

    def read(start: int, end: int, **kwargs: bool) -> list[int]:
        found = log.read(start, max_bytes, max_offset=end, min_one_message=True, **kwargs)
        return [each.base_offset for each in batches(found.records.read())]

    assert read(0, 10, skips_empty=True)[-1] == 8
    assert read(6, 10, skips_empty=True)[-1] == 8
    assert read(0, 8, skips_empty=True) == [6]
    assert read(0, 10)[0] == 0
