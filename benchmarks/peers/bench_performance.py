"""The classic table beside Apache Kafka 4.4, by Kafka's own performance tools.

    make bench-peers                                    all rows, about 45 minutes
    make bench-peers BENCH_ARGS="--rows latency both"   these rows again; the others stay
    make bench-peers BENCH_ARGS="--page"                only the page, from the numbers there are

Subjects take turns in each round, and medians are shown. Each measurement is kept at once in
benchmarks/results/performance.json: a run that was cut short continues where it was when it is
started again. docs/operate/performance.md is made of that file.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from benchmarks import machine
from benchmarks.peers import perf_page, perf_subjects
from benchmarks.peers.downloads import ROOT, kafka_jars
from benchmarks.peers.kafka_tools import KafkaTools
from benchmarks.peers.perf_rows import CLUSTER, MEMORY, ROWS, SHARE, SHARED, Row, Sizes, Trial
from benchmarks.peers.perf_subjects import Subject, measure_idleness
from benchmarks.peers.perf_tools import PerfTools
from ottla.record.kernel import COMPILED
from ottla.testing.processes import ZooKeeperProcess

RESULTS = ROOT / "benchmarks" / "results" / "performance.json"
PAGE = ROOT / "docs" / "operate" / "performance.md"
CLIENT = "4.4"


class Results:
    """The numbers of all runs, in a file that is whole after each of them.

    `pending` has the rows of a run that is under way. What is noted of them belongs to it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content: dict[str, Any] = {"pending": [], "idle": {}, "rows": {}}
        if path.exists():
            self.content = json.loads(path.read_text(encoding="utf-8"))

    def begin(self, wanted: Sequence[str], context: dict[str, Any]) -> None:
        """Measure those rows anew, or with none named what a run has left, or else all."""
        if wanted or not self.content["pending"]:
            chosen = list(wanted) or [row.key for row in ROWS]
            for key in chosen:
                self.content["rows"].pop(key, None)
            self.content["pending"] = chosen
            if not wanted:
                self.content["idle"] = {}
        self.content |= context
        self.save()

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(".new")
        draft.write_text(json.dumps(self.content, indent=1) + "\n", encoding="utf-8")
        draft.replace(self.path)

    @property
    def pending(self) -> list[Row]:
        return [row for row in ROWS if row.key in self.content["pending"]]

    def numbers(self, row: Row, layout: str, subject: str) -> dict[str, list[float]]:
        """The values of a subject, round by round, by their names."""
        layouts = self.content["rows"].setdefault(row.key, {})
        return layouts.setdefault(layout, {}).setdefault(subject, {})

    def rounds(self, row: Row, layout: str, subject: str) -> int:
        return max(map(len, self.numbers(row, layout, subject).values()), default=0)

    def note(self, row: Row, layout: str, subject: str, measured: dict[str, float]) -> None:
        for name, value in measured.items():
            self.numbers(row, layout, subject).setdefault(name, []).append(round(value, 4))
        self.save()

    def note_idle(self, brokers: int, subject: Subject) -> None:
        """The least that was seen: a JVM that has worked goes on compiling for a while."""
        measured = {SHARE: 100 * subject.idle_share, MEMORY: subject.resident_mb()}
        least = self.content["idle"].setdefault(str(brokers), {}).setdefault(subject.key, {})
        for name, value in measured.items():
            least[name] = min(round(value, 2), least.get(name, math.inf))
        self.save()

    def finish(self, rows: Iterable[Row]) -> None:
        done = {row.key for row in rows}
        self.content["pending"] = [key for key in self.content["pending"] if key not in done]
        self.save()


def context(sizes: Sizes, rounds: int) -> dict[str, Any]:
    """What the numbers were measured with."""
    memory = psutil.virtual_memory().total / 2**30
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.partition(": ")[2] for line in lines if "model name" in line), "unknown")
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB of memory, "
        f"Linux {platform.release()}",
        "limits": machine.describe().partition(", ")[2],
        "python": platform.python_version() + (", compiled loops" if COMPILED else ", plain loops"),
        "java": java_version(),
        "client": perf_subjects.release_of(CLIENT),
        "subjects": perf_subjects.names(),
        "sizes": sizes._asdict(),
        "rounds": rounds,
        "nice": os.nice(0),
    }


def java_version() -> str:
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True)
    return done.stderr.splitlines()[0].replace('"', "")


def measure_session(count: int, rows: Sequence[Row], results: Results, rounds: int) -> None:
    """All rows that want so many brokers."""
    sizes = Sizes(**results.content["sizes"])
    tools = PerfTools(KafkaTools(CLIENT, kafka_jars(CLIENT)))
    with tempfile.TemporaryDirectory() as name, ExitStack() as at_the_end:
        folder = Path(name)

        def start_zookeeper(key: str) -> ZooKeeperProcess:
            zookeeper = ZooKeeperProcess(folder / f"zookeeper-of-{key}").start()
            at_the_end.callback(zookeeper.stop)
            return zookeeper

        all_of_them = perf_subjects.subjects(folder, count, start_zookeeper)
        for subject in all_of_them:
            at_the_end.callback(subject.end)
            say(f"{subject.name}, {count} broker(s): starting")
            subject.start()
        for subject in all_of_them:
            Trial(subject, tools, sizes, SHARED).consume(1)
            say(f"{subject.name}: warm")
        for number in range(rounds):
            measure_idleness(all_of_them)
            for subject in all_of_them:
                results.note_idle(count, subject)
            for row in rows if number == 0 else [each for each in rows if not each.is_long]:
                measure_row(row, number, all_of_them, tools, results)


def measure_row(
    row: Row, number: int, subjects: Sequence[Subject], tools: PerfTools, results: Results
) -> None:
    """A round of a row: each subject in turn, another one first in each round."""
    first = number % len(subjects)
    sizes = Sizes(**results.content["sizes"])
    for layout in row.layouts:
        for subject in (*subjects[first:], *subjects[:first]):
            if results.rounds(row, layout, subject.key) > number:
                continue
            measured = row.measure(Trial(subject, tools, sizes, layout))
            results.note(row, layout, subject.key, measured)
            shown = ", ".join(f"{value:,.2f} {name}" for name, value in measured.items())
            say(f"round {number + 1}, {row.title}, {layout}, {subject.name}: {shown}")


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="the classic table, beside Apache Kafka's")
    keys = [row.key for row in ROWS]
    parser.add_argument(
        "--rows", nargs="+", choices=keys, default=[], metavar="ROW", help=", ".join(keys)
    )
    parser.add_argument("--rounds", type=int, default=3, help="medians of so many")
    parser.add_argument("--records", type=int, default=300_000, help="of 100 B, a client")
    parser.add_argument("--stored-mb", type=int, default=1_500, help="to be stored, times three")
    parser.add_argument("--latency-records", type=int, default=3_000)
    parser.add_argument("--reference-seconds", type=int, default=30)
    parser.add_argument(
        "--scale", type=int, default=60, help="of the reference load: one of so many"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file with the numbers")
    parser.add_argument("--to", type=Path, default=PAGE, help="the page")
    parser.add_argument("--page", action="store_true", help="only make the page")
    return parser.parse_args(arguments)


def end_by_signal(number: int, _: object) -> None:
    """Brokers and clients are ended; what was measured is in the file."""
    raise SystemExit(128 + number)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    results = Results(options.results)
    if not options.page:
        for number in (signal.SIGINT, signal.SIGTERM):  # even where a shell has them ignored
            signal.signal(number, end_by_signal)
        sizes = Sizes(
            options.records,
            options.stored_mb,
            options.latency_records,
            options.reference_seconds,
            options.scale,
        )
        results.begin(options.rows, context(sizes, options.rounds))
        for count in (CLUSTER, 1):
            rows = [row for row in results.pending if row.brokers == count]
            if rows:
                measure_session(count, rows, results, options.rounds)
                results.finish(rows)
    options.to.write_text(perf_page.page(results.content), encoding="utf-8")
    print(perf_page.tables(results.content))


if __name__ == "__main__":
    main()
