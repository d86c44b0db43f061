"""One round of compaction of one log: its needs, as values, and the work, in small steps.

    segments   [ clean ][ clean ][   dirty   ][ dirty ][ not cleanable yet ][ active ]
                                 ^ first dirty offset  ^ end offset

First the dirty part is read for the last offset of each of its keys; if they do not all fit into
the memory, the round ends at the first that does not. Then every segment up to there, from the
first one on, is copied without the records that the map makes superfluous. Neighbours that have
become small are copied into one segment. A log is never copied as a whole: each group of segments
is handed over for the swap before the next one is begun. The copying runs in the background, a step
at a time, and touches nothing but its own files.

Then a `SegmentSwap` puts the cleaned segment into the place of its sources.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from ottla.config.broker_config import BrokerConfig
from ottla.config.topic_config import TopicConfig
from ottla.extensions.cleaner.batch_filter import NO_HORIZON, BatchFilter, LastRecord
from ottla.extensions.cleaner.cleaned_segment import CleanedSegment
from ottla.extensions.cleaner.cleaned_transactions import CleanedTransactions
from ottla.extensions.cleaner.log_to_clean import LogToClean
from ottla.extensions.cleaner.offset_map import OffsetMap
from ottla.log.file_batches import read_batches
from ottla.log.log import Log
from ottla.log.log_files import LOG_SUFFIX, TXN_INDEX_SUFFIX, segment_path
from ottla.log.log_segment import LogSegment
from ottla.log.offset_index import MAX_RELATIVE_OFFSET
from ottla.log.transaction_index import AbortedTxn, TransactionIndex
from ottla.record.conversion import modernised
from ottla.record.plain_compaction import SECRET_BYTES
from ottla.record.record_batch import CorruptRecordError, RecordBatch
from ottla.runtime import Disk, Runtime
from ottla.structs import Value, field

# A step ends after so many bytes, to let the loop run. Each batch counts for some more, because
# even a small one takes time.
STEP_BYTES: Final = 1 << 20
BATCH_COST_BYTES: Final = 4096
MIN_BUFFER_BYTES: Final = 4096


class SourceSegment(Value, frozen=True):
    """A segment to be cleaned, as it was when the round began."""

    base_offset: int
    end_offset: int
    size: int
    index_bytes: int
    time_index_bytes: int
    newest_ms: int


class CleaningPlan(Value, frozen=True):
    """All that a round needs to know of a log and of the settings."""

    disk: Disk
    directory: str
    config: TopicConfig
    sources: Sequence[SourceSegment]
    first_dirty_offset: int
    producers: Mapping[int, LastRecord]
    high_watermark: int
    aborted_later: Sequence[AbortedTxn]
    now_ms: int
    secret: bytes
    dedupe_bytes: int
    load_factor: float
    buffer_bytes: int

    @property
    def end_offset(self) -> int:
        return self.sources[-1].end_offset


class CleanedGroup(Value, frozen=True):
    """A segment, with all its files on disk, that will take the place of some sources."""

    sources: Sequence[SourceSegment]
    segment: LogSegment
    is_last: bool


class CleaningStats(Value):
    """The result of a round. `end_offset` is the first offset that is still dirty after it."""

    end_offset: int = 0
    bytes_read: int = 0
    bytes_mapped: int = 0
    bytes_written: int = 0
    record_count: int = 0
    null_key_count: int = 0
    next_horizon_ms: int = NO_HORIZON


Steps: TypeAlias = Generator[int | CleanedGroup, None, None]


class Cleaning(Value):
    """A round under way. `steps` gives the bytes that were read and written, or a group to swap."""

    plan: CleaningPlan
    stats: CleaningStats = field(default_factory=CleaningStats)
    _pending: int = 0
    _work: int = 0

    def steps(self) -> Steps:
        """Do the work for as long as the caller continues; closing it leaves no files behind."""
        plan, stats = self.plan, self.stats
        aborted = self._aborted_transactions()
        offsets = OffsetMap.within(
            plan.dedupe_bytes,
            plan.load_factor,
            plan.end_offset - plan.first_dirty_offset,
            plan.secret,
            plan.first_dirty_offset,
        )
        yield from self._fill(offsets, CleanedTransactions(aborted))
        stats.end_offset = offsets.end_offset
        stats.bytes_mapped = stats.bytes_read
        transactions = CleanedTransactions(aborted)
        batch_filter = BatchFilter(
            offsets,
            transactions,
            plan.producers,
            plan.high_watermark,
            plan.now_ms,
            plan.config.delete_retention_ms,
        )
        sources = [source for source in plan.sources if source.base_offset < stats.end_offset]
        groups = group_segments(sources, plan.config)
        for group in groups:
            is_last = group is groups[-1]
            yield from self._clean_group(group, is_last, batch_filter, transactions)
        stats.null_key_count = batch_filter.null_key_count
        stats.next_horizon_ms = batch_filter.next_horizon_ms
        stats.record_count = batch_filter.record_count

    def _aborted_transactions(self) -> list[AbortedTxn]:
        """The transactions that end in the cleanable segments, and those that end behind them."""
        plan = self.plan
        found = list(plan.aborted_later)
        for source in plan.sources:
            path = segment_path(plan.directory, source.base_offset, TXN_INDEX_SUFFIX)
            found += TransactionIndex(plan.disk, path, source.base_offset).entries()
        return found

    def _fill(self, offsets: OffsetMap, transactions: CleanedTransactions) -> Iterator[int]:
        plan = self.plan
        for source in plan.sources:
            if source.end_offset <= plan.first_dirty_offset:
                continue
            for batch in self._batches(source):
                if batch.next_offset > plan.first_dirty_offset:
                    has_keys = not (transactions.is_obsolete(batch) or batch.is_control)
                    if has_keys and not offsets.note(batch):
                        return
                yield from self._step()
            # Behind the last batch nothing is left in the segment.
            offsets.end_offset = source.end_offset

    def _clean_group(
        self,
        group: Sequence[SourceSegment],
        is_last: bool,
        batch_filter: BatchFilter,
        transactions: CleanedTransactions,
    ) -> Steps:
        plan = self.plan
        cleaned = CleanedSegment(
            plan.disk,
            plan.directory,
            group[0].base_offset,
            plan.config,
            max(source.newest_ms for source in group),
            max(plan.buffer_bytes, MIN_BUFFER_BYTES),
        )
        try:
            for batch in self._batches_of(group):
                data = batch_filter.filter(batch)
                if data is not None:
                    cleaned.append(data)
                    self._pending += len(memoryview(data))
                    self.stats.bytes_written += len(memoryview(data))
                for transaction in transactions.still_needed:
                    cleaned.append_aborted(transaction)
                transactions.still_needed.clear()
                yield from self._step()
            segment = cleaned.finish()
            plan.disk.fsync_dir(plan.directory)
        except BaseException:
            cleaned.discard()
            raise
        yield self._take_pending()
        yield CleanedGroup(group, segment, is_last)

    def _batches_of(self, group: Sequence[SourceSegment]) -> Iterator[RecordBatch]:
        for source in group:
            yield from self._batches(source)

    def _batches(self, source: SourceSegment) -> Iterator[RecordBatch]:
        """The batches of a segment; messages from before Kafka 0.11 are packed into batches."""
        return modernised(self._stored_batches(source))

    def _stored_batches(self, source: SourceSegment) -> Iterator[RecordBatch]:
        """The batches as stored, read by a file of our own: the loop may close the other one."""
        plan = self.plan
        path = segment_path(plan.directory, source.base_offset, LOG_SUFFIX)
        file = plan.disk.open(path)
        next_offset = source.base_offset
        try:
            chunk_bytes = max(plan.buffer_bytes, MIN_BUFFER_BYTES)
            for _, batch in read_batches(file, 0, source.size, chunk_bytes):
                if not next_offset <= batch.base_offset <= batch.last_offset < source.end_offset:
                    raise CorruptRecordError(
                        f"{path}: a batch with offsets {batch.base_offset}-{batch.last_offset} "
                        f"cannot lie between {next_offset} and {source.end_offset}"
                    )
                next_offset = batch.next_offset
                self._pending += batch.size_in_bytes
                self.stats.bytes_read += batch.size_in_bytes
                yield batch
        finally:
            file.close()

    def _step(self) -> Iterator[int]:
        self._work += BATCH_COST_BYTES
        if self._pending + self._work >= STEP_BYTES:
            yield self._take_pending()

    def _take_pending(self) -> int:
        pending, self._pending, self._work = self._pending, 0, 0
        return pending


def last_records(log: Log) -> dict[int, LastRecord]:
    """The last record of each known producer, by its id: their state must not be lost."""
    producers = log.producer_state_manager.producers
    return {
        producer_id: LastRecord(
            state.batches[-1].last_offset if state.batches else None, state.producer_epoch
        )
        for producer_id, state in producers.items()
    }


def plan_of(to_clean: LogToClean, config: BrokerConfig, runtime: Runtime) -> CleaningPlan:
    """The round over a log; its cleaner has an even share of the memory of all cleaners."""
    log = to_clean.log
    behind = log.segments.items[len(to_clean.segments) :]
    threads = max(1, config.log_cleaner_threads)
    return CleaningPlan(
        disk=runtime.disk,
        directory=log.dir,
        config=log.config,
        sources=sources_of(log, to_clean.segments),
        first_dirty_offset=to_clean.first_dirty_offset,
        producers=last_records(log),
        high_watermark=log.high_watermark,
        aborted_later=[entry for segment in behind for entry in segment.txn_index.entries()],
        now_ms=runtime.clock.now_ms(),
        secret=runtime.random.randbytes(SECRET_BYTES),
        dedupe_bytes=config.log_cleaner_dedupe_buffer_size // threads,
        load_factor=config.log_cleaner_io_buffer_load_factor,
        buffer_bytes=config.log_cleaner_io_buffer_size // threads // 2,
    )


def sources_of(log: Log, segments: Sequence[LogSegment]) -> list[SourceSegment]:
    """Segments at the beginning of a log, as a round takes them."""
    return [
        SourceSegment(
            segment.base_offset,
            log.segments.end_offset(index, log.log_end_offset),
            segment.size,
            len(segment.offset_index) * segment.offset_index.ENTRY.size,
            len(segment.time_index) * segment.time_index.ENTRY.size,
            segment.largest_timestamp_ms(),
        )
        for index, segment in enumerate(segments)
    ]


def group_segments(
    sources: Sequence[SourceSegment], config: TopicConfig
) -> list[list[SourceSegment]]:
    """Neighbours that fit into one segment, by the size of their files and by their offsets."""
    groups: list[list[SourceSegment]] = []
    for source in sources:
        if groups and _fits(groups[-1], source, config):
            groups[-1].append(source)
        else:
            groups.append([source])
    return groups


def _fits(group: Sequence[SourceSegment], source: SourceSegment, config: TopicConfig) -> bool:
    together = [*group, source]
    limit = config.segment_index_bytes
    return (
        sum(one.size for one in together) <= config.segment_bytes
        and sum(one.index_bytes for one in together) <= limit
        and sum(one.time_index_bytes for one in together) <= limit
        and (not source.size or source.end_offset - 1 - group[0].base_offset <= MAX_RELATIVE_OFFSET)
    )
