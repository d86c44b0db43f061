"""The chain of the application's interceptors, which must not stop the records."""

from __future__ import annotations

import logging

import pytest

from ottla import TopicPartition
from ottla.clients.consumer.consumer_interceptors import ConsumerInterceptors
from ottla.record.consumer_record import ConsumerRecord, TimestampType

PARTITION = TopicPartition("pages", 0)
RECORDS = [
    ConsumerRecord("pages", 0, offset, 1000, TimestampType.CREATE_TIME, None, b"v")
    for offset in range(2)
]


def test_interceptors_that_raise_are_logged_and_the_next_one_is_called(caplog):
    """Either method may be absent."""
    seen: list[object] = []

    class Bad:
        def on_consume(self, records):
            raise ZeroDivisionError

        def on_commit(self, offsets):
            raise ZeroDivisionError

    class Good:
        def on_consume(self, records):
            return [*records, RECORDS[1]]

        def on_commit(self, offsets):
            seen.append(offsets)

    chain = ConsumerInterceptors([Bad(), object(), Good])
    with caplog.at_level(logging.ERROR):
        assert chain.on_consume(RECORDS[:1]) == RECORDS
        chain.on_commit({PARTITION: 4})

    assert seen == [{PARTITION: 4}]
    assert [record.message.split(" of ")[0] for record in caplog.records] == [
        "on_consume",
        "on_commit",
    ]


@pytest.mark.parametrize(
    ("returned", "expected", "text"),
    [
        (None, RECORDS, ""),
        ([], [], ""),
        (tuple(RECORDS[1:]), RECORDS[1:], ""),
        (iter(RECORDS[1:]), RECORDS[1:], ""),
        (7, RECORDS, "'int' object is not iterable"),
        ("text", RECORDS, "on_consume returned str, not ConsumerRecord"),
        ([RECORDS[0], {"offset": 1}], RECORDS, "on_consume returned dict, not ConsumerRecord"),
        ([tuple(RECORDS[0])], RECORDS, "on_consume returned tuple, not ConsumerRecord"),
    ],
)
def test_result_that_is_no_records_loses_none(caplog, returned, expected, text):
    """The position is behind them already: they would not be fetched again."""

    class Odd:
        def on_consume(self, records):
            return returned

    assert ConsumerInterceptors([Odd]).on_consume(list(RECORDS)) == expected
    assert text in caplog.text
    assert bool(caplog.text) == bool(text)
