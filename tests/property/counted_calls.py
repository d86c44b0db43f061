"""The length of a step of the loop, as the calls of functions in it: the same on every machine."""

from __future__ import annotations

import sys
from asyncio import events
from collections.abc import Callable
from typing import Any


def calls(work: Callable[[], Any]) -> int:
    """How many functions it calls, and how many return; the built-in ones are among them."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def worst_step(work: Callable[[], Any]) -> int:
    """The most that a callback of the loop calls while this is done, which runs the loop."""
    found: list[int] = []
    run = events.Handle._run
    events.Handle._run = lambda handle: found.append(calls(lambda: run(handle)))
    try:
        work()
    finally:
        events.Handle._run = run
    return max(found)
