"""Queries of every output mode into topics, exactly once.

Spark lets no Python sink take a query in mode `update`; such micro-batches come through
`foreachBatch` and are written by the protocol of the sink for streams: tasks leave transactions
open, the driver decides and commits.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.spark.exactly_once import Prepared, TaskAttempt, batch_committer, write_prepared
from ottla.spark.sink_options import SinkOptions, check_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def into_topics(query: DataStreamWriter, mode: str, options: Mapping[str, str]) -> DataStreamWriter:
    """A query of any output mode with the sink `ottla` and its options.

    Rows are appended through the sink itself; those of mode `update`, or `complete`, batch by
    batch. Both are exactly once unless `exactlyOnce` is false.
    """
    if mode == "append":
        return query.format("ottla").options(**options)
    sink = SinkOptions.for_stream(options)
    if sink.exactly_once:
        return query.foreachBatch(ExactlyOnceBatches(sink).write)

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.write.format("ottla").options(**options).mode("append").save()

    return query.foreachBatch(write)


@dataclass(frozen=True)
class ExactlyOnceBatches:
    """The function for `foreachBatch`: `query.foreachBatch(ExactlyOnceBatches(options).write)`.

    A batch that is repeated after a crash is not written again. One query, one of these, and one
    checkpoint belong together, as with the sink.
    """

    options: SinkOptions

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Write and commit a batch; runs in the driver."""
        check_schema(batch.schema, self.options)
        messages = batch.mapInArrow(self._write_task, "message binary").collect()
        prepared: list[Prepared] = [pickle.loads(bytes(row[0])) for row in messages]
        if not prepared:
            return  # a batch without tasks has no rows
        committer = batch_committer(prepared[0].sink_id, self.options.client)
        try:
            committer.commit(batch_id, prepared)
        except BaseException:
            committer.abort(batch_id, prepared)
            raise

    def _write_task(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        done = write_prepared(self.options, TaskAttempt.current(), batches)
        yield pa.record_batch([pa.array([pickle.dumps(done)], pa.binary())], ["message"])
