"""Ranges of offsets, read in a task: record batches off the wire, Arrow batches for Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from ottla.clients.consumer.position_validator import LogTruncationError
from ottla.errors import ErrorCode, KafkaError
from ottla.record.columnar import HEADERS, decode_columns
from ottla.spark import connections
from ottla.spark.data_loss import report_data_loss
from ottla.spark.lookup import OffsetLookup
from ottla.spark.offsets import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from ottla.spark.options import SourceOptions
    from ottla.spark.task_sizes import Task


class RangesPartition(InputPartition):
    """The input of a task: ranges of offsets, of one partition or of several."""

    def __init__(self, ranges: Task) -> None:
        super().__init__(ranges)
        self.ranges = ranges


def read_ranges(options: SourceOptions, ranges: Task) -> Iterator[pa.RecordBatch]:
    """The records of the ranges, one range after the other, with the columns of the options."""
    columns = list(options.columns)
    for piece in ranges:
        for batch in read_range(options, piece):
            yield batch.select(columns)


def read_range(options: SourceOptions, piece: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The records of the range. Those that are deleted meanwhile are reported as lost."""
    position = piece.start
    while position < piece.end:
        try:
            for batch in _decoded(options, OffsetRange(piece.topic_partition, position, piece.end)):
                yield batch
                position = batch.column("offset")[-1].as_py() + 1
            return
        except LogTruncationError as error:
            piece = _after_truncation(options, piece, position, error)
            position = piece.start
        except KafkaError as error:
            if error.error is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            position = _after_loss(options, piece, position, error)


def _decoded(options: SourceOptions, piece: OffsetRange) -> Iterator[pa.RecordBatch]:
    topic, partition = piece.topic_partition
    reader = connections.partition_reader(options.client)
    return decode_columns(
        reader.read(piece.topic_partition, piece.start, piece.end, isolation=options.isolation),
        topic,
        partition,
        start_offset=piece.start,
        end_offset=piece.end,
        with_headers=HEADERS in options.columns,
    )


def _after_truncation(
    options: SourceOptions, piece: OffsetRange, position: int, error: LogTruncationError
) -> OffsetRange:
    """The rest to read of a log that a new leader has truncated; raises if that is not allowed."""
    where, parting = piece.topic_partition, error.divergent_offset
    report_data_loss(
        f"{where} was cut while it was read: the log of its new leader has other records, or none, "
        f"from {'an offset that is not known' if parting is None else f'offset {parting}'} on, "
        f"and was read up to {error.position}",
        fail=options.fail_on_data_loss,
    )
    if options.is_stream:
        # The records in their place belong to the next micro-batch, which begins there.
        return OffsetRange(where, position, position if parting is None else parting)
    lookup = OffsetLookup(options)
    latest = lookup.latest([where])[where]
    if parting is None:
        parting = lookup.earliest([where])[where]
    return OffsetRange(where, min(position, parting), min(piece.end, latest))


def _after_loss(
    options: SourceOptions, piece: OffsetRange, position: int, error: KafkaError
) -> int:
    """The offset to continue at, after records that are gone; raises if they may not be skipped."""
    earliest = OffsetLookup(options).earliest([piece.topic_partition])[piece.topic_partition]
    if earliest <= position:
        # The log ends before `position`: the topic was recreated, or its leader lost records.
        report_data_loss(
            f"offsets {position} to {piece.end - 1} of {piece.topic_partition} are not there "
            f"({error.message})",
            fail=options.fail_on_data_loss,
        )
        return piece.end
    report_data_loss(
        f"offsets {position} to {min(earliest, piece.end) - 1} of {piece.topic_partition} are "
        f"gone; its log begins at {earliest}",
        fail=options.fail_on_data_loss,
    )
    return earliest
