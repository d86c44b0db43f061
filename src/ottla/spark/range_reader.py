"""Ranges of offsets, read in a task: record batches off the wire, Arrow batches for Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from pyspark.sql.datasource import InputPartition

from ottla.clients.consumer.position_validator import LogTruncationError, TopicRecreatedError
from ottla.errors import ErrorCode, KafkaError
from ottla.record.columnar import HEADERS, decode_columns
from ottla.spark import connections
from ottla.spark.data_loss import report_data_loss
from ottla.spark.lookup import OffsetLookup, is_gone
from ottla.spark.offsets import OffsetRange, TopicIds
from ottla.structs import NO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from ottla.spark.options import SourceOptions
    from ottla.spark.task_sizes import Task


class RangesPartition(InputPartition):
    """The input of a task: ranges of offsets, of one partition or of several.

    `topic_ids` are those of their topics when the ranges were planned.
    """

    def __init__(self, ranges: Task, topic_ids: TopicIds) -> None:
        super().__init__(ranges)
        self.ranges = ranges
        topics = {piece.topic_partition.topic for piece in ranges}
        self.topic_ids = {name: each for name, each in topic_ids.items() if name in topics}


def read_ranges(options: SourceOptions, task: RangesPartition) -> Iterator[pa.RecordBatch]:
    """The records of the ranges, one range after the other, with the columns of the options."""
    columns = list(options.columns)
    for piece in task.ranges:
        topic_id = task.topic_ids.get(piece.topic_partition.topic)
        for batch in read_range(options, piece, UUID(topic_id) if topic_id else NO_UUID):
            yield batch.select(columns)


def read_range(
    options: SourceOptions, piece: OffsetRange, topic_id: UUID = NO_UUID
) -> Iterator[pa.RecordBatch]:
    """The records of the range. Those that are deleted meanwhile are reported as lost.

    So is the rest of it if the topic is another one than that of this id, and read no further.
    """
    position = piece.start
    while position < piece.end:
        try:
            rest = OffsetRange(piece.topic_partition, position, piece.end)
            for batch in _decoded(options, rest, topic_id):
                yield batch
                position = batch.column("offset")[-1].as_py() + 1
            return
        except LogTruncationError as error:
            piece = _after_truncation(options, piece, position, error)
            position = piece.start
        except KafkaError as error:
            if isinstance(error, TopicRecreatedError) or is_gone(error):
                position = _without_topic(options, piece, position, error)
            elif error.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                position = _after_loss(options, piece, position, error)
            else:
                raise


def _decoded(
    options: SourceOptions, piece: OffsetRange, topic_id: UUID
) -> Iterator[pa.RecordBatch]:
    topic, partition = piece.topic_partition
    reader = connections.partition_reader(options.client)
    return decode_columns(
        reader.read(
            piece.topic_partition,
            piece.start,
            piece.end,
            isolation=options.isolation,
            topic_id=topic_id,
        ),
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


def _without_topic(
    options: SourceOptions, piece: OffsetRange, position: int, error: KafkaError
) -> int:
    """The end of a range whose topic is gone; raises if that is not allowed."""
    report_data_loss(
        f"offsets {position} to {piece.end - 1} of {piece.topic_partition} are gone with it "
        f"({error.message})",
        fail=options.fail_on_data_loss,
    )
    return piece.end


def _after_loss(
    options: SourceOptions, piece: OffsetRange, position: int, error: KafkaError
) -> int:
    """The offset to continue at, after records that are gone; raises if they may not be skipped."""
    earliest = OffsetLookup(options).earliest([piece.topic_partition]).get(piece.topic_partition)
    if earliest is None:
        return _without_topic(options, piece, position, error)
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
