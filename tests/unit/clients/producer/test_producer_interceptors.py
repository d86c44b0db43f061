"""The chain of a producer's interceptors, which must stop neither records nor callbacks."""

from __future__ import annotations

import pytest

from ottla.clients.producer.producer_interceptors import ProducerInterceptors, ProducerRecord

RECORD = ProducerRecord("pages", b"v")
OTHER = RECORD._replace(value=b"w")


@pytest.mark.parametrize(
    ("returned", "expected", "text"),
    [
        (None, RECORD, ""),
        (OTHER, OTHER, ""),
        ("text", RECORD, "on_send returned str, not ProducerRecord"),
        (tuple(OTHER), RECORD, "on_send returned tuple, not ProducerRecord"),
        (False, RECORD, "on_send returned bool, not ProducerRecord"),
    ],
)
def test_result_that_is_no_record_leaves_the_record(caplog, returned, expected, text):
    """The caller of `send` has nothing to do with what an interceptor does wrong."""

    class Odd:
        def on_send(self, record):
            return returned

    chain = ProducerInterceptors.of([Odd])
    assert chain.on_send(RECORD, None)[0] == expected
    assert text in caplog.text
    assert bool(caplog.text) == bool(text)


def test_acknowledgement_reaches_all_though_one_of_them_raises(caplog):
    """Before all the callback of the application, which knows of no interceptor."""
    seen: list[str] = []

    class Bad:
        def on_acknowledgement(self, metadata, error):
            seen.append("bad")
            raise ZeroDivisionError

    class Good:
        def on_acknowledgement(self, metadata, error):
            seen.append("good")

    chain = ProducerInterceptors.of([Bad, object(), Good])
    _, on_delivery = chain.on_send(RECORD, lambda metadata, error: seen.append("callback"))
    on_delivery(None, None)

    assert seen == ["bad", "good", "callback"]
    assert "on_acknowledgement of" in caplog.text
