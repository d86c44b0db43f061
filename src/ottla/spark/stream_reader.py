"""`spark.readStream`: micro-batches between offsets that Spark keeps in its checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ottla.errors import KafkaError
from ottla.runtime import SystemClock
from ottla.spark import connections
from ottla.spark.data_loss import put_back, report_data_loss
from ottla.spark.offsets import (
    Epochs,
    JsonNumbers,
    JsonReach,
    OffsetRange,
    Offsets,
    Reach,
    epochs_of,
    limited,
    to_json_object,
)
from ottla.spark.options import SourceOptions
from ottla.spark.range_reader import RangesPartition, read_ranges
from ottla.structs import NO_EPOCH

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.spark.lookup import OffsetLookup

logger = logging.getLogger(__name__)


# Commits a stream's progress to a consumer group, so that Kafka's tools show its lag.
#
# The offsets are for monitoring only: the query itself uses its checkpoint. So a group
# that cannot be written to causes a warning, and no error.


class GroupProgress:
    """The offsets of a group without members; does nothing where there is no group."""

    def __init__(self, group_id: str | None, settings: Mapping[str, str]) -> None:
        self._group_id = group_id
        self._settings = settings
        self._reported: Offsets | None = None

    def report(self, offsets: Offsets) -> None:
        """Commit that everything before these offsets is processed; each change is sent once."""
        if self._group_id is None or not offsets or offsets == self._reported:
            return
        self._reported = offsets
        try:
            connections.admin(self._settings).alter_group_offsets(self._group_id, offsets)
        except KafkaError as error:
            logger.warning("group %s is not told of the progress: %s", self._group_id, error)


class OttlaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one process of the driver as long as the query; copies of it read in the tasks.

    An offset is the next one to read of every partition, with the leader epoch of its log. A
    partition that is not in the start of a batch is new, and read from its beginning.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._initial: JsonReach | None = None
        self._available: Offsets | None = None
        self._latest: Offsets | None = None
        self._clock = SystemClock()
        self._last_trigger_ms: int | None = None
        self._progress = GroupProgress(options.group_id, options.client)

    def initialOffset(self) -> JsonReach:
        """Where a query without a checkpoint begins. Spark asks twice; the answer must not move."""
        if self._initial is None:
            lookup = self._lookup()
            partitions = lookup.partitions(must_exist=True)
            starting = self._options.starting
            epochs = {**lookup.ends(partitions).epochs, **epochs_of(starting)}
            self._initial = Reach(lookup.offsets(starting, partitions), epochs).to_json_object()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """Leave what arrives after this moment to the next run."""
        self._available = self._now(self._lookup()).offsets

    def latestOffset(self, start: JsonReach, limit: ReadLimit) -> JsonReach:
        """The end of the next micro-batch. Spark asks when the one before, to `start`, is over.

        After an election the end changes even without new records: so there is a micro-batch in
        which what was read is compared with the log of the new leader.
        """
        begun = Reach.from_json_object(start)
        self._progress.report(begun.offsets)
        lookup = self._lookup()
        end, epochs = self._now(lookup)
        self._latest = end
        if self._available is not None:
            end = {
                each: min(end.get(each, offset), offset) for each, offset in self._available.items()
            }
        if not isinstance(limit, ReadMaxRows) and self._options.min_offsets_per_trigger is None:
            return reached(begun, end, epochs).to_json_object()
        begin = self._with_new(lookup, begun.offsets, end)
        if self._is_too_little(begin, end):
            return start
        if isinstance(limit, ReadMaxRows):
            end = limited(begin, end, limit.max_rows)
        return reached(begun, end, epochs).to_json_object()

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

    def reportLatestOffset(self) -> JsonNumbers | None:
        """How far the topics reach, for the progress of the query."""
        return None if self._latest is None else to_json_object(self._latest)

    def partitions(self, start: JsonReach, end: JsonReach) -> Sequence[InputPartition]:
        """The ranges of a micro-batch; the same for a replay, if the logs still have them."""
        lookup = self._lookup()
        begun, ended = Reach.from_json_object(start), Reach.from_json_object(end)
        gone = sorted(begun.offsets.keys() - ended.offsets.keys())
        if gone:
            self._report(f"{', '.join(map(str, gone))}: deleted, maybe with unread records")
        there = set(lookup.partitions(must_exist=False))
        earliest = lookup.earliest(sorted(there & ended.offsets.keys()))
        begin = put_back(self._options, begun, earliest)
        stop = put_back(self._options, ended, earliest)
        ranges = [
            self._range(OffsetRange(each, begin.get(each, 0), offset), earliest.get(each))
            for each, offset in stop.items()
        ]
        return [RangesPartition(task) for task in self._options.task_sizes.share_out(ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records, in a task."""
        assert isinstance(partition, RangesPartition), f"partition {partition}"
        return read_ranges(self._options, partition.ranges)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Nothing to do: the offsets are in the checkpoint, and the topics keep their records."""

    def _lookup(self) -> OffsetLookup:
        from ottla.spark.lookup import OffsetLookup

        return OffsetLookup(self._options)

    def _now(self, lookup: OffsetLookup) -> Reach:
        return lookup.ends(lookup.partitions(must_exist=False))

    def _with_new(self, lookup: OffsetLookup, start: Offsets, end: Offsets) -> Offsets:
        """The start of a batch, with the partitions that came since the last one."""
        return {**lookup.earliest(sorted(end.keys() - start.keys())), **start}

    def _range(self, piece: OffsetRange, earliest: int | None) -> OffsetRange:
        """The part of a range that can be read; the rest is reported as lost."""
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


def reached(begun: Reach, end: Offsets, epochs: Epochs) -> Reach:
    """The end of a micro-batch, with the epochs of the leaders that have the records up to it.

    Without new records an older epoch is ignored: the end would flip back and forth.
    """
    found = {}
    for each, offset in end.items():
        epoch, before = epochs.get(each, NO_EPOCH), begun.epochs.get(each, NO_EPOCH)
        found[each] = max(epoch, before) if begun.offsets.get(each) == offset else epoch
    return Reach(end, {each: epoch for each, epoch in found.items() if epoch != NO_EPOCH})
