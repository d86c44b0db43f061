"""Writes tables from streaming queries: functions for `foreachBatch`.

A batch counts once: its id is an application transaction of the table, under the name of the query.
A batch that Spark runs again after a crash is either in the table, and left out, or it is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.warehouse.data_files import write_files
from ottla.warehouse.delta import DeltaHome, open_delta, properties
from ottla.warehouse.table_location import Place, WarehouseError

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame

QUERY_ID = "sql.streaming.queryId"


@dataclass(slots=True)
class AppendSink:
    """Appends the rows of every micro-batch, written by its tasks."""

    place: Place
    partition_by: Sequence[str] = ()
    _is_prepared: bool = field(default=False, init=False)

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        home = DeltaHome(self.place)
        if not self._is_prepared:
            home.prepare(rows.schema, self.partition_by)
            self._is_prepared = True
        query = query_id(rows)
        snapshot = home.snapshot()
        if snapshot.number(query) > batch_id:
            return
        files = write_files(rows, self.place, self.partition_by)
        snapshot.append(files, {query: batch_id + 1}, {"ottla.batch": str(batch_id)})


@dataclass(slots=True)
class MergeSink:
    """Keeps one row for each key: the newest by `order`; a row whose `deleted` is true takes its
    key out. The batch goes through the driver, so it has to fit into its memory."""

    place: Place
    key: Sequence[str]
    order: str
    deleted: str
    _is_prepared: bool = field(default=False, init=False)

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        home = DeltaHome(self.place)
        if not self._is_prepared:
            home.prepare(rows.drop(self.deleted).schema, ())
            self._is_prepared = True
        query = query_id(rows)
        # The same version of the table for the check and the commit: a commit in between is
        # a conflict.
        table = open_delta(self.place)
        if (table.transaction_version(query) or 0) > batch_id:
            return
        self._merge(table, newest(rows, self.key, self.order), {query: batch_id + 1})

    def _merge(self, table: DeltaTable, rows: DataFrame, transactions: dict[str, int]) -> None:
        """Updates, inserts and deletes of a batch in one commit. A row that is as new as that of
        the batch, or newer, stays."""
        from deltalake.exceptions import CommitFailedError

        same = " AND ".join(f"t.`{name}` = s.`{name}`" for name in self.key)
        newer = f"s.`{self.order}` > t.`{self.order}`"
        columns = {name: f"s.`{name}`" for name in rows.columns if name != self.deleted}
        facts = {"ottla.batch": str(next(iter(transactions.values())) - 1)}
        merge = table.merge(
            rows.toArrow(),
            predicate=same,
            source_alias="s",
            target_alias="t",
            commit_properties=properties(transactions, facts),
        )
        merge = merge.when_matched_delete(f"s.`{self.deleted}` AND {newer}")
        merge = merge.when_matched_update(columns, newer)
        merge = merge.when_not_matched_insert(columns, f"NOT s.`{self.deleted}`")
        try:
            merge.execute()
        except CommitFailedError as error:
            raise WarehouseError(
                f"table {self.place.uri}: it was changed meanwhile, and nothing of the batch "
                f"counts ({error})"
            ) from error


def newest(rows: DataFrame, key: Sequence[str], order: str) -> DataFrame:
    """The last row of each key, by the column `order`."""
    from pyspark.sql import functions as F

    last = F.max_by(F.struct(*rows.columns), F.col(order)).alias("_newest")
    return rows.groupBy(*key).agg(last).select("_newest.*")


def query_id(rows: DataFrame) -> str:
    """The id of the query whose batch this is: it stays as long as its checkpoint does."""
    found = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    if found is None:
        raise WarehouseError("not in a streaming query: give the sink to foreachBatch")
    return f"query-{found}"
