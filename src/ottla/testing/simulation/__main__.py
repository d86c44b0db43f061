"""Run seeds of the simulated world: `python -m ottla.testing.simulation 42`, or `1-160`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from ottla.testing.simulation import HASH_SEED
from ottla.testing.simulation.stories import keep_garbage, tell
from ottla.testing.simulation.story import Outcome

SHOWN = 6
LIFE = 10
"""About so many seeds run in a process; its end costs less than to collect its garbage."""
SILENT = logging.CRITICAL + 1


def seeds_of(text: str) -> range:
    """A seed, or a range of them: `42` or `1-160`."""
    first, _, last = text.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if not seeds:
        raise argparse.ArgumentTypeError(f"{text}: the second number must not be the smaller one")
    return seeds


def report(outcome: Outcome, is_whole: bool) -> None:
    """Print the outcome of a seed; all of it where `is_whole`."""
    print(
        f"seed {outcome.seed}: {outcome.acknowledged_count} acknowledged, "
        f"{outcome.seen_count} seen, {len(outcome.faults)} faults in {outcome.virtual_ms} ms, "
        f"{outcome.step_count} steps, fingerprint {outcome.fingerprint}"
    )
    if is_whole:
        for line in outcome.faults:
            print(f"  {line}")
    for line in outcome.violations[:SHOWN]:
        print(f"  VIOLATION {line}")
    if len(outcome.violations) > SHOWN:
        print(f"  and {len(outcome.violations) - SHOWN} more")


def outcomes_of(seeds: Sequence[int], jobs: int) -> Iterator[Outcome]:
    """The outcomes in order. The first seed runs here: its codecs serve the forks as well."""
    yield tell(seeds[0])
    for first in range(1, len(seeds), jobs * LIFE):
        with ProcessPoolExecutor(jobs, get_context("fork"), initializer=keep_garbage) as pool:
            yield from pool.map(tell, seeds[first : first + jobs * LIFE])


def run(seeds: Sequence[int], jobs: int) -> int:
    """Run all seeds; returns the number of those that failed."""
    failed: list[int] = []
    records = 0
    for outcome in outcomes_of(seeds, jobs):
        records += outcome.acknowledged_count
        if outcome.violations:
            failed.append(outcome.seed)
            report(outcome, is_whole=False)
    print(f"{len(seeds)} seeds, {records} records acknowledged, {len(failed)} failed {failed[:20]}")
    return len(failed)


def main(arguments: Sequence[str]) -> int:
    """Run the seeds; exit status 1 where one failed."""
    parser = argparse.ArgumentParser(prog="ottla.testing.simulation", description=__doc__)
    parser.add_argument("seeds", type=seeds_of, help="a seed, or a range such as 1-160")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at work")
    parser.add_argument("--verbose", action="store_true", help="show what the brokers log")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO if options.verbose else SILENT)
    if len(options.seeds) > 1:
        return min(1, run(options.seeds, options.jobs))
    outcome = tell(options.seeds[0])
    report(outcome, is_whole=True)
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    if os.environ.get(HASH_SEED) != "0":
        # The order of strings in a set must be the same each time.
        os.environ[HASH_SEED] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "ottla.testing.simulation", *sys.argv[1:]])
    sys.exit(main(sys.argv[1:]))
