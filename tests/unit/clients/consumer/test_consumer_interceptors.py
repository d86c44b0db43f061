"""The chain of the application's interceptors, which must not stop the records."""

from __future__ import annotations

import logging

from ottla import TopicPartition
from ottla.clients.consumer.consumer_interceptors import ConsumerInterceptors

PARTITION = TopicPartition("pages", 0)


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
            return [*records, "more"]

        def on_commit(self, offsets):
            seen.append(offsets)

    chain = ConsumerInterceptors([Bad(), object(), Good])
    with caplog.at_level(logging.ERROR):
        assert chain.on_consume(["record"]) == ["record", "more"]
        chain.on_commit({PARTITION: 4})

    assert seen == [{PARTITION: 4}]
    assert [record.message.split(" of ")[0] for record in caplog.records] == [
        "on_consume",
        "on_commit",
    ]
