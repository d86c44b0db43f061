"""Batches that a leader has sent, and what a follower's log makes of them."""

from __future__ import annotations

import pytest

from ottla.errors import KafkaError
from ottla.log.log import UnexpectedAppendOffsetError, append_as_follower
from ottla.log.log_retention import truncate_fully_and_start_at, truncate_to
from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType
from ottla.record.conversion import build_message_set
from ottla.record.record import Record
from ottla.record.record_batch import CorruptRecordError, assign_offset, batches
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
