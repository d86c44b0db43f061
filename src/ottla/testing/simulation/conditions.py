"""The conditions of a world besides its story, drawn from the seed: sizes, cleaning, numbers.

Each is there in a part of the seeds, next to all others, so that every pair of them meets in some.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.testing.simulation.edges import Edges
from ottla.testing.simulation.nemesis import CLOCKS, KINDS, MORE_KINDS

Settings = Mapping[str, str | int]


class Conditions(NamedTuple):
    """The conditions of a world."""

    settings: Settings
    kinds: tuple[str, ...]
    """The targets of faults."""
    calls_per_fault: int
    is_retained: bool = False
    """Whether records go for the size of their log."""
    edges: Edges | None = None
    has_small_slices: bool = False
    """Whether long work pauses at every second element, and turns of a loop may take time."""

    @classmethod
    def drawn(cls, seed: int, may_retain: bool) -> Conditions:
        """The conditions of a seed; in half of them nothing is special but the disks."""
        chance = random.Random(f"conditions {seed}")
        calls_per_fault = chance.choice(CALLS_PER_FAULT)
        is_tiny, is_compacted, has_two_dirs, is_retained = (
            chance.random() < share for share in (0.2, 0.25, 0.25, 0.3)
        )
        settings: dict[str, str | int] = {}
        for is_there, drawn in (
            (is_tiny, TINY),
            (is_compacted, COMPACTED),
            (has_two_dirs, TWO_DIRS),
            (is_retained and may_retain, RETAINED),
        ):
            settings |= drawn if is_there else {}
        # A clock that is wrong by an hour lets tombstones go while a replica still lacks them.
        kinds = tuple(kind for kind in KINDS if not (is_compacted and kind == CLOCKS))
        edges = Edges.drawn(chance) if chance.random() < SHARE_AT_EDGES else None
        return cls(
            settings,
            (*kinds, *MORE_KINDS),
            calls_per_fault,
            is_retained and may_retain,
            edges,
            chance.random() < SHARE_WITH_SMALL_SLICES,
        )


CALLS_PER_FAULT: Final = (1_500, 5_000, 20_000)
"""How seldom a call of a disk fails, besides the faults of the nemesis."""

SHARE_AT_EDGES: Final = 0.4
SHARE_WITH_SMALL_SLICES: Final = 0.4

TINY: Final[Settings] = {
    "log.segment.bytes": 500,
    "log.index.interval.bytes": 1,
    "log.index.size.max.bytes": 48,
    "log.segment.delete.delay.ms": 500,
    "offsets.topic.segment.bytes": 2_000,
    "transaction.state.log.segment.bytes": 2_000,
    "replica.fetch.max.bytes": 300,
    "replica.fetch.response.max.bytes": 700,
    "num.replica.fetchers": 2,
    "fetch.max.bytes": 2_000,
}
"""Many segments with full indexes, and fetches that hold a batch or two."""
COMPACTED: Final[Settings] = {
    "offsets.topic.segment.bytes": 2_048,
    "transaction.state.log.segment.bytes": 2_048,
    "log.cleaner.backoff.ms": 300,
    "log.cleaner.min.cleanable.ratio": "0.01",
    # Longer than any replica is away: one that has missed a tombstone may keep the key (KIP-354).
    "log.cleaner.delete.retention.ms": 100_000,
    "log.segment.delete.delay.ms": 1_000,
}
"""The cleaner is at work on the topics of the coordinators, whose maps are read back from them."""
TWO_DIRS: Final[Settings] = {"log.dirs": "/data,/data2"}
RETAINED: Final[Settings] = {
    "log.segment.bytes": 1_000,
    "log.retention.bytes": 4_000,
    "log.retention.check.interval.ms": 500,
    "log.segment.delete.delay.ms": 300,
}
"""Old records go while things break."""
