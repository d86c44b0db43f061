"""Which story a seed runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ottla.testing.simulation.append_story import AppendStory
from ottla.testing.simulation.copy_story import CopyStory
from ottla.testing.simulation.crowd_story import CrowdStory
from ottla.testing.simulation.group_story import GroupStory
from ottla.testing.simulation.guarded_story import GuardedStory
from ottla.testing.simulation.lives_story import LivesStory
from ottla.testing.simulation.operations_story import OperationsStory
from ottla.testing.simulation.pipeline_story import PipelineStory
from ottla.testing.simulation.power_story import PowerStory
from ottla.testing.simulation.story import Outcome, Story
from ottla.testing.simulation.unclean_story import UncleanStory

_OTHERS: Final = (
    GroupStory,
    PipelineStory,
    CopyStory,
    OperationsStory,
    CrowdStory,
    PowerStory,
)
KINDS: Final[tuple[type[Story], ...]] = (
    *(CopyStory, Story, *_OTHERS),
    *(AppendStory, GuardedStory, LivesStory, *_OTHERS[1:-2], GroupStory, UncleanStory),
)
"""A seed runs the story at its index modulo their number."""


def kind_of(seed: int) -> type[Story]:
    return KINDS[seed % len(KINDS)]


def tell(seed: int) -> Outcome:
    """Run the story of a seed to its end."""
    with garbage_kept_for_long():
        return kind_of(seed)(seed).run()


@contextmanager
def garbage_kept_for_long() -> Iterator[None]:
    """Collect no garbage in the middle: a world makes many objects, and uses most of them.

    The rest of an earlier world would be closed by the collector, with the loop of this one
    running: then a world is not the same any longer when its seed runs again.
    """
    is_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_on:
            gc.enable()


def keep_garbage() -> None:
    """Leave garbage lie in this process, which runs a few seeds and ends.

    To look for it, and to free a world object by object, took an eighth of the time. Objects from
    before are never garbage.
    """
    gc.freeze()
    gc.disable()
