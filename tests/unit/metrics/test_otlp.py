"""Reading what clients push: Kafka's clients send sums and gauges."""

from __future__ import annotations

import struct

import pytest
from otlp_data import attribute, fixed64, metrics_data, number_metric, part, varint

from ottla.metrics.otlp import OtlpError, Point, points


def test_gauges_and_sums_are_read():
    """Doubles and integers, each with its attributes."""
    found = points(
        metrics_data(
            number_metric("a", 5, 2.5, attribute("topic", "t"), attribute("partition", 7)),
            number_metric("b", 7, -3),
        )
    )

    assert found == [
        Point("a", "What it is.", (("topic", "t"), ("partition", "7")), 2.5),
        Point("b", "What it is.", (), -3.0),
    ]


def test_histogram_is_its_count_and_its_sum():
    """Of its buckets there is nothing to be shown."""
    point = fixed64(4, struct.pack("<Q", 5)) + fixed64(5, struct.pack("<d", 1.5))
    found = points(metrics_data(part(1, "h") + part(9, part(1, point))))

    assert [(each.name, each.value) for each in found] == [("h.count", 5.0), ("h.sum", 1.5)]


def test_fields_that_are_not_known_are_passed_over():
    """Newer clients may send more."""
    unknown = varint(99 << 3) + varint(300) + varint(98 << 3 | 5) + bytes(4)
    found = points(unknown + metrics_data(unknown + number_metric("a", 5, 1.0)))

    assert [each.name for each in found] == ["a"]


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x7f",  # a part that ends after the bytes
        b"\xff" * 12,  # a number without an end
        b"\x0b",  # a kind of field that there is not
        metrics_data(part(1, "a") + part(5, part(1, varint(4 << 3) + b"\x01"))),
    ],
)
def test_other_bytes_are_refused(data):
    """Whatever a client sends, it is told and not believed."""
    with pytest.raises(OtlpError):
        points(data)


def test_nothing_is_no_metrics():
    """A client may have none."""
    assert points(b"") == []
