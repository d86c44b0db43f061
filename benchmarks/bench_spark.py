"""Spark source and sink: rows a second, in batches and in streams, beside what the machine can do.

Two limits are measured in the same run: Spark making as many rows of the same size by itself, and
the record batches of the same topic fetched and decoded to Arrow in one process, without Spark.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import ottla
from ottla.clients.partition_reader import PartitionReader
from ottla.pipelines.runner import spark_session
from ottla.record.columnar import decode_columns
from ottla.runtime.java import JavaMissingError
from ottla.testing.processes import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = int(os.environ.get("BENCH_SPARK_RECORDS", "4000000"))
PER_TRIGGER = RECORDS // 4
PARTITIONS = 2
VALUE_SIZE = 100
RUNS = int(os.environ.get("BENCH_RUNS", "3"))
CODECS = ("none", "lz4", "zstd")


def fill(servers: str, topic: str, codec: str) -> None:
    """A topic of RECORDS values; what is decoded later is JSON-like, so that codecs have work."""
    text = b'{"user": 1234567, "page": "/articles/the-log", "referrer": "/index", "ms": 17}, '
    value = (text * 2)[:VALUE_SIZE]
    with ottla.Admin(servers) as admin:
        admin.create_topics([ottla.NewTopic(topic, PARTITIONS)])
    with ottla.Producer(
        servers, linger_ms=20, batch_size=64 * 1024, compression_type=codec
    ) as producer:
        for number in range(RECORDS):
            producer.send(topic, value, partition=number % PARTITIONS)


def measured(action: Callable[[], int]) -> float:
    """Rows a second: the median of some runs after one to warm up."""
    action()
    rates = []
    for _ in range(RUNS):
        start = time.perf_counter()
        rows = action()
        rates.append(rows / (time.perf_counter() - start))
    return statistics.median(rates)


def into_noop(data: DataFrame) -> int:
    data.write.format("noop").mode("overwrite").save()
    return RECORDS


def spark_alone(spark: SparkSession) -> DataFrame:
    """Rows of the same shape that come from nowhere."""
    return spark.range(0, RECORDS, 1, PARTITIONS).selectExpr(
        "cast(null as binary) as key",
        f"cast(repeat('x', {VALUE_SIZE}) as binary) as value",
        "'bench' as topic",
        "cast(id % 2 as int) as partition",
        "id as offset",
        "timestamp_millis(id) as timestamp",
        "0 as timestampType",
    )


def decode(servers: str, topic: str) -> int:
    """The same batches over the same connection, to Arrow, on one core."""
    rows = 0
    with PartitionReader(servers) as reader:
        for partition in range(PARTITIONS):
            where = ottla.TopicPartition(topic, partition)
            chunks = reader.read(where, 0, RECORDS // PARTITIONS)
            batches = decode_columns(chunks, topic, partition, with_headers=False)
            rows += sum(batch.num_rows for batch in batches)
    return rows


def stream(spark: SparkSession, options: dict[str, str]) -> int:
    """All of the topic in micro-batches of PER_TRIGGER, with start and end of the query."""
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            spark.readStream.format("ottla")
            .options(**options)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", PER_TRIGGER)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return sum(progress.numInputRows for progress in query.recentProgress)


def write(data: DataFrame, format_name: str, options: dict[str, str]) -> int:
    """Values that come from nowhere into a topic."""
    data.select("value").write.format(format_name).options(**options).mode("append").save()
    return RECORDS


def copy(spark: SparkSession, source: dict[str, str], sink: dict[str, str]) -> int:
    """One topic into another one in micro-batches of PER_TRIGGER."""
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            spark.readStream.format("ottla")
            .options(**source, startingOffsets="earliest", maxOffsetsPerTrigger=str(PER_TRIGGER))
            .load()
            .select("value")
            .writeStream.format("ottla")
            .options(**sink, checkpointLocation=checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return RECORDS


def writer_rates(spark: SparkSession, servers: str) -> Iterator[tuple[str, float]]:
    """What the sink writes, and its rows a second."""
    with ottla.Admin(servers) as admin:
        admin.create_topics([ottla.NewTopic("written", PARTITIONS)])
    alone = spark_alone(spark)
    for codec in CODECS:
        sink = {"kafka.bootstrap.servers": servers, "topic": "written"}
        sink["kafka.compression.type"] = codec
        yield (
            f"batch: JVM rows -> ottla, {codec}",
            measured(lambda s=sink: write(alone, "ottla", s)),
        )
    source = {"kafka.bootstrap.servers": servers, "subscribe": "bench-none"}
    sink = {"kafka.bootstrap.servers": servers, "topic": "written"}
    for name in ("true", "false"):
        chosen = sink | {"exactlyOnce": name}
        yield (
            f"stream: ottla -> ottla, exactlyOnce={name}",
            measured(lambda chosen=chosen: copy(spark, source, chosen)),
        )


def rates(spark: SparkSession, servers: str) -> Iterator[tuple[str, float]]:
    """What is measured, and its rows a second."""
    yield "limit: Spark alone, JVM rows -> noop", measured(lambda: into_noop(spark_alone(spark)))
    for codec in CODECS:
        topic = f"bench-{codec}"
        fill(servers, topic, codec)
        options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
        batch = spark.read.format("ottla").options(**options).load()
        yield (
            f"limit: fetch and decode, one core, {codec}",
            measured(lambda topic=topic: decode(servers, topic)),
        )
        yield f"batch: ottla -> noop, {codec}", measured(lambda batch=batch: into_noop(batch))
        two = spark.read.format("ottla").options(**options, columns="value,offset").load()
        yield (
            f"batch: ottla -> noop, {codec}, two columns",
            measured(lambda two=two: into_noop(two)),
        )
        yield (
            f"stream: ottla -> noop, {codec}",
            measured(lambda options=options: stream(spark, options)),
        )


def main() -> None:
    print(
        f"{RECORDS:,} records of {VALUE_SIZE} B in {PARTITIONS} partitions, local[2]; a stream "
        f"reads {PER_TRIGGER:,} per trigger; medians of {RUNS} runs"
    )
    with tempfile.TemporaryDirectory() as folder:
        broker = BrokerProcess(Path(folder) / "data").start()
        try:
            spark = spark_session("bench", log_path=Path(folder) / "spark.log")
        except JavaMissingError as error:
            broker.stop()
            print(f"skipped: {error}")
            return
        try:
            servers = broker.bootstrap_servers
            for what, rate in chain(rates(spark, servers), writer_rates(spark, servers)):
                print(f"{what:<45} {rate:>12,.0f} rows/s {rate * VALUE_SIZE / 1e6:>8,.0f} MB/s")
        finally:
            spark.stop()
            broker.stop()


if __name__ == "__main__":
    main()
