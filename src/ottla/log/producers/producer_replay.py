"""Reading the producer state of a log out of its last snapshot and the batches behind it."""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

from ottla.log.file_batches import read_batch, read_headers
from ottla.log.log_segment import LogSegment
from ottla.log.producers.producer_state import RETAINED_BATCHES, BatchMetadata
from ottla.log.producers.producer_state_manager import ProducerStateManager
from ottla.log.segments import Segments
from ottla.record.record_batch import CorruptRecordError

logger = logging.getLogger(__name__)

# Each index entry stands for at least one batch and for index.interval.bytes of log.
WINDOW_INDEX_ENTRIES: Final = 128


def restore_producers(manager: ProducerStateManager, segments: Segments, end_offset: int) -> None:
    """Make the state that of all batches before `end_offset`."""
    manager.load_snapshot(segments.first.base_offset, end_offset)
    _remember_older_batches(manager, segments)
    for segment in segments.since(manager.end_offset):
        if segment.base_offset >= end_offset:
            break
        try:
            _replay_segment(manager, segment, end_offset)
        except CorruptRecordError as error:
            logger.warning("Producers of %s are not known: %s", segment.path, error.message)
    manager.end_offset = end_offset


def _replay_segment(manager: ProducerStateManager, segment: LogSegment, end_offset: int) -> None:
    for position, batch in segment.headers_from(manager.end_offset):
        if batch.base_offset >= end_offset:
            break
        if batch.base_offset >= manager.end_offset:
            whole = read_batch(segment.file, position, batch) if batch.is_control else batch
            manager.replay(whole)


def _remember_older_batches(manager: ProducerStateManager, segments: Segments) -> None:
    """Add what a snapshot leaves out: the batches of each producer before its last one.

    A producer that lost its connection when the broker stopped sends again all that it had in
    flight, the oldest first, and that one must be recognised as well. Only the last stretch of the
    log is searched, so that a start stays quick.
    """
    if not manager.producers:
        return
    found: dict[int, deque[BatchMetadata]] = {}
    for segment, start, end in _last_stretch(segments, manager.end_offset):
        try:
            for _, batch in read_headers(segment.file, start, end):
                state = manager.producers.get(batch.producer_id)
                if (
                    state is None
                    or batch.is_control
                    or batch.producer_epoch != state.producer_epoch
                ):
                    continue
                known = found.setdefault(batch.producer_id, deque(maxlen=RETAINED_BATCHES))
                known.append(BatchMetadata.of(batch, batch.base_offset, batch.max_timestamp))
        except CorruptRecordError as error:
            logger.warning("Some producers of %s are not known: %s", segment.path, error.message)
    for producer_id, batches in found.items():
        state = manager.producers[producer_id]
        if state.batches and batches and batches[-1].last_offset == state.batches[-1].last_offset:
            state.batches = batches


def _last_stretch(segments: Segments, offset: int) -> list[tuple[LogSegment, int, int]]:
    """The segments that the last index entries before `offset` are of, and from where to where."""
    stretch: list[tuple[LogSegment, int, int]] = []
    left = WINDOW_INDEX_ENTRIES
    for segment in reversed(segments.items[: segments.index_of(offset - 1) + 1]):
        if left <= 0:
            break
        end = segment.size
        if offset <= segment.base_offset:
            end = 0
        elif not stretch:
            position = segment.position_of(offset)
            end = segment.size if position is None else position
        stretch.append((segment, segment.offset_index.lookup_before(end, left).position, end))
        left -= len(segment.offset_index) + 1
    return stretch[::-1]
