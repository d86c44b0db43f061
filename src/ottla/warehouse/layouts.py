"""What the columns of a table are: the record as it is, fields of its value, its day or hour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.warehouse.places import WarehouseError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

PARTITIONINGS = {"none": (), "day": ("day",), "hour": ("day", "hour")}


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of the source, and after them those of `fields` (DDL), read from JSON values.

    A value that is no such object has nulls there; nothing is lost, as the value itself is kept.
    `partition_by` is one of PARTITIONINGS, by the time in `time_column`, in the session's zone.
    """

    fields: str = ""
    partition_by: str = "none"
    time_column: str = "timestamp"
    with_headers: bool = False

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return PARTITIONINGS[self.partition_by]

    def rows(self, records: DataFrame) -> DataFrame:
        """The rows of the table; the same for the same records."""
        from pyspark.sql import functions as F

        rows = records
        if self.fields:
            text = F.make_valid_utf8(F.col("value").cast("string"))
            parsed = records.select("*", F.from_json(text, self.fields).alias("_fields"))
            rows = parsed.select("*", "_fields.*").drop("_fields")
        _check_names(rows, self)
        time = F.col(self.time_column)
        if "day" in self.partition_columns:
            rows = rows.withColumn("day", F.to_date(time))
        if "hour" in self.partition_columns:
            rows = rows.withColumn("hour", F.hour(time))
        return rows

    def schema(self, spark: SparkSession) -> StructType:
        """The columns of the table, before anything is read."""
        from ottla.spark.source import source_schema

        return self.rows(spark.createDataFrame([], source_schema(self.with_headers))).schema


def _check_names(rows: DataFrame, layout: Layout) -> None:
    """Each column has a name of its own, whatever its case, and the time is one of them."""
    names = [name.lower() for name in (*rows.columns, *layout.partition_columns)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise WarehouseError(
            f"fields '{layout.fields}': {', '.join(twice)} would be there twice, as records have "
            "columns of their own; give the fields other names"
        )
    if not layout.partition_columns:
        return
    types = dict(rows.dtypes)
    if types.get(layout.time_column) not in ("timestamp", "timestamp_ntz", "date"):
        found = types.get(layout.time_column, "missing")
        raise WarehouseError(
            f"time column {layout.time_column}: must be a timestamp or a date, and is {found}"
        )
