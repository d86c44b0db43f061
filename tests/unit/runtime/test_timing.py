"""Deadlines, pauses, and how they grow."""

from __future__ import annotations

import pytest

from ottla.runtime.timing import Backoff, Deadline
from ottla.testing import MockRuntime, mock_runtime


@pytest.fixture
def runtime() -> MockRuntime:
    """Virtual time."""
    return mock_runtime()


def test_deadline_counts_down(runtime):
    """To 0, and not below."""
    deadline = Deadline(runtime.clock, 100)
    runtime.clock.advance(60)
    assert deadline.left_ms == 40
    runtime.clock.advance(60)
    assert deadline.left_ms == 0
    assert deadline.has_passed
    assert not Deadline(runtime.clock, None).has_passed


def test_backoff_doubles_up_to_its_limit():
    """In the middle of the spread; and a fifth to either side."""
    assert [Backoff(100, 1000, lambda: 0.5).delay_ms(n) for n in (1, 2, 3, 4, 5, 99)] == [
        100,
        200,
        400,
        800,
        1000,
        1000,
    ]
    assert Backoff(100, 1000, lambda: 0.0).delay_ms(1) == 80
    assert Backoff(100, 1000, lambda: 1.0).delay_ms(1) == 120
