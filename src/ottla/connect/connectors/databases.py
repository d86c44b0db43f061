"""What databases differ in: the types of their columns, their sessions, and their errors.

Each kind of database has a table that gives its types one of Connect's, with a reader that makes
the value of what the driver has returned. Nothing is guessed: what has no place in its type is an
error that says by which setting it has one. Types that drivers bend, or refuse in the middle of a
result, are asked for as text in a form that the session fixes: PostgreSQL's and MySQL's times,
numbers without limits, everything that Connect has no type for.

Times without a zone are in `db.timezone`; sessions of PostgreSQL and MySQL are in UTC.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from importlib import import_module
from typing import Any, ClassVar, Final, NamedTuple, cast
from uuid import UUID

from ottla.connect.connectors.column_times import (
    SECOND,
    begin_of_unit,
    cut,
    earliest_after,
    padded,
    rezoned,
)
from ottla.connect.data import (
    BOOLEAN,
    BYTES,
    DATE,
    DATE_NAME,
    DECIMAL_NAME,
    EPOCH_DAY,
    FLOAT64,
    INT64,
    STRING,
    TIME,
    TIME_NAME,
    TIMESTAMP,
    TIMESTAMP_NAME,
    DataError,
    Schema,
    SchemaType,
    array_of,
    bounded,
    decimal_of,
    shown,
    struct_of,
)
from ottla.errors import ConfigError

PRECISE: Final = "precise"
AS_STRING: Final = "string"
AS_DOUBLE: Final = "double"
CONNECT: Final = "connect"
ISO: Final = "isostring"
AS_ARRAY: Final = "array"
AS_JSON: Final = "json"
DECIMALS_AS_TEXT: Final = "decimal.handling.mode=string has it as text"
TIMES_AS_TEXT: Final = "time.precision.mode=isostring has it as text"
ARRAYS_AS_TEXT: Final = "array.handling.mode=json has it as text"
GROUPED_YEARS: Final = 400
DAYS_OF_GROUP: Final = 146_097
MOST_DIGITS: Final = 38
MICROSECONDS: Final = 6
"""Digits behind the seconds."""
MADE: Final = {
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
"""The types of columns that are made."""
ULPS: Final = 4
"""A float that is so near to a decimal stands for it: databases without decimals store floats."""
POSTGRES_SESSION: Final = (
    ("DateStyle", "ISO"),
    ("IntervalStyle", "iso_8601"),
    ("TimeZone", "UTC"),
    ("extra_float_digits", "3"),
    ("bytea_output", "hex"),
)
"""How PostgreSQL is to write values as text."""
_POSTGRES_TIME: Final = re.compile(
    r"(\d{4,})-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?(\+00)?( BC)?"
)
_ISO_YEAR: Final = re.compile(r"([+-]?\d{4,})(-\d\d-\d\d.*)")
_WIDE: Final = Context(prec=2000, rounding=ROUND_HALF_EVEN)

Read = Callable[[Any], Any]


class Handling(NamedTuple):
    """The forms of values that have several."""

    decimals: str = PRECISE
    times: str = CONNECT
    arrays: str = AS_ARRAY
    zone: tzinfo = UTC
    unit: timedelta = SECOND
    """How far the times that give rows their order are cut; those of a type may be further."""


class ColumnType(NamedTuple):
    """The Connect type of a column, how it is asked for, and how its values are read."""

    schema: Schema
    selected: Callable[[Any], Any]
    """The column as an expression of SQLAlchemy's."""
    read: Read
    """Raises ValueError with the rule that a value breaks."""


def read_boolean(value: Any) -> bool:
    """True and false, as drivers and databases write them."""
    found = {True: True, False: False, b"\x01": True, b"\x00": False}
    found |= {"t": True, "true": True, "f": False, "false": False}
    if isinstance(value, bool | int | str | bytes) and value in found:
        return found[value]
    raise ValueError("be true or false")


def read_integer(value: Any) -> int:
    """A whole number of 64 bits."""
    try:
        number = Decimal("NaN") if isinstance(value, bool | float) else bounded(Decimal(value))
    except (InvalidOperation, TypeError, ValueError):
        number = Decimal("NaN")
    if number.is_finite() and -(2**63) <= number < 2**63 and number == int(number):
        return int(number)
    raise ValueError("be a whole number of 64 bits")


def read_float(value: Any) -> float:
    """A float; NaN and the infinities are some."""
    if isinstance(value, float | int | Decimal | str) and not isinstance(value, bool):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass  # it is told below
    raise ValueError("be a number")


def _exact(value: Any) -> Decimal:
    is_number = isinstance(value, int | float | Decimal | str) and not isinstance(value, bool)
    try:
        text = repr(value) if isinstance(value, float) else value if is_number else "none"
        return bounded(Decimal(text))
    except InvalidOperation:
        raise ValueError("be a number") from None


def decimal_reader(scale: int) -> Read:
    """Decimals of a scale; a float that is nearly one of these is that."""

    def read(value: Any) -> Decimal:
        number = _exact(value)
        if not number.is_finite():
            raise ValueError(f"be a finite number; {DECIMALS_AS_TEXT}")
        try:
            rounded = number.quantize(Decimal((0, (1,), -scale)), context=_WIDE)
        except InvalidOperation:
            raise ValueError(f"have at most {_WIDE.prec} digits; {DECIMALS_AS_TEXT}") from None
        if rounded == number:
            return rounded
        if isinstance(value, float) and abs(float(rounded) - value) <= ULPS * math.ulp(value):
            return rounded
        raise ValueError(f"have {scale} digits behind the point; {DECIMALS_AS_TEXT}")

    return read


def read_decimal_text(value: Any) -> str:
    """All digits of a number, as text; `NaN` and `Infinity` as they are."""
    if isinstance(value, str):
        return str(value)
    return f"{_exact(value):f}"


def read_text(value: Any) -> str:
    """Text; of what has one form as text, that form."""
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            raise ValueError("be text in UTF-8")
        return str(value)
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return f"{_exact(value):f}" if isinstance(value, Decimal) else repr(value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    raise ValueError(f"be text, and not of type {type(value).__name__}")


def read_bytes(value: Any) -> bytes:
    """Bytes; text in their place is its UTF-8."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        return value.encode(errors="surrogateescape")
    raise ValueError("be bytes")


def read_hex_bytes(value: Any) -> bytes:
    """Bytes, or PostgreSQL's text of them."""
    if isinstance(value, str) and value.startswith("\\x"):
        return bytes.fromhex(value[2:])
    return read_bytes(value)


def read_date(value: Any) -> date:
    """A day of the years 1 to 9999."""
    try:
        if isinstance(value, datetime):
            return value.date()
        return value if isinstance(value, date) else date.fromisoformat(value)
    except (ValueError, TypeError):
        raise ValueError(f"be a day of the years 1 to 9999; {TIMES_AS_TEXT}") from None


def read_time(value: Any) -> time:
    """A time of one day, without a zone."""
    try:
        if isinstance(value, timedelta):
            found = (datetime.min + value).time() if timedelta() <= value else None
            if found is None or value >= timedelta(days=1):
                raise ValueError(value)
            return found
        found = value if isinstance(value, time) else time.fromisoformat(value)
        if found.tzinfo is not None:
            raise ValueError(value)
    except (ValueError, TypeError, OverflowError):
        raise ValueError(f"be a time from 00:00 to 23:59:59.999999; {TIMES_AS_TEXT}") from None
    return found


def timestamp_reader(zone: tzinfo) -> Read:
    """Moments in UTC; times without a zone are in `zone`, the first of two that are the same."""

    def read(value: Any) -> datetime:
        try:
            found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
            aware = found if found.tzinfo is not None else found.replace(tzinfo=zone)
            return aware.astimezone(UTC)
        except (ValueError, TypeError, OverflowError):
            raise ValueError(f"be a time of the years 1 to 9999; {TIMES_AS_TEXT}") from None

    return read


def read_iso(value: Any) -> str:
    """A time as ISO 8601; what a database has beside that (`infinity`, zero dates) as it is."""
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, str):
        return postgres_iso(value)
    return read_text(value)


def postgres_iso(text: str) -> str:
    """A date or time as PostgreSQL writes it, as ISO 8601: years before 0 and behind 9999 too."""
    match = _POSTGRES_TIME.fullmatch(text)
    if match is None:
        return text
    year, sign = int(match[1]), ""
    if match[9]:
        year, sign = year - 1, "-" if year > 1 else ""
    elif year > date.max.year:
        sign = "+"
    day = f"{sign}{year:04d}-{match[2]}-{match[3]}"
    if match[4] is None:
        return day
    fraction = f".{match[7]}" if match[7] else ""
    return f"{day}T{match[4]}:{match[5]}:{match[6]}{fraction}{'Z' if match[8] else ''}"


def postgres_time(iso: str) -> str:
    """A date or time of ISO 8601 in any year, as PostgreSQL reads it."""
    match = _ISO_YEAR.fullmatch(iso)
    if match is None:
        return iso
    year = int(match[1])
    return f"{year:04d}{match[2]}" if year > 0 else f"{1 - year:04d}{match[2]} BC"


def postgres_array(items: Sequence[Any]) -> str:
    """A list as PostgreSQL writes an array; each item is read by the type of the array."""
    return "{" + ",".join(map(_array_item, items)) + "}"


def _array_item(item: Any) -> str:
    if item is None:
        return "NULL"
    if isinstance(item, list | tuple):
        return postgres_array(item)
    if isinstance(item, bytes | bytearray | memoryview):
        text = f"\\x{bytes(item).hex()}"
    elif isinstance(item, bool | dict):
        text = json.dumps(item, ensure_ascii=False)
    else:
        text = item.isoformat() if isinstance(item, date | time) else str(item)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def postgres_micros(text: str) -> int:
    """Microseconds since 1970 of a time as PostgreSQL writes it, in any year."""
    match = _POSTGRES_TIME.fullmatch(text)
    if match is None:
        raise ValueError("be a time")
    year = 1 - int(match[1]) if match[9] else int(match[1])
    groups = (year - 2000) // GROUPED_YEARS
    day = date(year - groups * GROUPED_YEARS, int(match[2]), int(match[3])).toordinal()
    days = day + groups * DAYS_OF_GROUP - EPOCH_DAY
    hours, minutes, seconds = (int(part or 0) for part in match.group(4, 5, 6))
    whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return whole * 1_000_000 + int((match[7] or "").ljust(6, "0"))


class Database:
    """Any kind of database, as SQLAlchemy describes it."""

    session: Sequence[str] = ()
    """The statements with which a connection begins."""
    writes: Sequence[str] = ()
    """Those of a connection that writes, besides."""
    system_errors: frozenset[Any] = frozenset()
    rounds: ClassVar[bool] = True
    """Whether a column of integers rounds a fraction that is written to it."""

    def __init__(self, sql: Any, handling: Handling) -> None:
        self.sql = sql
        self.handling = handling
        self.as_given = type("AsGiven", (sql.types.UserDefinedType,), {"cache_ok": True})()
        """A type whose values pass as they are, and that is not named to the database."""

    def prepare(self, connection: Any, is_writer: bool) -> None:
        """Set up a new connection of the driver's: how values are written and read."""
        cursor = connection.cursor()
        for statement in (*self.session, *(self.writes if is_writer else ())):
            cursor.execute(statement)
        cursor.close()
        connection.commit()

    # Types

    def keys_are_required(self, kind: Any) -> bool:
        """Whether a primary key of this type is never null."""
        return True

    def column_type(self, kind: Any) -> ColumnType:
        """The Connect type of a column with this type of SQLAlchemy's."""
        sql = self.sql
        if is_decimal(sql, kind):
            return self.decimal(kind.scale)
        for types, found in (
            (sql.Boolean, ColumnType(BOOLEAN, self.raw, read_boolean)),
            (sql.Integer, ColumnType(INT64, self.raw, read_integer)),
            (sql.Float, ColumnType(FLOAT64, self.raw, read_float)),
            ((sql.LargeBinary, sql.BINARY, sql.VARBINARY), ColumnType(BYTES, self.raw, read_bytes)),
        ):
            if isinstance(kind, types):
                return found
        return self.time_type(kind) or ColumnType(STRING, self.raw, read_text)

    def time_type(self, kind: Any) -> ColumnType | None:
        """The Connect type of a column of dates or times; None for other types."""
        sql = self.sql
        for types, schema, read in (
            (sql.DateTime, TIMESTAMP, timestamp_reader(self.zone_of(kind))),
            (sql.Date, DATE, read_date),
            (sql.Time, TIME, read_time),
        ):
            if isinstance(kind, types):
                if self.handling.times == ISO:
                    return ColumnType(STRING, self.time_text, self.iso_reader(kind))
                return ColumnType(schema, self.time_text, read)
        return None

    def decimal(self, scale: int | None) -> ColumnType:
        """The type of exact numbers; those without a scale are text."""
        if self.handling.decimals == AS_DOUBLE:
            return ColumnType(FLOAT64, self.number_text, read_float)
        if self.handling.decimals == AS_STRING or scale is None:
            return ColumnType(STRING, self.number_text, read_decimal_text)
        return ColumnType(decimal_of(scale), self.number_text, decimal_reader(scale))

    def zone_of(self, kind: Any) -> tzinfo:
        """The zone of times that have none with them."""
        return UTC if getattr(kind, "timezone", False) else self.handling.zone

    def iso_reader(self, kind: Any) -> Read:
        """The reader of times as text."""
        return read_iso

    # Expressions

    def raw(self, column: Any) -> Any:
        """A column as the driver returns it, without what SQLAlchemy would make of it."""
        return self.sql.type_coerce(column, self.sql.types.NullType())

    def number_text(self, column: Any) -> Any:
        """A column of exact numbers, so that no digit of one is lost."""
        return self.raw(column)

    def time_text(self, column: Any) -> Any:
        """A column of times, whose values can be compared with it again without loss."""
        return column

    def time_value(self, kind: Any, stored: Any) -> Any:
        """What `time_text` gave once, for a comparison with the column."""
        found = datetime.fromisoformat(stored)
        return found if kind.__class__ is not self.sql.Date else found.date()

    def number_value(self, kind: Any, stored: Any) -> Any:
        """A number of an offset, for a comparison with the column."""
        return Decimal(stored) if isinstance(stored, str) else stored

    def now(self, connection: Any) -> datetime:
        """The present, by the clock that gives rows their times if that can be asked."""
        return datetime.now(UTC)

    def unit_of(self, kind: Any) -> timedelta:
        """The least time that two different times of a column are apart."""
        if isinstance(kind, self.sql.Date):
            return timedelta(days=1)
        own = timedelta(microseconds=10 ** (MICROSECONDS - self.digits_of(kind)))
        return max(own, self.handling.unit)

    def digits_of(self, kind: Any) -> int:
        """How many digits behind the seconds the times of a column have."""
        return 0

    def is_over(self, column: Any, moment: datetime) -> Any:
        """The condition that a time is not given to rows any longer after a moment."""
        kind, zone = column.type, self.handling.zone
        unit = self.unit_of(kind)
        if getattr(kind, "timezone", False):  # days and hours are those of the setting's zone
            local = moment.astimezone(zone).replace(tzinfo=None)
            first = begin_of_unit(local, unit).replace(tzinfo=zone).astimezone(UTC)
        else:
            first = begin_of_unit(earliest_after(moment, self.zone_of(kind)), unit)
        return self.place_of(column, is_time=True) < self.time_place(kind, first.isoformat())

    def is_over_by_form(self, raw: Any, moment: datetime) -> bool:
        """Whether a time that a column has in a coarser form than others is over."""
        return True

    def place_of(self, column: Any, is_time: bool) -> Any:
        """A column as its values are compared."""
        return column

    def place(self, raw: Any, is_time: bool) -> Any:
        """A value that was read, as values of its column are compared."""
        return raw

    def time_place(self, kind: Any, stored: Any) -> Any:
        """The time of an offset, as those of its column are compared; None if it is not a time."""
        return self.time_value(kind, stored)

    def near(self, column: Any, stored: Any) -> Any:
        """A condition for all times behind one that takes less than to compare them; or None."""
        return None

    def window(self, connection: Any, column: Any, stored: Any, limit: int) -> Any:
        """A condition for the earliest times behind one, probably more than `limit`, where it takes
        less to compare these than all; or None."""
        return None

    def stored_time(self, kind: Any, raw: Any) -> Any:
        """A time as an offset has it: with all digits that its column has."""
        return raw.isoformat() if isinstance(raw, date) else raw

    def fitted(self, kind: Any, stored: Any) -> tuple[Any, bool]:
        """A time of an offset for a column that may have changed, and whether it is another.

        If it was cut, times that were different may be the same by now; if the column has got a
        zone, or has lost it, it is earlier.
        """
        return stored, False

    def has_other_zone(self, kind: Any, stored: Any) -> bool:
        """Whether a column has got a zone, or has lost it, since a time of it was stored."""
        return False

    def coarser(self, column: Any) -> Any:
        """The condition that a time has a coarser form than seconds; or None."""
        return None

    def is_order(self, kind: Any, is_time: bool) -> bool:
        """Whether columns of this type have an order: of times, or of numbers."""
        sql = self.sql
        return isinstance(
            kind, (sql.Date, sql.DateTime) if is_time else (sql.Integer, sql.Numeric, sql.Float)
        )

    def no_place(self, column: Any, is_time: bool) -> Any:
        """The condition that a column has no place in an order, beside being null; or None."""
        return None

    def bound(self, column: Any, value: Any) -> Any:
        """A value as it is written to a column, and compared with it: times in the column's zone,
        text as text. DataError for a fraction that the database would round to a whole number."""
        sql, kind = self.sql, column.type
        if value is None:
            return sql.null() if isinstance(kind, sql.JSON) else None  # else it is null in JSON
        if isinstance(value, float | Decimal) and isinstance(kind, sql.Integer) and self.rounds:
            return whole(column.name, value)
        if isinstance(value, str) and isinstance(kind, sql.DateTime):
            value = _moment(value)
        if isinstance(value, datetime) and isinstance(kind, sql.DateTime):
            aware = value.replace(tzinfo=UTC) if value.tzinfo is None else value
            if getattr(kind, "timezone", False):
                return aware
            return aware.astimezone(self.zone_of(kind)).replace(tzinfo=None)
        if isinstance(value, str) and not isinstance(kind, sql.String):
            return self.text_for(kind, str(value))
        return value

    def text_for(self, kind: Any, text: str) -> Any:
        """Text for a column of another type, which the database is to read."""
        return self.sql.literal(text, self.as_given)

    def made_type(self, schema: Schema, is_key: bool) -> Any:
        """The type of a column that is made for values of a schema; DataError for collections."""
        sql = self.sql
        match schema.logical and schema.name:
            case str(name) if name == DECIMAL_NAME:
                return sql.Numeric(MOST_DIGITS, schema.scale)
            case str(name) if name == DATE_NAME:
                return sql.Date()
            case str(name) if name == TIME_NAME:
                return sql.Time()
            case str(name) if name == TIMESTAMP_NAME:
                return sql.DateTime(timezone=True)
        if schema.type not in MADE:
            raise DataError(
                f"schema {schema}: must be simple to be a column; Flatten makes structs so"
            )
        return getattr(sql, MADE[schema.type])()

    # Errors

    def is_of_system(self, error: BaseException) -> bool:
        """Whether the database or the way to it is at fault, not a record: it may be well later."""
        exc = self.sql.exc
        if isinstance(error, exc.TimeoutError) or getattr(error, "connection_invalidated", False):
            return True
        if not isinstance(error, exc.DBAPIError):
            return False
        code = self.code_of(error.orig)
        if code is None:
            return isinstance(error, exc.OperationalError | exc.InterfaceError)
        return code in self.system_errors

    def code_of(self, error: Any) -> Any:
        """The driver's code of an error, as `system_errors` has them."""
        return None


class WithTextTimes(Database):
    """A database whose times come as its own text, in any year: offsets have these, and say by
    their digits and their zone of what type their column was."""

    def is_zoned(self, kind: Any) -> bool:
        """Whether times of this type are moments."""
        return bool(getattr(kind, "timezone", False))

    def stored_time(self, kind: Any, raw: Any) -> Any:
        return raw if isinstance(kind, self.sql.Date) else padded(raw, self.digits_of(kind))

    def fitted(self, kind: Any, stored: Any) -> tuple[Any, bool]:
        text = rezoned(stored, self.handling.zone, is_zoned=self.is_zoned(kind))
        found = cut(text, None if isinstance(kind, self.sql.Date) else self.digits_of(kind))
        return found, found != stored

    def has_other_zone(self, kind: Any, stored: Any) -> bool:
        text: str = stored
        return rezoned(text, self.handling.zone, is_zoned=self.is_zoned(kind)) != text


class Postgres(WithTextTimes):
    """PostgreSQL, by any driver: all but the simplest types come as its own text."""

    session = tuple(f"SET {name} = '{value}'" for name, value in POSTGRES_SESSION)
    system_errors = frozenset(["08", "25006", "28", "3D", "40", "42501", "53", "55", "57", "58"])

    def column_type(self, kind: Any) -> ColumnType:
        sql, dialect = self.sql, import_module("sqlalchemy.dialects.postgresql")
        if isinstance(kind, dialect.DOMAIN):
            return self.column_type(kind.data_type)
        if isinstance(kind, sql.ARRAY):
            return self._array(kind)
        if isinstance(kind, dialect.MONEY):
            return self.decimal(2)._replace(selected=self._money)
        if isinstance(kind, sql.Time) and kind.timezone:
            return ColumnType(STRING, self.time_text, read_text)
        if isinstance(kind, sql.LargeBinary):
            return ColumnType(BYTES, self.raw, read_hex_bytes)
        if isinstance(kind, dialect.INET):
            return ColumnType(STRING, self._formatted, read_text)
        found = super().column_type(kind)
        if found.schema is STRING and found.read is read_text and not isinstance(kind, sql.String):
            return found._replace(selected=self._text)
        return found

    def made_type(self, schema: Schema, is_key: bool) -> Any:
        """Decimals have as many digits before the point as elsewhere, and all behind it."""
        if schema.logical and schema.name == DECIMAL_NAME:
            return self.sql.Numeric(MOST_DIGITS + max(schema.scale, 0), schema.scale)
        if schema.type is SchemaType.ARRAY:
            return self.sql.ARRAY(self.made_type(schema.items, is_key=False))
        return super().made_type(schema, is_key)

    def _array(self, kind: Any) -> ColumnType:
        if self.handling.arrays == AS_JSON:
            return ColumnType(STRING, lambda column: self._text(self._json(column)), read_text)
        items = self.column_type(kind.item_type)

        def read(value: Any) -> list[Any]:
            found = json.loads(value)
            if any(isinstance(item, list) for item in found):
                raise ValueError(f"be an array of one dimension; {ARRAYS_AS_TEXT}")
            return [None if item is None else items.read(item) for item in found]

        texts = self.sql.ARRAY(self.sql.Text())
        return ColumnType(
            array_of(items.schema.as_optional()),
            lambda column: self._text(self._json(self.sql.cast(column, texts))),
            read,
        )

    def _text(self, column: Any) -> Any:
        return self.sql.cast(column, self.sql.Text())

    def _json(self, column: Any) -> Any:
        return self.sql.func.to_json(column)

    def _money(self, column: Any) -> Any:
        return self._text(self.sql.cast(column, self.sql.Numeric()))

    def _formatted(self, column: Any) -> Any:
        """As the type writes itself; a cast to text would add /32."""
        return self.sql.func.nullif(self.sql.func.format("%s", self.raw(column)), "")

    def number_text(self, column: Any) -> Any:
        return self._text(column)

    def time_text(self, column: Any) -> Any:
        return self._text(column)

    def time_value(self, kind: Any, stored: Any) -> Any:
        return self.sql.cast(self.sql.literal(stored, self.sql.Text()), kind)

    def now(self, connection: Any) -> datetime:
        found = connection.execute(self.sql.select(self.sql.func.now())).scalar_one()
        return cast(datetime, found)

    def digits_of(self, kind: Any) -> int:
        digits: int | None = getattr(kind, "precision", None)
        return MICROSECONDS if digits is None else digits

    def number_value(self, kind: Any, stored: Any) -> Any:
        """A whole number would be sent as one of 64 bits, and text is compared with none."""
        is_sent_so = is_decimal(self.sql, kind) or isinstance(stored, str)
        return Decimal(stored) if is_sent_so else stored

    def no_place(self, column: Any, is_time: bool) -> Any:
        sql = self.sql
        if isinstance(column.type, sql.Integer):
            return None
        if isinstance(column.type, sql.Date | sql.DateTime):
            return column == self.time_value(column.type, "infinity")
        return self._text(column).in_(["NaN", "Infinity", "-Infinity"])

    def bound(self, column: Any, value: Any) -> Any:
        if isinstance(column.type, self.sql.ARRAY) and isinstance(value, list | tuple):
            return self.sql.literal(postgres_array(value), self.as_given)
        return super().bound(column, value)

    def text_for(self, kind: Any, text: str) -> Any:
        if isinstance(kind, self.sql.Date | self.sql.DateTime):
            text = postgres_time(text)
        elif isinstance(kind, self.sql.ARRAY) and text.startswith("["):
            try:
                text = postgres_array(json.loads(text, parse_float=Decimal))
            except ValueError:
                pass  # it has bounds, as PostgreSQL writes them
        return super().text_for(kind, text)

    def code_of(self, error: Any) -> Any:
        code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
        return code if code is None or code in self.system_errors else code[:2]


def _moment(text: str) -> Any:
    """A time with its zone, which databases would leave out; else the text."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return text
    return text if found.tzinfo is None else found


LARGEST: Final = 10**38


def whole(name: str, value: float | Decimal) -> int:
    """The integer that a number is; DataError for a fraction, and where no column has room."""
    if not math.isfinite(value) or not -LARGEST <= value <= LARGEST or value != int(value):
        raise DataError(f"{name}={value}: must be a whole number, as its column is")
    return int(value)


def is_decimal(sql: Any, kind: Any) -> bool:
    return isinstance(kind, sql.Numeric) and not isinstance(kind, sql.Float)


def unreadable(place: str, value: Any, error: ValueError) -> DataError:
    """The error for a value that has no place in its type."""
    return DataError(f"{place}={shown(value)}: must {error}")


LOOK_EVERY: Final = 64


class RowReader:
    """A table as it was described last: how its columns are asked for, and how rows are read."""

    def __init__(self, database: Database, table: Any, columns: Sequence[Any]) -> None:
        """`columns` is what a cursor says of all columns: it differs when they have changed."""
        self.table = table
        self.columns = columns
        self.types = {str(each.name): database.column_type(each.type) for each in table.columns}
        self.keys = [str(each.name) for each in table.primary_key.columns]
        fields = {
            str(each.name): schema.as_optional() if _may_be_null(database, each) else schema
            for each, schema in zip(
                table.columns, (kind.schema for kind in self.types.values()), strict=True
            )
        }
        self.schema = struct_of(str(table.name), fields)
        self._key_fields = {key: fields[key] for key in self.keys}
        self.key_schema = struct_of(None, self._key_fields) if self.keys else None
        self._indexes = {name: index for index, name in enumerate(self.types)}
        self.has_more = True
        """Whether there were more rows than were asked for; nobody knows before the first time."""
        self._idle = 0

    def looks_around(self) -> bool:
        """Whether all rows are looked through while none is new: that is done ever less often."""
        self._idle += 1
        return self._idle & (self._idle - 1) == 0 or self._idle % LOOK_EVERY == 0

    def selected(self) -> list[Any]:
        """The columns as they are asked for."""
        return [
            kind.selected(self.table.c[name]).label(f"c{self._indexes[name]}")
            for name, kind in self.types.items()
        ]

    def raw(self, row: Sequence[Any], name: str) -> Any:
        """The value that the driver has returned for a column."""
        return row[self._indexes[name]]

    def has_new_nulls(self, rows: Sequence[Sequence[Any]]) -> bool:
        """Whether there is a null where there was none when the table was described."""
        required = [self._indexes[name] for name, kind in self.schema.fields if not kind.optional]
        return any(row[index] is None for row in rows for index in required)

    def read(self, row: Sequence[Any]) -> dict[str, Any]:
        """The values of a row; DataError leads to the first one that has no place."""
        found = {}
        for (name, kind), raw in zip(self.types.items(), row, strict=True):
            try:
                found[name] = None if raw is None else kind.read(raw)
            except ValueError as error:
                place = f"table {self.table.name}, {self._place(row)}: {name}"
                raise unreadable(place, raw, error) from None
        return found

    def _place(self, row: Sequence[Any]) -> str:
        named = self.keys or list(self.types)[:1]
        return ", ".join(f"{name}={shown(self.raw(row, name))}" for name in named)


def _may_be_null(database: Database, column: Any) -> bool:
    is_required = column.primary_key and database.keys_are_required(column.type)
    return bool(column.nullable) and not is_required


def reflected(sql: Any, connection: Any, name: str) -> Any:
    """A table as the database describes it."""
    namespace, _, table = name.rpartition(".")
    try:
        with warnings.catch_warnings():  # of types that SQLAlchemy does not know: they are text
            warnings.simplefilter("ignore", sql.exc.SAWarning)
            return sql.Table(
                table, sql.MetaData(), schema=namespace or None, autoload_with=connection
            )
    except sql.exc.NoSuchTableError:
        raise ConfigError(f"table {name}: must be in the database") from None
