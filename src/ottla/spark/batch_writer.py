"""`df.write`: each task writes its rows; delivered rows stay even if the job fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ottla.spark.sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """A task has delivered all of its rows."""

    row_count: int


def write_rows(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Written:
    """Deliver the rows of a task at least once; each record of this attempt once (KIP-98)."""
    from pyspark import TaskContext

    from ottla.spark import connections
    from ottla.spark.row_writer import RowWriter

    context = TaskContext.get()
    task = 0 if context is None else context.partitionId()
    writer = RowWriter(connections.producer(options.client), options, task)
    for batch in batches:
        writer.write(batch)
    writer.finish()
    return Written(writer.row_count)


class OttlaBatchWriter(DataSourceArrowWriter):
    """Writes at least once: a task that is run again writes its rows again."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Runs in a task."""
        return write_rows(self._options, iterator)
