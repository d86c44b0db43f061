"""Members of a consumer group, of whichever client: they have `poll`, and `held` partitions."""

from __future__ import annotations

import time
from collections import Counter

LIMIT_SECONDS = 100


def poll_until(members, condition) -> None:
    """Poll the members in turn until the condition holds; no partition has two holders."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, [sorted(member.held) for member in members]
        for member in members:
            member.poll()
            held = Counter(place for other in members for place in other.held)
            assert not held or max(held.values()) == 1


def shares(members) -> list[int]:
    """How many partitions each has, fewest first."""
    return sorted(len(member.held) for member in members)
