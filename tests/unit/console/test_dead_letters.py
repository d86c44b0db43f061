"""Where a dead letter comes from."""

from __future__ import annotations

import pytest

from ottla.console.dead_letters import Origin, origin_of


@pytest.mark.parametrize(
    ("headers", "origin"),
    [
        (
            {"source.topic": b"a", "source.partition": b"1", "source.offset": b"7", "reason": b"r"},
            Origin("a", 1, 7, "r"),
        ),
        (
            {
                "__connect.errors.topic": b"a",
                "__connect.errors.partition": b"0",
                "__connect.errors.offset": b"9",
                "__connect.errors.exception.message": b"bad",
            },
            Origin("a", 0, 9, "bad"),
        ),
        (
            {
                "kafka_dlt-original-topic": b"a",
                "kafka_dlt-original-partition": (3).to_bytes(4),
                "kafka_dlt-original-offset": (5).to_bytes(8),
            },
            Origin("a", 3, 5, ""),
        ),
        (
            {
                "X-Original-Topic": b"a",
                "x-original-partition": b"1",
                "x-original-offset": b"2",
                "x-exception-message": b"e",
            },
            Origin("a", 1, 2, "e"),
        ),
        ({"source.topic": b"a", "source.partition": b"1"}, None),
        ({"source.topic": b"a", "source.partition": b"x", "source.offset": b"-1"}, None),
        ({"source.topic": b"a/b", "source.partition": b"1", "source.offset": b"2"}, None),
        ({"source.topic": b"a" * 250, "source.partition": b"1", "source.offset": b"2"}, None),
        ({}, None),
    ],
)
def test_origin_is_named_by_headers(headers, origin):
    """By those of each convention; half of them is none, nor is the name of no topic."""
    assert origin_of(list(headers.items())) == origin
    if origin:
        assert origin.path == f"/t/a/{origin.partition}/{origin.offset}"
