"""A load as a table sees it: a name, a number, and the offsets that it begins and ends at."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ottla.spark.offsets import to_json_object
from ottla.warehouse.table_location import WarehouseError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from ottla.spark.offsets import Offsets
    from ottla.structs import TopicPartition
    from ottla.warehouse.data_files import DataFile
    from ottla.warehouse.table_location import Place


@dataclass(frozen=True, slots=True)
class Load:
    """The records of one commit. Loads of a name are counted from 1.

    `starts` and `ends` have the same partitions; those whose end is new to the table are in it even
    if they have no records, so that a later load does not look up their start again. `topic_ids`
    say which topics of these names they are.
    """

    name: str
    number: int
    starts: Offsets
    ends: Offsets
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def facts(self, files: Sequence[DataFile]) -> dict[str, str]:
        """The load's description in the commit, for people and for programs."""
        return {
            "ottla.load": self.name,
            "ottla.number": str(self.number),
            "ottla.offsets.from": _text(self.starts),
            "ottla.offsets.to": _text(self.ends),
            "ottla.topics": json.dumps(dict(self.topic_ids), separators=(",", ":")),
            "ottla.files": str(len(files)),
            "ottla.rows": str(sum(each.row_count for each in files)),
        }


class TableSnapshot(Protocol):
    """One version of a table, and commits on top of it."""

    def offsets(self, name: str, partitions: Collection[TopicPartition]) -> Offsets:
        """The next offsets for the loads of a name, for those partitions that they have read."""

    def number(self, name: str) -> int:
        """The number of the newest load of a name; 0 before the first."""

    def is_other_topic(self, name: str, topic: str, topic_id: str) -> bool:
        """Whether loads of a name have read a topic of this name and another id; never where the
        ids of what they have read are not known."""

    def ends_of_others(
        self, name: str, partitions: Collection[TopicPartition], topic_ids: Mapping[str, str]
    ) -> dict[TopicPartition, tuple[str, int]]:
        """The load of another name that is furthest in a partition, if one is further than this
        one, and where it ended: records before that are in the table already. Its name is empty
        where it is long ago."""

    def fitted(self, rows: DataFrame) -> DataFrame:
        """The rows with the types of the table's columns, where those are wider."""

    def commit(self, load: Load, files: Sequence[DataFile]) -> int:
        """Files and offsets together, or neither; returns the version of the table.

        Raises WarehouseError if a load of this name was committed since the table was opened.
        """


class Table(Protocol):
    """A table that loads go into."""

    place: Place

    def prepare(self, schema: StructType, partition_by: Sequence[str]) -> None:
        """Make the table, or give it what its columns lack; refuse what they cannot take."""

    def snapshot(self) -> TableSnapshot:
        """The table as it is now; it must have been prepared."""

    def staging(self, load_name: str) -> str:
        """The folder below the place that tasks write to."""


def _text(offsets: Mapping[TopicPartition, int]) -> str:
    return json.dumps(to_json_object(offsets), separators=(",", ":"))


# The columns of a table: the record as it is, fields of its value, its day or hour.


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
        from ottla.spark.source import source_schema

        return self.rows(spark.createDataFrame([], source_schema(self.with_headers))).schema


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
    return any(each.typeName() in MOMENTS for _, each in _parts("", kind))


def _parts(name: str, kind: DataType) -> Iterator[tuple[str, DataType]]:
    """The names and types within a type, and its own; only fields have names."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    yield name, kind
    if isinstance(kind, StructType):
        for each in kind.fields:
            yield from _parts(each.name, each.dataType)
    elif isinstance(kind, ArrayType):
        yield from _parts("", kind.elementType)
    elif isinstance(kind, MapType):
        yield from _parts("", kind.keyType)
        yield from _parts("", kind.valueType)


# The types of columns widen as Delta's type widening has it: no value is lost or rounded.


INTEGERS = ("byte", "short", "integer", "long")
DIGITS = dict(zip(INTEGERS, (3, 5, 10, 20), strict=True))
MAX_DIGITS = 38


def widest(one: DataType, other: DataType) -> DataType | None:
    """The narrowest type that has every value of both; None if no type has.

    An object has the fields of both, those of `one` first.
    """
    from pyspark.sql.types import ArrayType, DateType, MapType, StructType, TimestampNTZType

    if one == other:
        return one
    if isinstance(one, StructType) and isinstance(other, StructType):
        return _widest_object(one, other)
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        element = widest(one.elementType, other.elementType)
        return element and ArrayType(element)
    if isinstance(one, MapType) and isinstance(other, MapType):
        key, value = widest(one.keyType, other.keyType), widest(one.valueType, other.valueType)
        return key and value and MapType(key, value)
    if {type(one), type(other)} == {DateType, TimestampNTZType}:
        return TimestampNTZType()
    return _widest_number(one, other)


def _widest_object(one: StructType, other: StructType) -> DataType | None:
    from pyspark.sql.types import StructField, StructType

    fields = {each.name: each for each in one.fields}
    spelled = {name.lower(): name for name in fields}
    for each in other.fields:
        known = fields.get(each.name, each)
        kind = widest(known.dataType, each.dataType)
        if kind is None or spelled.get(each.name.lower(), each.name) != each.name:
            return None
        fields[each.name] = StructField(each.name, kind, True)
    return StructType(list(fields.values()))


def _widest_number(one: DataType, other: DataType) -> DataType | None:
    from pyspark.sql.types import DecimalType, DoubleType

    names = {one.typeName(), other.typeName()}
    if names <= {*INTEGERS}:
        return max(one, other, key=lambda each: INTEGERS.index(each.typeName()))
    if names <= {"byte", "short", "integer", "float", "double"}:
        return DoubleType()  # a float has no room for every integer, nor a double for every long
    if not names <= {*INTEGERS, "decimal"}:
        return None
    sizes = [
        (each.precision - each.scale, each.scale)
        if isinstance(each, DecimalType)
        else (DIGITS[each.typeName()], 0)
        for each in (one, other)
    ]
    scale = max(scale for _, scale in sizes)
    precision = max(whole for whole, _ in sizes) + scale
    return DecimalType(precision, scale) if precision <= MAX_DIGITS else None


def fitted(rows: DataFrame, columns: StructType) -> DataFrame:
    """The rows with the types of these columns, each the same or a wider one."""
    from pyspark.sql import functions as F

    wanted = {each.name: each.dataType for each in columns.fields}
    return rows.select(
        *(
            _widened(F.col(f"`{e.name}`"), e.dataType, wanted.get(e.name, e.dataType)).alias(e.name)
            for e in rows.schema
        )
    )


def _widened(column: Column, kind: DataType, wanted: DataType) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    if kind == wanted:
        return column
    if isinstance(kind, ArrayType) and isinstance(wanted, ArrayType):
        elements = kind.elementType, wanted.elementType
        return F.transform(column, lambda each: _widened(each, *elements))
    if isinstance(kind, MapType) and isinstance(wanted, MapType):
        keys, values = (kind.keyType, wanted.keyType), (kind.valueType, wanted.valueType)
        column = F.transform_keys(column, lambda key, value: _widened(key, *keys))
        return F.transform_values(column, lambda key, value: _widened(value, *values))
    if isinstance(kind, StructType) and isinstance(wanted, StructType):
        there = {each.name: each.dataType for each in kind.fields}
        fields = (
            (
                _widened(column[e.name], there[e.name], e.dataType)
                if e.name in there
                else F.lit(None).cast(e.dataType)
            ).alias(e.name)
            for e in wanted.fields
        )
        return F.when(column.isNotNull(), F.struct(*fields))
    return column.cast(wanted)


MOMENTS = ("timestamp", "timestamp_ntz", "date")
FORBIDDEN = " ,;{}()\n\t=."
"""Delta allows none of these in the name of a column, and a dot means a field within a column."""
TYPES = (
    *("string", "binary", "boolean", "byte", "short", "integer", "long", "float", "double"),
    *("decimal", "date", "timestamp", "timestamp_ntz", "struct", "array", "map"),
)


def _checked_fields(fields: str) -> StructType:
    """The columns of a DDL; raises WarehouseError for what is none, or what no table can have."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        found = StructType.fromDDL(fields)
    except PySparkException as error:
        reason = str(error).strip().splitlines()[0]
        raise WarehouseError(f"fields '{fields}': are no list of columns: {reason}") from None
    if not isinstance(found, StructType):
        raise WarehouseError(f"fields '{fields}': are no list of columns such as 'n int, t string'")
    for name, kind in _parts("", found):
        bad = [letter for letter in name if letter in FORBIDDEN]
        if bad:
            raise WarehouseError(
                f"fields '{fields}': the name {name!r} has {bad[0]!r} in it; names of columns may "
                "have no blanks, no line breaks and none of , ; { } ( ) = ."
            )
        if kind.typeName() not in TYPES:
            raise WarehouseError(
                f"fields '{fields}': the type {kind.simpleString()} of {name or 'an element'} "
                f"cannot be in a table; one of these can: {', '.join(TYPES)}"
            )
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
