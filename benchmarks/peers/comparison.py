"""Numbers of two subjects that are measured in turns, and the table that shows their medians."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable

import psutil

MILLION = 1_000_000


class Measured:
    """One of the subjects, and what was measured of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.numbers: dict[str, list[float]] = {}

    def note(self, what: str, value: float) -> None:
        self.numbers.setdefault(what, []).append(value)

    def forget(self, *endings: str) -> None:
        """What was measured so far of all that ends so was to warm up."""
        for what in [name for name in self.numbers if name.endswith(endings)]:
            del self.numbers[what]

    def median(self, what: str) -> float:
        return statistics.median(self.numbers[what])


def cpu_seconds(pids: Iterable[int]) -> float:
    """What the processes have used so far."""
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return sum(each.user + each.system for each in times)


def resident_mb(pids: Iterable[int]) -> float:
    """What the processes hold in memory; what they share counts for each."""
    return sum(psutil.Process(pid).memory_info().rss for pid in pids) / MILLION


def table(kafka: Measured, ottla: Measured) -> None:
    """Median beside median, and the ratio."""
    print(f"{'':46}{kafka.name:>18}{ottla.name:>14}{'Ottla / Kafka':>16}")
    for what in kafka.numbers:
        left, right = kafka.median(what), ottla.median(what)
        form: Callable[[float], str] = (
            (lambda v: f"{v:,.2f}") if left < 100 else (lambda v: f"{v:,.0f}")
        )
        print(f"{what:46}{form(left):>18}{form(right):>14}{right / left:>16.2f}")
