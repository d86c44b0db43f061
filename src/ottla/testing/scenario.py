"""The user's own app in a simulated world, by seed: brokers, faults, virtual time, a check.

    scenario = Scenario(app, topics={"orders": 3}, check=check)
    scenario.run(range(100))

A seed decides everything that happens. Where one fails, its story is printed, and the same seed
makes the same story again, under the same PYTHONHASHSEED.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import os
import random
import runpy
import sys
import traceback
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from ottla.errors import KafkaError
from ottla.protocol.topic_name import validate_topic_name
from ottla.server.broker import Broker
from ottla.testing.live_brokers import LiveBrokers
from ottla.testing.simulation import HASH_SEED
from ottla.testing.simulation.app_process import Address, AppProcess
from ottla.testing.simulation.cluster import BROKER_PORT, SimulatedCluster
from ottla.testing.simulation.invariants import History, partitions_of
from ottla.testing.simulation.nemesis import KINDS, Nemesis
from ottla.testing.simulation.story import PEACE_LIMIT_MS, START_LIMIT_MS, TROUBLE_MS
from ottla.testing.simulation.virtual_machine import garbage_kept, virtual_machine
from ottla.testing.simulation.workload import TopicMaker
from ottla.testing.simulation.world import World
from ottla.testing.virtual_loop import TimelessError

T = TypeVar("T")

Main = Callable[..., Coroutine[Any, Any, object]]
Check = Callable[["ScenarioWorld"], object]

APPS: Final = "apps"
FAULTS: Final = (APPS, *KINDS)
"""The targets of faults: `apps`, `brokers`, `network`, `zookeeper`, `clocks`."""

QUIET_MS: Final = 15_000
RETRY_MS: Final = 60_000
"""Longer than aiokafka waits for an answer that does not come (`request_timeout_ms`, 40 s)."""
PATIENCE_MS: Final = 330_000
"""Longer than aiokafka believes an old leader (`metadata_max_age_ms`, 300 s) that it asks for the
first offset: the response of a broker that leads no more does not make it look again."""
LOOK_MS: Final = 500
STOP_LIMIT_MS: Final = 30_000
MAX_DEAD_MS: Final = 5_000
MAX_PAUSE_MS: Final = 15_000
LOOPBACK: Final = ("localhost", "127.0.0.1")


@dataclass(frozen=True)
class Scenario:
    """Apps in a world of their own for each seed, and the check of the outcome.

    `check` is called when nothing was written for `quiet_ms` after all was repaired. It raises an
    error, as `assert` does, if the world is not as it should be. It is then called again after each
    quiet minute of `patience_ms`: an app may still have waited for an answer that does not come, or
    have asked a broker that leads no more.
    """

    app: Main | App | Sequence[Main | App]
    brokers: int = 3
    faults: Collection[str] = FAULTS
    topics: Mapping[str, int] = field(default_factory=dict)
    """The topics that are created first, by name, with the number of partitions."""
    check: Check | None = None
    settings: Mapping[str, str | int] = field(default_factory=dict)
    """Settings of the brokers, beside those of a small cluster that is quick to notice a fault."""
    trouble_ms: int = TROUBLE_MS
    quiet_ms: int = QUIET_MS
    patience_ms: int = PATIENCE_MS

    def __post_init__(self) -> None:
        unknown = sorted(set(self.faults).difference(FAULTS))
        if unknown:
            raise ValueError(f"faults={unknown}: must be among {', '.join(FAULTS)}")
        if self.brokers < 1:
            raise ValueError(f"brokers={self.brokers}: must be at least 1")
        for topic, partitions in self.topics.items():
            try:
                validate_topic_name(topic)
            except KafkaError as error:
                raise ValueError(f"topics: {error.message}") from None
            if partitions < 1:
                raise ValueError(f"topics: {topic}: {partitions} partitions: must be at least 1")

    @property
    def apps(self) -> list[App]:
        given = self.app if isinstance(self.app, Sequence) else [self.app]
        return [each if isinstance(each, App) else App(each) for each in given]

    def tell(self, seed: int) -> ScenarioOutcome:
        """Run one seed to its end."""
        with garbage_kept():
            return ScenarioRun(self, seed).run()

    def run(self, seeds: Iterable[int]) -> list[ScenarioOutcome]:
        """Run seeds; ScenarioFailedError with the story of the first one that fails."""
        outcomes = []
        for seed in seeds:
            outcomes.append(self.tell(seed))
            if not outcomes[-1].is_passed:
                raise ScenarioFailedError(f"{outcomes[-1]}\n{_how_to_repeat()}")
        return outcomes


class ScenarioFailedError(AssertionError):
    """A seed of a scenario has failed; the message is its story."""


@dataclass(frozen=True)
class App:
    """A program, and how it runs: `main` is called with the bootstrap servers, and the world.

    It gets as many of the two as it has parameters. Each of its instances is a process of its own.
    """

    main: Main
    instances: int = 1
    is_struck: bool = True
    """Whether its instances are killed, stopped, paused and cut off."""
    may_raise: tuple[type[BaseException], ...] = ()
    """Errors that end an instance, and it is started again; any other fails the seed."""

    def __post_init__(self) -> None:
        if self.instances < 1:
            raise ValueError(f"instances={self.instances}: must be at least 1")

    @property
    def name(self) -> str:
        return getattr(self.main, "__name__", "app").replace("_", "-")


class ScenarioOutcome(NamedTuple):
    """The result of a seed: `violations` is empty if it passed."""

    seed: int
    violations: list[str]
    story: list[str]
    fault_count: int
    virtual_ms: int
    fingerprint: str
    """The same for each run of a seed that sent the same bytes at the same time."""

    @property
    def is_passed(self) -> bool:
        return not self.violations

    def __str__(self) -> str:
        head = f"seed {self.seed}: {self.fault_count} faults in {self.virtual_ms} ms"
        lines = [f"  {line}" for line in self.story]
        lines += [f"  VIOLATION {line}" for line in self.violations]
        return "\n".join([f"{head}, fingerprint {self.fingerprint}", *lines])


class ScenarioWorld(LiveBrokers):
    """A world that stands still, as a check sees it: topics, groups, and the apps' own data."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self.bootstrap_servers = cluster.bootstrap_servers
        self.kept: dict[Any, Any] = {}
        """The data of apps outside of their processes, as in a database; empty at the start."""

    @property
    def now_ms(self) -> int:
        """The milliseconds since the world began."""
        return self._cluster.world.now_ms

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine that does not wait, as no time passes; RuntimeError if it does."""
        asyncio._set_running_loop(self._cluster.world.loop)
        try:
            coroutine.send(None)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            asyncio._set_running_loop(None)
        coroutine.close()
        raise RuntimeError("a scenario's world stands still while it is looked at: do not wait")

    def _brokers(self) -> list[Broker]:
        return [
            host.broker
            for host in self._cluster.hosts
            if host.broker is not None and host.is_serving and host.is_running
        ]


class Instance:
    """One instance of an app: process after process, as a supervisor starts them."""

    def __init__(self, run: ScenarioRun, app: App, name: str) -> None:
        self.app = app
        self.name = name
        self.is_done = False
        self._run = run
        self.process = self._start()

    @property
    def is_running(self) -> bool:
        return self.process.is_running and not self.is_done

    def _start(self) -> AppProcess:
        process = self.process = AppProcess(self._run.world, self.name, self._run.names)
        process.run(self._live(process))
        return process

    def revive(self) -> None:
        """Start a new process if there is none."""
        if not self.process.is_alive and not self.is_done:
            self._run.note(f"{self.name} starts")
            self._start()

    def end_by(self, process: AppProcess, reason: str) -> None:
        """Kill a process if it is still there."""
        if process is self.process and process.is_alive and not self.is_done:
            process.kill()
            self._run.note(f"{self.name} {reason}")

    async def _live(self, process: AppProcess) -> None:
        try:
            await self._call()
        except self.app.may_raise as error:
            self._end(process, f"ends with {error!r}", is_done=False)
        except (Exception, SystemExit) as error:
            if self._end(process, f"fails with {error!r}", is_done=True):
                self._run.violations.append(f"{self.name}: {_place_of(error)}")
        except BaseException:  # it was cancelled: a stop
            self._end(process, "has stopped", is_done=False)
        else:
            self._end(process, "is done", is_done=not process.is_asked_to_stop)

    def _call(self) -> Coroutine[Any, Any, object]:
        world = self._run.view
        given = (world.bootstrap_servers, world)
        return self.app.main(*given[: len(inspect.signature(self.app.main).parameters)])

    def _end(self, process: AppProcess, how: str, is_done: bool) -> bool:
        """Note the end of a process, unless it was over; it is replaced if it is not done."""
        run = self._run
        if run.is_over or process is not self.process or not process.is_alive:
            return False
        run.note(f"{self.name} {how}")
        self.is_done = is_done
        run.world.loop.call_soon(process.kill)
        if not is_done:
            run.world.loop.add_timer(run.nemesis.random.randint(1, MAX_DEAD_MS), self.revive)
        return True


class ScenarioRun:
    """One seed: start, trouble, peace, and the check."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.world = World(seed)
        self.violations: list[str] = []
        self.notes: list[str] = []
        self.instances: list[Instance] = []
        self.is_over = False
        self.cluster = SimulatedCluster(self.world, scenario.brokers, **scenario.settings)
        self.names = _names_of_brokers(self.cluster)
        self.view = ScenarioWorld(self.cluster)
        self.nemesis = Nemesis(
            self.cluster,
            may_lose_power=False,
            more_faults=self._faults() * 2 if APPS in scenario.faults else (),
            kinds=scenario.faults,
        )
        self._ends: object = None
        self._changed_ms = 0

    def note(self, text: str) -> None:
        self.notes.append(f"{self.world.now_ms} ms: {text}")

    def run(self) -> ScenarioOutcome:
        with virtual_machine(self.world, self._note_log):
            try:
                self._tell()
            except TimelessError as error:
                self.violations.append(f"{self.world.now_ms} ms: {error}")
            outcome = ScenarioOutcome(
                self.world.seed,
                self.violations,
                list(heapq.merge(self.notes, self.nemesis.log, key=_ms_of)),
                len(self.nemesis.log),
                self.world.now_ms,
                f"{self.world.network.trace:08x}{self.world.step_count:08x}",
            )
            self.is_over = True
            self.world.close()
        return outcome

    def _tell(self) -> None:
        scenario, world = self.scenario, self.world
        for topic, partitions in scenario.topics.items():
            if not self._make_topic(topic, partitions):
                self.violations.append(f"topic {topic} was not created")
                return
        for app in scenario.apps:
            for number in range(app.instances):
                name = app.name if app.instances == 1 else f"{app.name}-{number + 1}"
                self.instances.append(Instance(self, app, name))
        self.nemesis.start()
        if world.run_until(lambda: bool(self.violations), scenario.trouble_ms):
            return
        self.nemesis.stop()
        self.note("peace: all is repaired")
        for instance in self.instances:
            instance.process.resume()
            instance.revive()
        self._changed_ms = world.now_ms
        self._look()
        self._await_right_end()

    def _make_topic(self, topic: str, partitions: int) -> bool:
        maker = TopicMaker(self.cluster, "maker", History())
        replicas = min(3, self.scenario.brokers)
        maker.process.spawn(maker.create(topic, partitions, replicas), "create the topic")
        return self.world.run_until(lambda: maker.is_done, START_LIMIT_MS)

    def _await_right_end(self) -> None:
        """Wait until all is quiet, and check, again and again; only the last one's error counts."""
        end_ms = self.world.now_ms + self.scenario.patience_ms
        wrong = self._wrong_after(self.scenario.quiet_ms)
        while wrong and self.world.now_ms < end_ms:
            self._changed_ms = self.world.now_ms
            wrong = self._wrong_after(RETRY_MS)
        if wrong:
            self.violations.append(wrong)

    def _wrong_after(self, quiet_ms: int) -> str:
        """The violations found when nothing was written for so long; nothing is empty."""
        self.world.run_until(
            lambda: bool(self.violations) or self._is_quiet(quiet_ms), PEACE_LIMIT_MS
        )
        if self.violations or self.scenario.check is None:
            return ""
        try:
            self.scenario.check(self.view)
        except Exception as error:
            return _place_of(error)
        return ""

    def _look(self) -> None:
        """Look now and then whether anything was written since the last time, also commits."""
        ends = [
            (*each.topic_partition, each.log.log_end_offset)
            for host in self.cluster.hosts
            for each in partitions_of(host)
        ]
        if ends != self._ends:
            self._ends, self._changed_ms = ends, self.world.now_ms
        self.world.loop.add_timer(LOOK_MS, self._look)

    def _is_quiet(self, quiet_ms: int) -> bool:
        return self.world.now_ms - self._changed_ms >= quiet_ms and self.cluster.is_serving

    def _note_log(self, process: AppProcess, text: str) -> None:
        if process.is_alive and not self.is_over:
            self.note(f"{process.host}: {text}")

    # Faults of apps; each returns its own description.

    def _faults(self) -> list[Callable[[random.Random], str]]:
        return [self._kill, self._stop, self._pause, self._cut_off]

    def _victim(self, chance: random.Random) -> Instance | None:
        running = [each for each in self.instances if each.app.is_struck and each.is_running]
        return chance.choice(running) if running else None

    def _kill(self, chance: random.Random) -> str:
        instance = self._victim(chance)
        if instance is None:
            return "kill no app"
        instance.process.kill()
        return f"kill {instance.name} for {self.nemesis.later(instance.revive, MAX_DEAD_MS)} ms"

    def _stop(self, chance: random.Random) -> str:
        instance = self._victim(chance)
        if instance is None:
            return "stop no app"
        process = instance.process
        process.stop()
        self.world.loop.add_timer(
            STOP_LIMIT_MS, lambda: instance.end_by(process, "did not stop, and is killed")
        )
        return f"stop {instance.name}"

    def _pause(self, chance: random.Random) -> str:
        instance = self._victim(chance)
        if instance is None:
            return "pause no app"
        instance.process.pause()
        delay_ms = self.nemesis.later(instance.process.resume, MAX_PAUSE_MS)
        return f"pause {instance.name} for {delay_ms} ms"

    def _cut_off(self, chance: random.Random) -> str:
        instance = self._victim(chance)
        if instance is None:
            return "cut no app off"
        hosts = [host.name for host in self.cluster.hosts]
        links = [(instance.name, host) for host in hosts]
        return self.nemesis.cut(links + [(host, instance.name) for host in hosts])


def scenario_of(path: Path, settings: Mapping[str, Any]) -> Scenario:
    """The `scenario` of a Python file, or one of its `main` and `check`; settings go before.

    ValueError where it has neither.
    """
    sys.path.insert(0, str(path.resolve().parent))
    try:
        program = runpy.run_path(str(path), run_name=path.stem)
    finally:
        del sys.path[0]
    given = dict(settings)
    instances = given.pop("instances", 1)
    scenario = program.get("scenario")
    if isinstance(scenario, Scenario):
        return replace(scenario, **given)
    main = program.get("main")
    if not inspect.iscoroutinefunction(main):
        raise ValueError(f"{path}: has neither a `scenario` nor a coroutine function `main`")
    return Scenario(App(main, instances), check=program.get("check"), **given)


def tell_file(path: Path, settings: Mapping[str, Any], seed: int) -> ScenarioOutcome:
    """Run one seed of the scenario in a file, which is loaded first, so that nothing is left."""
    return scenario_of(path, settings).tell(seed)


def _ms_of(line: str) -> int:
    return int(line.partition(" ")[0])


def _how_to_repeat() -> str:
    known = os.environ.get(HASH_SEED, "random")
    if known == "random":
        return f"(set {HASH_SEED}=0, so that a seed is repeated exactly: sets depend on it)"
    return f"(with {HASH_SEED}={known} it is repeated exactly)"


def _names_of_brokers(cluster: SimulatedCluster) -> dict[Address, Address]:
    """Brokers as they are on a developer's machine: localhost:9092, localhost:9093, ..."""
    return {
        (name, BROKER_PORT + index): (host.name, BROKER_PORT)
        for index, host in enumerate(cluster.hosts)
        for name in LOOPBACK
    }


def _place_of(error: BaseException) -> str:
    """The error, and the line of the program that raised it."""
    words = "".join(traceback.format_exception_only(error)).strip()
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if "site-packages" not in each.filename]
    if not own:
        return words
    return f"{words}\n    {own[-1].filename}:{own[-1].lineno}: {own[-1].line}"
