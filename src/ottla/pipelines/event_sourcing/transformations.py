"""From what happened to accounts to what they are, at any moment.

The state is made of sums and newest values alone: the order in which events come does not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NAME = ("account", "version")


def state(events: DataFrame) -> DataFrame:
    """Each account: its balance, whether it is open, and the version of its newest event."""
    newest = F.max_by("kind", "version")
    return events.groupBy("account").agg(
        F.sum(_change()).alias("balance"),
        F.when(newest == "closed", "closed").otherwise("open").alias("status"),
        F.max("version").alias("version"),
        F.max("time").alias("time"),
    )


def events_until(events: DataFrame, moment: Column) -> DataFrame:
    """The events up to a moment."""
    return events.where(F.col("time") <= moment)


def state_at(events: DataFrame, at: str) -> DataFrame:
    """The accounts as they were at a moment; without one, at the middle of the history."""
    history = events.dropDuplicates(list(NAME))
    if at:
        return state(events_until(history, F.lit(at).cast("timestamp")))
    seconds = (F.unix_seconds(F.min("time")) + F.unix_seconds(F.max("time"))) / 2
    middle = history.agg(F.timestamp_seconds(F.floor(seconds)).alias("middle"))
    until = history.crossJoin(F.broadcast(middle)).where(F.col("time") <= F.col("middle"))
    return state(until.drop("middle"))


def balance_over_time(events: DataFrame, steps: int) -> DataFrame:
    """The accounts and the sum of their balances, at moments from first to last event."""
    history = events.dropDuplicates(list(NAME))
    ends = history.agg(
        F.unix_seconds(F.min("time")).alias("first"), F.unix_seconds(F.max("time")).alias("last")
    )
    moments = ends.select(
        F.explode(
            F.transform(
                F.sequence(F.lit(1), F.lit(steps)),
                lambda step: F.timestamp_seconds(
                    F.col("first") + F.ceil((F.col("last") - F.col("first")) * step / steps)
                ),
            )
        ).alias("moment")
    )
    until = moments.join(history, F.col("time") <= F.col("moment"))
    return (
        until.groupBy("moment")
        .agg(F.count_distinct("account").alias("accounts"), F.sum(_change()).alias("balance"))
        .orderBy("moment")
    )


def _change() -> Column:
    """By how much an event changes the balance."""
    return F.when(F.col("kind") == "withdrawn", -F.col("amount")).otherwise(F.col("amount"))
