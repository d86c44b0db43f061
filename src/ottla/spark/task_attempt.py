"""Which attempt of which task a worker is running, as Spark tells it."""

from __future__ import annotations

from typing import NamedTuple


class TaskAttempt(NamedTuple):
    """One run of one task of a micro-batch.

    A query keeps its id over restarts; every start of it is another run.
    """

    query_id: str
    run_id: str
    batch_id: int
    task: int
    attempt: int

    @classmethod
    def current(cls) -> TaskAttempt:
        """The one that this worker is in."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "not in a task"
        query_id = context.getLocalProperty("sql.streaming.queryId")
        batch_id = context.getLocalProperty("streaming.sql.batchId")
        assert query_id is not None, "not in a streaming query"
        assert batch_id is not None, "not in a micro-batch"
        # Spark groups the jobs of a query by the id of its run.
        run_id = context.getLocalProperty("spark.jobGroup.id") or f"task{context.taskAttemptId()}"
        return cls(query_id, run_id, int(batch_id), context.partitionId(), context.attemptNumber())
