"""`format("ottla")`: what Spark knows of the source before it reads."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

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

from ottla.spark.options import WITHOUT_EFFECT, OptionError, SourceOptions, given_of, strategy_of

if TYPE_CHECKING:
    from ottla.spark.options import SinkOptions
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
        """The columns; asked for by `load`, so that wrong options are told there."""
        given = given_of(self.options)
        strategy_of(given)
        for option in WITHOUT_EFFECT:
            if option in given:
                logger.warning("option %s has no effect in the source ottla", option)
        return source_schema(given.flag("includeHeaders", False))

    def reader(self, schema: StructType) -> OttlaBatchReader:
        from ottla.spark.readers import OttlaBatchReader

        return OttlaBatchReader(SourceOptions.for_batch(self.options))

    def streamReader(self, schema: StructType) -> OttlaStreamReader:
        from ottla.spark.readers import OttlaStreamReader

        return OttlaStreamReader(SourceOptions.for_stream(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> OttlaBatchWriter:
        from ottla.spark.options import SinkOptions
        from ottla.spark.writers import OttlaBatchWriter

        options = SinkOptions.for_batch(self.options)
        _check_sink(schema, overwrite, options)
        return OttlaBatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> OttlaStreamWriter:
        from ottla.spark.options import SinkOptions
        from ottla.spark.writers import OttlaStreamWriter

        options = SinkOptions.for_stream(self.options)
        _check_sink(schema, overwrite, options)
        return OttlaStreamWriter(options)


def _check_sink(schema: StructType, overwrite: bool, sink: SinkOptions) -> None:
    from ottla.spark.options import check_schema

    if overwrite:
        raise OptionError("mode overwrite (or complete): topics are only appended to; use append")
    check_schema(schema, sink)


def source_schema(with_headers: bool) -> StructType:
    """The columns of Spark's Kafka source; `headers` is among them only when asked for."""
    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    if with_headers:
        header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        fields.append(StructField("headers", ArrayType(header)))
    return StructType(fields)
