"""Reads tables back: in Spark without any jar, and with SQL in this process without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.warehouse.delta import open_delta
from ottla.warehouse.table_location import Place

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SQL_TABLE = "records"


def read_table(
    spark: SparkSession,
    location: str | Path,
    *,
    version: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """A version of a Delta table, the newest unless asked for another, as Spark's own Parquet."""
    from pyspark.sql.types import StructType

    place = Place.of(location, storage_options)
    table = open_delta(place, version)
    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    files = table.file_uris()
    if not files:
        return spark.createDataFrame([], schema)
    # Partition values are in the names of folders; columns younger than a file are null in it.
    rows = spark.read.schema(schema).option("basePath", place.uri).parquet(*files)
    return rows.select(*schema.names)


def sql(
    location: str | Path,
    query: str,
    *,
    version: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> pa.Table:
    """The result of a query over the table `records`."""
    import pyarrow as pa
    from deltalake import QueryBuilder

    table = open_delta(Place.of(location, storage_options), version)
    found = QueryBuilder().register(SQL_TABLE, table).execute(query).read_all()
    return pa.table(found)


def history(place: Place, limit: int) -> list[dict[str, Any]]:
    """The newest commits first: version, time, operation, and the descriptions of loads."""
    commits: Sequence[dict[str, Any]] = open_delta(place).history(limit)
    return [
        {
            "version": each["version"],
            "timestamp_ms": each["timestamp"],
            "operation": each["operation"],
            "facts": {key: each[key] for key in each if key.startswith("ottla.")},
        }
        for each in commits
    ]
