"""`ottla simulate`: the user's own app in simulated clusters, each with the faults of its seed."""

from __future__ import annotations

import os
import shlex
import signal
from argparse import ArgumentParser, Namespace
from collections.abc import Generator, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from importlib.util import find_spec
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.options import add_integer
from ottla.cli.terminal import Terminal
from ottla.config.whole_number import number_of
from ottla.testing.simulation import HASH_SEED

if TYPE_CHECKING:
    from ottla.testing.scenario import ScenarioOutcome

DEFAULT_SEEDS = 100
ENDING = (signal.SIGINT, signal.SIGTERM)
MOST_SEEDS = 1_000_000
MOST_BROKERS = 100
MOST_PROCESSES = 1000
SHOWN = 20


class SimulateCommand(Command):
    """Runs a module's `scenario`, or its `main` and `check`, for many seeds or for one."""

    name = "simulate"
    examples = ("ottla simulate my_app.py --seeds 1000", "ottla simulate my_app.py --seed 42")

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "app",
            metavar="FILE",
            help="A Python file with `scenario`, an ottla.testing.Scenario; or with the coroutine "
            "function `main`, and `check` if something is to be checked in the end.",
        )
        add_integer(
            parser,
            "--seeds",
            "N",
            f"Run the seeds from 1 to N. Default: {DEFAULT_SEEDS}.",
            least=1,
            most=MOST_SEEDS,
        )
        parser.add_argument(
            "--fail-fast", action="store_true", help="End with the first seed that fails."
        )
        add_integer(parser, "--seed", "S", "Run one seed only, and tell its story.")
        add_integer(
            parser,
            "--brokers",
            "N",
            "The brokers of the cluster. Default: 3.",
            least=1,
            most=MOST_BROKERS,
        )
        add_integer(
            parser,
            "--instances",
            "N",
            "Run so many processes of `main`. Default: 1.",
            least=1,
            most=MOST_PROCESSES,
        )
        parser.add_argument(
            "--topic",
            metavar="NAME:PARTITIONS",
            action="append",
            default=[],
            help="Create this topic first; may be repeated.",
        )
        add_integer(
            parser,
            "--jobs",
            "N",
            "Run so many seeds at once. Default: one per core.",
            least=1,
            most=MOST_PROCESSES,
        )

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        path = Path(arguments.app)
        if not path.is_file():
            raise CommandError(f"{path}: there is no such file")
        if find_spec("aiokafka") is None:
            raise CommandError("aiokafka is missing: pip install 'ottla[simulate]'")
        if arguments.seed is not None and arguments.seeds is not None:
            raise UsageError("--seed and --seeds do not go together")
        seeds = [arguments.seed]
        if arguments.seed is None:
            seeds = list(range(1, (arguments.seeds or DEFAULT_SEEDS) + 1))
        jobs = min(len(seeds), arguments.jobs or os.cpu_count() or 1)
        outcomes = outcomes_of(path, settings_of(arguments), seeds, jobs)
        told = tell(terminal, outcomes, is_only=len(seeds) == 1, fail_fast=arguments.fail_fast)
        failed = [outcome.seed for outcome in told if not outcome.is_passed]
        if len(seeds) > 1:
            faults = sum(outcome.fault_count for outcome in told)
            terminal.print(f"{len(told)} seeds, {faults} faults, {len(failed)} failed")
        if failed and len(seeds) > 1:
            shown = ", ".join(map(str, failed[:SHOWN]))
            terminal.print(f"failed: {shown}; '{again_of(arguments)} {failed[0]}' repeats one")
        return min(1, len(failed))


def again_of(arguments: Namespace) -> str:
    """The command that replays one seed of this run, without its number."""
    words = ["ottla", "simulate", arguments.app]
    words += [word for topic in arguments.topic for word in ("--topic", topic)]
    for option in ("brokers", "instances"):
        given = getattr(arguments, option)
        words += [] if given is None else [f"--{option}", str(given)]
    return f"{shlex.join(words)} --seed"


def settings_of(arguments: Namespace) -> dict[str, Any]:
    """The settings of the scenario that were given as options."""
    settings: dict[str, Any] = {}
    if arguments.brokers is not None:
        settings["brokers"] = arguments.brokers
    if arguments.instances is not None:
        settings["instances"] = arguments.instances
    for text in arguments.topic:
        name, _, partitions = text.rpartition(":")
        if not name or number_of(partitions, 0) is None:
            raise UsageError(f"--topic {text}: must be NAME:PARTITIONS, such as orders:3")
        settings.setdefault("topics", {})[name] = int(partitions)
    return settings


def outcomes_of(
    path: Path, settings: dict[str, Any], seeds: list[int], jobs: int
) -> Generator[ScenarioOutcome, None, None]:
    """The outcome of each seed, in processes where strings have the same hash each time.

    Seeds that have not begun are dropped when the iterator is closed.
    """
    from ottla.testing.scenario import scenario_of, tell_file

    try:
        scenario_of(path, settings)
    except ValueError as error:
        raise CommandError(str(error)) from None
    os.environ[HASH_SEED] = "0"
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=take_terminations)
    try:
        with ending_later():
            running = [pool.submit(tell_file, path, settings, seed) for seed in seeds]
        for told in running:
            yield told.result()
    except (KeyboardInterrupt, SystemExit):
        for process in active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def ending_later() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait while processes begin and get their work.

    A terminal sends Ctrl-C to all processes: those of the pool begin with it blocked, as each would
    print a traceback, and are ended by this one. And the exception of a signal within a queue of
    the pool would leave it locked for good.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


def take_terminations() -> None:
    """Let this process of the pool be ended, which begins with the mask of its parent."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


def tell(
    terminal: Terminal,
    outcomes: Generator[ScenarioOutcome, None, None],
    *,
    is_only: bool,
    fail_fast: bool,
) -> list[ScenarioOutcome]:
    """Print the stories of the seeds that fail, and that of an only one; returns the outcomes."""
    told = []
    with closing(outcomes):
        for outcome in outcomes:
            told.append(outcome)
            if not outcome.is_passed or is_only:
                terminal.print(str(outcome))
            if not outcome.is_passed and fail_fast:
                break
    return told
