"""Joins: two streams within a time of each other, a stream with a table, and two tables.

An expression that combines both values sees the columns `key`, `left` and `right`; a Python
function gets the two values. Two tables are joined as they are at a moment, or change by change:
for the changes Spark keeps the newest values of both sides for each key, and a micro-batch emits
one change for each key that it touches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import functions as F

from ottla.streams.aggregates import rows_in_order, time_received, time_sent
from ottla.streams.operations import (
    RESULT,
    Function,
    is_python,
    returned_serde,
    settled,
    unless_gone,
    with_result,
)
from ottla.streams.records import COLUMNS, ORDER, Records
from ottla.streams.serdes import Serde
from ottla.streams.windows import JoinWindows, interval

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.state import GroupState

How = Literal["inner", "left", "full_outer"]
IS_THERE: dict[How, Callable[[Any, Any], bool]] = {
    "inner": lambda left, right: left is not None and right is not None,
    "left": lambda left, right: left is not None,
    "full_outer": lambda left, right: left is not None or right is not None,
}


@dataclass(frozen=True)
class Joiner:
    """How two values become one."""

    function: Function
    serde: Serde | None = None

    def joined(self, rows: DataFrame, left: Records, right: Records, how: How) -> Records:
        """The joined records for rows of `key`, `left`, `right`, `timestamp` and the order.

        Where a side that `how` requires is missing, the value is null.
        """
        wanted = self.serde or returned_serde(self.function)
        there = {
            "inner": F.col("left").isNotNull() & F.col("right").isNotNull(),
            "left": F.col("left").isNotNull(),
            "full_outer": F.col("left").isNotNull() | F.col("right").isNotNull(),
        }
        function = unless_gone(self.function, there[how], IS_THERE[how])
        arguments = [(F.col("left"), left.value), (F.col("right"), right.value)]
        serde = wanted or left.value
        found = with_result(rows, function, arguments, serde)
        column = F.col(RESULT)
        if not is_python(function):
            column, serde = settled(found, column, wanted, left.value)
        return Records(found.withColumn("value", column).select(*COLUMNS), left.key, serde)


def joined_streams(
    left: Records, right: Records, windows: JoinWindows, how: How, joiner: Joiner
) -> Records:
    """Pairs of records of one key whose times are close enough."""
    at, other = F.col("left_timestamp"), F.col("right_timestamp")
    condition = (
        (F.col("left_key") == F.col("right_key"))
        & (other >= at - F.expr(f"INTERVAL {windows.before_ms} MILLISECONDS"))
        & (other <= at + F.expr(f"INTERVAL {windows.after_ms} MILLISECONDS"))
    )
    rows = _side(left, "left", windows).join(_side(right, "right", windows), condition, how)
    return joiner.joined(_pairs(rows), left, right, how)


def joined_table(left: Records, table: Records, how: How, joiner: Joiner) -> Records:
    """Each record of a stream with the table's value for its key."""
    left.require_append("join")
    names = {"key": "right_key", "value": "right"}
    lookup = table.frame.where("value is not null")
    found = lookup.select(*(F.col(name).alias(new) for name, new in names.items()))
    rows = left.frame.where("key is not null and value is not null").withColumnRenamed(
        "value", "left"
    )
    pairs = rows.join(found, F.col("key") == F.col("right_key"), how)
    return joiner.joined(pairs, left, table, how)


def _side(records: Records, name: str, windows: JoinWindows) -> DataFrame:
    records.require_append("join")
    rows = records.frame.where("key is not null and value is not null")
    return rows.withWatermark("timestamp", interval(windows.grace_ms)).select(
        F.col("key").alias(f"{name}_key"),
        F.col("value").alias(name),
        F.col("timestamp").alias(f"{name}_timestamp"),
        F.col(ORDER).alias(f"{name}_order"),
    )


def _pairs(rows: DataFrame) -> DataFrame:
    return rows.select(
        F.coalesce("left_key", "right_key").alias("key"),
        "left",
        "right",
        F.greatest("left_timestamp", "right_timestamp").alias("timestamp"),
        F.greatest("left_order", "right_order").alias(ORDER),
    )


CHANGES = f"key binary, left binary, right binary, timestamp long, {ORDER} long"
STATE = "left binary, right binary"
SIDES = ("left", "right")


def joined_tables(left: Records, right: Records, how: How, joiner: Joiner) -> Records:
    """The join of two tables of one row a key."""
    sides = [
        records.frame.where("value is not null").select(
            *(F.col(name).alias(f"{side}_{name}") for name in COLUMNS)
        )
        for records, side in ((left, "left"), (right, "right"))
    ]
    rows = sides[0].join(sides[1], F.col("left_key") == F.col("right_key"), how)
    pairs = rows.select(
        F.coalesce("left_key", "right_key").alias("key"),
        F.col("left_value").alias("left"),
        F.col("right_value").alias("right"),
        F.greatest("left_timestamp", "right_timestamp").alias("timestamp"),
        F.greatest(f"left_{ORDER}", f"right_{ORDER}").alias(ORDER),
    )
    return joiner.joined(pairs, left, right, how)


def joined_changes(
    left: Records, right: Records, how: How, joiner: Joiner, is_streaming: bool
) -> Records:
    """The changes of the join of two tables, from the changes of both."""
    left.require_append("join")
    right.require_append("join")
    if not is_streaming:
        return joined_tables(_newest(left), _newest(right), how, joiner)
    from pyspark.sql.streaming.state import GroupStateTimeout

    changes = _table_side(left, "left").unionByName(_table_side(right, "right"))
    rows = changes.groupBy("key").applyInPandasWithState(
        TableJoin(how).update, CHANGES, STATE, "append", GroupStateTimeout.NoTimeout
    )
    pairs = rows.select(
        left.key.incoming(F.col("key")).alias("key"),
        left.value.incoming(F.col("left")).alias("left"),
        right.value.incoming(F.col("right")).alias("right"),
        time_received(),
        ORDER,
    )
    return joiner.joined(pairs, left, right, how)


@dataclass(frozen=True)
class TableJoin:
    """The join of one key as it runs in a worker: the state is the bytes of both values."""

    how: How

    def update(
        self, key: tuple[bytes], batches: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        import pandas as pd

        rows = rows_in_order(batches)
        before = [_bytes(each) for each in state.get] if state.exists else [None, None]
        after = list(before)
        for _, side, value, *_ in rows:
            after[SIDES.index(side)] = _bytes(value)
        if after == [None, None]:
            state.remove()
        else:
            state.update(tuple(after))
        is_there = IS_THERE[self.how]
        if is_there(*after) or is_there(*before):
            last = {"timestamp": [max(row[-2] for row in rows)], ORDER: [rows[-1][-1]]}
            sides = {name: [value] for name, value in zip(SIDES, after, strict=True)}
            yield pd.DataFrame({"key": [bytes(key[0])], **sides, **last})


def _table_side(records: Records, side: str) -> DataFrame:
    return records.frame.where("key is not null").select(
        records.key.encode(F.col("key")).alias("key"),
        F.lit(side).alias("side"),
        records.value.encode(F.col("value")).alias("value"),
        time_sent(),
        ORDER,
    )


def _newest(records: Records) -> Records:
    last: Column = F.max_by(F.struct("value", "timestamp", ORDER), F.col(ORDER)).alias("last")
    rows = records.frame.where("key is not null").groupBy("key").agg(last)
    return records.but(rows.select("key", "last.*"))


def _bytes(found: object) -> bytes | None:
    return bytes(found) if isinstance(found, (bytes, bytearray)) else None
