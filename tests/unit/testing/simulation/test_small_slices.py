"""Worlds in which work in slices pauses everywhere."""

from __future__ import annotations

import ast
import asyncio
import random
import re
from importlib.util import find_spec
from pathlib import Path
from pkgutil import walk_packages

import pytest

from ottla.coordinator.coordinator_partitions import StepwiseLoader
from ottla.testing.simulation.conditions import Conditions
from ottla.testing.simulation.small_slices import MODULES, NAMES, ROOMS, SMALL, small_slices
from ottla.testing.simulation.world import SimulatedProcess, Turns, World


def sizes():
    """The sizes of slices, by the names of their modules and their own."""
    return {
        (module.__name__, name): value
        for module in MODULES
        for name, value in vars(module).items()
        if NAMES.fullmatch(name)
    }


def test_slices_are_small_only_meanwhile():
    """Another world in the same process has its own conditions."""
    before = sizes()
    with small_slices():
        assert set(sizes().values()) == {SMALL}
    assert sizes() == before
    assert min(before.values()) > 5 * SMALL


SIZELESS = {
    "ottla.coordinator.group.consumer.classic_subscription",
    "ottla.coordinator.group.consumer.consumer_group_coordinator",
    "ottla.coordinator.group.consumer.stored_consumer_group",
    "ottla.coordinator.group.group_metadata_manager",
    "ottla.log.log_truncation",
    "ottla.log.readable_log",
}
"""Modules that pause wherever others have to come between, or where another one says."""


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.__name__)
def test_no_module_that_pauses_is_left_out(room):
    """A bare `yield` is a pause; the size of a slice has a name by which it is found."""
    found = set()
    for each in walk_packages(room.__path__, f"{room.__name__}."):
        tree = ast.parse(Path(find_spec(each.name).origin).with_suffix(".py").read_text("utf-8"))
        if any(map(is_pause, ast.walk(tree))):
            found.add(each.name)
    assert found <= SIZELESS | {module.__name__ for module in MODULES}


def is_pause(node):
    """Whether work pauses here, by itself or between the slices of something."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield):
        return node.value.value is None
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("over", "parts")
    )


def test_sizes_in_compiled_modules_are_read_where_they_count():
    """What is Final is written into compiled code: a seed would be another one there."""
    root = Path(__file__).parents[4]
    compiled = (root / "release" / "core.txt").read_text(encoding="utf-8").split()
    for module in MODULES:
        path = f"{module.__name__.replace('.', '/')}.py"
        if path in compiled:
            source = (root / "src" / path).read_text(encoding="utf-8")
            names = re.findall(r"^(\w+): Final\b", source, re.MULTILINE)
            assert not list(filter(NAMES.fullmatch, names)), path


def test_part_of_the_seeds_has_them():
    """Beside all other conditions."""
    drawn = [Conditions.drawn(seed, may_retain=True) for seed in range(100)]
    shares = {(each.has_small_slices, each.edges is not None, each.is_retained) for each in drawn}
    assert len(shares) == 8


def test_load_pauses_at_every_second_record():
    """The size counts where it is used."""

    class Loader(StepwiseLoader):
        def tables(self):
            return ()

        def apply(self, record, batch):
            return None

        def end_transaction(self, marker):
            """There is none."""

    loader = Loader(0, iter(()))
    loader._records_of = lambda batch: [Record(value=None)] * 7
    with small_slices():
        assert sum(1 for _ in loader._read(iter([None]))) == 3


class Record:
    """A record as far as a load looks at it."""

    offset = 0

    def __init__(self, value):
        self.value = value


def turns(seed, is_slow):
    """The time at each turn of work of 300 turns in a process, and at what another one does."""
    world = World(seed)
    world.turns = Turns(random.Random(seed)) if is_slow else None
    process, other = (SimulatedProcess(world, name) for name in ("a", "b"))
    seen = []

    async def work():
        for _ in range(300):
            seen.append(("a", world.now_ms))
            await asyncio.sleep(0)

    process.spawn(work(), "work")
    other.scheduler.call_later(5, lambda: seen.append(("b", world.now_ms)))
    world.run(2_000)
    world.close()
    return seen


@pytest.mark.parametrize("seed", range(5))
def test_others_come_between_two_turns_that_take_time(seed):
    """Without that a whole piece of work is one moment, and nobody dies or asks in its pauses."""
    assert {when for who, when in turns(seed, is_slow=False) if who == "a"} == {0}
    seen = turns(seed, is_slow=True)
    assert len(seen) == 301
    assert 0 < [who for who, _ in seen].index("b") < 300
    assert seen == turns(seed, is_slow=True)


def test_process_that_is_killed_between_two_turns_does_no_more():
    """Its work is cut off there."""
    world = World(1)
    world.turns = Turns(random.Random(1))
    process = SimulatedProcess(world, "a")
    seen = []

    async def work():
        for _ in range(300):
            seen.append(world.now_ms)
            await asyncio.sleep(0)

    process.spawn(work(), "work")
    world.run(5)
    process.kill()
    before = len(seen)
    world.run(2_000)
    world.close()

    assert 0 < before == len(seen) < 300
