"""`format("ottla")`: the source as Spark sees it before it reads."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.record.columnar import HEADERS
from ottla.spark.options import (
    WITHOUT_EFFECT,
    OptionError,
    SourceOptions,
    columns_of,
    given_of,
    strategy_of,
)
from ottla.spark.sink_options import SinkOptions, check_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla.spark.readers import OttlaBatchReader, OttlaStreamReader
    from ottla.spark.writers import OttlaBatchWriter, OttlaStreamWriter

logger = logging.getLogger(__name__)


class OttlaSource(DataSource):
    """Topics of an Ottla or Kafka cluster, with the schema and options of Spark's Kafka source.

        spark.read.format("ottla").option("kafka.bootstrap.servers", "localhost:9092")
            .option("subscribe", "pages").load()

    Spark finds it by itself through `pyspark_ottla`; `spark.dataSource.register(OttlaSource)` does
    the same by hand.
    """

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> StructType:
        """The columns; asked for by `load`, so that wrong options are refused there."""
        given = given_of(self.options)
        strategy_of(given)
        for option in WITHOUT_EFFECT:
            if option in given:
                logger.warning("option %s has no effect in the source ottla", option)
        return source_schema(columns_of(given))

    def reader(self, schema: StructType) -> OttlaBatchReader:
        from ottla.spark.readers import OttlaBatchReader

        return OttlaBatchReader(SourceOptions.for_batch(self.options))

    def streamReader(self, schema: StructType) -> OttlaStreamReader:
        from ottla.spark.readers import OttlaStreamReader

        return OttlaStreamReader(SourceOptions.for_stream(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> OttlaBatchWriter:
        from ottla.spark.writers import OttlaBatchWriter

        options = SinkOptions.for_batch(self.options)
        _check_sink(schema, overwrite, options)
        return OttlaBatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> OttlaStreamWriter:
        from ottla.spark.writers import OttlaStreamWriter

        options = SinkOptions.for_stream(self.options)
        _check_sink(schema, overwrite, options)
        return OttlaStreamWriter(options)


def _check_sink(schema: StructType, overwrite: bool, sink: SinkOptions) -> None:
    if overwrite:
        raise OptionError("mode overwrite (or complete): topics are only appended to; use append")
    check_schema(schema, sink)


NEWEST_TIME: Final = "__time_of_the_newest"
"""Beside the columns of rows, which may have any other name."""


@dataclass(frozen=True, slots=True)
class RecordOrder:
    """The columns that say where a record stands: its time, and its place in a partition.

    Within a partition the offset gives the order, whatever times say. A key moves to another
    partition when partitions are added, and offsets of two partitions say nothing about each other:
    there the later time is newer, and records before one in its partition are no later than it.
    A lower offset with a later time is of a topic that was deleted and created again, and is newer.
    """

    timestamp: str = "timestamp"
    partition: str = "partition"
    offset: str = "offset"

    @property
    def columns(self) -> tuple[str, str, str]:
        return self.timestamp, self.partition, self.offset

    def __str__(self) -> str:
        return f"{self.offset} within one {self.partition}, else {self.timestamp}"

    def newest(self, rows: DataFrame, key: Sequence[str]) -> DataFrame:
        """The newest row of each key, and beside it the time that it counts with."""
        from pyspark.sql import functions as F

        in_partition = rows.groupBy(*key, self.partition).agg(
            F.max_by(F.struct(*rows.columns), F.col(self.offset)).alias("_row"),
            F.max(self.timestamp).alias(NEWEST_TIME),
        )
        found = F.max_by(F.struct("_row", NEWEST_TIME), F.struct(NEWEST_TIME, self.partition))
        newest = in_partition.groupBy(*key).agg(found.alias("_newest"))
        return newest.select("_newest._row.*", f"_newest.{NEWEST_TIME}")

    def is_newer(self, one: str, other: str) -> str:
        """SQL: whether row `one` is newer than `other`; one without a place is older than all."""
        time, partition, offset = (f"{one}.`{name}`" for name in self.columns)
        other_time, other_partition, other_offset = (f"{other}.`{name}`" for name in self.columns)
        return (
            f"({other_partition} IS NULL OR CASE WHEN {partition} = {other_partition} "
            f"THEN {offset} > {other_offset} OR {time} > {other_time} "
            f"ELSE {time} > {other_time} OR "
            f"({time} = {other_time} AND {partition} > {other_partition}) END)"
        )


RECORD_ORDER = RecordOrder()


def source_schema(columns: Iterable[str]) -> StructType:
    """These columns of Spark's Kafka source."""
    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    types = {
        "key": BinaryType(),
        "value": BinaryType(),
        "topic": StringType(),
        "partition": IntegerType(),
        "offset": LongType(),
        "timestamp": TimestampType(),
        "timestampType": IntegerType(),
        HEADERS: ArrayType(header),
    }
    return StructType([StructField(name, types[name]) for name in columns])
