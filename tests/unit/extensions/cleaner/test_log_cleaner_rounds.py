"""When rounds of compaction begin, how many at a time, and what is remembered of them."""

from __future__ import annotations

import errno

import pytest
from cleaner_world import CleanerWorld
from log_world import new_batch

from ottla.extensions.cleaner.log_cleaner import LastRound, LogCleaner
from ottla.log.log_truncation import truncate_to
from ottla.structs import TopicPartition

SLOW = {"log.cleaner.io.max.bytes.per.second": "100"}


def fill(compacted: CleanerWorld, *partitions: int) -> None:
    """Make some partitions dirty."""
    for partition in partitions:
        log = compacted.log(partition)
        for value in (b"1", b"2", b"3"):
            data = memoryview(bytearray(new_batch(value)))
            log.append_as_leader(data, 0, now_ms=compacted.runtime.clock.now_ms())
        log.update_high_watermark(log.log_end_offset)
        log.roller.roll()
    compacted.runtime.scheduler.run_ready()


def cleaned(compacted: CleanerWorld, *partitions: int) -> list[bool]:
    return [compacted.log(partition).cleaned_offset > 0 for partition in partitions]


def opened(compacted: CleanerWorld) -> list[str]:
    """The logs whose files are copied from now on, each time that a round begins."""
    found: list[str] = []

    def watch(name: str, path: str) -> None:
        if name == "open" and path.endswith("00.log.cleaned"):
            found.append(path.split("/")[2])

    compacted.disk.on_call = watch
    return found


def test_cleaner_that_has_done_nothing_says_so(compacted):
    """Its measures begin at nothing, and the time of its last look at now."""
    compacted.runtime.advance(5000)
    cleaner = LogCleaner(compacted.manager)

    assert (cleaner.last_round, cleaner.max_dirty_ratio) == (LastRound(0, 0.0, 0), 0.0)
    assert cleaner.looked_ms == compacted.runtime.clock.monotonic_ms()


def test_round_is_measured():
    """How long it took, how much was copied, how late it was; and how dirty the dirtiest log is."""
    compacted = CleanerWorld(**SLOW)
    compacted.configure(max_compaction_lag_ms=60_000)
    compacted.runtime.advance(5000)
    fill(compacted, 0)
    compacted.runtime.advance(61_000)
    size = compacted.log().size_in_bytes
    began_ms = compacted.runtime.clock.monotonic_ms()
    compacted.clean()
    assert compacted.cleaner.max_dirty_ratio == 1.0
    compacted.runtime.advance(200_000)
    took_ms, recopied, delay_ms = compacted.cleaner.last_round

    assert cleaned(compacted, 0) == [True]
    assert took_ms >= 1000 * 2 * size // 100
    assert took_ms <= compacted.runtime.clock.monotonic_ms() - began_ms
    assert recopied == pytest.approx(compacted.log().size_in_bytes / size)
    assert delay_ms == 6000
    compacted.clean()
    assert compacted.cleaner.max_dirty_ratio == 0.0


@pytest.mark.parametrize("threads", [1, 2])
def test_as_many_logs_are_cleaned_at_a_time_as_there_are_threads(threads):
    """The others come after them, each once."""
    compacted = CleanerWorld(**SLOW, **{"log.cleaner.threads": str(threads)})
    fill(compacted, 0, 1, 2)
    begun = opened(compacted)
    compacted.clean()
    compacted.clean()
    compacted.runtime.advance(3_000)
    first = len(begun)
    compacted.runtime.advance(100_000)

    assert first == threads
    assert sorted(begun) == ["topic-0", "topic-1", "topic-2"]
    assert cleaned(compacted, 0, 1, 2) == [True] * 3


def test_log_is_cleaned_by_one_thread():
    """The others look for other logs."""
    compacted = CleanerWorld(**SLOW, **{"log.cleaner.threads": "3"})
    fill(compacted, 0)
    begun = opened(compacted)
    compacted.clean()
    compacted.runtime.advance(100_000)

    assert begun == ["topic-0"]


def test_cleaner_that_has_ended_begins_nothing():
    """Neither when it is asked nor by its timer."""
    compacted = CleanerWorld(**{"log.cleaner.backoff.ms": "100000"})
    fill(compacted, 0)
    compacted.runtime.advance(1000)
    compacted.stop_cleaning()
    looked_ms = compacted.cleaner.looked_ms
    compacted.runtime.advance(300_000)
    assert compacted.cleaner.looked_ms == looked_ms
    calls: list[str] = []
    compacted.disk.on_call = lambda name, path: calls.append(name)
    compacted.clean()

    assert (cleaned(compacted, 0), calls) == ([False], [])


def test_looks_keep_their_rhythm_unless_it_is_changed(compacted):
    """A change of anything else begins no new interval, and a longer one ends the shorter."""
    compacted = CleanerWorld(**{"log.cleaner.backoff.ms": "1000"})
    compacted.runtime.advance(600)
    config = compacted.cleaner._config
    compacted.cleaner.update_config(config.replace(log_cleaner_threads="2"))
    looked_ms = compacted.runtime.clock.monotonic_ms()
    compacted.runtime.advance(500)
    assert compacted.cleaner.looked_ms == looked_ms + 400
    compacted.cleaner.update_config(config.replace(log_cleaner_backoff_ms="10000"))
    compacted.runtime.advance(9_000)

    assert compacted.cleaner.looked_ms == looked_ms + 400


def test_rhythm_may_change_before_the_logs_are_loaded(compacted):
    """There is no timer yet."""
    cleaner = LogCleaner(compacted.manager)
    before_ms = cleaner.looked_ms
    cleaner.update_config(cleaner._config.replace(log_cleaner_backoff_ms="10"))
    compacted.runtime.advance(100)

    assert cleaner.looked_ms == before_ms


def damage(compacted: CleanerWorld) -> bytes:
    """Flip a bit in the first batch; returns the right byte."""
    segment = compacted.log().segments.first
    whole = segment.file.pread(1, 65)
    segment.file.pwrite(bytes([whole[0] ^ 1]), 65)
    return whole


def test_log_that_is_gone_is_no_longer_called_uncleanable(compacted):
    """A new one of the same name begins without its faults."""
    fill(compacted, 0)
    damage(compacted)
    compacted.clean()
    assert len(compacted.cleaner.uncleanable) == 1
    compacted.manager.delete_log(TopicPartition("topic", 0))
    compacted.clean()

    assert compacted.cleaner.uncleanable == {}


def test_round_that_goes_well_makes_the_next_fault_the_first(compacted, caplog):
    """It is passed over for a minute again, not for two."""
    for _ in range(2):
        fill(compacted, 0)
        whole = damage(compacted)
        compacted.clean()
        compacted.log().segments.first.file.pwrite(whole, 65)
        compacted.runtime.advance(60_000)
        compacted.clean()
        assert compacted.cleaner.uncleanable == {}

    assert caplog.text.count("passed over for 60 s") == 2


def test_log_that_is_cut_while_it_is_read_is_not_called_uncleanable(compacted, caplog):
    """What is wrong with the bytes is that they are no longer there."""
    fill(compacted, 0, 1)
    log = compacted.log()

    def cut(name: str, path: str) -> None:
        if name == "open" and path == log.segments.first.path:
            compacted.disk.on_call = None
            truncate_to(log, 1)

    compacted.disk.on_call = cut
    compacted.clean()

    assert compacted.disk.on_call is None
    assert compacted.cleaner.uncleanable == {}
    assert "cannot be compacted" not in caplog.text


def test_sync_that_fails_takes_the_directory_offline(compacted):
    """What is on the disk is not known any more."""
    fill(compacted, 0)
    compacted.disk.fail("fsync_dir", "*/topic-0", error=errno.ENOSPC)
    compacted.clean()

    assert compacted.log().log_dir.is_offline


def test_round_that_ends_where_it_should_is_not_called_too_small(caplog):
    """Only a map without room for the keys is."""
    caplog.set_level("INFO")
    compacted = CleanerWorld()
    fill(compacted, 0)
    compacted.clean()

    assert "Compacted topic-0" in caplog.text
    assert "did not fit" not in caplog.text
