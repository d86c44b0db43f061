"""Which refusals of clients have a line in the log, and which are counted."""

from __future__ import annotations

import logging

import pytest

from ottla.network.refusal_log import MAX_CAUSES, TOLD_EVERY_MS, RefusalLog
from ottla.testing import MockClock


def test_cause_has_a_line_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """The number of the others comes with the next line; a quiet time has none."""
    caplog.set_level(logging.INFO)
    clock = MockClock()
    log = RefusalLog(clock)
    told = [log.is_news("10.0.0.1", why) for why in ("no TLS", "no TLS", "too slow", "no TLS")]
    clock.advance(TOLD_EVERY_MS - 1)
    told.append(log.is_news("10.0.0.1", "too slow"))
    assert told == [True, False, True, False, False]
    assert not caplog.records

    clock.advance(1)
    assert log.is_news("10.0.0.1", "no TLS")
    clock.advance(TOLD_EVERY_MS)
    assert log.is_news("10.0.0.1", "no TLS")
    (line,) = [each.message for each in caplog.records]
    assert line.startswith("3 more refusals")


def test_storm_from_everywhere_has_as_many_lines_as_are_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No more is remembered either, and the next time begins with nothing."""
    caplog.set_level(logging.INFO)
    clock = MockClock()
    log = RefusalLog(clock)
    for _ in range(2):
        told = [log.is_news(f"10.0.{number}") for number in range(3 * MAX_CAUSES)]
        assert told == [True] * MAX_CAUSES + [False] * 2 * MAX_CAUSES
        clock.advance(TOLD_EVERY_MS)
    (line,) = [each.message for each in caplog.records]
    assert line.startswith(f"{2 * MAX_CAUSES} more refusals")
