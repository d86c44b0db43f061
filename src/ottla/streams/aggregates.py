"""Counts, sums and folds of the records of each key, over all time or over windows.

Aggregates that Spark can express are native. A Python fold over all time keeps its aggregate in
Spark's state store; over a window it sees the window's values, which are the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from ottla.streams.operations import RESULT, Function, computed, expression, is_python, settled
from ottla.streams.records import COLUMNS, ORDER, Mode, Records
from ottla.streams.serdes import BytesSerde, Serde
from ottla.streams.windows import Windows, interval

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import Column, DataFrame, GroupedData
    from pyspark.sql.streaming.state import GroupState

CHANGES = f"key binary, value binary, timestamp long, {ORDER} long"
STATE = "aggregate binary"


@dataclass(frozen=True)
class Aggregation:
    """How values of a key become one: an expression of Spark, or `(key, value, aggregate)`.

    `initial` makes the first aggregate; without it the first value is.
    """

    function: Function
    serde: Serde | None = None
    initial: Callable[[], Any] | None = None

    def folded(self, key: Any, values: Sequence[Any]) -> Any:
        """The aggregate of all values."""
        return self.fold(key, values, None)

    def fold(self, key: Any, values: Sequence[Any], aggregate: Any) -> Any:
        """The aggregate of more values, after `aggregate`."""
        function = self.function
        assert is_python(function)
        for value in values:
            if aggregate is None:
                if self.initial is None:
                    aggregate = value
                    continue
                aggregate = self.initial()
            aggregate = function(key, value, aggregate)
        return aggregate


def aggregated(
    records: Records, windows: Windows | None, how: Aggregation, is_final: bool, is_streaming: bool
) -> Records:
    """The aggregate of each key, and of each window if there are any."""
    records.require_append("aggregation")
    rows = records.frame.where("key is not null and value is not null")
    if is_python(how.function) and windows is None and is_streaming:
        return _folded_with_state(records, rows, how)
    grouped = _grouped(rows, windows)
    if is_python(how.function):
        found, serde = _folded(grouped, records, how)
    else:
        found = _aggregates(grouped, expression(how.function))
        column, serde = settled(found, F.col("value"), how.serde, records.value)
        found = found.withColumn("value", column)
    key = records.key
    if windows is not None:
        found, key = _with_windowed_keys(found, windows), windows.serde(key)
    mode: Mode = "append" if is_final or not is_streaming else "update"
    return Records(found.select(*COLUMNS), key, serde, mode)


def _grouped(rows: DataFrame, windows: Windows | None) -> GroupedData:
    if windows is None:
        return rows.groupBy("key")
    late = rows.withWatermark("timestamp", interval(windows.grace_ms))
    return late.groupBy(windows.column().alias("_window"), "key")


def _aggregates(grouped: GroupedData, value: Column) -> DataFrame:
    last = (F.max("timestamp").alias("timestamp"), F.max(ORDER).alias(ORDER))
    return grouped.agg(value.alias("value"), *last)


def _with_windowed_keys(found: DataFrame, windows: Windows) -> DataFrame:
    window = F.col("_window")
    key = F.struct(F.col("key"), window["start"].alias("start"), windows.end(window).alias("end"))
    return found.withColumn("key", key)


def _folded(grouped: GroupedData, records: Records, how: Aggregation) -> tuple[DataFrame, Serde]:
    """Spark keeps the values, and Python folds all of them again whenever there are more."""
    serde = how.serde or records.value
    one = F.struct(F.col(ORDER).alias("at"), records.value.encode(F.col("value")).alias("value"))
    values = F.transform(F.array_sort(F.collect_list(one)), lambda each: each["value"])
    found = _aggregates(grouped, values)
    arguments = [(F.col("key"), records.key), (F.col("value"), ListSerde(records.value))]
    found = computed(found, how.folded, arguments, serde)
    return found.withColumn("value", F.col(RESULT)), serde


def _folded_with_state(records: Records, rows: DataFrame, how: Aggregation) -> Records:
    """The state store keeps the aggregate; each micro-batch emits those that have changed."""
    from pyspark.sql.streaming.state import GroupStateTimeout

    serde = how.serde or records.value
    encoded = rows.select(
        records.key.encode(F.col("key")).alias("key"),
        records.value.encode(F.col("value")).alias("value"),
        time_sent(),
        ORDER,
    )
    call = StatefulFold(how, records.key, records.value, serde)
    found = encoded.groupBy("key").applyInPandasWithState(
        call.update, CHANGES, STATE, "append", GroupStateTimeout.NoTimeout
    )
    decoded = found.select(
        records.key.incoming(F.col("key")).alias("key"),
        serde.incoming(F.col("value")).alias("value"),
        time_received(),
        ORDER,
    )
    return Records(decoded, records.key, serde)


def time_sent() -> Column:
    """The time of a record as it goes to pandas: microseconds since 1970.

    A time of pandas has no zone, so that an hour of each year is there twice, and ends in 2262.
    """
    return F.unix_micros("timestamp").alias("timestamp")


def time_received() -> Column:
    """The time of a record that was sent by `time_sent`."""
    return F.timestamp_micros("timestamp").alias("timestamp")


@dataclass(frozen=True)
class StatefulFold:
    """A fold as it runs in a worker: the state is the bytes of the aggregate."""

    how: Aggregation
    key: Serde
    value: Serde
    aggregate: Serde

    def update(
        self, key: tuple[bytes], batches: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        import pandas as pd

        rows = rows_in_order(batches)
        before = self.aggregate.from_bytes(bytes(state.get[0])) if state.exists else None
        values = [self.value.from_bytes(bytes(row[1])) for row in rows]
        found = self.how.fold(self.key.from_bytes(bytes(key[0])), values, before)
        data = self.aggregate.to_bytes(found)
        if data is None:
            state.remove()
        else:
            state.update((data,))
        last = {"timestamp": [max(row[-2] for row in rows)], ORDER: [rows[-1][-1]]}
        yield pd.DataFrame({"key": [bytes(key[0])], "value": [data], **last})


def rows_in_order(batches: Iterator[pd.DataFrame]) -> list[tuple[Any, ...]]:
    """The sorted rows of a key; their last two columns are the time and ORDER."""
    rows = [row for batch in batches for row in batch.itertuples(index=False, name=None)]
    return sorted(rows, key=lambda row: int(row[-1]))


class ListSerde(BytesSerde):
    """The values of a window on their way to a Python fold."""

    def __init__(self, each: Serde) -> None:
        self._each = each

    def from_bytes(self, data: Any) -> list[Any]:
        return [self._each.from_bytes(one) for one in data]
