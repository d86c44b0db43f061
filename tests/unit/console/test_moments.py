"""Times as people type them."""

from __future__ import annotations

from datetime import datetime

import pytest

from ottla.console.moments import moment_ms

NOW = 1_795_878_500_000


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("now", NOW),
        ("1h ago", NOW - 3_600_000),
        ("30 s ago", NOW - 30_000),
        ("2d AGO", NOW - 172_800_000),
        ("5min ago", NOW - 300_000),
        ("1795878500001", NOW + 1),
        ("2026-03-02T08:00:00Z", 1_772_438_400_000),
        ("yesterday", None),
        ("", None),
        ("99:99", None),
        ("9" * 40, None),
        ("9" * 5_000, None),
        ("9" * 18, None),
        ("9999-12-31T23:59:59Z", None),
    ],
)
def test_times(text, found):
    """Ago, a moment with its zone, or milliseconds; other text is none."""
    assert moment_ms(text, NOW) == found


def test_times_without_a_zone_are_local():
    """A time alone is one of today."""
    local = datetime(2026, 11, 22, 13, 0).astimezone().timestamp() * 1000
    today = datetime.fromtimestamp(NOW / 1000).astimezone()

    assert moment_ms("2026-11-22 13:00", NOW) == local
    midnight = today.replace(hour=0, minute=0, second=0, microsecond=0)
    assert moment_ms("0:00", NOW) == midnight.timestamp() * 1000
    assert moment_ms("00:00:05", NOW) == midnight.timestamp() * 1000 + 5000
