"""A Delta table that loads write to, through delta-rs: no JVM, no catalogue.

The progress of a load is kept in the table's application transactions: one for the load, whose
version is its number, one for each partition, whose version is the next offset, and one for the id
of each topic, by which a topic is known that was deleted and made again. One more for each
partition says how far loads of any name have come. They are in the same commit as the files, stay
when the log is shortened, and delta-rs refuses a commit if one of them was changed since its
snapshot: of two loads of one name, or of one partition, one commits.

Tables are read back in Spark without any jar, and with SQL in this process without Spark.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.runtime import SystemClock
from ottla.spark.offsets import from_json_object, to_json_object
from ottla.warehouse.column_types import check_part, fitted, parts_of, widest
from ottla.warehouse.data_files import sync_files
from ottla.warehouse.loads import Load
from ottla.warehouse.table_location import Place, WarehouseError

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable, Metadata
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

    from ottla.spark.offsets import Offsets
    from ottla.structs import TopicPartition
    from ottla.warehouse.data_files import DataFile


def open_delta(place: Place, version: int | None = None) -> DeltaTable:
    """The table at a place; raises WarehouseError if there is none, or not of this version."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    options = dict(place.storage_options)
    try:
        table = DeltaTable(place.uri, storage_options=options)
        if version is None:
            return table
        if not 0 <= version <= table.version():
            raise WarehouseError(
                f"table {place.uri}: has no version {version} (its newest is {table.version()})"
            )
        return DeltaTable(place.uri, version=version, storage_options=options)
    except TableNotFoundError:
        raise WarehouseError(f"table {place.uri}: there is no Delta table") from None


def exists_delta(place: Place) -> bool:
    from deltalake import DeltaTable

    return DeltaTable.is_deltatable(place.uri, storage_options=dict(place.storage_options))


def make_delta(place: Place, schema: pa.Schema) -> DeltaTable:
    """The table at a place, made of these columns where there is none."""
    from deltalake import DeltaTable

    options = dict(place.storage_options)
    return DeltaTable.create(place.uri, schema, mode="ignore", storage_options=options)


COMMITS_LOOKED_AT = 200
"""How many commits are looked through for the names of loads, and for how far they have come in a
table of a version that did not keep that."""


NO_PARTITIONS: Final = ("binary", "struct", "array", "map")
"""The types whose values come back from the text of a partition as others, or not at all."""


class DeltaHome:
    """A Delta table that loads and sinks write to; it is made when it is prepared."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def prepare(self, schema: StructType, partition_by: Sequence[str]) -> None:
        """Make the table, or add columns and widen those that are too narrow.

        Snapshots that loads commit on are opened after this.
        """
        from deltalake import DeltaTable, Schema

        self._check_columns(schema, partition_by)
        wanted = Schema.from_json(_nullable(schema).json())
        DeltaTable.create(
            self.place.uri,
            wanted,
            mode="ignore",
            partition_by=list(partition_by),
            storage_options=dict(self.place.storage_options),
        )
        table = open_delta(self.place)
        if table.metadata().partition_columns != list(partition_by):
            raise WarehouseError(
                f"table {self.place.uri}: is partitioned by "
                f"{', '.join(table.metadata().partition_columns) or 'nothing'}, and cannot be by "
                f"{', '.join(partition_by) or 'nothing'}"
            )
        wider = self._wider(_columns_of(table), schema)
        if wider:
            self._widen(table, wider)
            table = open_delta(self.place)
        there = {field.name for field in table.schema().fields}
        new = [field for field in wanted.fields if field.name not in there]
        if new:
            table.alter.add_columns(new)
        _sync_log(self.place)

    def _check_columns(self, schema: StructType, partition_by: Sequence[str]) -> None:
        """WarehouseError for columns that the table cannot have, before anything is written."""
        from pyspark.sql.types import StructType

        nothing = StructType([])
        self._wider(nothing, schema)
        known = _columns_of(open_delta(self.place)) if exists_delta(self.place) else nothing
        for each in schema.fields:
            if each.name not in known.names:
                for name, kind in parts_of(each.name, each.dataType):
                    check_part(f"table {self.place.uri}", name, kind)
        for each in schema.fields:
            if each.name in partition_by and each.dataType.typeName() in NO_PARTITIONS:
                raise self._refused(
                    f"cannot be partitioned by {each.name}, a {each.dataType.simpleString()}: "
                    "values of partitions are kept as text"
                )

    def _wider(self, there: StructType, wanted: StructType) -> dict[str, DataType]:
        """The columns of the table that are too narrow for those that are wanted."""
        types = {each.name: each.dataType for each in there.fields}
        spelled = {name.lower(): name for name in types}
        wider: dict[str, DataType] = {}
        for each in wanted.fields:
            other = spelled.setdefault(each.name.lower(), each.name)
            if other != each.name:
                raise self._refused(
                    f"has no room for both {other} and {each.name}: names of "
                    "columns must differ in more than capitals"
                )
            known = types.get(each.name, each.dataType)
            kind = widest(known, each.dataType)
            if kind is None:
                raise self._refused(
                    f"its column {each.name} is {known.simpleString()}, and cannot take "
                    f"{each.dataType.simpleString()}: no type has every value of both; give the "
                    "field another name, or load it into another table"
                )
            if kind != known:
                wider[each.name] = kind
        return wider

    def _refused(self, why: str) -> WarehouseError:
        return WarehouseError(f"table {self.place.uri}: {why}")

    def _widen(self, table: DeltaTable, wider: Mapping[str, DataType]) -> None:
        """Write the whole table again, in one commit, with these types of its columns.

        A reader that does not know Delta's feature of type widening cannot read files whose types
        are narrower than the table's. Any other commit meanwhile ends it: an append would leave
        such a file, and a compaction the rows twice.
        """
        import pyarrow as pa
        from deltalake import Schema, write_deltalake
        from deltalake.exceptions import CommitFailedError
        from pyspark.sql.types import StructField, StructType

        before, metadata = _columns_of(table), table.metadata()
        names = ", ".join(wider)
        self._check_can_widen(names, before, metadata)
        fields = [
            StructField(
                each.name, wider.get(each.name, each.dataType), each.nullable, each.metadata
            )
            for each in before.fields
        ]
        columns = pa.schema(Schema.from_json(StructType(fields).json()).to_arrow())
        facts = {
            name: f"{before[name].dataType.simpleString()} to {kind.simpleString()}"
            for name, kind in wider.items()
        }
        try:
            batches = table.to_pyarrow_dataset().scanner(columns=columns.names).to_reader()
            write_deltalake(
                table,
                pa.RecordBatchReader.from_batches(
                    columns, (each.cast(columns) for each in batches)
                ),
                mode="overwrite",
                schema_mode="overwrite",
                partition_by=metadata.partition_columns,
                commit_properties=properties({}, {"ottla.widened": json.dumps(facts)}, retries=0),
            )
        except CommitFailedError as error:
            raise self._refused(
                f"it was changed while its columns {names} were made wider, and they are as they "
                f"were; try again ({error})"
            ) from error
        except Exception as error:  # of the disk, or of a feature that delta-rs does not write
            raise self._refused(
                f"its columns {names} cannot be made wider, and are as they were: {error}"
            ) from error

    def _check_can_widen(self, names: str, before: StructType, metadata: Metadata) -> None:
        """WarehouseError where the rows must stay, or would not be written again as they are."""
        from pyspark.sql.types import BinaryType

        if metadata.configuration.get("delta.appendOnly") == "true":
            raise self._refused(f"columns {names} are too narrow, and it is delta.appendOnly")
        if any(
            isinstance(before[each].dataType, BinaryType) for each in metadata.partition_columns
        ):
            raise self._refused(
                f"columns {names} are too narrow, and it is partitioned by bytes, which would not "
                "be the same when they are written again"
            )

    def snapshot(self) -> DeltaSnapshot:
        return DeltaSnapshot(self.place, open_delta(self.place))

    def staging(self, load_name: str) -> str:
        """Files are written where they will be read: without a commit no reader sees them."""
        return ""


class DeltaSnapshot:
    """One version of a Delta table. Never refreshed: a commit must detect commits since then."""

    def __init__(self, place: Place, table: DeltaTable) -> None:
        self._place = place
        self._table = table

    def offsets(self, name: str, partitions: Collection[TopicPartition]) -> Offsets:
        found = {each: self._table.transaction_version(_app_id(name, each)) for each in partitions}
        return {each: offset for each, offset in found.items() if offset is not None}

    def number(self, name: str) -> int:
        return self._table.transaction_version(name) or 0

    def is_other_topic(self, name: str, topic: str, topic_id: str) -> bool:
        version = self._table.transaction_version
        has_ids = version(_topic_app_id(name, topic, ANY_ID)) is not None
        return has_ids and version(_topic_app_id(name, topic, topic_id)) is None

    def ends_of_others(
        self, name: str, partitions: Collection[TopicPartition], topic_ids: Mapping[str, str]
    ) -> dict[TopicPartition, tuple[str, int]]:
        own, version = self.offsets(name, partitions), self._table.transaction_version
        ends = {each: version(_rows_app_id(each, topic_ids)) for each in partitions}
        ends = {each: end for each, end in ends.items() if end is None or end != own.get(each)}
        named = self._ends_in_history(name, topic_ids) if ends else {}
        found = {}
        for each, end in ends.items():
            if end is not None:
                found[each] = (named[each][0] if each in named else "", end)
            elif each in named:
                found[each] = named[each]
        return found

    def _ends_in_history(
        self, name: str, topic_ids: Mapping[str, str]
    ) -> dict[TopicPartition, tuple[str, int]]:
        """The same by the descriptions of the newest commits, which have names."""
        found: dict[TopicPartition, tuple[str, int]] = {}
        rewound: dict[TopicPartition, int] = {}
        """Rows behind these offsets were taken back, also those of other loads."""
        for commit in self._table.history(COMMITS_LOOKED_AT):
            for where, offset in _offsets(commit.get("ottla.rewound.to")).items():
                rewound[where] = min(offset, rewound.get(where, offset))
            ids = json.loads(commit.get("ottla.topics", "{}"))
            if commit.get("ottla.load", name) == name:
                continue
            for where, offset in _offsets(commit.get("ottla.offsets.to")).items():
                topic = where.topic
                if ids.get(topic, topic_ids.get(topic)) != topic_ids.get(topic):
                    continue  # it was deleted and made again
                end = min(offset, rewound.get(where, offset))
                if where not in found or end > found[where][1]:
                    found[where] = (commit["ottla.load"], end)
        return found

    def fitted(self, rows: DataFrame) -> DataFrame:
        return fitted(rows, _columns_of(self._table))

    def commit(self, load: Load, files: Sequence[DataFile]) -> int:
        versions = {_app_id(load.name, each): offset for each, offset in load.ends.items()}
        for where, offset in load.ends.items():
            rows = _rows_app_id(where, load.topic_ids)
            versions[rows] = max(offset, self._table.transaction_version(rows) or 0)
        for topic, topic_id in load.topic_ids.items():
            is_other = self.is_other_topic(load.name, topic, topic_id)
            for each in (ANY_ID, topic_id, *([FORMER_ID] if is_other else [])):
                versions[_topic_app_id(load.name, topic, each)] = load.number
        return self.append(files, {load.name: load.number, **versions}, load.facts(files))

    def append(
        self, files: Sequence[DataFile], transactions: dict[str, int], facts: dict[str, str]
    ) -> int:
        """Files and application transactions in one commit; returns its version."""
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, RemoveAction

        if self._place.is_local:
            sync_files(Path(self._place.uri), [each.path for each in files])
        now_ms = SystemClock().now_ms()
        adds: list[AddAction | RemoveAction] = [
            AddAction(each.path, each.size, each.partition_values, now_ms, True, each.statistics)
            for each in files
        ]
        try:
            self._table.create_write_transaction(
                adds,
                "append",
                self._table.schema(),
                self._table.metadata().partition_columns,
                commit_properties=properties(transactions, facts),
            )
        except CommitFailedError as error:
            raise self._refused(transactions, error) from error
        self._table.update_incremental()
        version = self._table.version()
        _sync_log(self._place, f"{version:020}.json")
        return version

    def _refused(self, transactions: Mapping[str, int], error: Exception) -> WarehouseError:
        """The error for a commit that came after a load of the same name, or other columns."""
        now = open_delta(self._place)
        same = [
            name
            for name in transactions
            if now.transaction_version(name) != self._table.transaction_version(name)
        ]
        if same:
            name = same[0].partition("/")[0]
            other = "a load of another name" if name == ANY_NAME else f"another load of {name}"
            why = f"{other} has committed meanwhile"
        else:
            why = "its columns were changed meanwhile, by a load that adds or widens some"
        return WarehouseError(
            f"table {now.table_uri}: {why}; nothing of this one counts, load again ({error})"
        )

    def check_rewind(
        self, name: str, to: Offsets, topic_ids: Mapping[str, str], earliest: Offsets
    ) -> None:
        """WarehouseError unless a load can read all that would be deleted again.

        The topics have these ids now, and begin at the offsets `earliest`.
        """
        for where, offset in sorted(self.offsets(name, to).items()):
            if to[where] >= offset:
                continue
            topic, topic_id = where.topic, topic_ids.get(where.topic)
            former = _topic_app_id(name, topic, FORMER_ID)
            is_mixed = self._table.transaction_version(former) is not None
            if is_mixed or (topic_id and self.is_other_topic(name, topic, topic_id)):
                raise WarehouseError(
                    f"table {self._table.table_uri}: it has rows of a topic {topic} that was "
                    "deleted since, which could not be loaded again; nothing was taken back"
                )
            if to[where] < earliest[where]:
                raise WarehouseError(
                    f"table {self._table.table_uri}: {where} begins at offset {earliest[where]} by "
                    f"now, and rows from {to[where]} on could not all be loaded again; nothing was "
                    "taken back"
                )

    def rewind(
        self, name: str, to: Offsets, topic_ids: Mapping[str, str]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Remove rows and reset offsets, in one commit; returns old and new offsets.

        Only partitions that are beyond an offset of `to` go back to it. The topics have these ids.
        """
        from deltalake.exceptions import CommitFailedError

        at = self.offsets(name, to)
        back = {each: (at[each], to[each]) for each in sorted(at) if to[each] < at[each]}
        if not back:
            return {}
        gone = " OR ".join(
            f"(topic = '{where.topic}' AND partition = {where.partition} AND offset >= {offset})"
            for where, (_, offset) in back.items()
        )
        versions = {
            app_id: offset
            for each, (_, offset) in back.items()
            for app_id in (_app_id(name, each), _rows_app_id(each, topic_ids))
        }
        number = self.number(name) + 1
        text = json.dumps(to_json_object({each: offset for each, (_, offset) in back.items()}))
        facts = {"ottla.load": name, "ottla.number": str(number), "ottla.rewound.to": text}
        try:
            self._table.delete(
                gone, commit_properties=properties({name: number, **versions}, facts)
            )
        except CommitFailedError as error:
            raise WarehouseError(
                f"table {self._table.table_uri}: it was changed meanwhile, and nothing was taken "
                f"back; try again ({error})"
            ) from error
        return back


def _sync_log(place: Place, name: str = "*.json") -> None:
    """Have commits survive a crash of the machine; delta-rs leaves that to the file system."""
    if place.is_local:
        root = Path(place.uri)
        sync_files(root, [str(each.relative_to(root)) for each in root.glob(f"_delta_log/{name}")])


def _offsets(text: str | None) -> Offsets:
    """The offsets in the description of a commit."""
    return from_json_object(json.loads(text or "{}"))


def _columns_of(table: DeltaTable) -> StructType:
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(table.schema().to_json()))


def properties(
    transactions: dict[str, int], facts: dict[str, str], retries: int | None = None
) -> CommitProperties:
    """The properties of a commit besides its files. On a conflict it must fail, not retry.

    With `retries=0` any other commit is a conflict, also one that delta-rs would let pass.
    """
    from deltalake import CommitProperties, Transaction

    return CommitProperties(
        custom_metadata=dict(facts),
        max_commit_retries=retries,
        app_transactions=[Transaction(name, version) for name, version in transactions.items()],
    )


def _app_id(name: str, where: TopicPartition) -> str:
    return f"{name}/{where.topic}/{where.partition}"


ANY_NAME: Final = "*"
"""In place of a name, which no load can have."""


def _rows_app_id(where: TopicPartition, topic_ids: Mapping[str, str]) -> str:
    """The transaction that says how far a partition is in the table, by loads of any name."""
    return f"{ANY_NAME}/{where.topic}@{topic_ids.get(where.topic, '')}/{where.partition}"


ANY_ID, FORMER_ID = "ids", "former"
"""In place of an id: the load keeps ids of the topic; it has rows of a former topic as well."""


def _topic_app_id(name: str, topic: str, topic_id: str) -> str:
    """The transaction that says which topic was read: a version is a number, an id is none."""
    return f"{name}/{topic}@{topic_id}"


def _nullable(schema: StructType) -> StructType:
    """The schema, all nullable: any column may be missing in older and younger files."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(each.name, each.dataType, True) for each in schema.fields])


SQL_TABLE = "records"


def read_table(
    spark: SparkSession,
    location: str | Path,
    *,
    version: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """A version of a Delta table, the newest unless asked for another, as Spark's own Parquet."""
    place = Place.of(location, storage_options)
    table = open_delta(place, version)
    schema = _columns_of(table)
    files = table.file_uris()
    if not files:
        return spark.createDataFrame([], schema)
    # Partition values are in the names of folders; columns younger than a file are null in it.
    rows = spark.read.schema(schema).option("basePath", place.uri).parquet(*files)
    return rows.select(*schema.names)


def sql(
    location: str | Path,
    query: str,
    *,
    version: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> pa.Table:
    """The result of a query over the table `records`."""
    import pyarrow as pa
    from deltalake import QueryBuilder

    table = open_delta(Place.of(location, storage_options), version)
    found = QueryBuilder().register(SQL_TABLE, table).execute(query).read_all()
    return pa.table(found)


def history(place: Place, limit: int) -> list[dict[str, Any]]:
    """The newest commits first: version, time, operation, and the descriptions of loads."""
    commits: Sequence[dict[str, Any]] = open_delta(place).history(limit)
    return [
        {
            "version": each["version"],
            "timestamp_ms": each["timestamp"],
            "operation": each["operation"],
            "facts": {key: each[key] for key in each if key.startswith("ottla.")},
        }
        for each in commits
    ]
