"""Compaction of what an older Kafka has written: messages of magic 0 and 1."""

from __future__ import annotations

import pytest
from cleaner_world import CleanerWorld
from log_world import NOW_MS

from ottla.record.compression import CompressionType
from ottla.record.conversion import build_message_set
from ottla.record.record import Record
from ottla.runtime.scheduler import at_once


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_are_compacted(compacted: CleanerWorld, magic, codec):
    """What stays of them is kept in batches of today, at its offsets, in its codec."""
    records = [
        Record(offset, NOW_MS + offset, b"%d" % (offset % 3), b"%d" % offset, ())
        for offset in range(30)
    ]
    sets = [build_message_set(records[n : n + 10], magic, codec) for n in (0, 10, 20)]
    path = compacted.active_path()
    compacted.stop()
    compacted.overwrite(path, b"".join(sets))
    compacted.start()
    compacted.put((b"2", b"new"))
    compacted.roll_and_clean()

    assert compacted.pairs() == [(27, b"0", b"27"), (28, b"1", b"28"), (30, b"2", b"new")]
    assert {batch.magic for batch in compacted.batches()} == {2}
    assert compacted.batches()[0].compression is codec
    found = at_once(compacted.log().fetch_offset_by_timestamp(NOW_MS + 28 if magic else NOW_MS))
    assert found is not None
    assert found[1] == (28 if magic else 30)
