"""Operations on each record by itself, and the users' functions that they and others apply.

SQL expressions and columns go to Spark as they are, Python functions to workers. An expression sees
the columns `key`, `value` and `timestamp`. A Python function sees objects; its rows travel to
Python workers and back as Arrow batches, and only then.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, DataType, StructField, StructType

from ottla.streams.records import Records
from ottla.streams.serdes import Carried, Serde, serde_for, serde_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Function: TypeAlias = str | Column | Callable[..., Any]
RESULT = "_result"


@dataclass(frozen=True)
class Pair(Carried):
    """A key and a value, in a tuple."""

    key: Serde
    value: Serde

    @property
    def carrier(self) -> DataType:
        parts = (("key", self.key), ("value", self.value))
        return StructType([StructField(name, serde.carrier) for name, serde in parts])

    def from_object(self, thing: Any) -> Any:
        key, value = thing
        return {"key": self.key.from_object(key), "value": self.value.from_object(value)}

    def incoming(self, column: Column) -> Column:
        return F.struct(
            self.key.incoming(column["key"]).alias("key"),
            self.value.incoming(column["value"]).alias("value"),
        )


@dataclass(frozen=True)
class Many(Carried):
    """Any number of things, in a list or another iterable."""

    each: Carried

    @property
    def carrier(self) -> DataType:
        return ArrayType(self.each.carrier)

    def from_object(self, thing: Any) -> Any:
        return [self.each.from_object(one) for one in thing]

    def incoming(self, column: Column) -> Column:
        return F.transform(column, self.each.incoming)


class Truth(Carried):
    """Yes or no."""

    carrier = BooleanType()

    def from_object(self, thing: Any) -> Any:
        return bool(thing)

    def incoming(self, column: Column) -> Column:
        return column


class Nothing(Truth):
    """A function that is called for its side effects."""

    def from_object(self, thing: Any) -> Any:
        return None


def expression(function: Function) -> Column:
    """The Spark column for a function that is not Python."""
    if isinstance(function, str):
        return F.expr(function)
    assert isinstance(function, Column), f"{function} is Python"
    return function


def is_python(function: Function) -> TypeGuard[Callable[..., Any]]:
    """Whether rows have to go to Python."""
    return not isinstance(function, (str, Column))


def returned_serde(function: Function, many: bool = False) -> Serde | None:
    """The serde of a Python function's return annotation; None where it has none."""
    try:
        annotation = typing.get_type_hints(function).get("return")
    except (TypeError, NameError):
        return None
    if many:
        if typing.get_origin(annotation) not in (list, Iterable, Iterator, set, tuple):
            return None
        annotation = typing.get_args(annotation)[0]
    return None if annotation is None else serde_of(annotation)


def computed(
    frame: DataFrame,
    function: Callable[..., Any],
    arguments: Sequence[tuple[Column, Serde]],
    returns: Carried,
) -> DataFrame:
    """The frame with another column, RESULT: the Python function's result for each row."""
    from pyspark.sql.pandas.types import to_arrow_type

    columns = frame.columns
    sent = [serde.encode(column).alias(f"_{n}") for n, (column, serde) in enumerate(arguments)]
    call = PythonCall(
        function,
        tuple(serde for _, serde in arguments),
        returns,
        to_arrow_type(returns.carrier, timezone="UTC"),
    )
    schema = StructType([*frame.schema.fields, StructField(RESULT, returns.carrier)])
    rows = frame.select(*columns, *sent).mapInArrow(call.batches, schema)
    return rows.withColumn(RESULT, returns.incoming(F.col(RESULT)))


@dataclass(frozen=True)
class PythonCall:
    """A function of the user as it runs in a worker, over batches of rows.

    The last columns of a batch are the arguments; the others go through untouched.
    """

    function: Callable[..., Any]
    serdes: tuple[Serde, ...]
    returns: Carried
    returned_type: pa.DataType

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            kept = batch.num_columns - len(self.serdes)
            arguments = [
                [serde.from_bytes(each) for each in batch.column(kept + n).to_pylist()]
                for n, serde in enumerate(self.serdes)
            ]
            results = [
                self.returns.from_object(self.function(*row))
                for row in zip(*arguments, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(
                [*batch.columns[:kept], pa.array(results, self.returned_type)],
                names=[*batch.schema.names[:kept], RESULT],
            )


def with_result(
    frame: DataFrame,
    function: Function,
    arguments: Sequence[tuple[Column, Serde]],
    returns: Carried,
) -> DataFrame:
    """The frame with the column RESULT, by Spark or by Python."""
    if isinstance(function, (str, Column)):
        return frame.withColumn(RESULT, expression(function))
    return computed(frame, function, arguments, returns)


def unless_gone(
    function: Function, there: Column, is_there: Callable[..., bool]
) -> Column | Callable[..., Any]:
    """The same function, but null for missing arguments: by `there` in Spark, else in Python."""
    if isinstance(function, (str, Column)):
        return F.when(there, expression(function))
    called = function

    def guarded(*arguments: Any) -> Any:
        return called(*arguments) if is_there(*arguments) else None

    return guarded


def settled(
    frame: DataFrame, column: Column, wanted: Serde | None, now: Serde
) -> tuple[Column, Serde]:
    """A column that Spark computed, and its serde: `wanted`, `now` if it fits, or by type."""
    if wanted is not None:
        return column.cast(wanted.type), wanted
    found = frame.select(column.alias("found")).schema["found"].dataType
    return column, now if now.type == found else serde_for(found)


PairSerdes = tuple[Serde | None, Serde | None]


def kept(records: Records, predicate: Function, wanted: bool = True) -> Records:
    """The records for which a predicate holds, or does not; null is no."""
    rows = with_result(records.frame, predicate, _both(records), Truth())
    holds = F.coalesce(RESULT, F.lit(False))
    return records.but(rows.where(holds == wanted))


def emptied(records: Records, predicate: Function) -> Records:
    """Tombstones instead of the values for which a predicate does not hold.

    Those that are there already stay, and no predicate sees them.
    """
    guarded = unless_gone(predicate, F.col("value").isNotNull(), _has_value)
    rows = with_result(records.frame, guarded, _both(records), Truth())
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


def _has_value(*arguments: Any) -> bool:
    """Whether the last argument is there, which is the value."""
    return arguments[-1] is not None
