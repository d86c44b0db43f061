"""Members of a consumer group, of whichever client: they have `poll`, and `held` partitions."""

from __future__ import annotations

from collections import Counter

from ottla.testing import wait_until

LIMIT_SECONDS = 100


def poll_until(members, condition, what="the partitions are shared out") -> None:
    """Poll the members in turn until the condition holds; no partition has two holders."""

    def poll() -> None:
        for member in members:
            member.poll()
            held = Counter(place for other in members for place in other.held)
            assert not held or max(held.values()) == 1

    wait_until(
        condition,
        what,
        LIMIT_SECONDS,
        seen=lambda: [sorted(member.held) for member in members],
        meanwhile=poll,
    )


def shares(members) -> list[int]:
    """How many partitions each has, fewest first."""
    return sorted(len(member.held) for member in members)
