"""Sums over very many things, as metrics: others have their turn meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from ottla.metrics.metrics_registry import NO_TAGS, Series

T = TypeVar("T")

SUMMED_IN_A_SLICE: Final = 1000


def summed(
    items: Iterable[T], value: Callable[[T], int], at_once: int = SUMMED_IN_A_SLICE
) -> Series:
    """The sum of a value over all items, in slices; their source may change in a pause."""
    total = 0
    for number, item in enumerate(list(items), 1):
        total += value(item)
        if not number % at_once:
            yield None
    yield NO_TAGS, total
