"""SQLite, whose columns hold values of any type: its own order of times, and its own errors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from ottla.connect.connectors.column_times import (
    EPOCH,
    LAST_SECOND,
    MICROSECOND,
    begin_of_unit,
    earliest_after,
    moment_us,
    numbers_outside,
    scale_of,
    unit_of_form,
)
from ottla.connect.connectors.databases import Database, Read, is_decimal, read_text
from ottla.connect.data import DataError

MOMENT: Final = "ottla_moment"
"""The function by which SQLite compares times."""
DAY_FIRST: Final = f"{'[0-9]' * 4}-{'[0-9]' * 2}-{'[0-9]' * 2}*"


class Sqlite(Database):
    """SQLite, whose columns hold values of any type."""

    system_errors = frozenset([5, 6, 7, 8, 9, 10, 11, 13, 14, 15, 22, 23, 26])
    """Busy, locked, no memory, read-only, interrupted, no disk, damaged, full, and their like."""
    rounds = False

    def prepare(self, connection: Any, is_writer: bool) -> None:
        """Text that is not UTF-8 fails with its row, not with all rows that are read with it."""
        connection.text_factory = lambda data: data.decode(errors="surrogateescape")
        connection.create_function(MOMENT, 1, self._moment_us, deterministic=True)

    def _moment_us(self, raw: Any) -> int | None:
        return moment_us(raw, self.handling.zone)

    def keys_are_required(self, kind: Any) -> bool:
        return isinstance(kind, self.sql.Integer)

    def time_text(self, column: Any) -> Any:
        return self.raw(column)

    def place_of(self, column: Any, is_time: bool) -> Any:
        """Times of all forms as moments: as texts and numbers they have another order."""
        raw = self.raw(column)
        return getattr(self.sql.func, MOMENT)(raw, type_=self.sql.BigInteger) if is_time else raw

    def place(self, raw: Any, is_time: bool) -> Any:
        return self._moment_us(raw) if is_time else raw

    def time_place(self, kind: Any, stored: Any) -> Any:
        found = self._moment_us(stored)
        return None if found is None else self.sql.literal(found, self.sql.BigInteger())

    def number_value(self, kind: Any, stored: Any) -> Any:
        """Whole numbers of more than 64 bits as decimals, which are compared as floats here."""
        is_long = isinstance(stored, int) and not -(2**63) <= stored < 2**63
        return Decimal(stored) if is_long else super().number_value(kind, stored)

    def near(self, column: Any, stored: Any) -> Any:
        found = self._moment_us(stored)
        return None if found is None else self._by_index(column, found, None)

    def window(self, connection: Any, column: Any, stored: Any, limit: int) -> Any:
        """Up to a time that more texts that begin with a day, or more numbers, come before."""
        sql, raw = self.sql, self.raw(column)
        first = None if stored is None else self._moment_us(stored)

        def edge(*alike: Any) -> Any:
            found = sql.select(raw).where(*alike).order_by(raw).offset(limit).limit(1)
            return connection.execute(found).scalar()

        is_behind = [] if first is None else self._days_from(raw, first, 2)
        last = edge(self._is_day_first(raw), *is_behind)
        if last is None:
            there = sql.true() if first is None else self._by_index(column, first, None)
            sample = sql.select(raw).where(there, self._is_number(raw)).limit(1)
            scale = scale_of(connection.execute(sample).scalar() or 0, first)
            last = None if scale is None else edge(self._is_between(raw, [scale]))
        until = None if last is None else self._moment_us(last)
        if until is None:
            return None
        is_before = self.place_of(column, is_time=True) <= sql.literal(until, sql.BigInteger())
        return sql.and_(self._by_index(column, None, until), is_before)

    def _days_from(self, raw: Any, us: int, days: int) -> list[Any]:
        """The condition that a text begins with a day that is so many behind that of a moment, or
        later; none where Python has no such day."""
        with suppress(OverflowError):
            day = EPOCH + timedelta(microseconds=us, days=days)
            return [raw >= self.sql.literal(f"{day:%Y-%m-%d}".zfill(10), self.as_given)]
        return []

    def _by_index(self, column: Any, first_us: int | None, last_us: int | None) -> Any:
        """The condition below; where the column has an index, that is read in place of the rows."""
        indexes = (list(each.columns)[:1] for each in column.table.indexes)
        if all(each.name != column.name for first in indexes for each in first):
            return self._may_be_between(self.raw(column), first_us, last_us)
        raw = self.raw(column.table.alias().c[column.name])
        found = self._may_be_between(raw, first_us, last_us)
        return self.raw(column).in_(self.sql.select(raw).where(found))

    def _may_be_between(self, raw: Any, first_us: int | None, last_us: int | None) -> Any:
        """A value that is surely no time between two moments need not be read as one.

        That is so for texts that begin with a day, in whatever zone (they are less than a day from
        UTC), and for most numbers.
        """
        sql, others = self.sql, []
        if first_us is not None:
            others += [sql.not_(each) for each in self._days_from(raw, first_us, -2)]
        if last_us is not None:
            others += self._days_from(raw, last_us, 3)
        is_other_text = sql.and_(self._is_day_first(raw), sql.or_(sql.false(), *others))
        is_other_number = self._is_between(raw, numbers_outside(first_us, last_us))
        return sql.not_(sql.or_(is_other_text, is_other_number))

    def _is_day_first(self, raw: Any) -> Any:
        return raw.op("GLOB")(self.sql.literal(DAY_FIRST, self.as_given))

    def _is_number(self, raw: Any) -> Any:
        return self.sql.func.typeof(raw).in_(["integer", "real"])

    def _is_between(self, raw: Any, ranges: Sequence[tuple[float, float]]) -> Any:
        sql = self.sql
        limits = [[sql.literal(each, self.as_given) for each in pair] for pair in ranges]
        inside = (sql.and_(raw > low, raw < high) for low, high in limits)
        return sql.and_(self._is_number(raw), sql.or_(sql.false(), *inside))

    def coarser(self, column: Any) -> Any:
        raw = self.raw(column)
        return self.sql.and_(raw.op("GLOB")("*-*"), self.sql.not_(raw.op("GLOB")("*:*:*")))

    def no_place(self, column: Any, is_time: bool) -> Any:
        """Numbers come before texts, texts before bytes."""
        sql, raw = self.sql, self.raw(column)
        if is_time:
            day = sql.func.substr(raw, 1, 10)
            is_plain = sql.and_(  # it need not be read by a function, which takes longer
                self._is_day_first(raw),
                sql.func.date(day) == day,
                sql.func.julianday(raw).is_not(None),
                sql.not_(raw.op("GLOB")(sql.literal("*[ T]24*", self.as_given))),
            )
            far = float(LAST_SECOND * 10**9)
            is_plain = sql.or_(is_plain, self._is_between(raw, [(-far, far)]))
            is_none = self.place_of(column, is_time=True).is_(None)
            return sql.and_(sql.func.coalesce(is_plain, sql.false()).is_(sql.false()), is_none)
        # As a float: there is no absolute value of the least whole number.
        is_infinite = sql.func.abs(sql.cast(raw, sql.REAL)) > sys.float_info.max
        return sql.or_(sql.func.typeof(raw).in_(["blob", "text"]), is_infinite)

    def is_order(self, kind: Any, is_time: bool) -> bool:
        is_text = isinstance(kind, self.sql.String)
        return not isinstance(kind, self.sql.LargeBinary) and (is_time or not is_text)

    def iso_reader(self, kind: Any) -> Read:
        return read_text

    def is_over_by_form(self, raw: Any, moment: datetime) -> bool:
        """A text without seconds, or a day alone, is over when its minute or day is."""
        unit, zone = unit_of_form(raw), self.handling.zone
        if unit == MICROSECOND:
            return True
        first = begin_of_unit(earliest_after(moment, zone), unit)
        found, end = self._moment_us(raw), self._moment_us(first.isoformat())
        return found is not None and end is not None and found < end

    def bound(self, column: Any, value: Any) -> Any:
        """Decimals are floats here: one with more digits than a float has is refused."""
        if isinstance(value, Decimal) and is_decimal(self.sql, column.type):
            if value.is_finite() and Decimal(repr(float(value))) != value:
                raise DataError(
                    f"{column.name}={value}: must be a number that a float holds, as SQLite stores "
                    "decimals; a column of text has all digits"
                )
        elif isinstance(value, Decimal) and isinstance(column.type, self.sql.String):
            return f"{value:f}"
        return super().bound(column, value)

    def text_for(self, kind: Any, text: str) -> Any:
        for types, python in (
            (self.sql.DateTime, datetime),
            (self.sql.Date, date),
            (self.sql.Time, time),
        ):
            if isinstance(kind, types):
                return python.fromisoformat(text)
        return super().text_for(kind, text)

    def code_of(self, error: Any) -> Any:
        code = getattr(error, "sqlite_errorcode", None)
        return None if code is None else code & 0xFF
