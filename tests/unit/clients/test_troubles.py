"""Tasks that go on failing: when that is said, and how often."""

from __future__ import annotations

import logging

import pytest

from ottla.clients.troubles import SILENCE_MS, Troubles
from ottla.errors import ErrorCode, KafkaError


@pytest.fixture
def said(caplog):
    """The warnings since the last look."""
    caplog.set_level(logging.WARNING, "ottla.clients.troubles")

    def look() -> list[str]:
        lines = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return lines

    return look


def test_each_kind_of_error_is_said_once_until_it_is_over(runtime, said):
    """Not at once: most of them pass."""
    troubles = Troubles(runtime.clock)
    error = KafkaError.of(ErrorCode.NETWORK_EXCEPTION, "nobody there")
    other = KafkaError.of(ErrorCode.NOT_COORDINATOR, "elsewhere")
    for _ in range(SILENCE_MS // 100):
        troubles.failed("the search", error)
        runtime.advance(100)
    assert said() == []

    for task in ("the search", "the search", "another"):
        troubles.failed(task, error)
        runtime.advance(SILENCE_MS)
    (line,) = said()
    assert (
        line == "the search has failed for 5 s, and is tried again: NETWORK_EXCEPTION: nobody there"
    )

    troubles.failed("another", other)
    assert said() == ["another has failed for 5 s, and is tried again: NOT_COORDINATOR: elsewhere"]
    troubles.worked("another")
    troubles.failed("the search", error)
    assert said() == []
    troubles.worked("the search")
    troubles.failed("the search", error)
    assert said() == []
    runtime.advance(SILENCE_MS)
    troubles.failed("the search", error)
    assert len(said()) == 1
