"""One round of compaction of one log: what it needs, as values, and the work, in small steps.

    segments   [ clean ][ clean ][   dirty   ][ dirty ][ not cleanable yet ][ active ]
                                 ^ first dirty offset  ^ end offset

First the dirty part is read for the last offset of each of its keys; if they do not all fit into
the memory, the round ends at the first that does not. Then every segment up to there, from the
first one on, is copied without what the map makes superfluous. Neighbours that have become small
are copied into one segment. A log is never copied as a whole: each group of segments is handed
over for the swap before the next one is begun. The copying runs in the background, a step at a
time, and touches nothing but its own files.

Then a swap puts the cleaned segment into the place of its sources:

    1. `.cleaned` files are written and synced         a crash: they are thrown away
    2. they are renamed to `.swap`, and that is synced  a crash: the swap is finished at the start
    3. the sources are renamed to `.deleted`,
       `.swap` files get their names, and the log
       gets its new list of segments
    4. that is synced

Steps 2 and 3 are renames on the loop's thread, and what they wait for runs in the background. The
log may have changed meanwhile: then the cleaned segment is thrown away, and so is the round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.config.config_type import LONG_MAX
from ottla.config.topic_config import TopicConfig
from ottla.log.file_batches import read_batches
from ottla.log.flush_job import FlushJob
from ottla.log.log import CleaningAbortedError, Log
from ottla.log.log_files import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_path,
)
from ottla.log.log_segment import LogSegment
from ottla.log.offset_index import MAX_RELATIVE_OFFSET
from ottla.log.segment_files import delete_segments, rename_files, set_suffix, sync_files
from ottla.log.segments import Segments
from ottla.log.transaction_index import AbortedTxn, TransactionIndex
from ottla.record import kernel
from ottla.record.batch_builder import with_records
from ottla.record.conversion import modernised
from ottla.record.plain_compaction import ENTRY_BYTES, KeptRecords, shift_timestamps
from ottla.record.record import DELETE_HORIZON_FLAG
from ottla.record.record_batch import ControlRecordType, CorruptRecordError, RecordBatch
from ottla.runtime import Disk, Runtime
from ottla.structs import NO_TIMESTAMP, Value, field

if TYPE_CHECKING:
    from typing_extensions import Buffer

# The segment that takes the place of others, while it is being written.
#
# Its files are named `.cleaned`: a start that finds them throws them away.


class CleanedSegment:
    """Writes a segment batch by batch, a buffer full at a time."""

    __slots__ = ("_buffer", "_buffer_bytes", "_disk", "_written", "segment")

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        config: TopicConfig,
        newest_ms: int,
        buffer_bytes: int,
    ) -> None:
        self._disk = disk
        self._buffer = bytearray()
        self._buffer_bytes = buffer_bytes
        self._written = 0
        self.segment = LogSegment(disk, directory, base_offset, config, newest_ms)
        set_suffix(self.segment, CLEANED_SUFFIX)
        self.segment.txn_index.reset()
        self.segment.create()

    def append(self, data: Buffer) -> None:
        """Write a batch behind those that are there."""
        batch = RecordBatch(data)
        self._buffer += batch.buffer
        self.segment.add_batch(
            batch.size_in_bytes, batch.base_offset, batch.last_offset, batch.max_timestamp
        )
        if len(self._buffer) >= self._buffer_bytes:
            self._write_out()

    def append_aborted(self, transaction: AbortedTxn) -> None:
        """Note a transaction whose marker is in this segment."""
        self.segment.txn_index.append(transaction)

    def finish(self) -> LogSegment:
        """Bring all files to the disk, and close them until they are read."""
        self._write_out()
        segment = self.segment
        segment.become_inactive()
        segment.release_indexes()
        if segment.max_timestamp_ms < 0:  # then its age is that of the file
            self._disk.set_modified_ms(segment.path, segment.created_ms)
        sync_files(self._disk, segment)
        segment.close()
        return segment

    def discard(self) -> None:
        """Remove the files; the segment will not be used."""
        self.segment.close()
        for path in self.segment.files():
            self._disk.unlink(path)

    def _write_out(self) -> None:
        if not self._buffer:
            return
        self.segment.file.pwrite(self._buffer, self._written)
        self._written += len(self._buffer)
        self._buffer = bytearray()


# The last offset of each key in the part of a log that has not been compacted yet.
#
# 24 bytes a key, however long it is: a digest of 16 bytes and the offset, in one flat table that
# the kernel walks. When the table is full, the map ends at the offset where the next key would
# begin, and the rest of the log is left for the next round.


class OffsetMap:
    """Keys and their last offsets. Invariant: every key from `start_offset` on, before
    `end_offset`, is known; of what lies before the start, only the last record of a key is left.
    """

    __slots__ = ("_secret", "_table", "capacity", "count", "end_offset", "start_offset")

    def __init__(self, capacity: int, slots: int, secret: bytes, start_offset: int) -> None:
        # One slot must stay free: a search ends there.
        self._table = bytearray(ENTRY_BYTES * max(slots, capacity + 1, 2))
        self._secret = secret
        self.capacity = max(1, capacity)
        self.count = 0
        self.start_offset = self.end_offset = start_offset

    @classmethod
    def within(
        cls,
        max_bytes: int,
        load_factor: float,
        wanted_count: int,
        secret: bytes,
        start_offset: int,
    ) -> OffsetMap:
        """A map for so many keys, or as many as fit into the memory."""
        max_slots = max_bytes // ENTRY_BYTES
        capacity = min(wanted_count, int(max_slots * load_factor), max_slots - 1)
        return cls(capacity, int(capacity / load_factor), secret, start_offset)

    def __len__(self) -> int:
        return self.count

    def note(self, batch: RecordBatch) -> bool:
        """Note the keys of the next batch; False if there was no room for all of them."""
        added, self.end_offset = kernel.note_keys(
            self._table,
            self._secret,
            self.capacity - self.count,
            batch,
            batch.payload(),
            self.start_offset,
        )
        self.count += added
        return self.end_offset == batch.next_offset

    def last_offset(self, key: bytes) -> int:
        """The last offset that is known of a key; -1 if none is."""
        return kernel.last_offset(self._table, self._secret, key)

    def keep(self, batch: RecordBatch, payload: Buffer, keep_tombstones: bool) -> KeptRecords:
        """The records of a batch that no later one of the same key makes superfluous."""
        return kernel.keep_records(
            self._table, self._secret, self.end_offset, batch, payload, keep_tombstones
        )


# Which transactions a walk over a log is in, and how they ended.
#
# The walk goes from the beginning of the log, batch by batch. Data of aborted transactions are
# removed at once. A marker is removed when no data of its transaction are left, and not before:
# until then readers, and the transaction index, need it.


class CleanedTransactions:
    """The open transactions at a position of the log, which must be stable up to there.

    `still_needed` collects the aborted transactions whose data were met on this walk: they must be
    in the transaction index of the segment with their marker.
    """

    __slots__ = ("_aborted", "_coming", "_committed", "_has_data", "still_needed")

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._coming = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
        self._aborted: dict[int, AbortedTxn] = {}
        self._has_data: set[int] = set()
        self._committed: set[int] = set()
        self.still_needed: list[AbortedTxn] = []

    def is_obsolete(self, batch: RecordBatch) -> bool:
        """Whether the next batch is aborted data, or a marker that has no data left."""
        while self._coming and self._coming[0].first_offset <= batch.last_offset:
            transaction = self._coming.popleft()
            self._aborted[transaction.producer_id] = transaction
        if batch.is_control:
            return self._is_obsolete_marker(batch)
        return batch.is_transactional and self._is_aborted(batch)

    def _is_aborted(self, batch: RecordBatch) -> bool:
        producer_id = batch.producer_id
        transaction = self._aborted.get(producer_id)
        if transaction is None or batch.last_offset > transaction.last_offset:
            self._committed.add(producer_id)
            return False
        self._has_data.add(producer_id)
        return True

    def _is_obsolete_marker(self, batch: RecordBatch) -> bool:
        """Whether a marker is emptied, or its transaction has no data; other kinds stay."""
        record = next(batch.records(), None)
        if record is None:
            return True
        producer_id = batch.producer_id
        match ControlRecordType.of(record):
            case ControlRecordType.ABORT:
                transaction = self._aborted.pop(producer_id, None)
                if transaction is None or producer_id not in self._has_data:
                    return True
                self._has_data.discard(producer_id)
                self.still_needed.append(transaction)
                return False
            case ControlRecordType.COMMIT:
                is_obsolete = producer_id not in self._committed
                self._committed.discard(producer_id)
                return is_obsolete
        return False


# What part of a batch goes into the compacted log.
#
# Offsets and sequence numbers never change: a batch keeps its first and its last one when records
# are taken out of it. A batch without records is left out, with two exceptions, as in Kafka. The
# last batch of a producer stays, because its sequence number is what makes a retry harmless. And
# the batch that ends at the high watermark stays, because a replica that copies the log must not
# end before it (KAFKA-17076, KAFKA-20452).
#
# A record without a value, a tombstone, has to stay for a while, so that a reader of the log from
# its beginning sees that the key is gone. The first compaction that meets it writes into the batch
# when it may go: the delete horizon, which takes the place of the base timestamp (KIP-534).
# The same holds for markers of transactions without data.


NO_HORIZON: Final = LONG_MAX


class LastRecord(NamedTuple):
    """The end of a producer in the log: its last offset with data, if any, and its epoch."""

    last_data_offset: int | None
    producer_epoch: int


class BatchFilter:
    """Decides, batch by batch from the beginning of a log, which records stay.

    `next_horizon_ms` is the earliest time at which something that stayed may go.
    """

    __slots__ = (
        "_high_watermark",
        "_horizon_ms",
        "_now_ms",
        "_offsets",
        "_producers",
        "_transactions",
        "next_horizon_ms",
        "null_key_count",
        "record_count",
    )

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        producers: Mapping[int, LastRecord],
        high_watermark: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._producers = producers
        self._high_watermark = high_watermark
        self._now_ms = now_ms
        self._horizon_ms = min(now_ms + delete_retention_ms, LONG_MAX)
        self.next_horizon_ms = NO_HORIZON
        self.null_key_count = 0
        self.record_count = 0

    def filter(self, batch: RecordBatch) -> Buffer | None:
        """The bytes to write for a batch, which may be its own; None if it goes."""
        horizon_ms = batch.delete_horizon_ms
        is_due = horizon_ms is not None and horizon_ms <= self._now_ms
        is_obsolete = self._transactions.is_obsolete(batch)
        payload = batch.payload()
        if is_obsolete and (is_due or not batch.is_control):
            kept = KeptRecords(b"", 0, NO_TIMESTAMP, False, 0)
        elif batch.is_control:
            # Only tombstones, and markers without data, may go later.
            count = batch.record_count
            kept = KeptRecords(payload, count, batch.max_timestamp, is_obsolete, 0)
        else:
            kept = self._offsets.keep(batch, payload, keep_tombstones=not is_due)
            self.null_key_count += kept.null_key_count
        self.record_count += kept.record_count
        if not kept.record_count:
            return _emptied(batch) if self._stays_empty(batch) else None
        if kept.has_tombstone:
            if horizon_ms is None:
                return self._with_horizon(batch, kept)
            self.next_horizon_ms = min(self.next_horizon_ms, horizon_ms)
        return _reduced(batch, kept)

    def _stays_empty(self, batch: RecordBatch) -> bool:
        """Whether the header of a batch is needed although none of its records is."""
        return batch.next_offset == self._high_watermark or self._ends_producer(batch)

    def _ends_producer(self, batch: RecordBatch) -> bool:
        """Whether the state of a producer that is still known is read from this batch."""
        last = self._producers.get(batch.producer_id)
        if last is None:
            return False
        if last.last_data_offset is not None:
            return batch.last_offset == last.last_data_offset
        return batch.is_control and batch.producer_epoch == last.producer_epoch

    def _with_horizon(self, batch: RecordBatch, kept: KeptRecords) -> Buffer:
        horizon_ms = self._horizon_ms
        payload: Buffer | None = kept.payload
        if not batch.is_log_append_time:
            difference_ms = batch.base_timestamp - horizon_ms
            payload = shift_timestamps(kept.payload, kept.record_count, difference_ms)
        if payload is None:  # timestamps too far off to shift: they stay, with the tombstone
            return _reduced(batch, kept)
        self.next_horizon_ms = min(self.next_horizon_ms, horizon_ms)
        changed = RecordBatch(batch.buffer, batch.position)
        changed.attributes |= DELETE_HORIZON_FLAG
        return with_records(
            changed, payload, kept.record_count, horizon_ms, _max_timestamp(batch, kept)
        )


def _max_timestamp(batch: RecordBatch, kept: KeptRecords) -> int:
    return batch.max_timestamp if batch.is_log_append_time else kept.max_timestamp_ms


def _reduced(batch: RecordBatch, kept: KeptRecords) -> Buffer:
    if kept.record_count == batch.record_count:
        return batch.view
    return with_records(
        batch, kept.payload, kept.record_count, batch.base_timestamp, _max_timestamp(batch, kept)
    )


def _emptied(batch: RecordBatch) -> Buffer:
    if not batch.record_count:
        return batch.view
    changed = RecordBatch(batch.buffer, batch.position)
    changed.attributes &= ~DELETE_HORIZON_FLAG
    return with_records(changed, b"", 0, NO_TIMESTAMP, batch.max_timestamp)


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


def last_records(log: Log) -> dict[int, LastRecord]:
    """The last record of each known producer, by its id: their state must not be lost."""
    producers = log.producer_state_manager.producers
    return {
        producer_id: LastRecord(
            state.batches[-1].last_offset if state.batches else None, state.producer_epoch
        )
        for producer_id, state in producers.items()
    }


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
    """What a round has done. `end_offset` is the first offset that is still dirty after it."""

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
        """Those that end in the cleanable segments, and those that end behind them."""
        plan = self.plan
        found = list(plan.aborted_later)
        for source in plan.sources:
            path = segment_path(plan.directory, source.base_offset, TXN_INDEX_SUFFIX)
            found += TransactionIndex(plan.disk, path, source.base_offset).entries()
        return found

    # -- the map

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

    # -- the copy

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

    # -- reading

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


class SegmentSwap:
    """The swaps of one round of compaction of a log."""

    __slots__ = ("_log", "_runtime", "_sizes", "_sources")

    def __init__(self, runtime: Runtime, log: Log, sources: Sequence[LogSegment]) -> None:
        self._runtime = runtime
        self._log = log
        self._sources = {segment.base_offset: segment for segment in sources}
        self._sizes = {segment.base_offset: segment.size for segment in sources}

    async def run(self, group: CleanedGroup, cleaned_offset: int) -> None:
        """Swap one group in; the log counts as clean up to an offset once the last one is."""
        cleaned = group.segment
        sync = FlushJob(self._runtime.disk, [], [], [], [self._log.dir])
        try:
            self.check()
            self._on_disk(partial(rename_files, self._runtime.disk, cleaned, SWAP_SUFFIX))
            await self._runtime.background.run(sync)
            self.check()
        except BaseException:
            await self._throw_away(cleaned)
            raise
        self._on_disk(partial(self._replace, group))
        if group.is_last:
            self._log.cleaned_offset = cleaned_offset
        await self._runtime.background.run(sync)

    def check(self) -> None:
        """CleaningAbortedError unless all sources that must still be replaced are as they were.

        The keys of the newest source decided which records of the oldest one survive.
        """
        if not self._log.is_available:
            raise CleaningAbortedError(f"{self._log.topic_partition} is gone")
        present = set(map(id, self._log.segments))
        for base_offset, size in self._sizes.items():
            segment = self._sources[base_offset]
            if id(segment) not in present or segment.size != size:
                raise CleaningAbortedError(
                    f"segment {base_offset} of {self._log.topic_partition} has changed"
                )

    def _replace(self, group: CleanedGroup) -> None:
        log, cleaned = self._log, group.segment
        gone = [self._sources[source.base_offset] for source in group.sources]
        for segment in gone:
            del self._sizes[segment.base_offset]
        delete_segments(self._runtime, gone, log.config.file_delete_delay_ms)
        rename_files(self._runtime.disk, cleaned, "")
        log.segments = _replaced(log.segments, gone, cleaned)
        bases = {segment.base_offset for segment in gone} - {cleaned.base_offset}
        log.producer_state_manager.delete_snapshots(bases.__contains__)

    async def _throw_away(self, cleaned: LogSegment) -> None:
        """Remove a cleaned segment; a start that found it would finish the swap."""
        try:
            await self._runtime.background.run(partial(_discard, self._runtime, cleaned))
        except OSError as error:
            self._log.log_dir.fail(error)

    def _on_disk(self, renames: partial[None]) -> None:
        """Run renames; if they fail half-way, only a start can mend the log."""
        try:
            renames()
        except OSError as error:
            self._log.log_dir.fail(error)
            raise


def _replaced(segments: Segments, gone: Sequence[LogSegment], cleaned: LogSegment) -> Segments:
    kept, _ = segments.split(lambda segment: segment not in gone)
    return Segments(sorted([*kept, cleaned], key=lambda segment: segment.base_offset))


def _discard(runtime: Runtime, cleaned: LogSegment) -> None:
    for path in cleaned.files():
        runtime.disk.unlink(path)
