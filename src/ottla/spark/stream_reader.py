"""`spark.readStream`: micro-batches between offsets that Spark keeps in its checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ottla.runtime import SystemClock
from ottla.spark.data_loss import report_data_loss
from ottla.spark.group_progress import GroupProgress
from ottla.spark.offsets import OffsetRange, Offsets, from_json_object, limited, to_json_object
from ottla.spark.options import SourceOptions
from ottla.spark.range_reader import RangesPartition, read_ranges

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.spark.lookup import OffsetLookup

JsonOffsets: TypeAlias = dict[str, dict[str, int]]


class OttlaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one process of the driver as long as the query; copies of it read in the tasks.

    An offset is the next one to read of every partition. A partition that is not in the start of a
    batch is new, and read from its beginning.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._initial: JsonOffsets | None = None
        self._available: Offsets | None = None
        self._latest: Offsets | None = None
        self._clock = SystemClock()
        self._last_trigger_ms: int | None = None
        self._progress = GroupProgress(options.group_id, options.client)

    def initialOffset(self) -> JsonOffsets:  # noqa: N802
        """Where a query without a checkpoint begins. Spark asks twice; the answer must not move."""
        if self._initial is None:
            lookup = self._lookup()
            partitions = lookup.partitions(must_exist=True)
            self._initial = to_json_object(lookup.offsets(self._options.starting, partitions))
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What comes after this moment is left to the next run."""
        self._available = self._now(self._lookup())

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:  # noqa: N802
        """The end of the next micro-batch. Spark asks when the one before, to `start`, is over."""
        self._progress.report(from_json_object(start))
        lookup = self._lookup()
        end = self._now(lookup)
        self._latest = end
        if self._available is not None:
            end = {
                each: min(end.get(each, offset), offset) for each, offset in self._available.items()
            }
        if not isinstance(limit, ReadMaxRows) and self._options.min_offsets_per_trigger is None:
            return to_json_object(end)
        begin = self._with_new(lookup, from_json_object(start), end)
        if self._is_too_little(begin, end):
            return start
        if isinstance(limit, ReadMaxRows):
            end = limited(begin, end, limit.max_rows)
        return to_json_object(end)

    def _is_too_little(self, begin: Offsets, end: Offsets) -> bool:
        """Whether a micro-batch should wait for more; the first one of a run never does."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._available is not None:
            return False
        now_ms = self._clock.monotonic_ms()
        last_ms = self._last_trigger_ms
        if last_ms is not None and now_ms - last_ms < self._options.max_trigger_delay_ms:
            there = sum(max(0, offset - begin.get(each, 0)) for each, offset in end.items())
            if there < least:
                return True
        self._last_trigger_ms = now_ms
        return False

    def reportLatestOffset(self) -> JsonOffsets | None:  # noqa: N802
        """How far the topics reach, for the progress of the query."""
        return None if self._latest is None else to_json_object(self._latest)

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[InputPartition]:
        """The ranges of a micro-batch; a replayed batch has the same."""
        lookup = self._lookup()
        begin, stop = from_json_object(start), from_json_object(end)
        gone = sorted(begin.keys() - stop.keys())
        if gone:
            self._report(f"{', '.join(map(str, gone))}: deleted, maybe with unread records")
        there = set(lookup.partitions(must_exist=False))
        earliest = lookup.earliest(sorted(there & stop.keys()))
        ranges = [
            self._range(OffsetRange(each, begin.get(each, 0), offset), earliest.get(each))
            for each, offset in stop.items()
        ]
        return [RangesPartition(task) for task in self._options.task_sizes.share_out(ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Runs in a task."""
        assert isinstance(partition, RangesPartition), f"partition {partition}"
        return read_ranges(self._options, partition.ranges)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Nothing to do: the offsets are in the checkpoint, and the topics keep their records."""

    def _lookup(self) -> OffsetLookup:
        from ottla.spark.lookup import OffsetLookup

        return OffsetLookup(self._options)

    def _now(self, lookup: OffsetLookup) -> Offsets:
        return lookup.latest(lookup.partitions(must_exist=False))

    def _with_new(self, lookup: OffsetLookup, start: Offsets, end: Offsets) -> Offsets:
        """The start of a batch, with the partitions that came since the last one."""
        return {**lookup.earliest(sorted(end.keys() - start.keys())), **start}

    def _range(self, piece: OffsetRange, earliest: int | None) -> OffsetRange:
        """What can be read of a range; what cannot is reported as lost."""
        where = piece.topic_partition
        if piece.end < piece.start:
            self._report(f"{where} went back from offset {piece.start} to {piece.end}")
        if piece.size and earliest is None:
            self._report(f"offsets {piece.start} to {piece.end - 1} of {where} are gone with it")
            return OffsetRange(where, piece.end, piece.end)
        if piece.size and earliest is not None and piece.start < earliest:
            last = min(earliest, piece.end) - 1
            self._report(
                f"offsets {piece.start} to {last} of {where} are gone; its log begins at {earliest}"
            )
            return OffsetRange(where, earliest, piece.end)
        return piece

    def _report(self, what: str) -> None:
        report_data_loss(what, fail=self._options.fail_on_data_loss)
