"""The records of a stream or table in Spark: typed columns and their serdes.

Columns are `key`, `value`, `timestamp` and `_order`, the offset in the partition that a record
came from: records of one key are in this order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol

from pyspark.sql import functions as F

from ottla.spark.source import RECORD_ORDER
from ottla.streams.serdes import Serde

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ORDER = "_order"
COLUMNS = ("key", "value", "timestamp", ORDER)
Mode = Literal["append", "update"]


@dataclass(frozen=True)
class Records:
    """A frame of COLUMNS. In mode `update` a row replaces the earlier row of its key."""

    frame: DataFrame
    key: Serde
    value: Serde
    mode: Mode = "append"

    def but(
        self, frame: DataFrame, key: Serde | None = None, value: Serde | None = None
    ) -> Records:
        """The same kind of records with other columns."""
        return replace(
            self, frame=frame.select(*COLUMNS), key=key or self.key, value=value or self.value
        )

    def require_append(self, operation: str) -> None:
        """Refuse an operation that Spark cannot do on the updates of a table."""
        if self.mode == "update":
            raise ValueError(
                f"{operation}: Spark has no {operation} after a table that is updated; put "
                "through(topic) before it, or suppress() if it has windows"
            )


@dataclass(frozen=True)
class Source:
    """A topic that is read, and how."""

    topic: str
    key: Serde
    value: Serde
    timestamp: str | None = None
    skip_malformed: bool = False

    def records(self, topic: DataFrame) -> Records:
        """The typed records of the rows of a topic."""
        typed = topic.select(
            "*",
            self.key.decode(F.col("key")).alias("_key"),
            self.value.decode(F.col("value")).alias("_value"),
        )
        rows = typed.where(self._is_right("key", self.key) & self._is_right("value", self.value))
        rows = rows.select(
            F.col("_key").alias("key"),
            F.col("_value").alias("value"),
            "timestamp",
            "partition",
            "offset",
            F.col("offset").alias(ORDER),
        )
        if self.timestamp is not None:
            rows = self._timed(rows, F.expr(self.timestamp).try_cast("timestamp"))
        return Records(rows.select(*COLUMNS), self.key, self.value)

    def _timed(self, rows: DataFrame, time: Column) -> DataFrame:
        """The rows with their times; a record without a value has the one of its topic."""
        written = F.when(F.col("value").isNull(), F.col("timestamp"))
        timed = rows.withColumn("_time", F.coalesce(time, written))
        right = timed.where(self._unless(F.col("_time").isNotNull(), "timestamp is no time"))
        return right.withColumn("timestamp", F.col("_time"))

    def newest(self, topic: DataFrame) -> Records:
        """The newest record of each key, tombstones included."""
        rows = topic.select("key", "value", "timestamp", "partition", "offset")
        return self.records(RECORD_ORDER.newest(rows.where("key is not null"), ["key"]))

    def _is_right(self, name: str, serde: Serde) -> Column:
        """Whether bytes are valid for the serde; others fail the query, unless they are skipped."""
        is_right = F.col(name).isNull() | F.col(f"_{name}").isNotNull()
        return self._unless(is_right, f"{name} is no {serde.name}")

    def _unless(self, is_right: Column, problem: str) -> Column:
        if self.skip_malformed:
            return is_right
        place = F.concat_ws(
            "",
            F.lit(f"{self.topic}: the {problem}: partition "),
            "partition",
            F.lit(", offset "),
            "offset",
        )
        return F.when(is_right, True).otherwise(F.raise_error(place).cast("boolean"))


class Inputs(Protocol):
    """The source of an application's topics: brokers, or a test."""

    @property
    def is_streaming(self) -> bool:
        """Whether topics are read as streams."""

    def stream(self, topic: str) -> DataFrame:
        """The rows of a topic as they come in; key, value, partition, offset and timestamp."""

    def table(self, topic: str) -> DataFrame:
        """The rows of a topic that are there when a micro-batch begins."""


def written(records: Records, *others: str) -> DataFrame:
    """Key and value as bytes, and other columns as they are."""
    return records.frame.select(
        records.key.encode(F.col("key")).alias("key"),
        records.value.encode(F.col("value")).alias("value"),
        *others,
    )


Build = Callable[[Inputs], Records]
