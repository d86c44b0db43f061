"""`spark.read` and `spark.readStream`: offsets are planned in the driver, tasks read their ranges.

A batch lies between two bounds that are looked up once, when the query is planned; micro-batches
of a stream lie between offsets that Spark keeps in its checkpoint. Both say which records were gone
before they could be read, and which logs were truncated meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ottla.runtime import SystemClock
from ottla.spark.data_loss import put_back, report_data_loss, report_others
from ottla.spark.group_progress import GroupProgress
from ottla.spark.lookup import OffsetLookup
from ottla.spark.offsets import (
    JsonNumbers,
    JsonReach,
    OffsetRange,
    Offsets,
    Reach,
    TopicIds,
    limited,
    reach_of,
    to_json_object,
)
from ottla.spark.options import SourceOptions
from ottla.spark.range_reader import RangesPartition, read_ranges
from ottla.structs import NO_EPOCH, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)


class OttlaBatchReader(DataSourceReader):
    """Reads with the tasks that `tasks` plans; each yields Arrow batches."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks, in the driver; the end is fixed here, so that a query ends."""
        options = self._options
        lookup = OffsetLookup(options)
        partitions, ids = lookup.partitions_and_ids(must_exist=True)
        earliest, latest = lookup.earliest(partitions), lookup.latest(partitions)
        starts, ends = (
            self._edge(reach_of(bound, lookup.offsets(bound, partitions)), ids, edge, earliest)
            for bound, edge in ((options.starting, earliest), (options.ending, latest))
        )
        ranges = [
            self._inside(OffsetRange(each, starts[each], ends[each]), earliest[each], latest[each])
            for each in partitions
        ]
        return [RangesPartition(task, ids) for task in options.task_sizes.share_out(ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read, in a task. Where there are no ranges, Spark starts one task without any."""
        if not isinstance(partition, RangesPartition):
            return iter(())
        return read_ranges(self._options, partition)

    def _edge(self, reach: Reach, topic_ids: TopicIds, edge: Offsets, earliest: Offsets) -> Offsets:
        """Where to begin, or to end; a topic that was created again is read as a whole."""
        others = reach.others(topic_ids)
        report_others(self._options, others)
        return {**edge, **put_back(self._options, reach.without(others), earliest)}

    def _inside(self, piece: OffsetRange, earliest: int, latest: int) -> OffsetRange:
        """The part of the range that the log has; the rest is reported as lost."""
        if piece.size == 0:
            return piece
        if piece.start < earliest:
            self._report(piece.topic_partition, piece.start, min(earliest, piece.end) - 1, earliest)
        if piece.end > latest:
            self._report(piece.topic_partition, max(latest, piece.start), piece.end - 1, latest)
        return OffsetRange(
            piece.topic_partition, max(piece.start, earliest), min(piece.end, latest)
        )

    def _report(self, where: TopicPartition, first: int, last: int, edge: int) -> None:
        what = f"its log begins at {edge}" if last < edge else f"its log ends at {edge}"
        report_data_loss(
            f"offsets {first} to {last} of {where} are not there; {what}",
            fail=self._options.fail_on_data_loss,
        )


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
            partitions, ids = lookup.partitions_and_ids(must_exist=True)
            starting = self._options.starting
            given = reach_of(starting, lookup.offsets(starting, partitions))
            epochs = {**lookup.ends(partitions).epochs, **given.epochs}
            found = Reach(given.offsets, epochs, {**ids, **given.topic_ids})
            self._initial = found.to_json_object()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """Leave records that arrive after this moment to the next run."""
        self._available = self._now(self._lookup()).offsets

    def latestOffset(self, start: JsonReach, limit: ReadLimit) -> JsonReach:
        """The end of the next micro-batch. Spark asks when the one before, to `start`, is over.

        After an election the end changes even without new records: so there is a micro-batch in
        which the log read so far is compared with that of the new leader.
        """
        begun = Reach.from_json_object(start)
        self._progress.report(begun.offsets)
        lookup = self._lookup()
        now = self._now(lookup)
        begun = begun.without(begun.others(now.topic_ids))
        self._latest = end = now.offsets
        if self._available is not None:
            end = {
                each: min(end.get(each, offset), offset) for each, offset in self._available.items()
            }
        if not isinstance(limit, ReadMaxRows) and self._options.min_offsets_per_trigger is None:
            return reached(begun, now._replace(offsets=end)).to_json_object()
        begin = self._with_new(lookup, begun.offsets, end)
        if self._is_too_little(begin, end):
            return start
        if isinstance(limit, ReadMaxRows):
            end = limited(begin, end, limit.max_rows)
        return reached(begun, now._replace(offsets=end)).to_json_object()

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
        now, ids = lookup.partitions_and_ids(must_exist=False)
        again, others = begun.others(ended.topic_ids), ended.others(ids)
        report_others(self._options, sorted({*again, *others}))
        begun = begun.without(again)
        gone = sorted(begun.offsets.keys() - ended.offsets.keys())
        if gone:
            self._report(f"{', '.join(map(str, gone))}: deleted, maybe with unread records")
        there = {each for each in now if each.topic not in others}
        earliest = lookup.earliest(sorted(there & ended.offsets.keys()))
        begin = put_back(self._options, begun, earliest)
        stop = put_back(self._options, ended, earliest)
        ranges = [
            self._range(OffsetRange(each, begin.get(each, 0), offset), earliest.get(each))
            for each, offset in stop.items()
        ]
        return [RangesPartition(task, ids) for task in self._options.task_sizes.share_out(ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records, in a task."""
        assert isinstance(partition, RangesPartition), f"partition {partition}"
        return read_ranges(self._options, partition)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Nothing to do: the offsets are in the checkpoint, and the topics keep their records."""

    def _lookup(self) -> OffsetLookup:
        return OffsetLookup(self._options)

    def _now(self, lookup: OffsetLookup) -> Reach:
        partitions, ids = lookup.partitions_and_ids(must_exist=False)
        return lookup.ends(partitions)._replace(topic_ids=ids)

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


def reached(begun: Reach, end: Reach) -> Reach:
    """The end of a micro-batch, with the epochs of the leaders that have the records up to it.

    Without new records an older epoch is ignored: the end would flip back and forth.
    """
    epochs = {}
    for each, offset in end.offsets.items():
        epoch, before = end.epochs.get(each, NO_EPOCH), begun.epochs.get(each, NO_EPOCH)
        epochs[each] = max(epoch, before) if begun.offsets.get(each) == offset else epoch
    topics = {each.topic for each in end.offsets}
    ids = {**begun.topic_ids, **end.topic_ids}
    return Reach(
        end.offsets,
        {each: epoch for each, epoch in epochs.items() if epoch != NO_EPOCH},
        {topic: topic_id for topic, topic_id in ids.items() if topic in topics},
    )
