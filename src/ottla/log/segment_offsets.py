"""The offsets where segments begin, by time: what ListOffsets v0 asks for.

Before logs had timestamps (KIP-33) a segment was the smallest thing that a time could be told of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.log.log import Log

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2


def segment_offsets_before(log: Log, timestamp_ms: int, max_count: int, now_ms: int) -> list[int]:
    """Where the segments last written to at a time or before begin, newest first, and no more.

    -1 asks for all of them and the log's end, -2 for its start. A segment's time is that of its
    newest record. Nothing above the high watermark is given away.
    """
    starts = [
        (max(segment.base_offset, log.log_start_offset), segment.largest_timestamp_ms())
        for segment in log.segments
    ]
    if log.segments.active.size:
        starts.append((log.log_end_offset, now_ms))
    if timestamp_ms == EARLIEST_TIMESTAMP:
        wanted = starts[:1]
    elif timestamp_ms == LATEST_TIMESTAMP:
        wanted = starts
    else:
        count = max((n for n, (_, time) in enumerate(starts, 1) if time <= timestamp_ms), default=0)
        wanted = starts[:count]
    newest_first = [offset for offset, _ in reversed(wanted)][: max(0, max_count)]
    visible = [offset for offset in newest_first if offset <= log.high_watermark]
    if len(visible) < len(newest_first):
        visible.insert(0, log.high_watermark)
    return visible
