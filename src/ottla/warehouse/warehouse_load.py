"""Loads topics into a table: plan offsets, let tasks write files, commit both together.

The table holds the next offsets, so a load needs no checkpoint: after any crash the next run reads
them from the table, and nothing that was not committed is in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla.spark.data_loss import DataLossError
from ottla.spark.lookup import OffsetLookup
from ottla.spark.offsets import limited, to_json_object
from ottla.spark.options import SourceOptions
from ottla.structs import by_topic
from ottla.warehouse.data_files import write_files
from ottla.warehouse.layout import Layout
from ottla.warehouse.loads import Load, Table, TableSnapshot
from ottla.warehouse.table_location import WarehouseError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ottla.spark.offsets import Offsets
    from ottla.warehouse.data_files import DataFile

DEFAULT_NAME: Final = "warehouse"
TIMESTAMP: Final = "timestamp"
NAME = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The source of a load, and its ways.

    `source` are options of the source `ottla`: which topics, which brokers, and where the first
    load begins. A commit has about `max_records` at most; a load is cut into `min_tasks` at least.
    A topic that was deleted and made again is refused, or with `accept_new_topic` read whole.
    """

    source: Mapping[str, str]
    name: str = DEFAULT_NAME
    layout: Layout = field(default_factory=Layout)
    max_records: int | None = None
    min_tasks: int | None = None
    accept_new_topic: bool = False

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise WarehouseError(f"name '{self.name}': may have letters, digits, '.', '_' and '-'")

    def source_options(self) -> SourceOptions:
        """The checked options; like those of a stream, they say where to begin."""
        return SourceOptions.for_stream({"startingOffsets": "earliest", **self._committed()})

    def reading(self, load: Load) -> dict[str, str]:
        """The options that read the records of one load."""
        wanted = sorted(each for each, end in load.ends.items() if end > load.starts[each])
        topics = by_topic(wanted)
        kept = {
            key: value
            for key, value in self._committed().items()
            if key.lower().startswith("kafka.") or key.lower() == "failondataloss"
        }
        found = {
            **kept,
            "assign": json.dumps(topics),
            "startingOffsets": json.dumps(to_json_object({e: load.starts[e] for e in wanted})),
            "endingOffsets": json.dumps(to_json_object({e: load.ends[e] for e in wanted})),
            "includeHeaders": str(self.layout.with_headers).lower(),
        }
        if self.min_tasks is not None:
            found["minPartitions"] = str(self.min_tasks)
        return found

    def _committed(self) -> dict[str, str]:
        """Options that skip open and aborted transactions, unless the user set otherwise."""
        return {"kafka.isolation.level": "read_committed", **self.source}


@dataclass(frozen=True, slots=True)
class Loaded:
    """One commit: the version of the table that it made, and its content.

    `left` are the offsets that the topics had when the load was planned and that come next.
    `lost_times` are rows without their record's timestamp: it is outside the years 1 to 9999.
    """

    version: int
    load: Load
    row_count: int
    file_count: int
    left: int = 0
    lost_times: int = 0


class WarehouseLoad:
    """Loads of one name into one table; if two run at once, one fails and the table stays right."""

    def __init__(self, spark: SparkSession, table: Table, options: LoadOptions) -> None:
        self._spark = spark
        self._table = table
        self._options = options
        self._lookup = OffsetLookup(options.source_options())
        self._is_prepared = False
        self._is_alone = False
        """Whether it was seen that no load of another name has what comes next."""

    def run(self, on_loaded: Callable[[Loaded], object] = lambda loaded: None) -> int:
        """Load the present records of the topics, commit by commit; returns the number of rows."""
        until = self._latest()
        rows = 0
        while (loaded := self.step(until)) is not None:
            on_loaded(loaded)
            rows += loaded.row_count
        return rows

    def step(self, until: Offsets | None = None) -> Loaded | None:
        """One commit, if there is anything new before `until`."""
        if not self._is_prepared:
            layout = self._options.layout
            self._table.prepare(layout.schema(self._spark), layout.partition_columns)
            self._is_prepared = True
        snapshot = self._table.snapshot()
        ends = self._latest() if until is None else until
        load = self._plan(snapshot, ends)
        if load is None:
            return None
        files = []
        if load.starts != load.ends:
            layout = self._options.layout
            folder = self._table.staging(load.name)
            files = write_files(
                snapshot.fitted(layout.rows(self._records(load))),
                self._table.place,
                layout.partition_columns,
                folder,
            )
            if self._lookup.topic_ids(load.topic_ids) != load.topic_ids:
                raise DataLossError(
                    f"{', '.join(load.topic_ids)}: was deleted and created again while it was "
                    "read; nothing of this load counts"
                )
        version = snapshot.commit(load, files)
        left = sum(max(0, end - load.ends[each]) for each, end in ends.items())
        rows = sum(each.row_count for each in files)
        return Loaded(version, load, rows, len(files), left, lost_times(files))

    def _plan(self, snapshot: TableSnapshot, until: Offsets) -> Load | None:
        """The next offsets to load; None when the table has all of them."""
        options = self._options
        known = snapshot.offsets(options.name, until)
        ids = self._lookup.topic_ids({each.topic for each in until})
        others = {t for t, id in ids.items() if snapshot.is_other_topic(options.name, t, id)}
        if others and not options.accept_new_topic:
            raise DataLossError(
                f"{', '.join(sorted(others))}: was deleted and created again, and its offsets mean "
                "other records than those in the table; load it into another table, or add all of "
                "the new topic to this one by --accept-new-topic"
            )
        known = {each: offset for each, offset in known.items() if each.topic not in others}
        new = sorted(until.keys() - known.keys())
        if known or others:
            # A partition that was added later is read whole, and so is a topic made again.
            first = self._lookup.earliest(new)
        else:
            first = self._lookup.offsets(options.source_options().starting, new)
        starts = {**known, **first}
        for where, start in known.items():
            if start > until[where]:
                raise DataLossError(
                    f"{where}: the table has offsets up to {start}, and the log ends at "
                    f"{until[where]}: the topic was deleted and created again, or lost "
                    "records; load it under another name, into another table"
                )
        if not self._is_alone:
            self._check_alone(snapshot, starts, ids)
            self._is_alone = True
        ends = {each: max(end, starts[each]) for each, end in until.items()}
        if options.max_records is not None:
            ends = limited(starts, ends, options.max_records)
        if ends == known:
            return None
        return Load(options.name, snapshot.number(options.name) + 1, starts, ends, ids)

    def _check_alone(
        self, snapshot: TableSnapshot, starts: Offsets, topic_ids: Mapping[str, str]
    ) -> None:
        """Refuse to load again the records of another name's load."""
        for where, (other, end) in sorted(
            snapshot.ends_of_others(self._options.name, starts, topic_ids).items()
        ):
            if end > starts.get(where, end):
                who = f"a load named {other}" if other else "a load of another name"
                under = f"the name {other}" if other else "that name"
                raise WarehouseError(
                    f"table {self._table.place.uri}: {who} has put {where} into it up to offset "
                    f"{end}, and {self._options.name} would go on at {starts[where]}: these "
                    f"records would be in it twice; load under {under}, or into another table"
                )

    def _records(self, load: Load) -> DataFrame:
        return self._spark.read.format("ottla").options(**self._options.reading(load)).load()

    def _latest(self) -> Offsets:
        return self._lookup.latest(self._lookup.partitions(must_exist=True))


def lost_times(files: Sequence[DataFile]) -> int:
    """The rows without the timestamp of their record, which every record has."""
    return sum(json.loads(each.statistics)["nullCount"].get(TIMESTAMP, 0) for each in files)
