"""The types of columns widen as Delta's type widening has it: no value is lost or rounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.warehouse.table_location import WarehouseError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType


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


def parts_of(name: str, kind: DataType) -> Iterator[tuple[str, DataType]]:
    """The names and types within a type, and its own; only fields have names."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    yield name, kind
    if isinstance(kind, StructType):
        for each in kind.fields:
            yield from parts_of(each.name, each.dataType)
    elif isinstance(kind, ArrayType):
        yield from parts_of("", kind.elementType)
    elif isinstance(kind, MapType):
        yield from parts_of("", kind.keyType)
        yield from parts_of("", kind.valueType)


FORBIDDEN = " ,;{}()\n\t=."
"""Delta allows none of these in the name of a column, and a dot means a field within a column."""
TYPES = (
    *("string", "binary", "boolean", "byte", "short", "integer", "long", "float", "double"),
    *("decimal", "date", "timestamp", "timestamp_ntz", "struct", "array", "map"),
)


def check_part(where: str, name: str, kind: DataType) -> None:
    """Raise WarehouseError for a name or a type that no table of Delta can have."""
    bad = [letter for letter in name if letter in FORBIDDEN]
    if bad:
        raise WarehouseError(
            f"{where}: the name {name!r} has {bad[0]!r} in it; names of columns may "
            "have no blanks, no line breaks and none of , ; { } ( ) = ."
        )
    if kind.typeName() not in TYPES:
        raise WarehouseError(
            f"{where}: the type {kind.simpleString()} of {name or 'an element'} "
            f"cannot be in a table; one of these can: {', '.join(TYPES)}"
        )
