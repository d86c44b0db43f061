"""The pipeline between its source and its sinks: a topic in, Parquet tables and dead letters out.

Every record of the topic becomes one row of `events`. A batch that Spark replays after a crash
replaces its own folder, so no row is there twice; `reconcile` counts, and does not assume it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it

from ottla.pipelines.web_traffic import transformations
from ottla.pipelines.web_traffic.dead_letters import DeadLetter, dead_letter_topic, publish

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS = "events"
CHECKPOINT = "checkpoint"
TABLES: Mapping[str, Callable[[DataFrame], DataFrame]] = {
    "traffic_per_minute": transformations.traffic_per_minute,
    "top_pages": transformations.top_pages,
    "errors": transformations.errors,
    "crawlers_by_user_agent": transformations.crawlers_by_user_agent,
    "crawlers_by_rate": transformations.crawlers_by_rate,
    "malformed": transformations.malformed,
}

BatchDone = Callable[[int, int], object]


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What was in the topic beside what is in the table; equal, or something went wrong."""

    in_topic: int
    rows: int
    distinct: int
    malformed: int
    dead_letters: int

    @property
    def unreported(self) -> int:
        """Lines that did not parse and are not in the dead-letter topic either."""
        return max(0, self.malformed - self.dead_letters)

    @property
    def lost(self) -> int:
        """Records of the topic that no row comes from."""
        return self.in_topic - self.distinct

    @property
    def duplicated(self) -> int:
        """Rows beyond the first that come from one record."""
        return self.rows - self.distinct


@dataclass(frozen=True, slots=True)
class WebTrafficPipeline:
    """One topic of access-log lines, and the folder for everything that is made of it."""

    spark: SparkSession
    bootstrap_servers: str
    topic: str
    output: Path
    max_offsets_per_trigger: int | None = None

    def ingest(self, on_batch: BatchDone = lambda batch_id, rows: None) -> None:
        """Read what is in the topic now, from where the last run ended; returns when it is read."""
        query = (
            self._read_stream()
            .writeStream.foreachBatch(lambda batch, id: self._write_batch(batch, id, on_batch))
            .option("checkpointLocation", str(self.output / CHECKPOINT))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def aggregate(self, name: str) -> Path:
        """Compute one of the TABLES from all events, and write it."""
        path = self.output / name
        table = TABLES[name](self.events())
        table.coalesce(1).write.mode("overwrite").parquet(str(path))
        return path

    def reconcile(self) -> Reconciliation:
        """Compare the rows with the offsets of the topic."""
        (row,) = (
            self.events()
            .agg(
                F.count("*").alias("rows"),
                F.count_distinct("_topic", "_partition", "_offset").alias("distinct"),
                F.count("problem").alias("malformed"),
            )
            .collect()
        )
        in_topic = records_in(self.bootstrap_servers, self.topic)
        letters = records_in(self.bootstrap_servers, dead_letter_topic(self.topic))
        return Reconciliation(in_topic, row["rows"], row["distinct"], row["malformed"], letters)

    def events(self) -> DataFrame:
        """All batches that were written."""
        return self.spark.read.parquet(str(self.output / EVENTS))

    def _read_stream(self) -> DataFrame:
        reader = (
            self.spark.readStream.format("ottla")
            .option("kafka.bootstrap.servers", self.bootstrap_servers)
            .option("subscribe", self.topic)
            .option("startingOffsets", "earliest")
        )
        if self.max_offsets_per_trigger is not None:
            reader = reader.option("maxOffsetsPerTrigger", self.max_offsets_per_trigger)
        return reader.load()

    def _write_batch(self, batch: DataFrame, batch_id: int, on_batch: BatchDone) -> None:
        path = self.output / EVENTS / f"batch_id={batch_id}"
        transformations.events(batch).write.mode("overwrite").parquet(str(path))
        written = self.spark.read.parquet(str(path))
        letters = written.where(F.col("problem").isNotNull())
        publish(
            self.bootstrap_servers,
            dead_letter_topic(self.topic),
            _dead_letters(letters),
        )
        on_batch(batch_id, written.count())


def records_in(bootstrap_servers: str, topic: str) -> int:
    """How many offsets the partitions of a topic hold."""
    from ottla import Admin, OffsetSpec, TopicPartition

    with Admin(bootstrap_servers) as admin:
        partitions = [
            TopicPartition(topic, info.partition)
            for info in admin.describe_topics([topic])[topic].partitions
        ]
        first = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
        last = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    return sum(last[each].offset - first[each].offset for each in partitions)


def _dead_letters(malformed: DataFrame) -> Iterator[DeadLetter]:
    # Few as a rule, but a topic of rubbish must not have to fit into memory.
    for row in malformed.toLocalIterator():
        value = None if row["raw"] is None else bytes(row["raw"])
        yield DeadLetter(value, row["_topic"], row["_partition"], row["_offset"], row["problem"])
