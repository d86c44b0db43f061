"""Rounds of compaction: how far they go, what they tell, and what ends them half-way."""

from __future__ import annotations

import errno
import logging

import pytest
from cleaner_world import CleanerWorld
from log_world import values

from ottla.extensions.cleaner.cleaning import Cleaning, plan_of
from ottla.extensions.cleaner.log_to_clean import LogToClean
from ottla.log.log_retention import delete_old_segments
from ottla.structs import NO_TIMESTAMP, TopicPartition

PARTITION = TopicPartition("topic", 0)
TRANSACTION = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}


def test_round_is_summed_up_in_the_log(caplog):
    """Bytes before and after, and how many records are left; keyless ones are counted aloud."""
    caplog.set_level(logging.INFO)
    compacted = CleanerWorld()
    compacted.configure(cleanup_policy="delete")
    for number in range(4):
        compacted.put((b"k%d" % (number % 2), b"%d" % number), (None, b"keyless"))
    compacted.configure(cleanup_policy="compact")
    compacted.roll()
    size = compacted.log().size_in_bytes
    compacted.clean()
    after = compacted.log().size_in_bytes

    assert 0 < after < size
    assert f"up to offset 8: {size} bytes became {after} in 0 ms, 2 records are left" in caplog.text
    assert "4 records without a key were removed" in caplog.text


def test_segment_whose_end_was_compacted_is_clean_up_to_the_next_one(compacted):
    """Offsets without a record hold nothing dirty."""
    compacted.put((b"a", b"x" * 110))
    compacted.put((b"k", b"x" * 110))
    compacted.roll()
    compacted.put((b"k", b"x" * 110))
    compacted.put((b"b", b"x" * 110))
    compacted.roll_and_clean()
    log = compacted.log()
    assert [batch.base_offset for batch in compacted.batches()] == [0, 2, 3]
    assert log.segments.base_offsets == (0, 2, 4)
    log.cleaned_offset, log.high_watermark = 0, 2
    compacted.clean()

    assert log.cleaned_offset == 2


def test_tombstone_that_has_met_a_second_round_goes_in_its_time(compacted):
    """Its horizon is known to the cleaner after each round, without a new record."""
    compacted.put((b"a", None))
    compacted.put((b"b", b"1"))
    compacted.roll_and_clean()
    compacted.put((b"b", b"2"))
    compacted.roll_and_clean()
    compacted.runtime.advance(6000)
    compacted.clean()

    assert compacted.pairs() == [(2, b"b", b"2")]


def test_end_of_a_producer_without_data_is_its_last_marker(compacted):
    """Its epoch is read from there; markers of earlier epochs may go."""
    compacted.put((b"a", b"1"), base_sequence=0, **TRANSACTION)
    compacted.end_transaction(7, commit=False)
    compacted.put((b"a", b"2"), base_sequence=1, **TRANSACTION)
    compacted.end_transaction(7, commit=False, epoch=1)
    assert not compacted.log().producer_state_manager.producers[7].batches
    for number in range(3):
        compacted.put((b"b", b"%d" % number))
        compacted.roll_and_clean()
        compacted.runtime.advance(6000)
    compacted.clean()

    assert [(b.base_offset, b.record_count) for b in compacted.batches()] == [(3, 0), (6, 1)]
    compacted.restart()
    assert compacted.log().producer_state_manager.producers[7].producer_epoch == 1


def test_snapshots_inside_of_a_segment_that_was_put_together_go(compacted):
    """No segment begins where they were taken."""
    for number in range(30):
        header = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number}
        compacted.put((b"k%d" % (number % 2), b"%d" % number), **header)
    compacted.roll_and_clean()
    log = compacted.log()
    before = log.producer_state_manager.snapshot_offsets
    compacted.put((b"k0", b"new"))
    compacted.roll_and_clean()
    after = log.producer_state_manager.snapshot_offsets

    assert len(before) > 4
    assert set(after) <= {*log.segments.base_offsets, log.log_end_offset}
    assert {int(name[:20]) for name in compacted.names() if name.endswith(".snapshot")} == {*after}


def test_many_small_batches_are_cleaned_in_steps(compacted):
    """The loop runs in between, although the bytes alone would be few."""
    compacted.configure(segment_bytes=1_000_000)
    for number in range(600):
        compacted.put((b"%d" % number, b"v"))
    compacted.roll()
    log = compacted.log()
    to_clean = LogToClean(log, log.segments.items[:1], 0, 0, 1, 0, True)
    cleaning = Cleaning(plan_of(to_clean, compacted.cleaner._config, compacted.runtime))
    steps = cleaning.steps()
    sizes = [step for step in steps if isinstance(step, int)]
    steps.close()

    assert len(sizes) >= 4
    assert sum(sizes) == 3 * log.segments.first.size


# -- what ends a round


def closed_segments(compacted: CleanerWorld) -> None:
    for number in range(30):
        compacted.put((b"k%d" % (number % 20), b"v%d" % number))
    compacted.roll()
    assert len(compacted.log().segments) > 4


@pytest.mark.parametrize("which", [1, 2, 3])
def test_log_that_changes_around_a_swap_keeps_what_it_has_by_then(compacted, which):
    """Whether the cleaned segment has only been written, or renamed as well."""
    closed_segments(compacted)
    log = compacted.log()
    log.maybe_increment_log_start_offset(log.segments.base_offsets[1])
    left: list[int] = []

    def delete(name: str, path: str) -> None:
        if name == "fsync_dir" and path == log.dir:
            left.append(which)
            if left.count(which) == which + 1:  # the first is that of the flush before the round
                compacted.disk.on_call = None
                assert delete_old_segments(log, compacted.runtime.clock.now_ms()) == 1

    compacted.disk.on_call = delete
    compacted.clean()

    assert compacted.disk.on_call is None
    assert compacted.leftovers() == []
    assert not compacted.manager.dirs[0].is_offline
    assert compacted.cleaner.uncleanable == {}
    assert log.segments.first.base_offset > 0
    compacted.clean()
    assert values(compacted.records()) == [b"v%d" % number for number in range(10, 30)]
    compacted.runtime.advance(2000)
    assert set(compacted.disk.open_files) <= {segment.path for segment in log.segments}


def test_log_that_is_deleted_before_a_swap_does_not_harm_its_directory(compacted):
    """Nothing of it is renamed any more."""
    closed_segments(compacted)
    directory = compacted.log().dir

    def delete(name: str, path: str) -> None:
        if name == "open" and path.endswith(".cleaned"):
            compacted.disk.on_call = None
            compacted.runtime.scheduler.call_soon(lambda: compacted.manager.delete_log(PARTITION))

    compacted.disk.on_call = delete
    compacted.clean()

    assert compacted.disk.on_call is None
    assert not compacted.manager.dirs[0].is_offline
    assert compacted.manager.get_log(PARTITION) is None
    assert not compacted.disk.exists(directory)


@pytest.mark.parametrize("suffix", [".cleaned", ".log", ".swap"])
def test_renames_that_fail_half_way_take_the_directory_offline(compacted, suffix):
    """Even where the error might pass: only a start can mend the log."""
    closed_segments(compacted)
    compacted.disk.fail("rename", f"*{suffix}", error=errno.EMFILE, skip=1)
    compacted.clean()

    assert compacted.manager.dirs[0].is_offline
    compacted.disk.faults.clear()
    log = compacted.restart()
    last = {record.key: record.value for record in compacted.records()}
    assert last == {b"k%d" % (n % 20): b"v%d" % n for n in range(30)}
    assert log.log_end_offset == 30


def test_round_that_fails_leaves_no_file_open(compacted):
    """Neither of what it read nor of what it wrote."""
    closed_segments(compacted)
    compacted.disk.fail("pwrite", "*.cleaned", error=errno.ENOSPC)
    before = sorted(compacted.disk.open_files)
    compacted.clean()

    assert sorted(compacted.disk.open_files) == before
    assert compacted.leftovers() == []
    assert all(batch.max_timestamp > NO_TIMESTAMP for batch in compacted.batches())
