"""What a run of a pipeline says on the terminal: its steps, and its micro-batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.cli.terminal import Progress, Terminal

if TYPE_CHECKING:
    from ottla.pipelines.progress import Batch, Tally


@dataclass(slots=True)
class Step:
    """One step under way; the code that counts its rows sets the number here."""

    start_s: float
    progress: Progress
    rows: int = 0


@dataclass(slots=True)
class Steps:
    """Says what is done now, and how long it took when it is done.

    A person sees the progress of a step on a line that changes, and a line when it has ended.
    """

    terminal: Terminal
    done: list[tuple[str, float]] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        with self.terminal.progress(name, "rows") as progress:
            head = f"{name} ... " if progress.is_shown else ""
            if not progress.is_shown:
                self.terminal.out.write(f"{name} ... ")
                self.terminal.out.flush()
            progress.begin()
            step = Step(time.perf_counter(), progress)
            try:
                yield step
            except BaseException:
                self.terminal.print(f"{head}not done")
                raise
            seconds = time.perf_counter() - step.start_s
            self.done.append((name, seconds))
            rate = f", {step.rows:,} rows, {step.rows / seconds:,.0f} rows/s" if step.rows else ""
            self.terminal.print(f"{head}{seconds:.1f} s{rate}")
            self.terminal.out.flush()


@dataclass(slots=True)
class BatchLines:
    """A line for each micro-batch; with `pause_s` one for those that ended meanwhile.

    A person sees a bar in their place: how much of what is in the topics has been read.
    """

    terminal: Terminal
    tally: Tally
    progress: Progress
    pause_s: float = 0.0
    _waiting: list[Batch] = field(default_factory=list)
    _printed_at_s: float = 0.0

    def add(self, at_s: float, batch: Batch) -> None:
        if self.progress.is_shown:
            rows, lag = self.tally.rows, self.tally.lag
            self.progress.show(rows, rows / (rows + lag) if rows else None, f"  lag {lag:,}")
            return
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
