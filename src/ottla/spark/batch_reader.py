"""`spark.read`: the offsets between two bounds, looked up once when the query is planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ottla.spark.data_loss import put_back, report_data_loss
from ottla.spark.offsets import OffsetRange, Reach, epochs_of
from ottla.spark.options import SourceOptions
from ottla.spark.range_reader import RangesPartition, read_ranges

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.structs import TopicPartition


class OttlaBatchReader(DataSourceReader):
    """Reads with the tasks that `tasks` plans; each yields Arrow batches."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks, in the driver; the end is fixed here, so that a query ends."""
        from ottla.spark.lookup import OffsetLookup

        options = self._options
        lookup = OffsetLookup(options)
        partitions = lookup.partitions(must_exist=True)
        earliest = lookup.earliest(partitions)
        starts, ends = (
            put_back(options, Reach(lookup.offsets(bound, partitions), epochs_of(bound)), earliest)
            for bound in (options.starting, options.ending)
        )
        latest = lookup.latest(partitions)
        ranges = [
            self._inside(OffsetRange(each, starts[each], ends[each]), earliest[each], latest[each])
            for each in partitions
        ]
        return [RangesPartition(task) for task in options.task_sizes.share_out(ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read, in a task. Where there are no ranges, Spark starts one task without any."""
        if not isinstance(partition, RangesPartition):
            return iter(())
        return read_ranges(self._options, partition.ranges)

    def _inside(self, piece: OffsetRange, earliest: int, latest: int) -> OffsetRange:
        """The part of the range that the log has; what lies outside is reported as lost."""
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
