"""Joins of two tables: as they are at a moment, or change by change.

For the changes Spark keeps the newest values of both sides for each key. A micro-batch emits one
change for each key that it touches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ottla.streams.aggregates import rows_in_order
from ottla.streams.joins import IS_THERE, How, Joiner
from ottla.streams.records import COLUMNS, ORDER, Records

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.state import GroupState

CHANGES = f"key binary, left binary, right binary, timestamp timestamp, {ORDER} long"
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

    changes = _side(left, "left").unionByName(_side(right, "right"))
    rows = changes.groupBy("key").applyInPandasWithState(
        TableJoin(how).update, CHANGES, STATE, "append", GroupStateTimeout.NoTimeout
    )
    pairs = rows.select(
        left.key.incoming(F.col("key")).alias("key"),
        left.value.incoming(F.col("left")).alias("left"),
        right.value.incoming(F.col("right")).alias("right"),
        "timestamp",
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


def _side(records: Records, side: str) -> DataFrame:
    return records.frame.where("key is not null").select(
        records.key.encode(F.col("key")).alias("key"),
        F.lit(side).alias("side"),
        records.value.encode(F.col("value")).alias("value"),
        "timestamp",
        ORDER,
    )


def _newest(records: Records) -> Records:
    last: Column = F.max_by(F.struct("value", "timestamp", ORDER), F.col(ORDER)).alias("last")
    rows = records.frame.where("key is not null").groupBy("key").agg(last)
    return records.but(rows.select("key", "last.*"))


def _bytes(found: object) -> bytes | None:
    return bytes(found) if isinstance(found, (bytes, bytearray)) else None
