"""MySQL and MariaDB: their types, their texts of times, and values of the column's own type."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from importlib import import_module
from typing import Any, Final

from ottla.connect.connectors.column_times import IN_UTC
from ottla.connect.connectors.databases import (
    MICROSECONDS,
    ColumnType,
    Read,
    WithTextTimes,
    read_boolean,
    read_bytes,
    read_float,
    read_integer,
    read_text,
)
from ottla.connect.data import BOOLEAN, BYTES, FLOAT64, INT64, STRING, DataError, Schema, shown
from ottla.connect.value_text import java_float

BIT_FIELD: Final = 1
MOST_DIGITS, MOST_SCALE, LONGEST_KEY = 65, 30, 255
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


class MySql(WithTextTimes):
    """MySQL and MariaDB: times come as text, as drivers bend zero dates and long times."""

    session = ("SET time_zone = '+00:00'",)
    writes = ("SET sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')",)
    system_errors = frozenset(
        (
            *(1020, 1021, 1037, 1038, 1040, 1041, 1043, 1044, 1045, 1049, 1053, 1114, 1129, 1130),
            *(1142, 1152, 1153, 1158, 1159, 1160, 1161, 1184, 1203, 1205, 1213, 1226, 1227, 1290),
            *(1317, 1836, 1927, 1969, 3024, 4031),
            *range(2000, 3000),
        )
    )
    """No room, no right, shut down, locked, too many connections; and all that clients raise."""

    def column_type(self, kind: Any) -> ColumnType:
        sql, dialect = self.sql, import_module("sqlalchemy.dialects.mysql")
        if isinstance(kind, dialect.BIT):
            is_flag = kind.length in (None, BIT_FIELD)
            schema = BOOLEAN if is_flag else BYTES
            return ColumnType(schema, self.raw, read_boolean if is_flag else read_bytes)
        if isinstance(kind, dialect.YEAR):
            return ColumnType(INT64, self.raw, read_integer)
        if isinstance(kind, dialect.BIGINT) and kind.unsigned:
            return self.decimal(0)
        if isinstance(kind, dialect.FLOAT):
            return ColumnType(FLOAT64, lambda column: self.raw(column + 0.0e0), _read_short_float)
        if isinstance(kind, sql.types.NullType):
            return ColumnType(STRING, self.raw, _read_unknown)
        return super().column_type(kind)

    def zone_of(self, kind: Any) -> tzinfo:
        return UTC if self.is_zoned(kind) else self.handling.zone

    def is_zoned(self, kind: Any) -> bool:
        return bool(isinstance(kind, self.sql.TIMESTAMP))

    def stored_time(self, kind: Any, raw: Any) -> Any:
        """MySQL writes no zone; its sessions are in UTC."""
        text = super().stored_time(kind, raw)
        return f"{text}{IN_UTC}" if self.is_zoned(kind) else text

    def iso_reader(self, kind: Any) -> Read:
        ending = "Z" if self.is_zoned(kind) else ""
        return lambda value: read_text(value).replace(" ", "T") + ending

    def made_type(self, schema: Schema, is_key: bool) -> Any:
        """A type without the limits of MySQL's defaults, whole seconds and 64 kB."""
        dialect = import_module("sqlalchemy.dialects.mysql")
        found = super().made_type(schema, is_key)
        if isinstance(found, self.sql.Numeric) and schema.logical:
            return self.sql.Numeric(MOST_DIGITS, min(schema.scale, MOST_SCALE))
        if isinstance(found, self.sql.DateTime):
            return dialect.DATETIME(fsp=3)
        if isinstance(found, self.sql.Time):
            return dialect.TIME(fsp=3)
        if is_key and isinstance(found, self.sql.Text):
            return self.sql.String(LONGEST_KEY)
        if is_key and isinstance(found, self.sql.LargeBinary):
            return dialect.VARBINARY(LONGEST_KEY)
        if isinstance(found, self.sql.Text):
            return dialect.LONGTEXT()
        return dialect.LONGBLOB() if isinstance(found, self.sql.LargeBinary) else found

    def bound(self, column: Any, value: Any) -> Any:
        """Values of the column's own type: where types differ MySQL compares both as floats, and
        takes text for the number that it begins with, so that 0 is equal to every name."""
        sql, kind = self.sql, column.type
        is_number = isinstance(value, int | float | Decimal)
        if isinstance(value, str) and isinstance(kind, sql.Integer | sql.Numeric | sql.Float):
            value = _number_of(column.name, value)
        elif is_number and isinstance(kind, sql.String):
            value = _text_of(value)
        elif is_number and isinstance(kind, sql.Date | sql.DateTime | sql.Time):
            raise DataError(f"{column.name}={value}: must be a time, as its column is")
        return super().bound(column, value)

    def text_for(self, kind: Any, text: str) -> Any:
        if isinstance(kind, self.sql.DateTime):
            text = text.removesuffix("Z").replace("T", " ")
        return super().text_for(kind, text)

    def time_text(self, column: Any) -> Any:
        return self.sql.cast(column, self.sql.CHAR())

    def time_value(self, kind: Any, stored: Any) -> Any:
        text = stored.removesuffix(IN_UTC).replace("T", " ")
        return self.sql.literal(text, self.sql.String())

    def now(self, connection: Any) -> datetime:
        microseconds = self.sql.func.utc_timestamp(self.sql.literal_column(str(MICROSECONDS)))
        found = connection.execute(self.sql.select(self.sql.cast(microseconds, self.sql.CHAR())))
        return datetime.fromisoformat(found.scalar_one()).replace(tzinfo=UTC)

    def digits_of(self, kind: Any) -> int:
        return getattr(kind, "fsp", None) or 0

    def code_of(self, error: Any) -> Any:
        code = error.args[0] if error.args else None
        return code or None


def _read_short_float(value: Any) -> float:
    """A float of 32 bits that came as one of 64: with the digits that it has."""
    return float(java_float(read_float(value)))


def _read_unknown(value: Any) -> str:
    """A value of a type that SQLAlchemy does not know; bytes in hexadecimal."""
    return value.hex() if isinstance(value, bytes) else read_text(value)


def _number_of(name: str, text: str) -> Decimal:
    """The number that a text is; DataError for any other."""
    if not _NUMBER.fullmatch(text.strip()):
        raise DataError(f"{name}={shown(text)}: must be a number, as its column is")
    return Decimal(text)


def _text_of(number: float | Decimal) -> str:
    """A number as MySQL writes it into a column of text."""
    if isinstance(number, Decimal):
        return f"{number:f}"
    return str(int(number)) if isinstance(number, bool) else str(number).removesuffix(".0")
