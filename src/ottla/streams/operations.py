"""Operations on each record by itself: functions from records to records."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from ottla.streams.functions import (
    RESULT,
    Function,
    Many,
    Nothing,
    Pair,
    Truth,
    is_python,
    returned_serde,
    settled,
    unless_gone,
    with_result,
)
from ottla.streams.records import Records
from ottla.streams.serdes import Serde

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

PairSerdes = tuple[Serde | None, Serde | None]


def kept(records: Records, predicate: Function, wanted: bool = True) -> Records:
    """The records for which a predicate holds, or does not; null is no."""
    rows = with_result(records.frame, predicate, _both(records), Truth())
    holds = F.coalesce(RESULT, F.lit(False))
    return records.but(rows.where(holds == wanted))


def emptied(records: Records, predicate: Function) -> Records:
    """Tombstones instead of the values for which a predicate does not hold."""
    rows = with_result(records.frame, predicate, _both(records), Truth())
    return records.but(rows.withColumn("value", F.when(F.col(RESULT), F.col("value"))))


def with_values(records: Records, function: Function, serde: Serde | None) -> Records:
    """The records with other values."""
    wanted = serde or returned_serde(function)
    rows = with_result(records.frame, function, _value(records), wanted or records.value)
    return _with_value(records, rows, F.col(RESULT), function, wanted)


def with_table_values(records: Records, function: Function, serde: Serde | None) -> Records:
    """The records with other values; tombstones stay, and no function sees them."""
    wanted = serde or returned_serde(function)
    guarded = unless_gone(function, F.col("value").isNotNull(), _has_value)
    rows = with_result(records.frame, guarded, _value(records), wanted or records.value)
    return _with_value(records, rows, F.col(RESULT), guarded, wanted)


def with_many_values(records: Records, function: Function, serde: Serde | None) -> Records:
    """A record for each value of a list."""
    wanted = serde or returned_serde(function, many=True)
    many = Many(wanted or records.value)
    rows = with_result(records.frame, function, _value(records), many)
    rows = rows.withColumn(RESULT, F.explode(RESULT))
    return _with_value(records, rows, F.col(RESULT), function, wanted)


def with_keys(records: Records, function: Function, serde: Serde | None) -> Records:
    """The records with other keys."""
    wanted = serde or returned_serde(function)
    rows = with_result(records.frame, function, _both(records), wanted or records.key)
    column, found = F.col(RESULT), wanted or records.key
    if not is_python(function):
        column, found = settled(rows, column, wanted, records.key)
    return records.but(rows.withColumn("key", column), key=found)


def with_pairs(
    records: Records, function: Function, serdes: PairSerdes, many: bool = False
) -> Records:
    """Records with other keys and values; any number for each record with `many`."""
    pair = Pair(serdes[0] or records.key, serdes[1] or records.value)
    rows = with_result(records.frame, function, _both(records), Many(pair) if many else pair)
    if many:
        rows = rows.withColumn(RESULT, F.explode(RESULT))
    key, value = F.col(RESULT)["key"], F.col(RESULT)["value"]
    if not is_python(function):
        key, key_serde = settled(rows, key, serdes[0], records.key)
        value, value_serde = settled(rows, value, serdes[1], records.value)
        pair = Pair(key_serde, value_serde)
    rows = rows.withColumns({"key": key, "value": value})
    return records.but(rows, pair.key, pair.value)


def seen(records: Records, action: Callable[[Any, Any], object]) -> Records:
    """The same records, each passed to a function."""
    return records.but(with_result(records.frame, action, _both(records), Nothing()))


def merged(first: Records, second: Records) -> Records:
    """The records of both."""
    for name in ("key", "value"):
        types = [getattr(each, name).type for each in (first, second)]
        if types[0] != types[1]:
            found = " and ".join(each.simpleString() for each in types)
            raise TypeError(f"merge: {name}s are {found}; they must be of one type")
    return first.but(first.frame.unionByName(second.frame))


def with_serdes(records: Records, key: Serde | None, value: Serde | None) -> Records:
    """The same records, with other serdes to write them with."""
    serdes = {"key": key, "value": value}
    casts = {
        name: F.col(name).cast(serde.type) for name, serde in serdes.items() if serde is not None
    }
    return records.but(records.frame.withColumns(casts), key, value)


def _with_value(
    records: Records, rows: DataFrame, column: Column, function: Function, wanted: Serde | None
) -> Records:
    found = wanted or records.value
    if not is_python(function):
        column, found = settled(rows, column, wanted, records.value)
    return records.but(rows.withColumn("value", column), value=found)


def _both(records: Records) -> list[tuple[Column, Serde]]:
    return [(F.col("key"), records.key), (F.col("value"), records.value)]


def _value(records: Records) -> list[tuple[Column, Serde]]:
    return [(F.col("value"), records.value)]


def _has_value(value: Any) -> bool:
    return value is not None
