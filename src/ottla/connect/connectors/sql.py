"""SqlSource: new and changed rows of any database that SQLAlchemy knows.

    connector.class=SqlSource
    url=postgresql+psycopg://me@host/shop
    tables=orders,customers
    mode=timestamp+incrementing
    incrementing.column=id
    timestamp.column=changed_at

It asks a table again and again for rows behind the last one, by a number that only grows, by the
time of the last change, or by both. Rows are committed out of order: a row with a lower number or
an earlier time may appear after a later one was read. `delay.ms` leaves the newest times out for so
long; with numbers alone only a table that is written by one transaction at a time misses nothing. A
deleted row is not seen at all, nor one whose number or time is null. If nothing may be missed, read
the database's own log (`PostgresSource`).

A table is described again when its columns change, and a row that no record can hold is reported by
itself. What types become is in `databases`, how times are compared in `column_times`. Needs the
extra `connect-sql`, and the driver of the database.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from zoneinfo import ZoneInfo

from ottla.config.config_def import HIGH, LOW, REQUIRED, ConfigTable, config_key
from ottla.config.config_type import LONG
from ottla.config.rule import Rule, at_least, not_empty, one_of
from ottla.connect.connector import Place, SourceConnector, TryAgainError
from ottla.connect.connectors import needed
from ottla.connect.connectors.column_times import (
    HOUR,
    PRECISIONS,
    ZONES_APART,
    SeenTimes,
    is_time_text,
    moment_us,
    precision_of,
    unit_of_form,
)
from ottla.connect.connectors.databases import (
    AS_ARRAY,
    AS_DOUBLE,
    AS_JSON,
    AS_STRING,
    CONNECT,
    ISO,
    PRECISE,
    Database,
    Handling,
    Postgres,
    RowReader,
    reflected,
)
from ottla.connect.connectors.mysql import MySql
from ottla.connect.connectors.sqlite import Sqlite
from ottla.connect.data import DataError, SourceRecord, shown
from ottla.errors import ConfigError, KafkaError

logger = logging.getLogger(__name__)

EXTRA: Final = "connect-sql"
BULK: Final = "bulk"
INCREMENTING: Final = "incrementing"
TIMESTAMPED: Final = "timestamp"
BOTH: Final = "timestamp+incrementing"
TABLE: Final = "table"
UNORDERED, MIXED, EARLIER = "unordered", "mixed", "earlier"
ALL_EARLIER: Final = (
    "table %s: all of its rows are before %s, up to which it was read, and rows are read behind "
    "that alone; if it was emptied or made again, delete its offset, and it is read from its "
    "beginning"
)


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return False
    return True


class DatabaseSettings(ConfigTable, group=True):
    """The settings of the database, for SqlSource and SqlSink."""

    url: str = config_key(
        default=REQUIRED,
        rule=not_empty(),
        importance=HIGH,
        doc="The database, as SQLAlchemy has it: dialect+driver://user:password@host/database.",
    )
    db_timezone: str = config_key(
        default="UTC",
        rule=Rule("be the name of a time zone, such as Europe/Berlin", _is_zone),
        doc="The zone of the times that are stored without one.",
    )


class SqlSourceSettings(DatabaseSettings):
    """The settings of SqlSource."""

    tables: tuple[str, ...] = config_key(
        default=REQUIRED,
        rule=not_empty(),
        importance=HIGH,
        doc="The tables, also as schema.table.",
    )
    mode: str = config_key(
        default=INCREMENTING,
        rule=one_of(BULK, INCREMENTING, TIMESTAMPED, BOTH),
        importance=HIGH,
        doc="How new rows are known: by a number, a time, both, or not at all (bulk: the whole "
        "table each time).",
    )
    incrementing_column: str = config_key(
        default="id", doc="The number that grows with each new row."
    )
    timestamp_column: str = config_key(
        default="updated_at",
        doc="The time of the last change of a row: with a zone, or in db.timezone.",
    )
    timestamp_precision: str = config_key(
        default="second",
        rule=one_of(*PRECISIONS),
        doc="How far the times in timestamp.column are cut, by their type or by what writes them: "
        "a row is read once its second, minute, hour or day is over, as others may get the same "
        "time until then.",
    )
    validate_non_null: bool = config_key(
        default=True,
        importance=LOW,
        doc="Refuse an incrementing.column that may be null. Without this, rows in which it is "
        "null are never read.",
    )
    decimal_handling_mode: str = config_key(
        default=PRECISE,
        rule=one_of(PRECISE, AS_STRING, AS_DOUBLE),
        doc="Exact numbers: as decimals (text without a scale), as text, which also holds NaN, or "
        "as floats.",
    )
    time_precision_mode: str = config_key(
        default=CONNECT,
        rule=one_of(CONNECT, ISO),
        doc="Dates and times: as those of Connect, in milliseconds and the years 1 to 9999, or as "
        "text, which has all that the database has.",
    )
    array_handling_mode: str = config_key(
        default=AS_ARRAY,
        rule=one_of(AS_ARRAY, AS_JSON),
        importance=LOW,
        doc="Arrays of PostgreSQL: of one dimension as arrays, or all of them as text in JSON.",
    )
    delay_ms: int = config_key(
        default=0,
        type=LONG,
        rule=at_least(0),
        doc="How old a time must be to be read: longer than the longest transaction. Without it a "
        "row is read once its time (timestamp.precision) is over.",
    )
    topic_prefix: str = config_key(
        default="", importance=HIGH, doc="What stands before the table in the topic."
    )
    poll_interval_ms: int = config_key(
        default=5000, type=LONG, rule=at_least(1), doc="How long to wait when nothing is new."
    )
    batch_rows: int = config_key(
        default=1000, rule=at_least(1), importance=LOW, doc="How many rows are asked for."
    )
    task_number: int = config_key(
        default=0, importance=LOW, doc="Which task it is; set by the connector."
    )
    task_count: int = config_key(
        default=1, importance=LOW, doc="How many tasks there are; set by the connector."
    )

    @property
    def order_columns(self) -> list[str]:
        """The columns by which rows are in order, and are told apart."""
        found = [self.timestamp_column] if self.mode in (TIMESTAMPED, BOTH) else []
        return found + ([self.incrementing_column] if self.mode in (INCREMENTING, BOTH) else [])

    def is_time(self, name: str) -> bool:
        """Whether a column of these is compared as a time."""
        return self.mode != INCREMENTING and name == self.timestamp_column

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        """A table that is named twice is read once, by one task."""
        values["tables"] = tuple(dict.fromkeys(values["tables"]))


class SqlSource(SourceConnector):
    """Reads the new and changed rows of tables."""

    Settings = SqlSourceSettings
    settings: SqlSourceSettings

    _engine: Any = None

    @classmethod
    def topics(cls, settings: ConfigTable) -> Mapping[str, str]:
        given: Any = settings
        return {given.topic_prefix + name: f"tables={name}" for name in given.tables}

    def tasks(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        count = min(max_tasks, len(self.settings.tables))
        return [{"task.number": str(n), "task.count": str(count)} for n in range(count)]

    def start(self) -> None:
        settings = self.settings
        self._sql = needed("sqlalchemy", EXTRA, SqlSource)
        handling = Handling(
            settings.decimal_handling_mode,
            settings.time_precision_mode,
            settings.array_handling_mode,
            ZoneInfo(settings.db_timezone),
            PRECISIONS[settings.timestamp_precision],
        )
        self._engine, self._database = opened(self._sql, settings.url, handling)
        self._readers: dict[str, RowReader] = {}
        self._offsets: dict[str, dict[str, Any]] = {}
        self._told: set[tuple[str, str]] = set()
        """Tables, and what was logged of their rows."""
        self._times: dict[str, SeenTimes] = {}
        self._set_aside: dict[str, str] = {}
        """Tables that cannot be read now, each with the reason that was logged."""
        self.idle_s = settings.poll_interval_ms / 1000
        has_read = any(self.context.offset({TABLE: name}) for name in self._own_tables())
        for name in self._own_tables():
            try:
                self._described(name)
            except (ConfigError, TryAgainError) as error:
                if not has_read:
                    raise  # the settings were never right
                self._note_aside(name, error)

    def stop(self) -> None:
        if self._engine is not None:
            self._engine.dispose()

    def poll(self) -> Sequence[SourceRecord]:
        """The next rows of the tables; after a wait, if none has some or the database is down."""
        found: list[SourceRecord] = []
        for name in self._own_tables():
            before = self._offset_of(name)
            try:
                found += self._rows_of(name)
            except (ConfigError, TryAgainError) as error:
                self._note_aside(name, error)
            else:
                self._note_back(name, before)
        if not found or self.settings.mode == BULK:
            self.context.wait(self.idle_s)
        return found

    def _own_tables(self) -> list[str]:
        count, number = self.settings.task_count, self.settings.task_number
        if count == 1:
            return list(self.settings.tables)
        ordered = sorted(self.settings.tables)
        return [name for index, name in enumerate(ordered) if index % count == number]

    def _note_aside(self, name: str, error: KafkaError) -> None:
        """Say why a table cannot be read, once unless the database is down; the others are."""
        if self._set_aside.get(name) != error.message:
            logger.warning("%s; it is asked again", error.message)
        if isinstance(error, ConfigError):
            self._set_aside[name] = error.message

    def _note_back(self, name: str, offset: Place | None) -> None:
        """Say where a table is read on: it may be another one of that name by now."""
        if self._set_aside.pop(name, None) is not None:
            logger.warning(
                "table %s can be read again, behind %s; if it was made again with earlier numbers "
                "or times, delete its offset, and it is read from its beginning",
                name,
                offset or "nothing",
            )

    def _described(self, name: str) -> None:
        """Describe a table, so that what is wrong with it is said at the start."""
        try:
            with self._engine.connect() as connection:
                self._reader(connection, name)
        except self._sql.exc.DBAPIError as error:
            raise TryAgainError(f"table {name}: {error.orig}") from error

    def _rows_of(self, name: str) -> list[SourceRecord]:
        was_known = name in self._readers
        try:
            with self._engine.connect() as connection:
                reader = self._reader(connection, name)
                rows = self._whole_places(connection, reader, self._offset_of(name))
                if not rows and reader.looks_around():
                    self._note_unordered(connection, name, reader)
                    self._note_mixed(connection, name, reader)
                    self._note_earlier(connection, name, reader)
        except self._sql.exc.SQLAlchemyError as error:
            self._readers.pop(name, None)
            if self._database.is_of_system(error):
                raise TryAgainError(f"table {name}: {getattr(error, 'orig', error)}") from error
            if not was_known:
                raise ConfigError(f"table {name}: must be readable: {error}") from error
            return self._rows_of(name)  # its columns have changed: it is described again
        if was_known and reader.has_new_nulls(rows):
            del self._readers[name]
            return self._rows_of(name)
        return self._records(name, reader, rows)

    def _offset_of(self, name: str) -> Mapping[str, Any]:
        """Where a table is read on; nothing at its beginning."""
        if name not in self._offsets:
            self._offsets[name] = dict(self.context.offset({TABLE: name}) or {})
        return self._offsets[name]

    def _records(
        self, name: str, reader: RowReader, rows: Sequence[Sequence[Any]]
    ) -> list[SourceRecord]:
        """Rows with the offsets behind them.

        Of rows that share a time only the last has it as its offset: a source that starts again
        behind an earlier one reads all of them once more.
        """
        self._note_precision(name, reader, rows)
        columns = self.settings.order_columns
        places = [self._place(reader, row) for row in rows]
        found = []
        for index, row in enumerate(rows):
            if places[index : index + 1] != places[index + 1 : index + 2]:
                self._offsets[name] = {
                    each: self._stored(reader.table, each, reader.raw(row, each))
                    for each in columns
                }
            found.append(self._record(name, reader, row, self._offsets[name]))
        return found

    def _place(self, reader: RowReader, row: Sequence[Any]) -> tuple[Any, ...]:
        """Where a row is in the order of rows; others may share its place."""
        return tuple(
            self._database.place(reader.raw(row, name), self.settings.is_time(name))
            for name in self.settings.order_columns
        )

    def _record(
        self, name: str, reader: RowReader, row: Sequence[Any], offset: Mapping[str, Any]
    ) -> SourceRecord:
        record = SourceRecord(
            topic=self.settings.topic_prefix + name,
            source_partition={TABLE: name},
            source_offset=offset,
        )
        try:
            value = reader.read(row)
        except DataError as error:
            return record.replace(error=error)
        return record.replace(
            key={key: value[key] for key in reader.keys} if reader.keys else None,
            key_schema=reader.key_schema,
            value=value,
            value_schema=reader.schema,
        )

    def _whole_places(
        self, connection: Any, reader: RowReader, offset: Mapping[str, Any]
    ) -> list[Any]:
        """The next rows; never only some of those that share a place in the order of rows."""
        newest = None
        if TIMESTAMPED in self.settings.mode:
            late = timedelta(milliseconds=self.settings.delay_ms)
            newest = self._database.now(connection) - late
        limit = self.settings.batch_rows
        rows = self._next_rows(connection, reader, offset, newest)
        if self.settings.mode == BULK:
            return rows
        reader.has_more = len(rows) > limit
        if len(rows) > limit:
            cut = self._place(reader, rows[limit])
            if self._place(reader, rows[limit - 1]) != cut:
                rows = rows[:limit]
            elif earlier := [row for row in rows if self._place(reader, row) != cut]:
                rows = earlier
            else:
                rows = list(connection.execute(self._same_place(reader, rows[0])))
        return self._rows_of_past_times(reader, rows, newest)

    def _next_rows(
        self,
        connection: Any,
        reader: RowReader,
        offset: Mapping[str, Any],
        newest: datetime | None,
    ) -> list[Any]:
        """The rows behind an offset in order, one more than is asked for; all of them for bulk."""
        near, window, limit = None, None, self.settings.batch_rows
        if newest is not None:
            column = reader.table.c[self.settings.timestamp_column]
            stored = offset.get(column.name)
            near = None if stored is None else self._database.near(column, stored)
            if reader.has_more:
                window = self._database.window(connection, column, stored, limit)
        if window is not None:
            query = self._query(reader, offset, newest, near, window)
            if len(found := list(connection.execute(query))) > limit:
                return found
        return list(connection.execute(self._query(reader, offset, newest, near)))

    def _rows_of_past_times(
        self, reader: RowReader, rows: list[Sequence[Any]], newest: datetime | None
    ) -> list[Sequence[Any]]:
        """The rows before the first one whose time is not over by its own form."""
        if newest is None:
            return rows
        name = self.settings.timestamp_column
        for row in rows:
            if not self._database.is_over_by_form(reader.raw(row, name), newest):
                cut = self._database.place(reader.raw(row, name), True)
                times = [self._database.place(reader.raw(each, name), True) for each in rows]
                return [each for each, at in zip(rows, times, strict=True) if at < cut]
        return rows

    def _same_place(self, reader: RowReader, row: Sequence[Any]) -> Any:
        """All rows that share the place of one."""
        table, names = reader.table, self.settings.order_columns
        offset = {name: self._stored(table, name, reader.raw(row, name)) for name in names}
        same = [
            place == self._behind(table, name, offset)[0]
            for name, place in zip(names, self._places(table), strict=True)
        ]
        return self._sql.select(*reader.selected()).where(*same)

    def _reader(self, connection: Any, name: str) -> RowReader:
        """The table as it is described, again where its columns are not the same any longer."""
        known = self._readers.get(name)
        if known is not None and known.columns == columns_now(self._sql, connection, known.table):
            return known
        table = reflected(self._sql, connection, name)
        columns = columns_now(self._sql, connection, table)
        self._check_order(name, table)
        if known is not None:
            logger.info("table %s: its columns have changed", name)
        self._note_other_zone(name, table)
        found = self._readers[name] = RowReader(self._database, table, columns)
        return found

    def _note_other_zone(self, name: str, table: Any) -> None:
        """Say that rows come again as their column has got a zone, or has lost it."""
        key = self.settings.timestamp_column
        stored = self._offset_of(name).get(key) if self.settings.is_time(key) else None
        if stored is not None and self._database.has_other_zone(table.c[key].type, stored):
            logger.warning(
                "table %s: %s has got a zone, or has lost it: nobody says by which zone its times "
                "were altered, so the rows of the %d hours before %s are read again",
                name,
                key,
                ZONES_APART // HOUR,
                stored,
            )

    def _check_order(self, name: str, table: Any) -> None:
        """ConfigError unless the columns that rows are told apart by can do that."""
        settings, database = self.settings, self._database
        for column_name in self.settings.order_columns:
            if column_name not in table.columns:
                raise ConfigError(f"mode={settings.mode}: {name} must have {column_name}")
            column, is_time = table.c[column_name], settings.is_time(column_name)
            key = "timestamp.column" if is_time else "incrementing.column"
            if not database.is_order(column.type, is_time):
                rule = "a date or a time" if is_time else "a number"
                raise ConfigError(
                    f"{key}={column_name}: must be {rule} in {name}, not {column.type}"
                )
            may_be_null = column.nullable and not column.primary_key
            if settings.validate_non_null and may_be_null and not is_time:
                raise ConfigError(
                    f"{key}={column_name}: must not be null in {name}; with "
                    "validate.non.null=false rows in which it is null are left out"
                )

    def _places(self, table: Any) -> list[Any]:
        """The expressions that give rows their order."""
        return [
            self._database.place_of(table.c[name], self.settings.is_time(name))
            for name in self.settings.order_columns
        ]

    def _query(
        self,
        reader: RowReader,
        offset: Mapping[str, Any],
        newest: datetime | None,
        *first: Any,
    ) -> Any:
        """As above, as a statement; times only if they are old enough. What is to be looked at
        before times are compared comes first."""
        sql, database, table = self._sql, self._database, reader.table
        query = sql.select(*reader.selected())
        query = query.where(*(condition for condition in first if condition is not None))
        if self.settings.mode == BULK:
            return query
        places = self._places(table)
        query = query.order_by(*places).limit(self.settings.batch_rows + 1)
        last = [self._behind(table, name, offset) for name in self.settings.order_columns]
        is_new = any(value is None for value, _ in last)
        if newest is not None:
            column = table.c[self.settings.timestamp_column]
            query = query.where(database.is_over(column, newest))
        query = query.where(sql.not_(self._has_no_place(table)))
        if is_new:
            return query
        (at, (last_at, is_cut)), numbers = (places[0], last[0]), places[1:]
        if is_cut:
            return query.where(at >= last_at)
        if not numbers:
            return query.where(at > last_at)
        behind = sql.and_(at == last_at, numbers[0] > last[1][0])
        return query.where(sql.or_(at > last_at, behind))

    def _has_no_place(self, table: Any) -> Any:
        """The condition that a row has no place in the order of rows."""
        found = []
        for name in self.settings.order_columns:
            column = table.c[name]
            found.append(column.is_(None))
            condition = self._database.no_place(column, self.settings.is_time(name))
            if condition is not None:
                found.append(condition)
        return self._sql.or_(*found)

    def _note_unordered(self, connection: Any, name: str, reader: RowReader) -> None:
        """Say once that there are rows which are never read."""
        names, table = self.settings.order_columns, reader.table
        if not names or (name, UNORDERED) in self._told:
            return
        query = self._sql.select(*reader.selected()).where(self._has_no_place(table)).limit(1)
        row = connection.execute(query).first()
        if row is not None:
            self._told.add((name, UNORDERED))
            logger.warning(
                "table %s: there are rows in which %s is null, or no finite number or time "
                "(such as %s): they are never read",
                name,
                " or ".join(names),
                ", ".join(f"{each}={shown(reader.raw(row, each))}" for each in names),
            )

    def _note_mixed(self, connection: Any, name: str, reader: RowReader) -> None:
        """Say once that some times say less than others: who is late with one is missed."""
        if TIMESTAMPED not in self.settings.mode or (name, MIXED) in self._told:
            return
        sql, key = self._sql, self.settings.timestamp_column
        coarser = self._database.coarser(column := reader.table.c[key])
        if coarser is None:
            return
        raw = self._database.raw(column)
        shortest = sql.select(raw).where(coarser).order_by(sql.func.length(raw)).limit(1)
        coarse = connection.execute(shortest).scalar()
        if coarse is None or unit_of_form(coarse) <= self._database.unit_of(column.type):
            return
        fine = connection.execute(sql.select(raw).where(sql.not_(coarser)).limit(1)).scalar()
        if fine is not None:
            self._told.add((name, MIXED))
            logger.warning(
                "table %s: %s has times of less precision, such as %s, beside %s: a row that gets "
                "one after a later time was read is missed, unless timestamp.precision=%s",
                name,
                key,
                shown(coarse),
                shown(fine),
                precision_of(unit_of_form(coarse)),
            )

    def _note_earlier(self, connection: Any, name: str, reader: RowReader) -> None:
        """Say once that all rows are before the offset, as in a table that was made again."""
        sql, offset, columns = self._sql, self._offset_of(name), self.settings.order_columns
        if not offset or not columns or (name, EARLIER) in self._told:
            return
        some = sql.select(*reader.selected()).where(sql.not_(self._has_no_place(reader.table)))
        at, (last, _) = (
            self._places(reader.table)[0],
            self._behind(reader.table, columns[0], offset),
        )
        if last is None or connection.execute(some.limit(1)).first() is None:
            return
        if connection.execute(some.where(at >= last).limit(1)).first() is None:
            self._told.add((name, EARLIER))
            logger.warning(ALL_EARLIER, name, offset)

    def _note_precision(self, name: str, reader: RowReader, rows: Sequence[Sequence[Any]]) -> None:
        """Say once that all times are whole minutes, hours or days, and are taken for finer."""
        if TIMESTAMPED not in self.settings.mode:
            return
        key = self.settings.timestamp_column
        unit = self._database.unit_of(reader.table.c[key].type)
        seen = self._times.setdefault(name, SeenTimes())
        if seen.note(unit, (reader.raw(row, key) for row in rows)):
            logger.warning(
                "table %s: all values of %s are whole %ss so far: if they are cut to that, rows "
                "that get the time of others which were read are missed, unless "
                "timestamp.precision=%s",
                name,
                key,
                precision_of(seen.unit),
                precision_of(seen.unit),
            )

    def _stored(self, table: Any, name: str, value: Any) -> Any:
        """A number or a time as an offset holds it: JSON cannot have decimals, nor times."""
        if self.settings.is_time(name):
            return self._database.stored_time(table.c[name].type, value)
        found = Decimal(value) if isinstance(value, str) else value
        if isinstance(found, Decimal):
            return int(found) if found == found.to_integral_value() else str(found)
        return found

    def _behind(self, table: Any, name: str, offset: Mapping[str, Any]) -> tuple[Any, bool]:
        """What a place is compared with, None without an offset; and whether the time was cut."""
        found, kind = offset.get(name), table.c[name].type
        if found is None:
            return None, False
        if not self.settings.is_time(name):
            return self._database.number_value(kind, found), False
        text, is_cut = self._database.fitted(kind, found)
        return self._database.time_place(kind, text), is_cut

    @classmethod
    def is_exactly_once(cls, settings: ConfigTable) -> bool:
        """Numbers say exactly where to continue; times may be shared by rows."""
        return getattr(settings, "mode", "") in (INCREMENTING, BOTH)

    @classmethod
    def alter_offsets(
        cls, settings: ConfigTable, offsets: Sequence[tuple[Place, Place | None]]
    ) -> bool:
        """The number and the time that were read last; deletions of any offset."""
        for partition, offset in offsets:
            if offset is not None:
                check_place(settings, partition, offset)
        return True


def columns_now(sql: Any, connection: Any, table: Any) -> list[Any]:
    """What the database says of the columns of a table, also of those that are new."""
    found = connection.execute(sql.select(sql.text("*")).select_from(table).limit(0))
    return [tuple(column)[:6] for column in found.cursor.description]


def check_place(settings: Any, partition: Place, offset: Place) -> None:
    """ConfigError unless it is a place in one of the tables, as the mode has it."""
    if set(partition) != {TABLE} or partition[TABLE] not in settings.tables:
        names = ", ".join(settings.tables)
        raise ConfigError(
            f"partition={dict(partition)}: must have the one key {TABLE}, and one of {names}"
        )
    columns = settings.order_columns
    if set(offset) != set(columns):
        raise ConfigError(
            f"offset={dict(offset)}: must have {' and '.join(columns) or 'nothing'}, by "
            f"mode={settings.mode}"
        )
    for column, value in offset.items():
        is_place, rule = _is_number(value), "a number"
        if settings.is_time(column):
            is_place, rule = _is_time(settings.url, value), "a time, such as 2026-01-05T10:00:00"
        if not is_place:
            raise ConfigError(f"offset={dict(offset)}: {column} must be {rule}")


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    try:
        return Decimal(value).is_finite()
    except InvalidOperation:
        return False


def _is_time(url: str, value: Any) -> bool:
    """Whether a database compares it as a time: SQLite has numbers for some, others texts alone."""
    if url.startswith("sqlite"):
        return moment_us(value, UTC) is not None
    return isinstance(value, str) and is_time_text(value)


KINDS: Final = {
    "postgresql": Postgres,
    "mysql": MySql,
    "mariadb": MySql,
    "sqlite": Sqlite,
}


def database_of(sql: Any, dialect: str, handling: Handling) -> Database:
    """The kind of database that a dialect of SQLAlchemy's speaks to."""
    return KINDS.get(dialect, Database)(sql, handling)


def opened(sql: Any, url: str, handling: Handling, is_writer: bool = False) -> tuple[Any, Database]:
    """An engine whose sessions write times and numbers in fixed forms, and its kind of database."""
    try:
        engine = sql.create_engine(url)
    except (sql.exc.ArgumentError, ModuleNotFoundError) as error:
        raise ConfigError(f"url: must be a database that SQLAlchemy can reach ({error})") from error
    database = database_of(sql, engine.dialect.name, handling)

    def prepare(connection: Any, _: Any) -> None:
        database.prepare(connection, is_writer)

    sql.event.listen(engine, "connect", prepare)
    return engine, database
