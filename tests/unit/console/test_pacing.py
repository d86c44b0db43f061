"""How often the console asks by itself."""

from __future__ import annotations

from ottla.console.pacing import pause_after


def test_questions_take_one_percent_and_stay_fresh():
    """A slow answer is waited for no longer than a minute."""
    found = [pause_after(each, 5_000) for each in (0, 20, 100, 2_000, 100_000)]
    assert found == [5_000, 4_980, 10_000, 60_000, 60_000]
