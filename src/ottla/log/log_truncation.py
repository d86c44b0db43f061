"""Cutting a log back, as a follower does where it diverges from its leader, or emptying it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.log.recovery import restore_producers
from ottla.log.segments import Segments
from ottla.runtime.scheduler import Work, at_once

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.log.producer_state_manager import ProducerStateManager


logger = logging.getLogger(__name__)


def drops(log: Log, offset: int) -> bool:
    """Whether a cut at an offset removes anything from the files.

    That may be records which were deleted: batches of theirs stay before the log's start, and would
    stand in the files before others of an older epoch once the log holds no records.
    """
    is_emptied = offset <= log.log_start_offset and log.size_in_bytes > 0
    return offset < log.log_end_offset or is_emptied


def producers_before(log: Log, offset: int) -> Work[ProducerStateManager | None]:
    """The producers as a cut at an offset leaves them, read in slices; the log stays as it is.

    None if the log has changed in a pause: then the cut reads them without one.
    """
    log.check_available()
    before = log.segments, log.dir, log.log_end_offset
    producers = log.producer_state_manager.with_same_snapshots()
    try:
        yield from restore_producers(producers, log.segments, offset)
    except OSError as error:
        if log.is_available and before == (log.segments, log.dir, log.log_end_offset):
            raise log.log_dir.refused(error, f"truncation of {log.topic_partition}") from error
    is_same = before == (log.segments, log.dir, log.log_end_offset)
    return producers if is_same else None


def truncate_to(log: Log, offset: int, producers: ProducerStateManager | None = None) -> None:
    """Drop everything from an offset on; a batch that holds it goes as a whole.

    `producers` are what `producers_before` has found, with nothing changed since.
    """
    log.check_available()
    if not drops(log, offset):
        # An epoch without records is dropped all the same: its leader may be of the past.
        log.leader_epoch_cache.truncate_from_end(offset)
        return
    logger.info("%s: truncating to offset %d", log.topic_partition, offset)
    with _all_or_offline(log):
        log.producer_state_manager.delete_snapshots(lambda snapshot: snapshot > offset)
        if producers is None:
            at_once(restore_producers(log.producer_state_manager, log.segments, offset))
        else:
            log.producer_state_manager.take_over(producers)
        if offset <= log.log_start_offset:
            _drop_behind_first(log)
            if log.producer_state_manager.producers:
                log.take_snapshot(offset)  # of those whose batches go
            _replace_first(log, offset)
        else:
            _, gone = log.segments.split(lambda segment: segment.base_offset <= offset)
            if gone:
                log.remove_segments(gone[::-1])  # the last one first: a crash must leave no hole
                log.sync_directory()
            log.segments.active.truncate_to(offset)
        log.log_end_offset = offset
        log.log_start_offset = min(log.log_start_offset, offset)
        log.cleaned_offset = min(log.cleaned_offset, offset)
        log.update_high_watermark(log.high_watermark)
        log.flusher.truncate(offset)
        log.leader_epoch_cache.truncate_from_end(offset)


def truncate_fully_and_start_at(log: Log, offset: int) -> None:
    """Leave only an empty segment at an offset: the leader no longer has anything older."""
    log.check_available()
    logger.info("%s: dropping all to start at offset %d", log.topic_partition, offset)
    with _all_or_offline(log):
        _drop_behind_first(log)
        _replace_first(log, offset)
        log.log_start_offset = log.log_end_offset = log.cleaned_offset = offset
        log.update_high_watermark(offset)
        log.flusher.truncate(offset)
        log.leader_epoch_cache.clear()
        log.producer_state_manager.delete_snapshots(lambda _: True)
        log.producer_state_manager.clear(offset)


@contextmanager
def _all_or_offline(log: Log) -> Iterator[None]:
    """Take the log directory offline after any error: no state of the log can be trusted then."""
    try:
        yield
    except Exception as error:
        log.log_dir.fail(error)
        raise log.log_dir.offline_error() from error


def _drop_behind_first(log: Log) -> None:
    gone = log.segments.items[:0:-1]  # the last one first: a crash must leave no hole
    if gone:
        log.remove_segments(gone)
        log.sync_directory()  # what a power loss brings back must not follow an empty segment


def _replace_first(log: Log, offset: int) -> None:
    """Empty the only segment, and have it begin at an offset.

    Its file is renamed: whenever the broker ends, there is one segment, and none inside another.
    """
    first = log.segments.first
    first.truncate_bytes(0)
    if first.base_offset == offset:
        first.reset()
        first.txn_index.reset()
    else:
        first.file.fsync()
        segment = log.roller.segment_at(offset)
        log.log_dir.disk.rename(first.path, segment.path)
        segment.create()
        log.segments = Segments([first, segment])
        log.remove_segments([first])
    log.sync_directory()
