"""The pipeline word_count as a declaration: the same functions, other people's runner."""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from ottla.pipelines import word_count

SERVERS = os.environ.get("OTTLA_SERVERS", "localhost:9092")
TOPIC = "streams-plaintext-input"


def session() -> SparkSession:
    """The session of the run; it knows the format `ottla` by itself."""
    found = SparkSession.getActiveSession()
    assert found is not None, "run this with spark-pipelines"
    return found


@dp.table
def words() -> DataFrame:
    """A streaming table: each run adds the words of the records that are new."""
    reader = session().readStream.format("ottla").option("kafka.bootstrap.servers", SERVERS)
    records = reader.option("subscribe", TOPIC).option("startingOffsets", "earliest").load()
    return word_count.words(records)


@dp.materialized_view
def word_counts() -> DataFrame:
    """Computed anew by each run."""
    return word_count.counts(session().read.table("words"))
