"""SqlSink: records as rows of any database that SQLAlchemy knows.

    connector.class=SqlSink
    url=sqlite:////data/shop.db
    topics=orders
    table=${topic}
    insert.mode=upsert
    primary.key=id

It inserts rows, or by their key inserts, replaces and deletes them (a null value deletes). With
keys a record that comes twice changes nothing; a batch is one transaction. A record that breaks it
is reported by itself, once its table was described again: columns come and go. How values are
written is in `databases`. Needs the extra `connect-sql`, and the driver of the database.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from ottla.config.config_def import HIGH, config_key
from ottla.config.rule import not_empty, one_of
from ottla.connect.connector import SinkConnector, TryAgainError
from ottla.connect.connectors import needed
from ottla.connect.connectors.databases import Handling, reflected
from ottla.connect.connectors.sql import EXTRA, DatabaseSettings, opened
from ottla.connect.data import DataError, SinkRecord, shown
from ottla.errors import ConfigError
from ottla.structs import TopicPartition

INSERT: Final = "insert"
UPSERT: Final = "upsert"
Origin = tuple[str, int, int]
"""The topic, the partition and the offset that a record has in Kafka."""
KEYS_AT_ONCE: Final = 500
"""Keys of one question: databases limit the values of a statement."""


class SqlSinkSettings(DatabaseSettings):
    """The settings of SqlSink."""

    table: str = config_key(
        default="${topic}", rule=not_empty(), doc="The table; ${topic} is the topic."
    )
    insert_mode: str = config_key(
        default=INSERT,
        rule=one_of(INSERT, UPSERT),
        importance=HIGH,
        doc="Add a row for each record, or by key replace the row that is there.",
    )
    primary_key: tuple[str, ...] = config_key(
        default=(),
        importance=HIGH,
        doc="The columns of the key: fields of the record's key, or else of its value.",
    )
    auto_create: bool = config_key(
        default=False, doc="Make a table that is missing, by the record's schema."
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        if values["insert_mode"] == UPSERT and not values["primary_key"]:
            raise ConfigError("primary.key=: must be set with insert.mode=upsert")


class Row(NamedTuple):
    """A record as a row of its table."""

    place: int
    """Its index among the records that are written together."""
    key: Mapping[str, Any]
    given: Mapping[str, Any]
    """The value of each column, or an expression of SQLAlchemy's."""
    is_deletion: bool
    kinds: Mapping[str, Any] | None
    """The type of each value; None for a deletion, and where there is an expression."""


class SqlSink(SinkConnector):
    """Writes records as rows. A batch is one transaction.

    Where records of a batch are at fault the others are committed in parts. `_written` has the
    places of these while the rest of their batch waits for the database: they come again with it.
    """

    Settings = SqlSinkSettings
    settings: SqlSinkSettings

    _engine: Any = None
    _under_way: tuple[int, int] = (0, 0)
    """The first record of the statement that is carried out, and the one behind its last."""

    def start(self) -> None:
        self._sql = needed("sqlalchemy", EXTRA, SqlSink)
        handling = Handling(zone=ZoneInfo(self.settings.db_timezone))
        self._engine, self._database = opened(
            self._sql, self.settings.url, handling, is_writer=True
        )
        self._tables: dict[str, Any] = {}
        self._written: set[Origin] = set()

    def close(self, partitions: Collection[TopicPartition]) -> None:
        gone = set(partitions)
        self._written = {each for each in self._written if TopicPartition(*each[:2]) not in gone}

    def stop(self) -> None:
        if self._engine is not None:
            self._engine.dispose()

    def put(self, records: Sequence[SinkRecord]) -> None:
        """All in one transaction; if a record breaks it, the others, and reports.

        The tables are described again before a record is held to be at fault: columns come and go.
        """
        if self._written:
            records = [record for record in records if _origin(record) not in self._written]
        try:
            self._write(records)
        except Exception as error:  # of whatever type: it may be a record's own
            self._raise_of_system(error)
            self._tables.clear()
            faults: dict[int, Exception] = {}
            self._write_apart(self._that_make_rows(records, faults), faults)
            for record in records:
                if id(record) in faults:
                    self.context.report(record, faults[id(record)])
        self._written.clear()

    def _that_make_rows(
        self, records: Sequence[SinkRecord], faults: dict[int, Exception]
    ) -> Sequence[SinkRecord]:
        """The records that make a row; the errors of the others go into `faults`.

        Those need no transaction: a thousand records with a column that is missing cost little.
        """
        found = []
        for record in records:
            try:
                if (table := self._table_of(record)) is not None:
                    self._row_of(table, record, 0)
            except Exception as error:
                self._raise_of_system(error)
                faults[id(record)] = error
            else:
                found.append(record)
        return found

    def _write_apart(self, records: Sequence[SinkRecord], faults: dict[int, Exception]) -> None:
        """The rows before those that fail, these by halves, and the rest, each by itself."""
        while records:
            try:
                self._write(records)
                self._written.update(map(_origin, records))
                return
            except Exception as error:
                self._raise_of_system(error)
                first, end = self._under_way
                if len(records) == 1:
                    faults[id(records[0])] = error
                    return
            if end - first == len(records):
                end = len(records) // 2
            self._write_apart(records[:first], faults)
            self._write_apart(records[first:end], faults)
            records = records[end:]

    def _raise_of_system(self, error: Exception) -> None:
        """Raise an error that no record is to blame for."""
        if isinstance(error, ConfigError):
            raise error
        if self._database.is_of_system(error):
            reason = getattr(error, "orig", error)
            raise TryAgainError(f"url={self._engine.url!r}: {reason}") from error

    def _write(self, records: Sequence[SinkRecord]) -> None:
        self._under_way = (0, len(records))
        tables = [self._table_of(record) for record in records]
        with self._engine.begin() as connection:
            first = 0
            for table, run in groupby(tables):
                end = first + sum(1 for _ in run)
                if table is not None:
                    self._write_run(connection, table, records, first, end)
                first = end
            self._under_way = (0, len(records))

    def _write_run(
        self, connection: Any, table: Any, records: Sequence[SinkRecord], first: int, end: int
    ) -> None:
        """Rows that are new go together, in one statement; all others one by one, in order."""
        rows = [self._row_of(table, records[place], place) for place in range(first, end)]
        self._under_way = (first, end)
        known = self._known_keys(connection, table, rows) if len(rows) > 1 else None
        new: list[Row] = []
        for row in rows:
            identity = tuple(row.key.values())
            is_new = known is not None and identity not in known and row.kinds is not None
            if new and not (is_new and row.kinds == new[0].kinds):
                self._insert(connection, table, new)
                new = []
            if not is_new:
                self._write_row(connection, table, row)
                continue
            new.append(row)
            if row.key and known is not None:
                known.add(identity)
        if new:
            self._insert(connection, table, new)

    def _insert(self, connection: Any, table: Any, rows: Sequence[Row]) -> None:
        """Rows of the same columns, whose values are sent as values of the same types."""
        self._under_way = (rows[0].place, rows[-1].place + 1)
        kinds = rows[0].kinds or {}
        names = {name: f"v{number}" for number, name in enumerate(kinds)}
        values = {
            name: self._sql.bindparam(names[name], type_=kind) for name, kind in kinds.items()
        }
        connection.execute(
            self._sql.insert(table).values(values),
            [{names[name]: self._plain(each) for name, each in row.given.items()} for row in rows],
        )

    def _plain(self, given: Any) -> Any:
        return given.value if isinstance(given, self._sql.BindParameter) else given

    def _row_of(self, table: Any, record: SinkRecord, place: int) -> Row:
        self._under_way = (place, place + 1)
        key = self._key_of(record)
        if record.value is None and not key:
            raise DataError(f"{record.topic}: a null value must have primary.key to delete by")
        row = key if record.value is None else {**_fields(record.value, record), **key}
        unknown = row.keys() - table.columns.keys()
        if unknown:
            raise DataError(f"table {table.name}: has no column {', '.join(sorted(unknown))}")
        given = {name: self._database.bound(table.c[name], value) for name, value in row.items()}
        kinds = None if record.value is None else self._kinds_of(table, given)
        return Row(place, key, given, record.value is None, kinds)

    def _kinds_of(self, table: Any, given: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The types by which values are bound; None where one is an expression."""
        found = {}
        for name, each in given.items():
            if isinstance(each, self._sql.BindParameter):
                found[name] = each.type
            elif isinstance(each, self._sql.ClauseElement):
                return None
            else:
                found[name] = table.c[name].type
        return found

    def _known_keys(self, connection: Any, table: Any, rows: Sequence[Row]) -> set[Any] | None:
        """The keys for which there are rows; None where only the database can compare keys."""
        if self.settings.insert_mode != UPSERT:
            return set()
        columns = [table.c[name] for name in self.settings.primary_key]
        if set(columns) != set(table.primary_key.columns):
            return None
        sql, keys = self._sql, [tuple(row.key.values()) for row in rows]
        for column, values in zip(columns, zip(*keys, strict=True), strict=True):
            kind = int if isinstance(column.type, sql.Integer) else str
            is_text = isinstance(column.type, sql.String)
            if (kind is str and not is_text) or any(type(each) is not kind for each in values):
                return None
        wanted = sql.tuple_(*columns)
        return {
            tuple(found)
            for place in range(0, len(keys), KEYS_AT_ONCE)
            for found in connection.execute(
                sql.select(*columns).where(wanted.in_(keys[place : place + KEYS_AT_ONCE]))
            )
        }

    def _write_row(self, connection: Any, table: Any, row: Row) -> None:
        self._under_way = (row.place, row.place + 1)
        same = [table.c[name] == row.given[name] for name in row.key]
        if row.is_deletion:
            connection.execute(self._sql.delete(table).where(*same))
            return
        if self.settings.insert_mode == UPSERT:
            changed = self._sql.update(table).where(*same).values(**row.given)
            if connection.execute(changed).rowcount:
                return
        connection.execute(self._sql.insert(table).values(**row.given))

    def _key_of(self, record: SinkRecord) -> dict[str, Any]:
        """The columns of the key: out of the record's key, which may be one value, or its value."""
        names = self.settings.primary_key
        if isinstance(record.key, dict):
            found = record.key
        elif len(names) == 1 and record.key is not None:
            found = {names[0]: record.key}
        else:
            found = _fields(record.value, record) if names else {}
        missing = [name for name in names if found.get(name) is None]
        if missing:
            raise DataError(f"{record.topic}: primary.key {', '.join(missing)} must not be null")
        return {name: found[name] for name in names}

    def _table_of(self, record: SinkRecord) -> Any:
        """The table of a record; None for a deletion from one that is not made yet."""
        name = self.settings.table.replace("${topic}", record.topic)
        if name not in self._tables:
            try:
                self._tables[name] = reflected(self._sql, self._engine, name)
            except ConfigError:
                if not self.settings.auto_create:
                    raise
                if record.value is None:
                    return None
                self._tables[name] = self._created(name, record)
        return self._tables[name]

    def _created(self, name: str, record: SinkRecord) -> Any:
        if record.value_schema is None:
            raise DataError(f"table {name}: a record must have a schema to be created by")
        fields = dict(record.value_schema.by_name)
        keys = record.key_schema
        for column in self.settings.primary_key:
            if column not in fields and keys is not None:
                fields[column] = keys.by_name.get(column, keys)
        columns = [
            self._sql.Column(
                column,
                self._database.made_type(field, is_key=column in self.settings.primary_key),
                nullable=field.optional and column not in self.settings.primary_key,
                primary_key=column in self.settings.primary_key,
            )
            for column, field in fields.items()
        ]
        namespace, _, bare = name.rpartition(".")
        table = self._sql.Table(bare, self._sql.MetaData(), *columns, schema=namespace or None)
        table.create(self._engine, checkfirst=True)
        return table


def _origin(record: SinkRecord) -> Origin:
    return record.original_topic, record.original_partition, record.offset


def _fields(value: Any, record: SinkRecord) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(
            f"{record.topic}: value={shown(value)}: must be a struct or a dict for a row"
        )
    return value
