"""PostgreSQL's types by their numbers, as its log has them, and their types in Connect."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from functools import cache
from typing import Any, Final, NamedTuple

from ottla.connect.connectors.databases import (
    AS_DOUBLE,
    AS_STRING,
    ISO,
    TIMES_AS_TEXT,
    Handling,
    Read,
    decimal_reader,
    postgres_iso,
    postgres_micros,
    read_boolean,
    read_date,
    read_decimal_text,
    read_float,
    read_hex_bytes,
    read_text,
    unreadable,
)
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
    Schema,
    decimal_of,
)

MICRO_TIMESTAMP: Final = INT64.replace(name="io.debezium.time.MicroTimestamp", version=1)
"""Microseconds since 1970, without a zone; Connect's own Timestamp has milliseconds only."""
ZONED_TIMESTAMP: Final = STRING.replace(name="io.debezium.time.ZonedTimestamp", version=1)
"""ISO 8601, in UTC."""
_INFINITIES: Final = {"infinity": 2**63 - 1, "-infinity": -(2**63)}
_NUMERIC_HEADER, _SCALE_BITS, _SCALE_SIGN = 4, 0x7FF, 0x400
BOOL, BYTEA, INT8, INT2, INT4, FLOAT4, FLOAT8 = 16, 17, 20, 21, 23, 700, 701
DAY, STAMP, STAMP_WITH_ZONE, NUMERIC = 1082, 1114, 1184, 1700
"""Numbers of types, which are the same in every database."""
FIRST_OWN_TYPE: Final = 16_384
"""Types from here on were made in the database: domains are among them."""


class Column(NamedTuple):
    """A column of a table: its name, whether it belongs to the key, and its type."""

    name: str
    is_key: bool
    type_oid: int
    modifier: int
    handling: Handling = Handling()

    @property
    def schema(self) -> Schema:
        """The schema of its values; text for types that Connect does not have."""
        return _postgres_type(self.type_oid, self.modifier, self.handling)[0]

    def read(self, text: str | None) -> Any:
        """The value that a text stands for; DataError for one that has no place there."""
        if text is None:
            return None
        try:
            return _postgres_type(self.type_oid, self.modifier, self.handling)[1](text)
        except ValueError as error:
            raise unreadable(self.name, text, error) from error


def _read_day(text: str) -> date:
    """A day; the infinities are the last and the first that there are."""
    if text in _INFINITIES:
        return date.min if text.startswith("-") else date.max
    return read_date(text)


def _read_stamp(text: str) -> int:
    found = _INFINITIES[text] if text in _INFINITIES else postgres_micros(text)
    if not -(2**63) <= found < 2**63:
        raise ValueError(f"be microseconds of 64 bits; {TIMES_AS_TEXT}")
    return found


_TYPES: Final[Mapping[int, tuple[Schema, Read]]] = {
    BOOL: (BOOLEAN, read_boolean),
    BYTEA: (BYTES, read_hex_bytes),
    INT2: (INT16, int),
    INT4: (INT32, int),
    INT8: (INT64, int),
    FLOAT4: (FLOAT32, float),
    FLOAT8: (FLOAT64, float),
    DAY: (DATE, _read_day),
    STAMP: (MICRO_TIMESTAMP, _read_stamp),
    STAMP_WITH_ZONE: (ZONED_TIMESTAMP, postgres_iso),
}


@cache
def _postgres_type(oid: int, modifier: int, handling: Handling) -> tuple[Schema, Read]:
    if oid == NUMERIC:
        return _postgres_numeric(modifier, handling)
    if handling.times == ISO and oid in (DAY, STAMP, STAMP_WITH_ZONE):
        return STRING, postgres_iso
    return _TYPES.get(oid, (STRING, read_text))


def _postgres_numeric(modifier: int, handling: Handling) -> tuple[Schema, Read]:
    """Decimals of the column's scale, which may be negative; text where it has none."""
    if handling.decimals == AS_DOUBLE:
        return FLOAT64, read_float
    if handling.decimals == AS_STRING or modifier < _NUMERIC_HEADER:
        return STRING, read_decimal_text
    bits = (modifier - _NUMERIC_HEADER) & _SCALE_BITS
    scale = bits - 2 * (bits & _SCALE_SIGN)
    return decimal_of(scale), decimal_reader(scale)


def columns_of(
    connection: Any, namespace: str, table: str, handling: Handling
) -> tuple[Column, ...]:
    """The columns that changes will have, and which of them are the key; none without a table.

    A domain is the type that it is made of.
    """
    rows = connection.execute(
        """
        WITH RECURSIVE domains AS (
            SELECT oid AS domain, typbasetype AS base, typtypmod AS modifier
            FROM pg_type WHERE typtype = 'd'
            UNION ALL
            SELECT d.domain, t.typbasetype, greatest(d.modifier, t.typtypmod)
            FROM domains d JOIN pg_type t ON t.oid = d.base AND t.typtype = 'd'
        )
        SELECT a.attname, coalesce(a.attnum = ANY (i.indkey), false),
            coalesce(d.base, a.atttypid)::int8, coalesce(d.modifier, a.atttypmod)
        FROM pg_class c
        JOIN pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
            AND a.attgenerated = ''
        LEFT JOIN pg_index i ON i.indrelid = c.oid
            AND CASE WHEN c.relreplident = 'i' THEN i.indisreplident ELSE i.indisprimary END
        LEFT JOIN domains d ON d.domain = a.atttypid
            AND NOT EXISTS (SELECT FROM pg_type t WHERE t.oid = d.base AND t.typtype = 'd')
        WHERE n.nspname = %s AND c.relname = %s ORDER BY a.attnum
        """,
        [namespace, table],
    ).fetchall()
    return tuple(Column(*row)._replace(handling=handling) for row in rows)
