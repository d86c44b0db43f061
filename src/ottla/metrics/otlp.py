"""Reads MetricsData of OpenTelemetry (protobuf), as Kafka's clients push their metrics.

Only the parts that they send are read: sums, gauges, and the sums and counts of histograms. A
reader for six messages is shorter than the package that has them all.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice
from typing import Final

from ottla.structs import NamedTuple

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5
MAX_VARINT_BYTES: Final = 10
MAX_POINTS: Final = 1_000
"""The points of one message that are read; those beyond are left out."""
MAX_ATTRIBUTES: Final = 20
MAX_TEXT_BYTES: Final = 256

Value = int | memoryview


class OtlpError(ValueError):
    """The bytes are no MetricsData."""


class Point(NamedTuple):
    """One number of one metric."""

    name: str
    description: str
    attributes: tuple[tuple[str, str], ...]
    value: float


def _varint(data: memoryview, place: int) -> tuple[int, int]:
    value = 0
    for count in range(MAX_VARINT_BYTES):
        if place >= len(data):
            break
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, place
    raise OtlpError("a number has no end")


def fields(data: memoryview) -> Iterator[tuple[int, Value]]:
    """The fields of a message: numbers of 64 and 32 bits as their bytes, like texts."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        kind = tag & 7
        if kind == VARINT:
            value, place = _varint(data, place)
            yield tag >> 3, value
            continue
        if kind == BYTES:
            size, place = _varint(data, place)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise OtlpError(f"field {tag >> 3} has the unknown kind {kind}")
        if size > len(data) - place:
            raise OtlpError(f"field {tag >> 3} ends after the message")
        yield tag >> 3, data[place : place + size]
        place += size


def _parts(data: memoryview, wanted: int) -> Iterator[memoryview]:
    for number, value in fields(data):
        if number == wanted and isinstance(value, memoryview):
            yield value


def _text(value: Value) -> str:
    if not isinstance(value, memoryview):
        raise OtlpError("a text is a number")
    return bytes(value[:MAX_TEXT_BYTES]).decode("utf-8", "replace")


def _attribute(data: memoryview) -> tuple[str, str]:
    """A KeyValue; numbers and truth values as text."""
    key, shown = "", ""
    for number, value in fields(data):
        if number == 1:
            key = _text(value)
        elif number == 2 and isinstance(value, memoryview):
            for kind, inner in fields(value):
                if kind == 4 and isinstance(inner, memoryview) and len(inner) == 8:
                    shown = repr(struct.unpack("<d", inner)[0])
                else:
                    shown = str(inner) if isinstance(inner, int) else _text(inner)
    return key, shown


def _number(value: Value, layout: str) -> float:
    if not isinstance(value, memoryview) or len(value) != 8:
        raise OtlpError("a value has not 8 bytes")
    return float(struct.unpack(layout, value)[0])


def points(data: bytes | memoryview, wanted: tuple[str, ...] = ("",)) -> list[Point]:
    """The numbers in MetricsData whose names begin as is wanted, up to MAX_POINTS.

    Raises:
        OtlpError: the bytes are something else.
    """
    return list(islice(_points(memoryview(data), wanted), MAX_POINTS))


def _points(data: memoryview, wanted: tuple[str, ...]) -> Iterator[Point]:
    for resource_metrics in _parts(data, 1):
        for scope_metrics in _parts(resource_metrics, 2):
            for metric in _parts(scope_metrics, 2):
                yield from _points_of(metric, wanted)


def _points_of(metric: memoryview, wanted: tuple[str, ...]) -> Iterator[Point]:
    name = description = ""
    for number, value in fields(metric):
        if number == 1:
            name = _text(value)
        elif number == 2:
            description = _text(value)
    if not name.startswith(wanted):
        return
    for number, value in fields(metric):  # again: a name may stand behind its numbers
        if number in (5, 7) and isinstance(value, memoryview):  # gauge, sum
            for each in _parts(value, 1):
                yield _number_point(name, description, each)
        elif number == 9 and isinstance(value, memoryview):
            for each in _parts(value, 1):
                yield from _histogram_points(name, description, each)


def _take(attributes: list[tuple[str, str]], data: memoryview) -> None:
    if len(attributes) < MAX_ATTRIBUTES:
        attributes.append(_attribute(data))


def _number_point(name: str, description: str, data: memoryview) -> Point:
    attributes: list[tuple[str, str]] = []
    value = 0.0
    for number, each in fields(data):
        if number == 7 and isinstance(each, memoryview):
            _take(attributes, each)
        elif number == 4:
            value = _number(each, "<d")
        elif number == 6:
            value = _number(each, "<q")
    return Point(name, description, tuple(attributes), value)


def _histogram_points(name: str, description: str, data: memoryview) -> Iterator[Point]:
    """Its count and its sum."""
    attributes: list[tuple[str, str]] = []
    count = total = 0.0
    for number, each in fields(data):
        if number == 9 and isinstance(each, memoryview):
            _take(attributes, each)
        elif number == 4:
            count = _number(each, "<Q")
        elif number == 5:
            total = _number(each, "<d")
    yield Point(f"{name}.count", description, tuple(attributes), count)
    yield Point(f"{name}.sum", description, tuple(attributes), total)
