"""Cleaned segments that take the place of others, one after the other."""

from __future__ import annotations


def test_each_segment_is_swapped_in_before_the_next_is_copied(compacted, monkeypatch):
    """The disk needs room for one more segment, not for a copy of the log."""
    for number in range(30):
        compacted.put((b"%d" % number, b"v" * 20))
    compacted.roll()
    waiting = []
    rename = type(compacted.disk).rename

    def watched(disk, source: str, target: str) -> None:
        waiting.append(len([name for name in compacted.leftovers() if ".log." in name]))
        rename(disk, source, target)

    monkeypatch.setattr(type(compacted.disk), "rename", watched)
    count = len(compacted.log().segments)
    compacted.clean()

    assert count > 5
    assert len(waiting) > 6 * (count - 1)
    assert max(waiting) == 1
