"""SqlSource and SqlSink: tables of any database that SQLAlchemy knows.

    connector.class=SqlSource                   connector.class=SqlSink
    url=postgresql+psycopg://me@host/shop       url=sqlite:////data/shop.db
    tables=orders,customers                     topics=orders
    mode=timestamp+incrementing                 table=${topic}
    incrementing.column=id                      insert.mode=upsert
    timestamp.column=changed_at                 primary.key=id

The source asks a table again and again for rows behind the last one, by a number that only grows,
by the time of the last change, or by both. Rows are committed out of order: a row with a lower
number or an earlier time may appear after a later one was read. `delay.ms` leaves the newest times
out for so long; with numbers alone only a table that is written by one transaction at a time misses
nothing. A deleted row is not seen at all. If nothing may be missed, read the database's own log
(`PostgresSource`).

The sink inserts rows, or by their key inserts, replaces and deletes them (a null value deletes).
With keys a record that comes twice changes nothing; a batch is one transaction. Needs the extra
`connect-sql`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ottla.config.config_def import HIGH, LOW, REQUIRED, ConfigTable, config_key
from ottla.config.config_type import BOOLEAN, INT, LIST, LONG, STRING, at_least, not_empty, one_of
from ottla.connect.connector import SinkConnector, SourceConnector, TryAgainError
from ottla.connect.connectors import needed
from ottla.connect.data import (
    BOOLEAN as BOOLEAN_SCHEMA,
)
from ottla.connect.data import (
    BYTES,
    DATE,
    DATE_NAME,
    DECIMAL_NAME,
    FLOAT64,
    INT64,
    TIME,
    TIME_NAME,
    TIMESTAMP,
    TIMESTAMP_NAME,
    DataError,
    Schema,
    SchemaType,
    SinkRecord,
    SourceRecord,
    decimal_of,
    shown,
    struct_of,
)
from ottla.connect.data import STRING as STRING_SCHEMA
from ottla.errors import ConfigError

EXTRA: Final = "connect-sql"
BULK: Final = "bulk"
INCREMENTING: Final = "incrementing"
TIMESTAMPED: Final = "timestamp"
BOTH: Final = "timestamp+incrementing"
INSERT: Final = "insert"
UPSERT: Final = "upsert"
TABLE: Final = "table"


class DatabaseSettings(ConfigTable, group=True):
    """What both connectors are told of the database."""

    url: str = config_key(
        default=REQUIRED,
        type=STRING,
        rule=not_empty(),
        importance=HIGH,
        doc="The database, as SQLAlchemy has it: dialect+driver://user:password@host/database.",
    )


class SqlSourceSettings(DatabaseSettings):
    """What SqlSource is told."""

    tables: tuple[str, ...] = config_key(
        default=REQUIRED,
        type=LIST,
        rule=not_empty(),
        importance=HIGH,
        doc="The tables, also as schema.table.",
    )
    mode: str = config_key(
        default=INCREMENTING,
        type=STRING,
        rule=one_of(BULK, INCREMENTING, TIMESTAMPED, BOTH),
        importance=HIGH,
        doc="How new rows are known: by a number, a time, both, or not at all (bulk: the whole "
        "table each time).",
    )
    incrementing_column: str = config_key(
        default="id", type=STRING, doc="The number that grows with each new row."
    )
    timestamp_column: str = config_key(
        default="updated_at", type=STRING, doc="The time of the last change of a row, in UTC."
    )
    delay_ms: int = config_key(
        default=0,
        type=LONG,
        rule=at_least(0),
        doc="How old a time must be to be read: longer than the longest transaction.",
    )
    topic_prefix: str = config_key(
        default="", type=STRING, importance=HIGH, doc="What stands before the table in the topic."
    )
    poll_interval_ms: int = config_key(
        default=5000, type=LONG, rule=at_least(1), doc="How long to wait when nothing is new."
    )
    batch_rows: int = config_key(
        default=1000, type=INT, rule=at_least(1), importance=LOW, doc="How many rows are asked for."
    )
    task_number: int = config_key(
        default=0, type=INT, importance=LOW, doc="Which task it is; set by the connector."
    )
    task_count: int = config_key(
        default=1, type=INT, importance=LOW, doc="How many tasks there are; set by the connector."
    )


class SqlSource(SourceConnector):
    """Reads the new and changed rows of tables."""

    Settings = SqlSourceSettings
    settings: SqlSourceSettings

    _engine: Any = None

    def tasks(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        count = min(max_tasks, len(self.settings.tables))
        return [{"task.number": str(n), "task.count": str(count)} for n in range(count)]

    def start(self) -> None:
        self._sql = needed("sqlalchemy", EXTRA, SqlSource)
        self._engine = _engine(self._sql, self.settings.url)
        self._reflected: dict[str, Any] = {}
        self._offsets: dict[str, dict[str, Any]] = {}
        self.idle_s = self.settings.poll_interval_ms / 1000

    def stop(self) -> None:
        if self._engine is not None:
            self._engine.dispose()

    def poll(self) -> Sequence[SourceRecord]:
        """The next rows of one table that has some; after a wait, if none has."""
        found: list[SourceRecord] = []
        for name in self._own_tables():
            found += self._rows_of(name)
        if not found or self.settings.mode == BULK:
            self.context.wait(self.idle_s)
        return found

    def _own_tables(self) -> list[str]:
        count, number = self.settings.task_count, self.settings.task_number
        if count == 1:
            return list(self.settings.tables)
        ordered = sorted(self.settings.tables)
        return [name for index, name in enumerate(ordered) if index % count == number]

    def _rows_of(self, name: str) -> list[SourceRecord]:
        partition = {TABLE: name}
        if name not in self._offsets:
            self._offsets[name] = dict(self.context.offset(partition) or {})
        try:
            table = self._table(name)
            with self._engine.connect() as connection:
                rows = self._whole_times(connection, table, self._offsets[name])
        except self._sql.exc.OperationalError as error:
            raise TryAgainError(f"table {name}: {error.orig}") from error
        if not rows:
            return []
        schema = schema_of(self._sql, table)
        keys = [column.name for column in table.primary_key.columns]
        key_schema = struct_of(None, {key: schema.by_name[key] for key in keys}) if keys else None
        records = []
        for row in rows:
            value = {column: _from_column(schema.by_name[column], row[column]) for column in row}
            offset = self._offsets[name] = self._offset_of(row)
            records.append(
                SourceRecord(
                    topic=self.settings.topic_prefix + name,
                    key={key: value[key] for key in keys} if keys else None,
                    key_schema=key_schema,
                    value=value,
                    value_schema=schema,
                    source_partition=partition,
                    source_offset=offset,
                )
            )
        return records

    def _whole_times(self, connection: Any, table: Any, offset: Mapping[str, Any]) -> list[Any]:
        """The next rows; with times alone, never only some of those that share a time."""
        rows = list(connection.execute(self._query(table, offset)).mappings())
        if self.settings.mode != TIMESTAMPED or len(rows) < self.settings.batch_rows:
            return rows
        name = self.settings.timestamp_column
        last = rows[-1][name]
        earlier = [row for row in rows if row[name] != last]
        if earlier:
            return earlier
        query = self._sql.select(table).where(table.c[name] == last)
        return list(connection.execute(query).mappings())

    def _table(self, name: str) -> Any:
        if name not in self._reflected:
            self._reflected[name] = _reflect(self._sql, self._engine, name)
            for column in self._order_columns():
                if column not in self._reflected[name].columns:
                    raise ConfigError(f"mode={self.settings.mode}: {name} must have {column}")
        return self._reflected[name]

    def _order_columns(self) -> list[str]:
        mode, settings = self.settings.mode, self.settings
        found = [settings.timestamp_column] if mode in (TIMESTAMPED, BOTH) else []
        return found + ([settings.incrementing_column] if mode in (INCREMENTING, BOTH) else [])

    def _query(self, table: Any, offset: Mapping[str, Any]) -> Any:
        """The rows behind an offset, in order; with times, only those that are old enough."""
        query = self._sql.select(table)
        if self.settings.mode == BULK:
            return query
        columns = [table.c[name] for name in self._order_columns()]
        last = [_unstored(offset.get(name)) for name in self._order_columns()]
        query = query.order_by(*columns).limit(self.settings.batch_rows)
        if self.settings.mode in (TIMESTAMPED, BOTH):
            newest = datetime.now(UTC) - timedelta(milliseconds=self.settings.delay_ms)
            query = query.where(columns[0] <= newest.replace(tzinfo=None))
        if None in last:
            return query
        if len(columns) == 1:
            return query.where(columns[0] > last[0])
        (at, number), (last_at, last_number) = columns, last
        behind = self._sql.and_(at == last_at, number > last_number)
        return query.where(self._sql.or_(at > last_at, behind))

    def _offset_of(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return {name: _stored(value[name]) for name in self._order_columns()}

    @classmethod
    def is_exactly_once(cls, settings: ConfigTable) -> bool:
        """Numbers say exactly where to continue; times may be shared by rows."""
        return getattr(settings, "mode", "") in (INCREMENTING, BOTH)


def _engine(sql: Any, url: str) -> Any:
    try:
        return sql.create_engine(url)
    except (sql.exc.ArgumentError, ModuleNotFoundError) as error:
        raise ConfigError(f"url: must be a database that SQLAlchemy can reach ({error})") from error


def _reflect(sql: Any, engine: Any, name: str) -> Any:
    """A table as the database describes it."""
    namespace, _, table = name.rpartition(".")
    try:
        return sql.Table(table, sql.MetaData(), schema=namespace or None, autoload_with=engine)
    except sql.exc.NoSuchTableError:
        raise ConfigError(f"table {name}: must be in the database") from None


def schema_of(sql: Any, table: Any) -> Schema:
    """The schema of the rows of a table; columns of types that Connect lacks are text."""
    fields = {}
    for column in table.columns:
        schema = _column_schema(sql, column.type)
        may_be_null = column.nullable and not column.primary_key
        fields[column.name] = schema.as_optional() if may_be_null else schema
    return struct_of(table.name, fields)


def _column_schema(sql: Any, kind: Any) -> Schema:
    if isinstance(kind, sql.Numeric) and not isinstance(kind, sql.Float):
        return STRING_SCHEMA if kind.scale is None else decimal_of(kind.scale)
    for types, schema in (
        (sql.Boolean, BOOLEAN_SCHEMA),
        (sql.Integer, INT64),
        (sql.Float, FLOAT64),
        (sql.DateTime, TIMESTAMP),
        (sql.Date, DATE),
        (sql.Time, TIME),
        (sql.LargeBinary, BYTES),
    ):
        if isinstance(kind, types):
            return schema
    return STRING_SCHEMA


def _from_column(schema: Schema, value: Any) -> Any:
    """A value of a column as its schema has it."""
    if value is None or schema.type is not SchemaType.STRING:
        return value
    return value if isinstance(value, str) else str(value)


def _stored(value: Any) -> Any:
    """A number or time as an offset holds it."""
    return value.isoformat() if isinstance(value, datetime) else value


def _unstored(value: Any) -> Any:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


class SqlSinkSettings(DatabaseSettings):
    """What SqlSink is told."""

    table: str = config_key(
        default="${topic}", type=STRING, rule=not_empty(), doc="The table; ${topic} is the topic."
    )
    insert_mode: str = config_key(
        default=INSERT,
        type=STRING,
        rule=one_of(INSERT, UPSERT),
        importance=HIGH,
        doc="Add a row for each record, or by key replace the row that is there.",
    )
    primary_key: tuple[str, ...] = config_key(
        default=(),
        type=LIST,
        importance=HIGH,
        doc="The columns of the key: fields of the record's key, or else of its value.",
    )
    auto_create: bool = config_key(
        default=False, type=BOOLEAN, doc="Make a table that is missing, by the record's schema."
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        if values["insert_mode"] == UPSERT and not values["primary_key"]:
            raise ConfigError("primary.key=: must be set with insert.mode=upsert")


class SqlSink(SinkConnector):
    """Writes records as rows. A batch is one transaction."""

    Settings = SqlSinkSettings
    settings: SqlSinkSettings

    _engine: Any = None

    def start(self) -> None:
        self._sql = needed("sqlalchemy", EXTRA, SqlSink)
        self._engine = _engine(self._sql, self.settings.url)
        self._tables: dict[str, Any] = {}

    def stop(self) -> None:
        if self._engine is not None:
            self._engine.dispose()

    def put(self, records: Sequence[SinkRecord]) -> None:
        """All in one transaction; if one record breaks it, each in its own."""
        try:
            self._write(records)
        except (self._sql.exc.DBAPIError, DataError) as error:
            if isinstance(error, self._sql.exc.OperationalError):
                raise TryAgainError(f"url={self._engine.url!r}: {error.orig}") from error
            self._write_each(records)

    def _write_each(self, records: Sequence[SinkRecord]) -> None:
        for record in records:
            try:
                self._write([record])
            except self._sql.exc.OperationalError as error:
                raise TryAgainError(f"url={self._engine.url!r}: {error.orig}") from error
            except (self._sql.exc.DBAPIError, DataError) as error:
                self.context.report(record, error)

    def _write(self, records: Sequence[SinkRecord]) -> None:
        tables = [self._table_of(record) for record in records]
        with self._engine.begin() as connection:
            for record, table in zip(records, tables, strict=True):
                self._write_row(connection, table, record)

    def _write_row(self, connection: Any, table: Any, record: SinkRecord) -> None:
        key = self._key_of(record)
        same = [table.c[name] == value for name, value in key.items()]
        if record.value is None:
            if not key:
                raise DataError(f"{record.topic}: a null value must have primary.key to delete by")
            connection.execute(self._sql.delete(table).where(*same))
            return
        row = {**_fields(record.value, record), **key}
        unknown = row.keys() - table.columns.keys()
        if unknown:
            raise DataError(f"table {table.name}: has no column {', '.join(sorted(unknown))}")
        if self.settings.insert_mode == UPSERT:
            changed = self._sql.update(table).where(*same).values(**row)
            if connection.execute(changed).rowcount:
                return
        connection.execute(self._sql.insert(table).values(**row))

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
        name = self.settings.table.replace("${topic}", record.topic)
        if name not in self._tables:
            try:
                self._tables[name] = _reflect(self._sql, self._engine, name)
            except ConfigError:
                if not self.settings.auto_create or record.value_schema is None:
                    raise
                self._tables[name] = self._created(name, record, record.value_schema)
        return self._tables[name]

    def _created(self, name: str, record: SinkRecord, schema: Schema) -> Any:
        fields = dict(schema.by_name)
        keys = record.key_schema
        for column in self.settings.primary_key:
            if column not in fields and keys is not None:
                fields[column] = keys.by_name.get(column, keys)
        columns = [
            self._sql.Column(
                column,
                column_type(self._sql, field),
                nullable=field.optional and column not in self.settings.primary_key,
                primary_key=column in self.settings.primary_key,
            )
            for column, field in fields.items()
        ]
        table = self._sql.Table(name, self._sql.MetaData(), *columns)
        table.create(self._engine, checkfirst=True)
        return table


def _fields(value: Any, record: SinkRecord) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(
            f"{record.topic}: value={shown(value)}: must be a struct or a dict for a row"
        )
    return value


def column_type(sql: Any, schema: Schema) -> Any:
    """The type of a column for the values of a schema; DataError for arrays, maps and structs."""
    match schema.logical and schema.name:
        case str(name) if name == DECIMAL_NAME:
            return sql.Numeric(38, schema.scale)
        case str(name) if name == DATE_NAME:
            return sql.Date()
        case str(name) if name == TIME_NAME:
            return sql.Time()
        case str(name) if name == TIMESTAMP_NAME:
            return sql.DateTime(timezone=True)
    kinds = {
        SchemaType.INT8: "SmallInteger",
        SchemaType.INT16: "SmallInteger",
        SchemaType.INT32: "Integer",
        SchemaType.INT64: "BigInteger",
        SchemaType.FLOAT32: "Float",
        SchemaType.FLOAT64: "Double",
        SchemaType.BOOLEAN: "Boolean",
        SchemaType.STRING: "Text",
        SchemaType.BYTES: "LargeBinary",
    }
    if schema.type not in kinds:
        raise DataError(f"schema {schema}: must be simple to be a column; Flatten makes structs so")
    return getattr(sql, kinds[schema.type])()
