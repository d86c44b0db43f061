"""The columns of a table: the record as it is, fields of its value, its day or hour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.spark.options import all_columns
from ottla.spark.source import source_schema
from ottla.warehouse.column_types import check_part, parts_of
from ottla.warehouse.loads import MOMENTS
from ottla.warehouse.table_location import WarehouseError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


PARTITIONINGS = {"none": (), "day": ("day",), "hour": ("day", "hour")}


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of the source, and after them those of `fields` (DDL), read from JSON values.

    A value that is no such object has nulls there; nothing is lost, as the value itself is kept.
    Moments outside the years 1 to 9999 are null.
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
            wanted = _checked_fields(self.fields)
            text = F.make_valid_utf8(F.col("value").cast("string"))
            parsed = records.select("*", F.from_json(text, wanted).alias("_fields"))
            rows = parsed.select("*", "_fields.*").drop("_fields")
        _check_names(rows, self)
        rows = rows.select(
            *(
                _within_years(F.col(each.name), each.dataType).alias(each.name)
                for each in rows.schema
            )
        )
        time = F.col(self.time_column)
        if "day" in self.partition_columns:
            rows = rows.withColumn("day", F.to_date(time))
        if "hour" in self.partition_columns:
            rows = rows.withColumn("hour", F.hour(time))
        return rows

    def schema(self, spark: SparkSession) -> StructType:
        """The columns of the table, before anything is read."""
        columns = source_schema(all_columns(self.with_headers))
        return self.rows(spark.createDataFrame([], columns)).schema


def _within_years(column: Column, kind: DataType) -> Column:
    """A column whose moments outside the years 1 to 9999 are null: few readers can hold them."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    if kind.typeName() in MOMENTS:
        return F.when(F.year(column).between(1, 9999), column)
    if not _has_moments(kind):
        return column
    if isinstance(kind, ArrayType):
        return F.transform(column, lambda each: _within_years(each, kind.elementType))
    if isinstance(kind, MapType):
        return F.transform_values(column, lambda key, each: _within_years(each, kind.valueType))
    assert isinstance(kind, StructType), f"type {kind}"
    fields = (_within_years(column[e.name], e.dataType).alias(e.name) for e in kind.fields)
    return F.when(column.isNotNull(), F.struct(*fields))


def _has_moments(kind: DataType) -> bool:
    return any(each.typeName() in MOMENTS for _, each in parts_of("", kind))


def _checked_fields(fields: str) -> StructType:
    """The columns of a DDL; WarehouseError for other text, or for impossible columns."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        found = StructType.fromDDL(fields)
    except PySparkException as error:
        reason = str(error).strip().splitlines()[0]
        raise WarehouseError(f"fields '{fields}': are no list of columns: {reason}") from None
    if not isinstance(found, StructType):
        raise WarehouseError(f"fields '{fields}': are no list of columns such as 'n int, t string'")
    for name, kind in parts_of("", found):
        check_part(f"fields '{fields}'", name, kind)
        _check_twice(kind, fields)
    return found


def _check_twice(kind: DataType, fields: str) -> None:
    """Refuse two fields of one name, ignoring case, in one object."""
    names = [name.lower() for name in getattr(kind, "names", ())]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise WarehouseError(f"fields '{fields}': {', '.join(twice)} would be there twice")


def _check_names(rows: DataFrame, layout: Layout) -> None:
    """Check that column names differ, ignoring case, and include the time column."""
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
