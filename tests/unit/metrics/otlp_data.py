"""MetricsData of OpenTelemetry, made by hand, field by field."""

from __future__ import annotations

import struct


def varint(value):
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def part(number, data):
    """A message or a text within a message."""
    data = data.encode() if isinstance(data, str) else data
    return varint(number << 3 | 2) + varint(len(data)) + data


def fixed64(number, data):
    return varint(number << 3 | 1) + data


def attribute(key, value):
    kind = varint(3 << 3) + varint(value) if isinstance(value, int) else part(1, value)
    return part(1, key) + part(2, kind)


def metrics_data(*metrics):
    return part(1, part(2, b"".join(part(2, metric) for metric in metrics)))


def number_metric(name, kind, value, *attributes):
    """A gauge (5) or a sum (7) with one point."""
    number = struct.pack("<d", value) if isinstance(value, float) else struct.pack("<q", value)
    point = b"".join(part(7, each) for each in attributes)
    point += fixed64(3, bytes(8)) + fixed64(4 if isinstance(value, float) else 6, number)
    return part(1, name) + part(2, "What it is.") + part(kind, part(1, point))
