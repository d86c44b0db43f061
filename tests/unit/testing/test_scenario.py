"""A scenario: what becomes of apps, of their errors, and of the check; and what a story says."""

from __future__ import annotations

import asyncio
import gc

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError

from ottla.testing import App, Scenario, ScenarioFailedError, ScenarioWorld
from ottla.testing.simulation.world import World

SECOND_MS = 1_000
MAX_SEEDS = 20
"""So many seeds at most until one strikes as a test needs it."""


def scenario(*apps, **settings) -> Scenario:
    """A short one: a broker, no faults unless they are asked for."""
    alone = {"offsets.topic.replication.factor": 1, "min.insync.replicas": 1}
    alone["default.replication.factor"] = 1
    given = {"faults": (), "trouble_ms": 2 * SECOND_MS, "quiet_ms": SECOND_MS, **settings}
    return Scenario(apps, brokers=1, settings=alone, **given)


async def wait_for_ever():
    await asyncio.Event().wait()


def test_app_may_take_the_servers_and_the_world():
    """Main has as many arguments as it has parameters."""
    seen = []

    async def none():
        seen.append(())

    async def servers(bootstrap_servers):
        seen.append((bootstrap_servers,))

    async def both(bootstrap_servers, world):
        seen.append((bootstrap_servers, type(world)))

    assert scenario(none, servers, both).tell(1).is_passed
    address = "broker-1:9092"
    assert sorted(seen) == [(), (address,), (address, ScenarioWorld)]


def test_app_on_anyio_runs():
    """FastStream's: it asks the loop who makes tasks."""
    anyio = pytest.importorskip("anyio", reason="anyio is not installed")

    async def app():
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 0.5)

    assert scenario(app).tell(1).is_passed


def test_error_of_an_app_fails_the_seed():
    """The story names the app, the error and the line that raised it."""

    async def broken_app():
        await asyncio.sleep(1)
        raise KeyError("price")

    with pytest.raises(ScenarioFailedError) as raised:
        scenario(broken_app).run([7])

    story = str(raised.value)
    assert story.startswith("seed 7: 0 faults in ")
    assert "broken-app fails with KeyError('price')" in story
    assert "VIOLATION broken-app: KeyError: 'price'" in story
    assert f"{__file__}:" in story
    assert 'raise KeyError("price")' in story
    assert "PYTHONHASHSEED" in story


def test_error_that_an_app_may_raise_only_starts_it_again():
    """An instance that ends with such an error gets a new process, as from a supervisor."""

    async def app(servers, world):
        world.kept["starts"] = world.kept.get("starts", 0) + 1
        await asyncio.sleep(0.1)
        if world.kept["starts"] < 3:
            raise ConnectionError("the broker is away")

    def check(world):
        assert world.kept == {"starts": 3}

    restarted = App(app, may_raise=(ConnectionError,))
    assert scenario(restarted, check=check, trouble_ms=20 * SECOND_MS).tell(1).is_passed


def test_check_that_fails_is_told_with_its_line():
    """What the check raises is the violation."""

    def check(world):
        assert world.topics() == ["orders"], "no orders"

    outcome = scenario(wait_for_ever, check=check).tell(1)

    assert not outcome.is_passed
    assert "no orders" in outcome.violations[0]
    assert __file__ in outcome.violations[0]


def test_app_that_comes_right_late_passes():
    """A consumer of aiokafka's may ask a broker that leads no more until its metadata are old."""

    async def late(servers, world):
        await asyncio.sleep(300)
        world.kept["is_right"] = True

    def check(world):
        assert world.kept.get("is_right"), "it is not right yet"

    assert scenario(late, check=check).tell(1).is_passed
    (violation,) = scenario(late, check=check, patience_ms=60 * SECOND_MS).tell(1).violations
    assert "not right yet" in violation


def test_check_cannot_wait():
    """While the check looks at it, the world stands still."""

    def check(world):
        world.wait_for_records("orders", 1)

    (violation,) = scenario(wait_for_ever, check=check).tell(1).violations
    assert "stands still" in violation


def test_apps_are_killed_stopped_and_started_again():
    """Each life of an instance gets a process; no more than one lives at a time."""

    async def app(servers, world):
        lives = world.kept.setdefault("lives", [])
        lives.append("begins")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            lives.append("stops")
            raise

    def check(world):
        checked.append([*world.kept["lives"]])
        assert checked[-1][-1] == "begins"

    checked: list[list[str]] = []
    struck = scenario(
        app, check=check, faults=["apps"], trouble_ms=60 * SECOND_MS, quiet_ms=10 * SECOND_MS
    )
    wanted = ("kill app for", "stop app", "app has stopped")
    for outcome in map(struck.tell, range(1, MAX_SEEDS + 1)):
        assert outcome.is_passed, outcome
        if all(any(words in line for line in outcome.story) for words in wanted):
            break
    else:
        pytest.fail(f"of {MAX_SEEDS} seeds none kills an app and stops it, too")
    assert checked[-1].count("begins") > checked[-1].count("stops") > 0


def test_app_that_is_not_struck_lives_on():
    """Faults of apps have no victim where no app may be struck."""
    starts = []

    async def app():
        starts.append(1)
        await asyncio.Event().wait()

    outcome = scenario(App(app, is_struck=False), faults=["apps"], trouble_ms=20_000).tell(3)
    assert outcome.fault_count > 0
    assert len(starts) == 1


def test_brokers_are_at_localhost_as_well():
    """A program that names localhost:9092 needs no other name here."""

    async def app():
        async with AIOKafkaProducer(bootstrap_servers="localhost:9092") as producer:
            await producer.send_and_wait("orders", b"1", timestamp_ms=5)

    def check(world):
        (record,) = world.records("orders")
        assert (record.value, record.timestamp_ms) == (b"1", 5)

    scenario(app, check=check, topics={"orders": 1}).run([1])


def test_nothing_of_a_world_is_left():
    """A seed costs no memory for good, although apps were ended in the middle of what they did."""

    async def app(servers):
        async with AIOKafkaConsumer("orders", bootstrap_servers=servers, group_id="g") as consumer:
            await consumer.getone()

    gc.collect()  # tests before this one may have failed, or left what only a collection frees
    before = {id(each) for each in gc.get_objects() if isinstance(each, World)}
    assert scenario(app, topics={"orders": 1}, faults=["apps"], trouble_ms=20_000).tell(3)
    worlds = [id(each) for each in gc.get_objects() if isinstance(each, World)]
    assert not set(worlds) - before


def test_port_where_no_broker_listens_is_refused():
    """There is no second broker in a cluster of one."""

    async def app():
        producer = AIOKafkaProducer(bootstrap_servers="localhost:9093")
        try:
            with pytest.raises(KafkaConnectionError):
                await producer.start()
        finally:
            await producer.stop()

    scenario(app).run([1])


def test_faults_are_checked():
    """A fault that there is not is named, with those that there are."""
    with pytest.raises(ValueError, match=r"faults=\['disks'\]: must be among apps, brokers, "):
        Scenario(wait_for_ever, faults=["disks"])
    with pytest.raises(ValueError, match="brokers=0"):
        Scenario(wait_for_ever, brokers=0)
