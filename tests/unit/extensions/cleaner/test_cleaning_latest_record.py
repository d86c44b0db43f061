"""ListOffsets for the largest timestamp (-3) after compaction."""

from __future__ import annotations

from cleaner_world import CleanerWorld
from log_world import NOW_MS

from ottla.runtime.scheduler import at_once


def test_emptied_batch_does_not_have_the_latest_record():
    """It stays for its producer, with the timestamp that it had."""
    compacted = CleanerWorld()
    compacted.put((b"a", b"1", NOW_MS + 5000), producer_id=1, producer_epoch=0, base_sequence=0)
    compacted.put((b"b", b"2", NOW_MS + 10))
    compacted.put((b"c", b"3", NOW_MS + 10))
    compacted.put((b"a", b"4", NOW_MS))
    compacted.roll_and_clean()
    log = compacted.log()
    assert [key for _, key, _ in compacted.pairs()] == [b"b", b"c", b"a"]
    assert log.segments.first.max_timestamp_ms == NOW_MS + 5000

    assert at_once(log.fetch_offset_by_timestamp(-3)) == (NOW_MS + 10, 1, 0)
    log.maybe_increment_log_start_offset(3)
    assert at_once(log.fetch_offset_by_timestamp(-3)) == (NOW_MS, 3, 0)
