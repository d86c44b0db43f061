"""`ottla simulate`: the user's own app in simulated clusters, each with the faults of its seed."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.options import add_integer
from ottla.cli.terminal import Terminal

DEFAULT_SEEDS = 100
SHOWN = 20


class SimulateCommand(Command):
    """Runs a module's `scenario`, or its `main` and `check`, for many seeds or for one."""

    name = "simulate"
    help = "Run your own asyncio app in simulated clusters with faults, by seed."
    examples = ("ottla simulate my_app.py --seeds 1000", "ottla simulate my_app.py --seed 42")

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "app",
            metavar="FILE",
            help="A Python file with `scenario`, an ottla.testing.Scenario; or with the coroutine "
            "function `main`, and `check` if something is to be checked in the end.",
        )
        add_integer(parser, "--seeds", "N", f"Run the seeds from 1 to N. Default: {DEFAULT_SEEDS}.")
        add_integer(parser, "--seed", "S", "Run one seed only, and tell its story.")
        add_integer(parser, "--brokers", "N", "The brokers of the cluster. Default: 3.")
        add_integer(
            parser, "--instances", "N", "Run `main` in so many processes at once. Default: 1."
        )
        parser.add_argument(
            "--topic",
            metavar="NAME:PARTITIONS",
            action="append",
            default=[],
            help="Create this topic first; may be repeated.",
        )
        add_integer(parser, "--jobs", "N", "Run so many seeds at once. Default: one per core.")

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
        return run_seeds(terminal, path, settings_of(arguments), seeds, jobs)


def settings_of(arguments: Namespace) -> dict[str, Any]:
    """The settings of the scenario that were given as options."""
    settings: dict[str, Any] = {}
    if arguments.brokers is not None:
        settings["brokers"] = arguments.brokers
    if arguments.instances is not None:
        settings["instances"] = arguments.instances
    for text in arguments.topic:
        name, _, partitions = text.rpartition(":")
        if not name or not partitions.isdigit():
            raise UsageError(f"--topic {text}: must be NAME:PARTITIONS, such as orders:3")
        settings.setdefault("topics", {})[name] = int(partitions)
    return settings


def run_seeds(
    terminal: Terminal, path: Path, settings: dict[str, Any], seeds: list[int], jobs: int
) -> int:
    """Run the seeds in processes where strings have the same hash each time; 1 if one failed."""
    from ottla.testing.scenario import HASH_SEED, scenario_of, tell_file

    try:
        scenario_of(path, settings)
    except ValueError as error:
        raise CommandError(str(error)) from None
    os.environ[HASH_SEED] = "0"
    failed: list[int] = []
    faults = 0
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for done in [pool.submit(tell_file, path, settings, seed) for seed in seeds]:
            outcome = done.result()
            faults += outcome.fault_count
            if not outcome.is_passed:
                failed.append(outcome.seed)
            if not outcome.is_passed or len(seeds) == 1:
                terminal.print(str(outcome))
    if len(seeds) > 1:
        terminal.print(f"{len(seeds)} seeds, {faults} faults, {len(failed)} failed")
    if failed and len(seeds) > 1:
        shown = ", ".join(map(str, failed[:SHOWN]))
        terminal.print(f"failed: {shown}; 'ottla simulate {path} --seed {failed[0]}' repeats one")
    return min(1, len(failed))
