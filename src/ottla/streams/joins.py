"""Joins: two streams within a time of each other, and a stream with a table.

An expression that combines both values sees the columns `key`, `left` and `right`; a Python
function gets the two values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import functions as F

from ottla.streams.functions import (
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
    from pyspark.sql import DataFrame

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
    """Each record of a stream with what the table has for its key."""
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
