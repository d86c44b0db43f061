"""The write-ahead log as PostgreSQL's plug-in pgoutput writes it (protocol version 1)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ottla.connect.connectors.databases import Handling
from ottla.connect.connectors.postgres_types import BYTEA, FIRST_OWN_TYPE, Column
from ottla.connect.data import DataError, Schema, shown, struct_of

UNAVAILABLE: Final = "__debezium_unavailable_value"
"""Stands for a large value that an update left as it was, and that PostgreSQL does not send."""
POSTGRES_EPOCH_S: Final = 946_684_800
"""2000-01-01, from which PostgreSQL counts, in seconds since 1970."""
_UNCHANGED: Final = object()


class Relation(NamedTuple):
    """A table as it is at a place in the stream."""

    namespace: str
    table: str
    columns: tuple[Column, ...]
    row: Schema
    key: Schema | None

    @classmethod
    def of(cls, namespace: str, table: str, columns: tuple[Column, ...]) -> Relation:
        """A relation with the schemas of its rows and of their keys."""
        name = f"{namespace}.{table}"
        fields = {
            each.name: each.schema if each.is_key else each.schema.as_optional() for each in columns
        }
        keys = {each.name: each.schema for each in columns if each.is_key}
        key = struct_of(f"{name}.Key", keys) if keys else None
        return cls(namespace, table, columns, struct_of(f"{name}.Value", fields), key)

    def read(self, texts: list[Any]) -> dict[str, Any]:
        """A row; values that an update did not send are marked."""
        row = {}
        for column, text in zip(self.columns, texts, strict=True):
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
        found = {}
        for column, text in zip(self.columns, texts, strict=True):
            if column.is_key and text is _UNCHANGED:
                raise DataError(f"{column.name}: the key was not sent with an update of its row")
            if column.is_key:
                found[column.name] = column.read(text)
        return found

    def place(self, change: Change) -> str:
        """The key of a changed row, as the database writes it, for an error."""
        texts = change.after if change.after is not None else change.before or []
        keys = [
            f"{column.name}={shown(text)}"
            for column, text in zip(self.columns, texts, strict=False)
            if column.is_key and text is not _UNCHANGED
        ]
        return ", ".join(keys) or "a row without a key"


class Change(NamedTuple):
    """A change of a row: its former state (if that was sent) and its new one, as texts."""

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


class PgoutputDecoder:
    """Reads messages, and keeps the descriptions of tables."""

    def __init__(
        self,
        columns_of: Callable[[str, str], tuple[Column, ...]],
        handling: Handling = Handling(),  # noqa: B008 # it never changes
    ) -> None:
        """`columns_of` asks for a table: for its primary key, where whole rows are its identity,
        and for the types that its domains are made of."""
        self._columns_of = columns_of
        self._handling = handling
        self._relations: dict[int, Relation] = {}

    def read(self, message: bytes) -> list[Change | Begin | Commit]:
        """The content of a message; nothing for one that is about neither rows nor transactions."""
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
        after = body.row()
        if before is not None:  # has the unsent values; a key alone has nulls beside itself
            for index, column in enumerate(relation.columns):
                if after[index] is _UNCHANGED and (column.is_key or not is_key):
                    after[index] = before[index]
        return Change("u", relation, before, after, is_key)

    def _describe(self, body: _Body) -> None:
        (oid,) = body.take(">I")
        namespace, table = body.text(), body.text()
        identity = body.letter()
        columns = []
        for _ in range(body.take(">h")[0]):
            (flags,) = body.take(">b")
            made = Column(body.text(), bool(flags & 1), *body.take(">Ii"))
            columns.append(made._replace(handling=self._handling))
        if identity == b"f" or any(each.type_oid >= FIRST_OWN_TYPE for each in columns):
            former = self._relations.get(oid)
            found = self._columns_of(namespace, table) or (former.columns if former else ())
            known = {each.name: each for each in found}
            columns = [_completed(each, known.get(each.name), identity == b"f") for each in columns]
        self._relations[oid] = Relation.of(namespace, table, tuple(columns))


def _completed(column: Column, known: Column | None, is_whole: bool) -> Column:
    """A column of the stream with the database's description of it now."""
    if is_whole:
        column = column._replace(is_key=known is not None and known.is_key)
    if known is not None and column.type_oid >= FIRST_OWN_TYPE:
        return column._replace(type_oid=known.type_oid, modifier=known.modifier)
    return column


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
        return self._message[self._at - length : self._at].decode(errors="surrogateescape")
