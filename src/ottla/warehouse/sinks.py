"""Writes tables from streaming queries: functions for `foreachBatch`.

A batch counts once: its id is an application transaction of the table, under the name of the query.
A batch that Spark runs again after a crash is either in the table, and left out, or it is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.runtime import SystemClock
from ottla.spark.exactly_once import QUERY_ID
from ottla.spark.source import NEWEST_TIME, RecordOrder
from ottla.warehouse.data_files import write_files
from ottla.warehouse.delta import (
    DeltaHome,
    DeltaSnapshot,
    exists_delta,
    make_delta,
    open_delta,
    properties,
)
from ottla.warehouse.table_location import Place, WarehouseError

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.table import TableMerger
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(slots=True)
class AppendSink:
    """Appends the rows of every micro-batch, written by its tasks."""

    place: Place
    partition_by: Sequence[str] = ()
    _prepared_for: StructType | None = field(default=None, init=False)
    """The columns of the last batch: further ones may come with the next."""

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        home = DeltaHome(self.place)
        rows = with_types(rows)
        if self._prepared_for != rows.schema:
            home.prepare(rows.schema, self.partition_by)
            self._prepared_for = rows.schema
        query = query_id(rows)
        snapshot = home.snapshot()
        if snapshot.number(query) > batch_id:
            return
        files = write_files(snapshot.fitted(rows), self.place, self.partition_by)
        snapshot.append(files, {query: batch_id + 1}, {"ottla.batch": str(batch_id)})


KEEP_GONE_US = 7 * 24 * 3600 * 10**6
"""How long a deletion is kept there; an older record that comes later than that is taken in."""
NOTED = "__noted"
"""When a deletion was noted, where `order` is no time of a record."""


@dataclass(slots=True)
class MergeSink:
    """Keeps one row for each key: the newest by `order`; a row whose `deleted` is true takes its
    key out. The batch goes through the driver, so it has to fit into its memory.

    `order` is a column with a version or a time, or the place of records. A deletion can come
    before an older row of its key, as from a topic whose partitions were added to: deletions are
    remembered.

    A key that is null is a key like others. An `order` that is null or NaN is older than any that
    is not, and no newer than another such one; a `deleted` that is null is false. A column that a
    batch does not have keeps its values.
    """

    place: Place
    key: Sequence[str]
    order: str | RecordOrder
    deleted: str
    _prepared_for: StructType | None = field(default=None, init=False)

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        home = DeltaHome(self.place)
        rows = with_types(rows)
        if self._prepared_for != rows.schema:
            self._check_deleted(rows.schema)
            home.prepare(rows.drop(self.deleted).schema, ())
            self._prepare_gone(rows)
            self._prepared_for = rows.schema
        query = query_id(rows)
        # The same version of the table for the check and the commit: a commit in between is
        # a conflict.
        table = open_delta(self.place)
        if (table.transaction_version(query) or 0) > batch_id:
            return
        rows = DeltaSnapshot(self.place, table).fitted(rows)
        self.merge(table, self._newest(rows).toArrow(), {query: batch_id + 1})

    def _check_deleted(self, columns: StructType) -> None:
        kind = columns[self.deleted].dataType.simpleString()
        if kind != "boolean":
            raise WarehouseError(f"deleted={self.deleted}: must be a boolean column, and is {kind}")

    def _prepare_gone(self, rows: DataFrame) -> None:
        """Keys that became wider are wider in the companion of the table as well."""
        place = place_of_gone(self.place)
        if exists_delta(place):
            columns = rows.select(*self.key, *self._order_columns)
            DeltaHome(place).prepare(columns.schema, ())

    def _newest(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F
        from pyspark.sql.types import DoubleType, FloatType

        if isinstance(self.order, RecordOrder):
            newest = self.order.newest(rows, self.key)
            return newest.withColumn(self.order.timestamp, F.col(NEWEST_TIME)).drop(NEWEST_TIME)
        order = F.col(f"`{self.order}`")
        if isinstance(rows.schema[self.order].dataType, DoubleType | FloatType):
            order = F.when(~F.isnan(order), order)
        # Rows without an order would be left out; within a structure null is the lowest.
        last = F.max_by(F.struct(*rows.columns), F.struct(order)).alias("_newest")
        return rows.groupBy(*self.key).agg(last).select("_newest.*")

    def merge(self, table: DeltaTable, rows: pa.Table, transactions: dict[str, int]) -> None:
        """Updates, inserts and deletes of a batch in one commit. A row that is as new as that of
        the batch, or newer, stays."""
        import pyarrow.compute as pc

        place = rows.column_names.index(self.deleted)
        deleted = pc.fill_null(rows.column(place), False)
        rows = in_utc(rows.set_column(place, self.deleted, deleted))
        rows = _without_negative_zeros(rows, self.key)
        rows = self._without_gone(rows)
        columns = {name: f"s.`{name}`" for name in rows.column_names if name != self.deleted}
        facts = {
            "ottla.batch": str(next(iter(transactions.values())) - 1),
            "ottla.order": str(self.order),
        }
        merge = self._merger(table, rows, transactions, facts)
        newer = self._newer(rows.schema)
        merge = merge.when_matched_delete(f"s.`{self.deleted}` AND {newer}")
        merge = merge.when_matched_update(self._updates(columns), newer)
        merge = merge.when_not_matched_insert(columns, f"NOT s.`{self.deleted}`")
        self._execute(merge)

    def _newer(self, schema: pa.Schema) -> str:
        import pyarrow as pa

        if isinstance(self.order, RecordOrder):
            return self.order.is_newer("s", "t")
        new, old = f"s.`{self.order}`", f"t.`{self.order}`"
        if pa.types.is_floating(schema.field(self.order).type):
            new, old = (f"CASE WHEN isnan({each}) THEN NULL ELSE {each} END" for each in (new, old))
        return f"({new} > {old} OR ({old} IS NULL AND {new} IS NOT NULL))"

    def _updates(self, columns: dict[str, str]) -> dict[str, str]:
        """A row is no earlier than the rows of its key before it in its partition."""
        if not isinstance(self.order, RecordOrder):
            return columns
        time, partition, _ = self.order.columns
        latest = (
            f"CASE WHEN s.`{partition}` = t.`{partition}` AND t.`{time}` > s.`{time}` "
            f"THEN t.`{time}` ELSE s.`{time}` END"
        )
        return {**columns, time: latest}

    def _merger(
        self,
        table: DeltaTable,
        rows: pa.Table,
        transactions: dict[str, int],
        facts: dict[str, str],
    ) -> TableMerger:
        return table.merge(
            rows,
            predicate=" AND ".join(
                f"(t.`{name}` {'IS NOT DISTINCT FROM' if rows[name].null_count else '='} "
                f"s.`{name}`)"
                for name in self.key
            ),
            source_alias="s",
            target_alias="t",
            commit_properties=properties(transactions, facts),
        )

    def _execute(self, merge: TableMerger) -> None:
        from deltalake.exceptions import CommitFailedError

        try:
            merge.execute()
        except CommitFailedError as error:
            raise WarehouseError(
                f"table {self.place.uri}: it was changed meanwhile, and nothing of the batch "
                f"counts ({error})"
            ) from error

    @property
    def _order_columns(self) -> tuple[str, ...]:
        return self.order.columns if isinstance(self.order, RecordOrder) else (self.order,)

    def _without_gone(self, rows: pa.Table) -> pa.Table:
        """The rows that are no older than any deletion of their keys, which are noted first.

        A batch that is run again finds its own deletions there, and nothing else has changed.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        names = [*self.key, *self._order_columns]
        noted = rows.filter(rows[self.deleted]).select(names)
        place = place_of_gone(self.place)
        if noted.num_rows:
            self._note_gone(place, noted)
        elif not exists_delta(place):
            return rows
        numbers = pa.array(range(rows.num_rows), pa.int64())
        numbered = rows.select(names).append_column("_row", numbers)
        gone = open_delta(place).to_pyarrow_table(columns=names)
        for name in self.key:  # a join leaves nulls out
            numbered, gone = _coded(numbered, gone, name)
        both = numbered.join(gone, list(self.key), join_type="inner", right_suffix="_gone")
        older = both.filter(self._are_older(both))["_row"]
        return rows.filter(pc.invert(pc.is_in(numbered["_row"], older.combine_chunks())))

    def _are_older(self, both: pa.Table) -> pa.ChunkedArray:
        """Which rows are older than the deletions beside them."""
        import pyarrow.compute as pc

        if not isinstance(self.order, RecordOrder):
            order, gone = (without_nan(both[f"{self.order}{end}"]) for end in ("", "_gone"))
            return pc.and_(pc.is_valid(gone), pc.or_kleene(pc.is_null(order), pc.less(order, gone)))
        time, partition, offset = (both[name] for name in self.order.columns)
        gone_time, gone_partition, gone_offset = (
            both[f"{name}_gone"] for name in self.order.columns
        )
        return pc.if_else(
            pc.equal(partition, gone_partition),
            pc.and_(pc.less(offset, gone_offset), pc.less_equal(time, gone_time)),
            pc.or_(
                pc.less(time, gone_time),
                pc.and_(pc.equal(time, gone_time), pc.less(partition, gone_partition)),
            ),
        )

    def _note_gone(self, place: Place, noted: pa.Table) -> None:
        """Keep the newest deletion of each key, and forget those that are long ago."""
        import pyarrow as pa
        import pyarrow.compute as pc

        kind, now_us = pa.timestamp("us", "UTC"), SystemClock().now_ms() * 1000
        if isinstance(self.order, RecordOrder):
            time = self.order.timestamp
        else:
            time = NOTED
            noted = noted.append_column(time, pa.array([now_us] * noted.num_rows, kind))
        # A record that is ahead of its time makes no other deletion one of long ago.
        newest_us = min(now_us, pc.max(noted[time].cast(kind).cast(pa.int64())).as_py())
        columns = {name: f"s.`{name}`" for name in noted.column_names}
        merge = self._merger(make_delta(place, noted.schema), noted, {}, {})
        merge = merge.when_matched_update(self._updates(columns), self._newer(noted.schema))
        merge = merge.when_not_matched_insert(columns)
        merge = merge.when_not_matched_by_source_delete(
            f"t.`{time}` < to_timestamp_micros({newest_us - KEEP_GONE_US})"
        )
        self._execute(merge)


def without_nan(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Null for NaN: neither is newer than anything."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_floating(values.type):
        return values
    return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)


def with_types(rows: DataFrame) -> DataFrame:
    """The rows without columns that have no type: nobody knows yet what they will hold."""
    from pyspark.sql.types import NullType

    return rows.drop(*(each.name for each in rows.schema if isinstance(each.dataType, NullType)))


def _without_negative_zeros(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Both zeros are one key for Spark, and two for the merge."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in key:
        if pa.types.is_floating(rows.schema.field(name).type):
            place = rows.column_names.index(name)
            rows = rows.set_column(place, name, pc.add(rows[name], 0.0).cast(rows[name].type))
    return rows


def _coded(one: pa.Table, other: pa.Table, name: str) -> tuple[pa.Table, pa.Table]:
    """Two tables with numbers in place of the values of a column, the same for the same ones."""
    import pyarrow as pa

    values = pa.chunked_array(
        [*one[name].chunks, *other[name].cast(one[name].type).chunks], one[name].type
    )
    if pa.types.is_nested(values.type):  # which Arrow compares by no function
        values = pa.chunked_array([pa.array(map(repr, values.to_pylist()), pa.string())])
    codes = values.combine_chunks().dictionary_encode("encode").indices
    return (
        one.set_column(one.column_names.index(name), name, codes[: one.num_rows]),
        other.set_column(other.column_names.index(name), name, codes[one.num_rows :]),
    )


def in_utc(rows: pa.Table) -> pa.Table:
    """The same moments, in the zone that Delta has; Spark gives those of its session's zone."""
    import pyarrow as pa

    kind = pa.timestamp("us", "UTC")
    for index, each in enumerate(rows.schema):
        if pa.types.is_timestamp(each.type) and each.type.tz not in (None, "UTC"):
            rows = rows.set_column(index, each.name, rows.column(index).cast(kind))
    return rows


def place_of_gone(place: Place) -> Place:
    """The hidden companion of a table, with the keys that were taken out, and when."""
    folder, _, name = place.uri.rstrip("/").rpartition("/")
    return Place(f"{folder}/.{name}.deleted", place.storage_options)


def query_id(rows: DataFrame) -> str:
    """The id of the query whose batch this is: it stays as long as its checkpoint does."""
    found = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    if found is None:
        raise WarehouseError("not in a streaming query: give the sink to foreachBatch")
    return f"query-{found}"
