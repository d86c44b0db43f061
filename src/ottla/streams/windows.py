"""Windows over event time, the keys that they make, and the bytes of these.

A windowed key is a struct of key, start and end. In topics it has the bytes of Kafka's serdes:
the key, then the window's start (8 bytes, ms); for sessions its end and its start.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType, TimestampType

from ottla.streams.serdes import IntegerSerde, Serde

if TYPE_CHECKING:
    from pyspark.sql import Column

LONG = IntegerSerde(8)


class Windowed(NamedTuple):
    """A key and its window, in ms since 1970; the end of a session is its last record's time."""

    key: Any
    start_ms: int
    end_ms: int


class Windows(ABC):
    """How records are grouped by time; `grace_ms` is how late they may be."""

    grace_ms: int

    @abstractmethod
    def column(self) -> Column:
        """Spark's window for the column `timestamp`."""

    @abstractmethod
    def end(self, window: Column) -> Column:
        """The end of the window as Kafka has it."""

    @abstractmethod
    def serde(self, inner: Serde) -> Serde:
        """The serde of the windowed keys."""


@dataclass(frozen=True)
class TimeWindows(Windows):
    """Windows of one size, each beginning `advance_ms` after the one before."""

    size_ms: int
    advance_ms: int
    grace_ms: int = 0

    @classmethod
    def of(cls, size: timedelta) -> TimeWindows:
        """Tumbling windows: one begins where another ends."""
        return cls(_ms(size, "size"), _ms(size, "size"))

    def advance_by(self, advance: timedelta) -> TimeWindows:
        """Hopping windows: a record is in each window that has its time."""
        advance_ms = _ms(advance, "advance")
        if advance_ms > self.size_ms:
            raise ValueError(f"advance {advance}: must be at most the size, {self.size_ms} ms")
        return replace(self, advance_ms=advance_ms)

    def grace(self, late: timedelta) -> TimeWindows:
        """Count records that come up to `late` after the end of their window."""
        return replace(self, grace_ms=_ms(late, "grace", least=0))

    def column(self) -> Column:
        return F.window("timestamp", interval(self.size_ms), interval(self.advance_ms))

    def end(self, window: Column) -> Column:
        return window["end"]

    def serde(self, inner: Serde) -> Serde:
        return WindowedSerde(inner, self.size_ms)


@dataclass(frozen=True)
class SessionWindows(Windows):
    """Records of a key that follow each other within `gap_ms`."""

    gap_ms: int
    grace_ms: int = 0

    @classmethod
    def with_gap(cls, gap: timedelta) -> SessionWindows:
        """A session ends when no record comes for `gap`."""
        return cls(_ms(gap, "gap"))

    def grace(self, late: timedelta) -> SessionWindows:
        """Count records that come up to `late` after the end of their session."""
        return replace(self, grace_ms=_ms(late, "grace", least=0))

    def column(self) -> Column:
        return F.session_window("timestamp", interval(self.gap_ms))

    def end(self, window: Column) -> Column:
        return window["end"] - F.expr(f"INTERVAL {self.gap_ms} MILLISECONDS")

    def serde(self, inner: Serde) -> Serde:
        return WindowedSerde(inner, None)


@dataclass(frozen=True)
class JoinWindows:
    """How far apart in time two records may be to be joined, and how late."""

    before_ms: int
    after_ms: int
    grace_ms: int = 0

    @classmethod
    def of(cls, difference: timedelta) -> JoinWindows:
        """The other record is at most `difference` older or younger."""
        return cls(_ms(difference, "difference", least=0), _ms(difference, "difference", least=0))

    def before(self, difference: timedelta) -> JoinWindows:
        """The other record is at most `difference` older."""
        return replace(self, before_ms=_ms(difference, "before", least=0))

    def after(self, difference: timedelta) -> JoinWindows:
        """The other record is at most `difference` younger."""
        return replace(self, after_ms=_ms(difference, "after", least=0))

    def grace(self, late: timedelta) -> JoinWindows:
        """Join records that come up to `late` after their time."""
        return replace(self, grace_ms=_ms(late, "grace", least=0))


class WindowedSerde(Serde):
    """Keys with their windows. `size_ms` is None for sessions, whose bytes have both ends."""

    name = "windowed"

    def __init__(self, inner: Serde, size_ms: int | None) -> None:
        self._inner = inner
        self._size_ms = size_ms

    @property
    def type(self) -> DataType:
        moments = [StructField(name, TimestampType()) for name in ("start", "end")]
        return StructType([StructField("key", self._inner.type), *moments])

    @property
    def _tail(self) -> int:
        return 16 if self._size_ms is None else 8

    def decode(self, column: Column) -> Column:
        size = F.octet_length(column) - self._tail
        key = self._inner.decode(F.substring(column, F.lit(1), size))
        first = LONG.decode(F.substring(column, size + 1, F.lit(8)))
        if self._size_ms is None:
            ends = LONG.decode(F.substring(column, size + 9, F.lit(8))), first
        else:
            ends = first, first + self._size_ms
        found = F.struct(
            key.alias("key"),
            F.timestamp_millis(ends[0]).alias("start"),
            F.timestamp_millis(ends[1]).alias("end"),
        )
        return F.when((size >= 0) & key.isNotNull(), found)

    def encode(self, column: Column) -> Column:
        ends = ["start"] if self._size_ms is not None else ["end", "start"]
        parts = [LONG.encode(F.unix_millis(column[name])) for name in ends]
        return F.concat(self._inner.encode(column["key"]), *parts)

    def to_bytes(self, thing: Any) -> bytes | None:
        if thing is None:
            return None
        numbers = [thing.start_ms] if self._size_ms is not None else [thing.end_ms, thing.start_ms]
        tail = b"".join(LONG.to_bytes(each) or b"" for each in numbers)
        return (self._inner.to_bytes(thing.key) or b"") + tail

    def from_bytes(self, data: bytes | None) -> Any:
        if data is None:
            return None
        size = len(data) - self._tail
        key = self._inner.from_bytes(data[:size])
        first = LONG.from_bytes(data[size : size + 8])
        if self._size_ms is None:
            return Windowed(key, LONG.from_bytes(data[size + 8 :]), first)
        return Windowed(key, first, first + self._size_ms)


def interval(ms: int) -> str:
    """A duration in Spark's notation."""
    return f"{ms} milliseconds"


def _ms(length: timedelta, name: str, least: int = 1) -> int:
    ms = length // timedelta(milliseconds=1)
    if ms < least:
        raise ValueError(f"{name} {length}: must be at least {least} ms")
    return ms
