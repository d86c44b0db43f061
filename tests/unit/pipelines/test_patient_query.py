"""Queries that Spark gave up on before their Python process was there; no Spark."""

from __future__ import annotations

import logging
from unittest.mock import MagicMock

import pytest
from pyspark.errors import StreamingQueryException

from ottla.pipelines.patient_query import RESTARTS, PatientQuery

# As Spark 4.3 says it.
LATE = (
    "[STREAM_FAILED] Query [id = 36be324e, runId = 743cffcb] terminated with exception: "
    "Python worker failed to connect back. SQLSTATE: XXKST\nCurrent State: INITIALIZING"
)
LATE_IN_A_TASK = (
    "[STREAM_FAILED] Query [id = 36be324e, runId = 743cffcb] terminated with exception: Job aborted"
    " due to stage failure: Task 0 in stage 0.0 failed 1 times: Python worker failed to connect"
    " back. SQLSTATE: XXKST"
)


class FakeQuery:
    """One run; `failure` is what it ends with, RUNNING while it does not."""

    RUNNING = "running"
    name, id = "counts", "36be324e"

    def __init__(self, failure):
        self.failure = failure
        self.is_stopped = False
        self.status = {"isTriggerActive": False}
        self.lastProgress = None

    @property
    def isActive(self):  # noqa: N802
        return self.failure == self.RUNNING and not self.is_stopped

    def awaitTermination(self, timeout_s=None):  # noqa: N802
        if self.failure and self.failure != self.RUNNING:
            raise StreamingQueryException(self.failure)

    def stop(self):
        self.is_stopped = True


class FakeWriter:
    """Starts runs that end as the script says, the last entry again and again."""

    def __init__(self, *failures):
        self.failures = list(failures)
        self.started = 0
        self._spark = MagicMock()

    def start(self):
        self.started += 1
        failures = self.failures
        return FakeQuery(failures.pop(0) if len(failures) > 1 else failures[0])


def test_query_whose_python_was_late_is_started_again(caplog):
    """From its checkpoint, and the log says so."""
    writer = FakeWriter(LATE, FakeQuery.RUNNING)
    query = PatientQuery(writer)

    with caplog.at_level(logging.WARNING):
        assert not query.wait(1)

    assert (writer.started, query.is_active) == (2, True)
    assert "the query counts is started again: its Python process took longer" in caplog.text


def test_query_is_started_again_only_so_many_times():
    """Where Python never comes the query fails with what Spark says."""
    writer = FakeWriter(LATE)
    query = PatientQuery(writer)

    for _ in range(RESTARTS):
        assert not query.has_ended()
    with pytest.raises(StreamingQueryException, match="failed to connect back"):
        query.has_ended()
    assert writer.started == 1 + RESTARTS


def test_query_that_has_read_something_has_all_its_restarts_again():
    """Only those in a row count: a stream runs for months."""
    writer = FakeWriter(LATE)
    query = PatientQuery(writer)

    for _ in range(2 * RESTARTS):
        query.current.lastProgress = {"batchId": 0}
        assert not query.has_ended()
    assert writer.started == 1 + 2 * RESTARTS


@pytest.mark.parametrize("failure", [LATE_IN_A_TASK, "[STREAM_FAILED] records are lost"])
def test_other_failures_are_raised(failure):
    """They would come again, or are for the user to decide."""
    writer = FakeWriter(failure)

    with pytest.raises(StreamingQueryException):
        PatientQuery(writer).has_ended()
    assert writer.started == 1


def test_query_that_was_stopped_is_not_started_again():
    """Neither one that has ended by itself."""
    late, done = FakeWriter(LATE), FakeWriter(None)
    query = PatientQuery(late)
    query.stop()

    with pytest.raises(StreamingQueryException):
        query.has_ended()
    assert PatientQuery(done).has_ended()
    assert (late.started, done.started) == (1, 1)
