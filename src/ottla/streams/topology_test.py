"""Runs a topology without brokers: records in, records out, in one Spark session."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F

from ottla.streams.builder import Sink, StreamsBuilder
from ottla.streams.records import written
from ottla.streams.serdes import Serde, Serdes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = "key binary, value binary, partition int, offset long, timestamp timestamp"
Row = tuple[bytes | None, bytes | None, int]


class PipedRecord(NamedTuple):
    """A record that a test hands in; times are in ms since 1970."""

    key: Any
    value: Any
    timestamp_ms: int = 0


class StreamsTest:
    """The driver of one topology, as Kafka's TopologyTestDriver is.

    As a batch, all records are there at once: a table gives its newest rows, a window its result.
    With a folder it runs as a stream: every `pipe` is a micro-batch, so that updates and late
    records show; a table that is joined is as it was when `read` was called.
    """

    def __init__(
        self, builder: StreamsBuilder, spark: SparkSession, folder: Path | None = None
    ) -> None:
        self._builder = builder
        self._spark = spark
        self._folder = folder
        self._topics: dict[str, list[Row]] = {}
        self._written: dict[str, list[Row]] = {}
        self._files = 0

    @property
    def is_streaming(self) -> bool:
        """Whether topics are read as streams."""
        return self._folder is not None

    def pipe(
        self,
        topic: str,
        records: Iterable[tuple[Any, ...]],
        key: Serde | None = None,
        value: Serde | None = None,
    ) -> None:
        """Put records into a topic, each (key, value) or (key, value, time in ms)."""
        keys, values = key or Serdes.string(), value or Serdes.string()
        given = [PipedRecord(*each) for each in records]
        rows = [
            (keys.to_bytes(each.key), values.to_bytes(each.value), each.timestamp_ms)
            for each in given
        ]
        self._append(topic, rows)

    def read(
        self, topic: str, key: Serde | None = None, value: Serde | None = None
    ) -> list[tuple[Any, Any]]:
        """The keys and values of a topic that is written.

        A batch gives all of them each time, a stream those that are new since the last call.
        """
        keys, values = key or Serdes.string(), value or Serdes.string()
        if self.is_streaming:
            for sink in self._builder.sinks:
                self._run(sink)
            rows = self._written.pop(topic, [])
        else:
            rows = [row for sink in self._sinks_of(topic) for row in self._rows(sink)]
        return [(keys.from_bytes(row[0]), values.from_bytes(row[1])) for row in rows]

    def stream(self, topic: str) -> DataFrame:
        """The records of a topic: piped, or written by the topology."""
        if self._folder is not None:
            reader = self._spark.readStream.schema(ROWS).option("maxFilesPerTrigger", 1)
            return reader.parquet(str(self._topic_folder(topic)))
        return self._batch(topic)

    def table(self, topic: str) -> DataFrame:
        """The records of a topic now."""
        if self._folder is not None:
            return self._spark.read.schema(ROWS).parquet(str(self._topic_folder(topic)))
        return self._batch(topic)

    def _batch(self, topic: str) -> DataFrame:
        rows = list(self._topics.get(topic, []))
        for sink in self._sinks_of(topic):
            rows += self._rows(sink)
        return self._frame(rows, 0)

    def _frame(self, rows: list[Row], first: int) -> DataFrame:
        numbered = [(*row, first + n) for n, row in enumerate(rows)]
        frame = self._spark.createDataFrame(
            numbered, "key binary, value binary, timestamp_ms long, offset long"
        )
        return frame.select(
            "key",
            "value",
            F.lit(0).alias("partition"),
            "offset",
            F.timestamp_millis("timestamp_ms").alias("timestamp"),
        )

    def _append(self, topic: str, rows: list[Row]) -> None:
        there = self._topics.setdefault(topic, [])
        if self._folder is not None and rows:
            from pyarrow import parquet

            self._files += 1
            path = self._topic_folder(topic) / f"{self._files:06}.parquet"
            parquet.write_table(self._frame(rows, len(there)).toArrow(), path)
            os.utime(path, (self._files, self._files))  # Spark reads the oldest file first
        there += rows

    def _topic_folder(self, topic: str) -> Path:
        assert self._folder is not None
        folder = self._folder / "topics" / topic
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _sinks_of(self, topic: str) -> list[Sink]:
        return [sink for sink in self._builder.sinks if sink.topic == topic]

    def _rows(self, sink: Sink) -> list[Row]:
        return _collected(written(sink.build(self), "timestamp"))

    def _run(self, sink: Sink) -> None:
        """Run one query, over the new records."""
        assert self._folder is not None

        def keep(batch: DataFrame, number: int) -> None:
            rows = _collected(batch)
            self._written.setdefault(sink.topic, []).extend(rows)
            self._append(sink.topic, rows)

        records = sink.build(self)
        query = (
            written(records, "timestamp")
            .writeStream.outputMode(records.mode)
            .option("checkpointLocation", str(self._folder / "checkpoints" / sink.name))
            .trigger(availableNow=True)
            .foreachBatch(keep)
            .start()
        )
        query.awaitTermination()


def _collected(frame: DataFrame) -> list[Row]:
    rows = frame.select("key", "value", F.unix_millis("timestamp").alias("ms")).collect()
    return [(_bytes(row.key), _bytes(row.value), row.ms) for row in rows]


def _bytes(found: bytearray | None) -> bytes | None:
    return None if found is None else bytes(found)
