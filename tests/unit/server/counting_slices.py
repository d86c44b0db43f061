"""Slices whose pauses are counted."""

from __future__ import annotations

from ottla.runtime import Slices


class CountingSlices(Slices):
    """Slices that know how often work paused."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = 0

    async def pause(self) -> None:
        self.turns += 1
        await super().pause()
