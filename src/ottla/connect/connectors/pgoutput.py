"""The changes of a PostgreSQL database as its output plug-in pgoutput sends them.

A stream of messages: the transaction begins (B), tables are described before their first change
(R), rows are inserted, updated and deleted (I, U, D), tables are emptied (T), the transaction is
committed (C). Values come as text, as the types of PostgreSQL write them; `Column.read` makes
values of Connect's of them. What has no type there stays text, so that nothing of it is lost.

Protocol version 1 of "Logical Replication Message Formats" in PostgreSQL's documentation.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from ottla.connect.data import (
    BOOLEAN,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    STRING,
    DataError,
    Schema,
    decimal_of,
    shown,
    struct_of,
)

UNAVAILABLE: Final = "__debezium_unavailable_value"
"""Stands for a large value that an update left as it was, and that PostgreSQL does not send."""
MICRO_TIMESTAMP: Final = INT64.replace(name="io.debezium.time.MicroTimestamp", version=1)
"""Microseconds since 1970, without a zone; Connect's own Timestamp has milliseconds only."""
ZONED_TIMESTAMP: Final = STRING.replace(name="io.debezium.time.ZonedTimestamp", version=1)
"""ISO 8601, in UTC."""
POSTGRES_EPOCH_S: Final = 946_684_800
"""2000-01-01, from which PostgreSQL counts, in seconds since 1970."""
_INFINITIES: Final = {"infinity": 2**63 - 1, "-infinity": -(2**63)}
_EPOCH: Final = datetime(1970, 1, 1)
_NUMERIC_HEADER: Final = 4
_UNCHANGED: Final = object()

BOOL, BYTEA, INT8, INT2, INT4, FLOAT4, FLOAT8 = 16, 17, 20, 21, 23, 700, 701
DAY, STAMP, STAMP_WITH_ZONE, NUMERIC = 1082, 1114, 1184, 1700
"""Numbers of types, which are the same in every database."""


class Column(NamedTuple):
    """A column of a table: its name, whether it belongs to the key, and its type."""

    name: str
    is_key: bool
    type_oid: int
    modifier: int

    @property
    def schema(self) -> Schema:
        """The schema of its values; text for types that Connect does not have."""
        if self.type_oid == NUMERIC:
            has_scale = self.modifier >= _NUMERIC_HEADER
            return decimal_of((self.modifier - _NUMERIC_HEADER) & 0x7FF) if has_scale else STRING
        return _SCHEMAS.get(self.type_oid, STRING)

    def read(self, text: str | None) -> Any:
        """The value that a text stands for; DataError for one that has no place there."""
        if text is None:
            return None
        if self.type_oid == NUMERIC and self.schema is STRING:
            return text
        read = _READERS.get(self.type_oid)
        if read is None:
            return text
        try:
            return read(text)
        except (ValueError, InvalidOperation) as error:
            raise DataError(f"{self.name}={shown(text)}: must be {self.schema}") from error


def _read_bytes(text: str) -> bytes:
    if not text.startswith("\\x"):
        raise ValueError(text)
    return bytes.fromhex(text[2:])


def _read_decimal(text: str) -> Decimal:
    number = Decimal(text)
    if not number.is_finite():
        raise ValueError(text)
    return number


def _read_day(text: str) -> date:
    """A day; those outside the years 1 to 9999 are the last and the first that there are."""
    if text in _INFINITIES or text.endswith("BC") or text.index("-") > len("9999"):
        return date.min if text.startswith("-") or text.endswith("BC") else date.max
    return date.fromisoformat(text)


def _read_stamp(text: str) -> int:
    if text in _INFINITIES:
        return _INFINITIES[text]
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)


def _read_zoned(text: str) -> str:
    """`2020-02-03 04:05:06.7+00` as ISO 8601 has it."""
    if text in _INFINITIES or not text.endswith("+00"):
        return text
    return text.removesuffix("+00").replace(" ", "T") + "Z"


_SCHEMAS: Final[Mapping[int, Schema]] = {
    BOOL: BOOLEAN,
    BYTEA: BYTES,
    INT2: INT16,
    INT4: INT32,
    INT8: INT64,
    FLOAT4: FLOAT32,
    FLOAT8: FLOAT64,
    DAY: DATE,
    STAMP: MICRO_TIMESTAMP,
    STAMP_WITH_ZONE: ZONED_TIMESTAMP,
}
_READERS: Final[Mapping[int, Callable[[str], Any]]] = {
    BOOL: lambda text: text == "t",
    BYTEA: _read_bytes,
    INT2: int,
    INT4: int,
    INT8: int,
    FLOAT4: float,
    FLOAT8: float,
    NUMERIC: _read_decimal,
    DAY: _read_day,
    STAMP: _read_stamp,
    STAMP_WITH_ZONE: _read_zoned,
}


class Relation(NamedTuple):
    """A table as it is at a place in the stream."""

    namespace: str
    table: str
    columns: tuple[Column, ...]
    row: Schema
    key: Schema | None

    @classmethod
    def of(cls, namespace: str, table: str, columns: tuple[Column, ...]) -> Relation:
        """With the schemas of its rows and of their keys."""
        name = f"{namespace}.{table}"
        fields = {
            each.name: each.schema if each.is_key else each.schema.as_optional() for each in columns
        }
        keys = {each.name: each.schema for each in columns if each.is_key}
        key = struct_of(f"{name}.Key", keys) if keys else None
        return cls(namespace, table, columns, struct_of(f"{name}.Value", fields), key)

    def read(self, texts: list[Any], old: list[Any] | None = None) -> dict[str, Any]:
        """A row; what an update did not send is taken from the old row, or marked."""
        row = {}
        for index, (column, text) in enumerate(zip(self.columns, texts, strict=True)):
            if text is _UNCHANGED and old is not None and old[index] is not _UNCHANGED:
                text = old[index]
            if text is not _UNCHANGED:
                row[column.name] = column.read(text)
            else:
                is_bytes = column.type_oid == BYTEA
                row[column.name] = UNAVAILABLE.encode() if is_bytes else UNAVAILABLE
        return row

    def read_key(self, texts: list[Any]) -> dict[str, Any] | None:
        """The key of a row, whose other columns may not have been sent."""
        if self.key is None:
            return None
        pairs = zip(self.columns, texts, strict=True)
        return {column.name: column.read(text) for column, text in pairs if column.is_key}


class Change(NamedTuple):
    """A change of a row: what it was (if that was sent), and what it is; texts of its columns."""

    operation: str
    """c (created), u (updated), d (deleted), t (all rows of the table are gone)."""
    relation: Relation
    before: list[Any] | None
    after: list[Any] | None
    before_is_key: bool = False


class Begin(NamedTuple):
    """A transaction begins: where its end is in the log, when it was committed, its number."""

    final_lsn: int
    committed_ms: int
    xid: int


class Commit(NamedTuple):
    """A transaction ends: the place behind it in the log."""

    end_lsn: int


class Decoder:
    """Reads messages, and keeps what they say of tables."""

    def __init__(self, key_of: Callable[[str, str], frozenset[str]]) -> None:
        """`key_of` has the primary key of a table, whose whole rows are sent as its identity."""
        self._key_of = key_of
        self._relations: dict[int, Relation] = {}

    def read(self, message: bytes) -> list[Change | Begin | Commit]:
        """What a message says; nothing for one that is about neither rows nor transactions."""
        kind, body = message[:1], _Body(message)
        match kind:
            case b"B":
                lsn, micros, xid = body.take(">qqI")
                return [Begin(lsn, POSTGRES_EPOCH_S * 1000 + micros // 1000, xid)]
            case b"C":
                return [Commit(body.take(">bqqq")[2])]
            case b"R":
                self._describe(body)
            case b"I":
                relation = self._relation(body)
                body.letter()
                return [Change("c", relation, None, body.row())]
            case b"U":
                return [self._update(body)]
            case b"D":
                relation = self._relation(body)
                is_key = body.letter() == b"K"
                return [Change("d", relation, body.row(), None, is_key)]
            case b"T":
                count, _ = body.take(">ib")
                return [Change("t", self._relation(body), None, None) for _ in range(count)]
        return []

    def _relation(self, body: _Body) -> Relation:
        return self._relations[body.take(">I")[0]]

    def _update(self, body: _Body) -> Change:
        relation, before, is_key = self._relation(body), None, False
        letter = body.letter()
        if letter != b"N":
            is_key = letter == b"K"
            before = body.row()
            body.letter()
        return Change("u", relation, before, body.row(), is_key)

    def _describe(self, body: _Body) -> None:
        (oid,) = body.take(">I")
        namespace, table = body.text(), body.text()
        identity = body.letter()
        columns = []
        for _ in range(body.take(">h")[0]):
            (flags,) = body.take(">b")
            columns.append(Column(body.text(), bool(flags & 1), *body.take(">Ii")))
        if identity == b"f":
            keys = self._key_of(namespace, table)
            columns = [column._replace(is_key=column.name in keys) for column in columns]
        self._relations[oid] = Relation.of(namespace, table, tuple(columns))


class _Body:
    """Takes the fields of a message one after the other."""

    def __init__(self, message: bytes) -> None:
        self._message = message
        self._at = 1

    def take(self, layout: str) -> tuple[Any, ...]:
        found = struct.unpack_from(layout, self._message, self._at)
        self._at += struct.calcsize(layout)
        return found

    def letter(self) -> bytes:
        self._at += 1
        return self._message[self._at - 1 : self._at]

    def text(self) -> str:
        end = self._message.index(b"\x00", self._at)
        found = self._message[self._at : end].decode()
        self._at = end + 1
        return found

    def row(self) -> list[Any]:
        """The texts of a row: None is null."""
        return [self._value() for _ in range(self.take(">h")[0])]

    def _value(self) -> Any:
        match self.letter():
            case b"n":
                return None
            case b"u":
                return _UNCHANGED
        (length,) = self.take(">i")
        self._at += length
        return self._message[self._at - length : self._at].decode()
