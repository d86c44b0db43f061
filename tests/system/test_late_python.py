"""A query whose Python process starts too late for Spark, as on a busy machine."""

from __future__ import annotations

import sys

import pytest
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from ottla.pipelines.patient_query import PatientQuery

pytestmark = pytest.mark.spark

# The first one does not come to Spark, which gives it 10 s, before the test is over.
LATE_PYTHON = """#!/bin/sh
case "$*" in
  *python_streaming_source_runner*)
    if mkdir {folder}/late 2>/dev/null; then
      until [ -e {folder}/over ]; do sleep 0.2; done
      exit
    fi;;
esac
exec {python} "$@"
"""


class ThreeNumbers(DataSource):
    """0, 1 and 2, as a stream."""

    @classmethod
    def name(cls):
        return "three_numbers"

    def schema(self):
        return "number int"

    def streamReader(self, schema):  # noqa: N802
        return Numbers()


class Numbers(DataSourceStreamReader):
    """All of them are there from the beginning."""

    def initialOffset(self):  # noqa: N802
        return {"number": 0}

    def latestOffset(self, *_):  # noqa: N802
        return {"number": 3}

    def partitions(self, start, end):
        return [InputPartition((start["number"], end["number"]))]

    def read(self, partition):
        for number in range(*partition.value):
            yield (number,)


@pytest.fixture
def late_source(spark, tmp_path):
    """A stream whose first Python process is late; the others of the session are not."""
    python = tmp_path / "python"
    python.write_text(LATE_PYTHON.format(folder=tmp_path, python=sys.executable))
    python.chmod(0o755)
    context = spark.sparkContext
    usual, context.pythonExec = context.pythonExec, str(python)
    try:
        spark.dataSource.register(ThreeNumbers)
    finally:
        context.pythonExec = usual
    yield spark.readStream.format("three_numbers").load()
    (tmp_path / "over").touch()


@pytest.mark.wide
def test_query_is_started_again_when_its_python_was_late(late_source, tmp_path, caplog):
    """It reads everything once: the query failed as "Python worker failed to connect back"."""
    rows = []
    query = PatientQuery(
        late_source.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .foreachBatch(lambda batch, _: rows.extend(row.number for row in batch.collect()))
    )
    first = query.current

    while not query.wait(60):
        pass

    assert "failed to connect back" in str(first.exception())
    assert "is started again: its Python process took longer" in caplog.text
    assert rows == [0, 1, 2]
