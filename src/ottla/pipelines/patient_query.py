"""A streaming query that is started again when Spark's Python process starts too slowly."""

from __future__ import annotations

import logging
import re
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


logger = logging.getLogger(__name__)

SOURCE = "ottla"

# Each lasts 10 s and more: a query is given up after some minutes without a micro-batch.
RESTARTS = 20
POLL_S = 0.01
STOP_LIMIT_S = 10
# The query's own error: a task that failed for this reason reads otherwise.
LATE_PYTHON = re.compile(r"terminated with exception: Python worker failed to connect back\b")


def make_current(spark: SparkSession) -> None:
    """Make it the session of this thread, in which Spark looks for sources and sinks by name.

    A thread of Python has none in the JVM until PySpark says so, and none with a new connection.
    """
    jvm = spark.sparkContext._jvm
    assert jvm is not None, "the session has ended"
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)


VARIABLES = {
    "SPARK_LOCAL_DIRS": "",
    "SPARK_AUTH_SOCKET_TIMEOUT": "15",
    "SPARK_BUFFER_SIZE": "65536",
    "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
}
"""What a streaming query tells the Python of its source when it starts, with Spark's own values."""
_variables_lock = threading.Lock()


def settle_variables(spark: SparkSession) -> None:
    """Make it safe to start queries on topics at the same time: VARIABLES are there already.

    Spark has one map of variables for all queries of a source, without a lock. Two that add to it
    at once can spoil it, and no query of the session that writes to a topic works from then on
    ("Illegal size 5 of collection, expected 6").
    """
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    with _variables_lock:
        if manager.dataSourceExists(SOURCE):
            variables = manager.lookupDataSource(SOURCE).dataSourceCls().envVars()
            for name, value in VARIABLES.items():
                variables.putIfAbsent(name, value)


class PatientQuery:
    """A query that is running; `current` is the one that Spark knows.

    Spark gives the Python process of a source 10 s to start, and has no setting for that: on a busy
    machine a query fails before it has read anything. It is restarted here, RESTARTS times at most
    in a row, and only after that very error. That is safe: a query continues from its checkpoint,
    and its output is there exactly once, however often it is started.

    It must have a checkpoint of its own. A query that failed is noticed, and begun again or raised,
    by `has_ended` and `wait`.
    """

    def __init__(self, writer: DataStreamWriter) -> None:
        """Start the query that `writer` describes."""
        self._writer = writer
        self._restarts_left = RESTARTS
        self._is_stopped = False
        self.current: StreamingQuery = self._start()

    def _start(self) -> StreamingQuery:
        make_current(self._writer._spark)
        settle_variables(self._writer._spark)
        return self._writer.start()

    @property
    def is_active(self) -> bool:
        return self.current.isActive

    def has_ended(self) -> bool:
        """Whether the query has ended and is not restarted; raises its error if it failed."""
        from pyspark.errors import StreamingQueryException

        if self.current.isActive:
            return False
        try:
            self.current.awaitTermination()
        except StreamingQueryException as error:
            if self.current.lastProgress is not None:
                self._restarts_left = RESTARTS
            if self._is_stopped or not self._restarts_left or not is_late_python(error):
                raise
            self._restarts_left -= 1
            logger.warning(
                "the query %s is started again: its Python process took longer to start than Spark "
                "waits (%d more times, then it fails)",
                self.current.name or self.current.id,
                self._restarts_left,
            )
            self.current = self._start()
            return False
        return True

    def wait(self, timeout_s: int) -> bool:
        """Wait for the end or the timeout, then return as `has_ended` does."""
        from pyspark.errors import StreamingQueryException

        try:
            self.current.awaitTermination(timeout_s)
        except StreamingQueryException:
            pass  # `has_ended` handles it below
        return self.has_ended()

    def stop(self) -> None:
        """Stop between batches: an interrupted batch fills the log with stack traces.

        Stopping twice does nothing.
        """
        self._is_stopped = True
        query = self.current
        deadline_s = time.monotonic() + STOP_LIMIT_S
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
        query.stop()


def is_late_python(error: Exception) -> bool:
    """Whether a query failed because the Python process of its source was not there in time."""
    return LATE_PYTHON.search(str(error)) is not None
