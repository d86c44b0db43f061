"""What a run of a pipeline says on the terminal: its steps, and its micro-batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.cli.terminal import Terminal

if TYPE_CHECKING:
    from ottla.pipelines.progress import Batch


@dataclass(slots=True)
class Step:
    """One step under way; the code that counts its rows sets the number here."""

    start_s: float
    rows: int = 0


@dataclass(slots=True)
class Steps:
    """Says on the terminal what is done now, and how long it took when it is done."""

    terminal: Terminal
    done: list[tuple[str, float]] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        self.terminal.out.write(f"{name} ... ")
        self.terminal.out.flush()
        step = Step(time.perf_counter())
        try:
            yield step
        except BaseException:
            self.terminal.print("not done")
            raise
        seconds = time.perf_counter() - step.start_s
        self.done.append((name, seconds))
        rate = f", {step.rows:,} rows, {step.rows / seconds:,.0f} rows/s" if step.rows else ""
        self.terminal.print(f"{seconds:.1f} s{rate}")
        self.terminal.out.flush()


@dataclass(slots=True)
class BatchLines:
    """A line for each micro-batch; with `pause_s` one for those that ended meanwhile."""

    terminal: Terminal
    pause_s: float = 0.0
    _waiting: list[Batch] = field(default_factory=list)
    _printed_at_s: float = 0.0

    def add(self, at_s: float, batch: Batch) -> None:
        self._waiting.append(batch)
        if at_s - self._printed_at_s >= self.pause_s:
            self._printed_at_s = at_s
            self._print(at_s)

    def _print(self, at_s: float) -> None:
        batches, self._waiting = self._waiting, []
        rows = sum(batch.rows for batch in batches)
        seconds = sum(batch.seconds for batch in batches)
        rate = rows / seconds if seconds else 0.0
        last = batches[-1]
        name = f"{last.query} #{last.number}" if len(batches) == 1 else f"{len(batches)} batches"
        self.terminal.print(
            f"{at_s:7.1f} s  {name}: {rows:,} rows, {rate:,.0f} rows/s, "
            f"{seconds / len(batches):.2f} s a batch, lag {last.lag:,}, "
            f"{sum(batch.late for batch in batches):,} late"
        )
        self.terminal.out.flush()
