"""`df.write` and `df.writeStream`: micro-batches exactly once, unless that is not wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ottla.spark import producers
from ottla.spark.exactly_once import Prepared, TaskAttempt, batch_committer, write_prepared
from ottla.spark.row_writer import RowWriter
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

    context = TaskContext.get()
    task = 0 if context is None else context.partitionId()
    writer = RowWriter(producers.producer(options.client), options, task)
    for batch in batches:
        writer.write(batch)
    writer.finish()
    return Written(writer.row_count)


class OttlaBatchWriter(DataSourceArrowWriter):
    """`df.write`: writes at least once, as a task that is run again writes its rows again.

    Delivered rows stay even if the job fails.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Runs in a task."""
        return write_rows(self._options, iterator)


Messages: TypeAlias = Sequence[WriterCommitMessage | None]


class OttlaStreamWriter(DataSourceStreamArrowWriter):
    """Writes a micro-batch, or commits it: Spark makes one for tasks and one in the driver."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task, in the task."""
        if not self._options.exactly_once:
            return write_rows(self._options, iterator)
        return write_prepared(self._options, TaskAttempt.current(), iterator)

    def commit(self, messages: Messages, batchId: int) -> None:
        """Commit the batch, in the driver, when every task has returned."""
        prepared = _prepared(messages)
        if prepared:
            committer = batch_committer(prepared[0].sink_id, self._options.client)
            committer.commit(batchId, prepared)

    def abort(self, messages: Messages, batchId: int) -> None:
        """Abort the batch, in the driver, when a task or the commit has failed for good."""
        prepared = _prepared(messages)
        if prepared:
            committer = batch_committer(prepared[0].sink_id, self._options.client)
            committer.abort(batchId, prepared)


def _prepared(messages: Messages) -> list[Prepared]:
    return [each for each in messages if isinstance(each, Prepared)]
