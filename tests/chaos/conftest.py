"""Real processes and everything that can befall them: run by `make chaos`, all told in minutes."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from chaos_story import Story
from chaos_world import ChaosWorld

from ottla.testing.processes import ZooKeeperProcess

HERE = Path(__file__).parent
SEED = int(os.environ.get("CHAOS_SEED", "1"))
STORY_LIMIT_S = 400


@pytest.fixture(scope="session")
def running_world(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosWorld]:
    """One cluster for all stories; each leaves it whole."""
    folder = tmp_path_factory.mktemp("chaos")
    zookeeper = ZooKeeperProcess(folder / "zookeeper").start()
    world = ChaosWorld(folder / "brokers", zookeeper, "/chaos")
    world.start()
    yield world
    world.close()
    zookeeper.stop()


@pytest.fixture
def world(running_world: ChaosWorld) -> Iterator[ChaosWorld]:
    """The cluster; what failed in the middle is brought back."""
    yield running_world
    running_world.recover()


@pytest.fixture
def seed() -> int:
    """What was asked for: victims, moments and order follow from it."""
    return SEED


@pytest.fixture
def story(world: ChaosWorld, seed: int) -> Callable[..., Story]:
    """Begins a story of the seed that was asked for."""
    return lambda name, **settings: Story(world, name, seed, **settings)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.timeout(STORY_LIMIT_S))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A story that fails says how it is told again, alone."""
    report = yield
    if report.failed and HERE in item.path.parents:
        name, _, parameter = item.name.partition("[")
        again = f"SEED={SEED} ONLY={name}"
        if "mixed_world" in item.fixturenames:
            again = f"MIX=1 SEED={parameter.rstrip(']')}"
        report.sections.append(("to run it alone", f"make chaos {again}"))
    return report
