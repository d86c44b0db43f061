"""Loading a log from its directory, and mending it after a crash.

After a clean stop everything is on disk, and only the quick checks are made: the ends of
the indexes against the batches that they point at, and the end of the newest segment. Otherwise

    1. leftovers are put away: deleted and half-cleaned files, swaps that were not finished,
    2. from the segment of the recovery point on every batch is read and its CRC checked,
    3. at the first batch that is not whole the segment is cut off, and those behind it are dropped,
    4. indexes, leader epochs and producer state are rebuilt from the batches,
    5. all of that is forced to disk, as the log counts as flushed then (`sync_recovered`).

A gap between two segments is where records are lost, and is cut as well, unless compaction may
have left it (`_bridges_gap`).

Segments before the recovery point were flushed and are never cut: a bit that has flipped in them
spoils one batch for its readers, and no other.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import Final

from ottla.config.topic_config import TopicConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.log.file_batches import read_batch, read_batches, read_headers
from ottla.log.index_checks import check_indexes
from ottla.log.index_file import CorruptIndexError
from ottla.log.leader_epoch_cache import LeaderEpochCache
from ottla.log.log_dir import LogDir
from ottla.log.log_files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    parse_segment_name,
    segment_path,
)
from ottla.log.log_segment import LogSegment
from ottla.log.offset_checkpoint import CorruptCheckpointError
from ottla.log.offset_index import MAX_OFFSET, MAX_RELATIVE_OFFSET
from ottla.log.producer_state_entry import RETAINED_BATCHES, BatchMetadata
from ottla.log.producer_state_manager import ProducerStateManager
from ottla.log.segment_files import sync_files
from ottla.log.segments import Segments
from ottla.log.time_search import HEADERS_IN_A_SLICE
from ottla.record.record_batch import CorruptRecordError, RecordBatch
from ottla.runtime import Disk
from ottla.runtime.scheduler import Work, at_once
from ottla.structs import NO_EPOCH, TopicPartition, Value, field

logger = logging.getLogger(__name__)


WIDEST_LOSS: Final = MAX_RELATIVE_OFFSET // 2
"""No segment holds so many records that its loss could leave a wider gap: a leader's compaction has
left it, and a follower has begun a segment behind it, because its own could not reach so far."""


WINDOW_INDEX_ENTRIES: Final = 128
"""Each index entry stands for at least one batch and for index.interval.bytes of log."""


def restore_producers(
    manager: ProducerStateManager, segments: Segments, end_offset: int
) -> Work[None]:
    """Bring the state to that of all batches before `end_offset`, without one that holds it.

    A segment may have a million of them: the work pauses where it has read many headers.
    """
    manager.load_snapshot(segments.first.base_offset, end_offset)
    _remember_older_batches(manager, segments)
    for segment in segments.since(manager.end_offset):
        if segment.base_offset >= end_offset:
            break
        try:
            yield from _replay_segment(manager, segment, end_offset)
        except CorruptRecordError as error:
            logger.warning("Producers of %s are not known: %s", segment.path, error.message)
    manager.end_offset = end_offset


def _replay_segment(
    manager: ProducerStateManager, segment: LogSegment, end_offset: int
) -> Work[None]:
    for number, (position, batch) in enumerate(segment.headers_from(manager.end_offset), 1):
        if batch.last_offset >= end_offset:
            break
        if batch.base_offset >= manager.end_offset:
            whole = read_batch(segment.file, position, batch) if batch.is_control else batch
            manager.replay(whole)
        if not number % HEADERS_IN_A_SLICE:
            yield


def _remember_older_batches(manager: ProducerStateManager, segments: Segments) -> None:
    """Add the part that a snapshot leaves out: the batches of each producer before its last one.

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
            state.batches = tuple(batches)


def _last_stretch(segments: Segments, offset: int) -> list[tuple[LogSegment, int, int]]:
    """The segments of the last index entries before `offset`, each with a start and an end."""
    stretch: list[tuple[LogSegment, int, int]] = []
    left = WINDOW_INDEX_ENTRIES
    for segment in reversed(segments.items[: segments.index_of(offset - 1) + 1]):
        if left <= 0:
            break
        end = segment.size if stretch else _end_before(segment, offset)
        stretch.append((segment, segment.offset_index.lookup_before(end, left).position, end))
        left -= len(segment.offset_index) + 1
    return stretch[::-1]


def _end_before(segment: LogSegment, offset: int) -> int:
    """Where the batches before an offset end; damage on the way is met again when they are read."""
    try:
        position = segment.position_of(offset)
    except CorruptRecordError:
        position = None
    return segment.size if position is None else position


class LogSource(Value):
    """Where a log is and its entries in the checkpoints of its log directory.

    `recovery_point` is None where the directory's checkpoint of them is missing or damaged.
    `bytes_to_scan`, `scanned_bytes` and `is_loaded` show how far loading is.
    """

    disk: Disk
    directory: str
    topic_partition: TopicPartition
    config: TopicConfig
    now_ms: int
    producer_id_expiration_ms: int
    is_clean: bool = False
    recovery_point: int | None = 0
    log_start_offset: int = 0
    cleaned_offset: int = 0
    bytes_to_scan: int = 0
    scanned_bytes: int = 0
    is_loaded: bool = False


class LoadedLog(Value):
    """The parts of a loaded log; `repairs` names each mended fault.

    It counts as flushed up to its end once `sync_recovered` has forced its `unsynced` segments to
    disk; `is_recovered` after a scan, which may have dropped others.
    """

    source: LogSource
    segments: Segments
    producer_state_manager: ProducerStateManager
    leader_epoch_cache: LeaderEpochCache
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    repairs: list[str] = field(default_factory=list)
    has_new_names: bool = True
    is_recovered: bool = False
    unsynced: list[LogSegment] = field(default_factory=list)

    @property
    def waits_for_disk(self) -> bool:
        """Whether `sync_recovered` has something to force to disk."""
        is_changed = self.is_recovered or self.leader_epoch_cache.is_dirty
        return bool(self.unsynced) or bool(self.log_end_offset and is_changed)


def load_log(source: LogSource) -> LoadedLog:
    """Load the log of a directory, which is made if it does not exist.

    Nothing else is touched, so that this can run in the background.
    """
    return _LogLoader(source).load()


def sync_recovered(loaded: LoadedLog) -> None:
    """Force the results of a recovery to disk. This waits for the disk, and computes nothing.

    An empty log's names are synced by its first flush, and its epochs do not matter.
    """
    source, epochs = loaded.source, loaded.leader_epoch_cache
    for segment in loaded.unsynced:
        sync_files(source.disk, segment)
        if segment is not loaded.segments.active:
            segment.close()  # until it is read
    if epochs.is_dirty and loaded.log_end_offset:
        source.disk.replace(epochs.path, epochs.contents())
        epochs.is_dirty = False
    elif loaded.waits_for_disk:
        source.disk.fsync_dir(source.directory)
    source.is_loaded = True


class _LogLoader:
    def __init__(self, source: LogSource) -> None:
        self.source = source
        self.disk = source.disk
        self.directory = source.directory
        self.repairs: list[str] = []
        self.segments: list[LogSegment] = []
        self.is_recovered = False
        self.unsynced: list[LogSegment] = []
        self.has_new_names = not self.disk.is_dir(self.directory)
        self.end_offset: int  # of the batches checked so far, as `_expect` begins
        self.last_epoch: int
        self.epochs = LeaderEpochCache(self.disk, f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}")
        self.producers = ProducerStateManager(
            self.disk, source.topic_partition, self.directory, source.producer_id_expiration_ms
        )

    def load(self) -> LoadedLog:
        source = self.source
        self.disk.make_dirs(self.directory)
        names: list[str] = []
        if not self.has_new_names:  # most logs that are made come in thousands
            self._put_leftovers_away()
            names = self.disk.list_dir(self.directory)
        self.producers.find_snapshots(names)
        self._find_segments(names)
        has_epochs = self._load_epochs()
        self._open_segments()
        if not source.is_clean or not self._check_end():
            self._recover()
        start_offset = max(source.log_start_offset, self.segments[0].base_offset)
        if start_offset > self.end_offset:
            start_offset = self._mend_start(start_offset)
        segments = Segments(self.segments)
        segments.active.load_tail()
        if self.producers.end_offset != self.end_offset:
            at_once(restore_producers(self.producers, segments, self.end_offset))
        self._drop_stray_snapshots()
        self._mend_epochs(has_epochs, start_offset)
        for segment in self.segments[:-1]:
            segment.close()  # until it is read
        return LoadedLog(
            source,
            segments,
            self.producers,
            self.epochs,
            start_offset,
            self.end_offset,
            self.end_offset,
            self.repairs,
            self.has_new_names or not self.end_offset,
            self.is_recovered,
            self.unsynced,
        )

    def _mend_start(self, start_offset: int) -> int:
        """Where a log begins that ends before its start: its end or the checkpoint is wrong."""
        if not self.source.is_clean:
            self._start_over(start_offset)
            return start_offset
        self.repairs.append(
            f"left out the log start offset {start_offset}, which is behind the log's end"
        )
        return self.segments[0].base_offset

    def _put_leftovers_away(self) -> None:
        """Give the files the names that they would have if the last operation had ended."""
        names = self.disk.list_dir(self.directory)
        cleaned = [entry[0] for _, entry in self._ending(names, CLEANED_SUFFIX)]
        for name, (base_offset, _, _) in self._ending(names, SWAP_SUFFIX):
            # The cleaner had not renamed all of its files: the files that it replaces are still
            # whole.
            if base_offset in cleaned:
                self._remove(name)
        for suffix in (DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX):
            for name in names:
                if name.endswith(suffix):
                    self._remove(name)
        self._finish_swaps(self.disk.list_dir(self.directory))
        names = self.disk.list_dir(self.directory)
        parsed = [(name, entry) for name in names if (entry := parse_segment_name(name))]
        logs = {entry[0] for _, entry in parsed if entry[1:] == (LOG_SUFFIX, "")}
        for name, (base_offset, suffix, _) in parsed:
            if suffix in SEGMENT_SUFFIXES and base_offset not in logs:
                self._remove(name)

    def _finish_swaps(self, names: list[str]) -> None:
        """A `.swap` segment takes the place of all segments in its range of offsets."""
        swaps = self._ending(names, SWAP_SUFFIX)
        for name, (base_offset, suffix, _) in swaps:
            if suffix == LOG_SUFFIX:
                end_offset = self._end_of_swap(name, base_offset)
                for other in names:
                    entry = parse_segment_name(other)
                    if (
                        entry is not None
                        and entry[1] in SEGMENT_SUFFIXES
                        and not entry[2]
                        and base_offset <= entry[0] < end_offset
                    ):
                        self._remove(other)
        for name, (base_offset, suffix, _) in swaps:
            target = segment_path(self.directory, base_offset, suffix)
            self.disk.rename(f"{self.directory}/{name}", target)
            self.repairs.append(f"finished the swap of {name}")

    def _end_of_swap(self, name: str, base_offset: int) -> int:
        file = self.disk.open(f"{self.directory}/{name}")
        end_offset = base_offset + 1
        try:
            for _, batch in read_headers(file, 0, file.size()):
                end_offset = batch.next_offset
        finally:
            file.close()
        return end_offset

    def _ending(self, names: Iterable[str], suffix: str) -> list[tuple[str, tuple[int, str, str]]]:
        """The segment files among the names that have a further suffix."""
        parsed = [(name, parse_segment_name(name)) for name in names]
        return [(name, entry) for name, entry in parsed if entry is not None and entry[2] == suffix]

    def _remove(self, name: str) -> None:
        path = f"{self.directory}/{name}"
        if self.disk.exists(path):
            self.disk.unlink(path)

    def _find_segments(self, names: list[str]) -> None:
        parsed = [parse_segment_name(name) for name in names]
        for base_offset in sorted(e[0] for e in parsed if e and e[1:] == (LOG_SUFFIX, "")):
            segment = self._segment(base_offset)
            segment.size = self.disk.file_size(segment.path)
            segment.created_ms = self.disk.modified_ms(segment.path)
            self.segments.append(segment)
        if not self.segments:
            self._start_over(self.source.log_start_offset)

    def _first_unflushed(self) -> int:
        """The index of the first segment that is not known to be whole on disk."""
        if self.source.is_clean:
            return len(self.segments)
        return Segments(self.segments).index_of(self.source.recovery_point or 0)

    def _open_segments(self) -> None:
        for segment in self.segments[: self._first_unflushed()]:
            try:
                segment.open()
                check_indexes(segment)
            except CorruptIndexError as error:
                self._rebuild_indexes(segment, error)

    def _rebuild_indexes(self, segment: LogSegment, error: CorruptIndexError) -> None:
        self.repairs.append(f"rebuilt the indexes of segment {segment.base_offset} ({error})")
        try:
            segment.rebuild_indexes()
        except CorruptRecordError as damage:
            self.repairs.append(f"segment {segment.base_offset} is damaged: {damage.message}")
        segment.become_inactive()

    def _segment(self, base_offset: int) -> LogSegment:
        source = self.source
        return LogSegment(self.disk, self.directory, base_offset, source.config, source.now_ms)

    def _start_over(self, offset: int) -> None:
        """Leave nothing but an empty segment at an offset."""
        for segment in self.segments:
            self.repairs.append(f"dropped segment {segment.base_offset}, before the log's start")
            segment.remove()
        self.unsynced.clear()
        segment = self._segment(offset)
        segment.create()
        self.segments = [segment]
        self.has_new_names = True
        self.end_offset = offset
        self.producers.clear(offset)

    def _check_end(self) -> bool:
        """Whether the newest segment ends with whole batches, as it must after a clean stop."""
        active = self.segments[-1]
        entry = active.offset_index.last_entry()
        self._expect(active.base_offset)
        try:
            for _, batch in read_batches(active.file, entry.position, active.size):
                self._check_order(active, batch)
                self.end_offset = batch.next_offset
        except CorruptRecordError:
            return False
        return True

    def _expect(self, offset: int) -> None:
        """Begin to check the order of batches: the next one is to be at or behind an offset."""
        self.end_offset = offset
        self.last_epoch = NO_EPOCH

    def _check_order(self, segment: LogSegment, batch: RecordBatch) -> None:
        """Raise CorruptRecordError unless offset and epoch follow on the batch before.

        Bytes that were cut off the log long ago may show up again behind its end.
        """
        epoch, offset = batch.partition_leader_epoch, batch.base_offset
        if (
            offset < max(self.end_offset, segment.base_offset)
            or batch.last_offset >= MAX_OFFSET
            or not segment.fits(batch.last_offset)
        ):
            raise CorruptRecordError(
                f"a batch with offsets {offset}-{batch.last_offset} cannot follow "
                f"offset {self.end_offset - 1}"
            )
        if NO_EPOCH < epoch < self.last_epoch:
            raise CorruptRecordError(
                f"the batch at offset {offset} is of epoch {epoch}, after one of {self.last_epoch}"
            )
        self.last_epoch = epoch

    def _recover(self) -> None:
        """Read all that may not have been flushed, and cut at the first batch that is not whole."""
        self.is_recovered = True
        first = min(self._first_unflushed(), len(self.segments) - 1)
        unflushed = self.segments[first:]
        self._expect(unflushed[0].base_offset)
        # The checkpoint may be older than the last truncation: the batches decide.
        self.epochs.truncate_from_end(self.end_offset)
        at_once(restore_producers(self.producers, Segments(self.segments), self.end_offset))
        size = self.source.bytes_to_scan = sum(segment.size for segment in unflushed)
        for index, segment in enumerate(unflushed):
            if self.end_offset != segment.base_offset and not self._bridges_gap(segment):
                self._drop_behind(first + index)
                break
            reason = self._recover_segment(segment)
            if reason:
                self._drop_behind(first + index + 1)
                break
        if size:
            self.repairs.insert(
                0,
                f"checked {size} bytes in {len(unflushed)} segments from offset "
                f"{unflushed[0].base_offset} to {self.end_offset}",
            )

    def _bridges_gap(self, segment: LogSegment) -> bool:
        """Whether compaction may have left the gap before a segment: else records are lost.

        It leaves none behind the recovery point and the cleaned offset. Where the recovery points
        are lost, a compacted log has been read from its start; Kafka takes every gap.
        """
        source = self.source
        if segment.base_offset < self.end_offset:  # a cut that was undone
            self.repairs.append(f"segment {segment.base_offset} begins before {self.end_offset}")
            return False
        if segment.base_offset <= source.cleaned_offset:
            return True
        if segment.base_offset - self.end_offset > WIDEST_LOSS:
            return True
        gap = f"offsets from {self.end_offset} to {segment.base_offset - 1}"
        if source.recovery_point is None and "compact" in source.config.cleanup_policy:
            self.repairs.append(f"took {gap} for compacted, as there is no recovery point")
            return True
        self.repairs.append(f"{gap} are gone")
        return False

    def _recover_segment(self, segment: LogSegment) -> str:
        """Rebuild a segment's indexes; returns why it had to be cut, "" if it was whole."""
        end = segment.size
        segment.reset()
        segment.txn_index.reset()
        reason = ""
        try:
            for _, batch in read_batches(segment.file, 0, end):
                self._check_order(segment, batch)
                self._take(segment, batch)
        except CorruptRecordError as error:
            reason = error.message
            position = segment.size
            segment.truncate_bytes(position)
            self.repairs.append(
                f"cut segment {segment.base_offset} from {end} to {position} bytes: {reason}"
            )
        segment.become_inactive()
        if end:  # thousands of empty logs need not wait for the disk
            self.unsynced.append(segment)
        return reason

    def _take(self, segment: LogSegment, batch: RecordBatch) -> None:
        segment.add_batch(
            batch.size_in_bytes, batch.base_offset, batch.last_offset, batch.max_timestamp
        )
        self.epochs.assign(batch.partition_leader_epoch, batch.base_offset)
        aborted = self.producers.replay(batch)
        if aborted is not None:
            segment.txn_index.append(aborted)
        self.end_offset = batch.next_offset
        self.source.scanned_bytes += batch.size_in_bytes

    def _drop_behind(self, index: int) -> None:
        for segment in self.segments[index:]:
            self.repairs.append(
                f"dropped segment {segment.base_offset} ({segment.size} bytes) behind the cut"
            )
            segment.remove()
        del self.segments[index:]

    def _load_epochs(self) -> bool:
        """Whether the epochs are known without looking into the batches."""
        try:
            return self.epochs.load() or not any(segment.size for segment in self.segments)
        except CorruptCheckpointError as error:
            self.repairs.append(f"rebuilt the leader epochs ({error})")
            return False

    def _mend_epochs(self, has_epochs: bool, start_offset: int) -> None:
        """Fit the epochs to the log."""
        if not has_epochs or self._lacks_first_epoch(start_offset):
            self._rebuild_epochs()
        self.epochs.truncate_from_end(self.end_offset)
        self.epochs.truncate_from_start(start_offset)

    def _lacks_first_epoch(self, start_offset: int) -> bool:
        """Whether the epochs begin behind the log's start, where a batch has one.

        They were cut when records were deleted, and where the log starts since then was not written
        down: the records are back. Batches from before there were epochs have none.
        """
        entries = self.epochs.entries
        if not entries or entries[0].start_offset <= start_offset:
            return False
        first = self.segments[0]
        try:
            headers = (batch for _, batch in read_headers(first.file, 0, first.size))
            at_start = next((each for each in headers if each.next_offset > start_offset), None)
        except CorruptRecordError:
            return False
        return at_start is not None and at_start.partition_leader_epoch != NO_EPOCH

    def _rebuild_epochs(self) -> None:
        self.epochs.clear()
        for segment in self.segments:
            try:
                for _, batch in read_headers(segment.file, 0, segment.size):
                    self.epochs.assign(batch.partition_leader_epoch, batch.base_offset)
            except CorruptRecordError as error:
                self.repairs.append(f"segment {segment.base_offset} is damaged: {error.message}")

    def _drop_stray_snapshots(self) -> None:
        """Keep the snapshots at the beginnings of segments, and the newest one."""
        end_offset = self.end_offset
        self.producers.delete_snapshots(lambda offset: offset > end_offset)
        wanted = {segment.base_offset for segment in self.segments}
        wanted.add(self.producers.latest_snapshot_offset or 0)
        self.producers.delete_snapshots(lambda offset: offset not in wanted)


def rebuild_txn_indexes(
    log_dir: LogDir, segments: Segments, producers: ProducerStateManager, start_offset: int
) -> None:
    """Rebuild the damaged indexes of the segments from an offset on, from their batches.

    KAFKA_STORAGE_ERROR if the batches cannot be read either: readers of committed records must
    not get an aborted transaction.
    """
    for segment in segments.since(start_offset):
        try:
            segment.txn_index.entries()
        except CorruptIndexError as error:
            logger.warning("Rebuilding %s: %s", segment.txn_index.path, error)
            try:
                _rebuild(segments, producers, segment)
            except CorruptRecordError as damage:
                raise KafkaError.of(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"{error}; {damage.message}"
                ) from damage
            except OSError as failure:
                raise log_dir.failed(failure, f"read of {producers.topic_partition}") from failure


def _rebuild(segments: Segments, known: ProducerStateManager, segment: LogSegment) -> None:
    """Replay the segment, beginning with the transactions that are open where it begins."""
    manager = known.with_same_snapshots()
    at_once(restore_producers(manager, segments, segment.base_offset))
    found = []
    for position, header in segment.headers_from(segment.base_offset):
        batch = read_batch(segment.file, position, header) if header.is_control else header
        aborted = manager.replay(batch)
        if aborted is not None:
            found.append(aborted)
    segment.txn_index.reset()
    for aborted in found:
        segment.txn_index.append(aborted)
    segment.revision += 1
