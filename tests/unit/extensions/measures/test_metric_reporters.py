"""Reporters that get a broker's metrics: found by name, called in turn, and never in the way."""

from __future__ import annotations

import json
import logging
from importlib.metadata import EntryPoint
from typing import ClassVar

import pytest
from http_pages import get, metrics_of

from ottla import Admin, ConfigResource
from ottla.config.broker_config import BrokerConfig
from ottla.errors import ConfigError, KafkaError
from ottla.extensions.measures import metric_reporters
from ottla.extensions.measures.health import why_not_ready
from ottla.extensions.measures.measures import Measures
from ottla.extensions.measures.metric_reporters import MetricReporters, load_reporter
from ottla.metrics import MetricsReporter
from ottla.metrics.metrics_registry import FamilyName, MetricsRegistry
from ottla.metrics.sensors import TICK_MS
from ottla.testing import InProcessBroker, mock_runtime, wait_until

STATE = "kafka.server:type=KafkaServer,name=BrokerState"
ME = __name__


class Keeper(MetricsReporter):
    """Keeps what it gets."""

    settings: ClassVar = {}
    reports: ClassVar = []
    is_closed = False

    def configure(self, settings):
        Keeper.settings = dict(settings)

    def report(self, beans):
        Keeper.reports.append(beans)

    def close(self):
        Keeper.is_closed = True


class Failing(MetricsReporter):
    """Its collector is away."""

    def report(self, beans):
        raise ConnectionError("nobody is there")


class Broken(MetricsReporter):
    """It cannot be made."""

    def __init__(self):
        raise OSError("no space left")

    def report(self, beans):
        raise AssertionError("it does not exist")


def dangerous():
    """Stands for os.abort: it must never be called to see what it gives."""
    raise SystemExit(1)


class Silent:
    """No reporter: it has no method `report`."""


@pytest.fixture(autouse=True)
def kept():
    Keeper.settings, Keeper.reports, Keeper.is_closed = {}, [], False


def settings(*reporters, **others):
    words = ",".join(f"{ME}:{each.__name__}" for each in reporters)
    return {"metric_reporters": words, "metric_reporters_interval_ms": "100", **others}


def test_reporter_gets_all_metrics_again_and_again():
    """Without a listener for HTTP; with the settings, but no secrets."""
    with InProcessBroker(
        **settings(Keeper, num_partitions="3", password_encoder_secret="sesame")
    ) as broker:
        wait_until(lambda: len(Keeper.reports) > 2, "three reports")
        assert broker.broker.find(Measures).listener is None
    names = {name.partition(":")[0] for name in Keeper.reports[-1]}

    assert Keeper.reports[-1][STATE] == {"Value": 3}
    assert {"kafka.server", "kafka.network", "kafka.log", "kafka.controller"} <= names
    assert Keeper.settings["num.partitions"] == "3"
    assert "sesame" not in Keeper.settings.values()
    assert Keeper.is_closed


def test_reporter_that_fails_is_logged_and_asked_again(caplog):
    """The others get theirs; the broker serves on."""
    with InProcessBroker(**settings(Failing, Keeper)) as broker:
        wait_until(lambda: len(Keeper.reports) > 1, "two reports")
        assert why_not_ready(broker.broker) is None
    failures = [each for each in caplog.records if each.levelno == logging.ERROR]

    assert any("Failing.report" in each.getMessage() for each in failures)


def test_reporters_and_the_listener_read_the_same():
    """Each is counted once, whoever asks."""
    with InProcessBroker(**settings(Keeper, metrics_listener="http://127.0.0.1:0")) as broker:
        wait_until(lambda: Keeper.reports, "a report")
        url = str(metrics_of(broker.broker).end_point)
        shown = json.loads(get(f"{url}/jolokia/read/{STATE}")[1])["value"]

    assert shown in [report[STATE] for report in Keeper.reports]


def test_installed_package_is_found_by_its_entry_point(monkeypatch):
    """As `pip install` of a package with one brings it."""
    entry = EntryPoint("keeper", f"{ME}:Keeper", metric_reporters.GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry])

    assert isinstance(load_reporter("keeper"), Keeper)


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        ("org.apache.kafka.common.metrics.JmxReporter", "must be module:Class"),
        ("no_such_module:Reporter", "cannot be imported"),
        (f"{ME}:Missing", "cannot be imported"),
        (f"{ME}:Silent", "must be a subclass of MetricsReporter"),
        (f"{ME}:dangerous", "must be a subclass of MetricsReporter"),
        (f"{ME}:Broken", "cannot be made"),
    ],
)
def test_what_is_no_reporter_is_told(word, complaint):
    """With the setting, the value and the rule."""
    with pytest.raises(ConfigError, match=f"metric.reporters={word}: {complaint}"):
        load_reporter(word)


def test_reporters_that_are_installed_are_named_to_whoever_asks_for_another(monkeypatch):
    """At the start as well as while the broker runs."""
    installed = []
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: installed)
    for ask in (load_reporter, lambda word: metric_reporters.check_reporters([word], [])):
        installed[:] = []
        with pytest.raises(ConfigError, match="none is installed"):
            ask("nobody")
        installed[:] = [EntryPoint(name, ME, metric_reporters.GROUP) for name in ("b", "a")]
        with pytest.raises(ConfigError, match="a, b"):
            ask("nobody")


def test_broker_does_not_start_without_its_reporter():
    """Rather than to report nothing for months."""
    with pytest.raises(ConfigError, match=r"metric\.reporters=nobody"):
        InProcessBroker(metric_reporters="nobody").start()


def test_reporters_come_and_go_while_the_broker_runs(monkeypatch):
    """The first one too; what is no installed reporter is refused, and not even imported."""
    entry = EntryPoint("keeper", f"{ME}:Keeper", metric_reporters.GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry])
    with InProcessBroker(metric_reporters_interval_ms="100") as broker:
        resource = ConfigResource.broker(broker.broker.broker_id)
        with Admin(broker.bootstrap_servers) as admin:
            for word in ("nobody", f"{ME}:Failing", f"{ME}:dangerous", "os:abort"):
                with pytest.raises(KafkaError, match="must be one that its file names"):
                    admin.alter_configs({resource: {"metric.reporters": word}})
            assert not Keeper.reports
            admin.alter_configs({resource: {"metric.reporters": "keeper"}})
            wait_until(lambda: len(Keeper.reports) > 1, "two reports")
            admin.alter_configs({resource: {}})
            wait_until(lambda: Keeper.is_closed, "the reporter is closed")
    assert Keeper.reports[-1][STATE] == {"Value": 3}
    assert "metric.reporters.interval.ms" in Keeper.settings


INTERVAL_MS = 1_000
GAUGE = FamilyName("kafka.server", "Readings", "Count")


class World:
    """Reporters in virtual time, of a registry whose one gauge counts how often it is read."""

    def __init__(self, *reporters, is_own=False):
        self.runtime = mock_runtime()
        words = ",".join(f"{ME}:{each.__name__}" for each in reporters)
        given = {"metric.reporters": words} if words else {}
        config = BrokerConfig.parse({**given, "metric.reporters.interval.ms": str(INTERVAL_MS)})
        registry = None if is_own else MetricsRegistry(self.runtime)
        self.reporters = MetricReporters(self.runtime, config, registry)
        self.readings = 0
        self.reporters.registry.gauge(GAUGE, "How often it was read.", self.read)

    def read(self):
        self.readings += 1
        return self.readings

    def measure(self):
        self.reporters.measure(self)

    def close(self):
        self.runtime.scheduler.run(self.reporters.close())


def test_reports_come_at_each_interval_until_the_end():
    """A broker that stops calls nobody any longer."""
    world = World(Keeper)
    world.measure()
    world.runtime.advance(INTERVAL_MS - 1)
    assert Keeper.reports == []
    world.runtime.advance(2 * INTERVAL_MS + 10)
    assert [report[GAUGE.bean()] for report in Keeper.reports] == [
        {"Value": count} for count in (1, 2, 3)
    ]
    world.close()
    world.runtime.advance(5 * INTERVAL_MS)

    assert len(Keeper.reports) == 3
    assert Keeper.is_closed


def test_reporters_that_never_began_to_report_are_closed():
    """A start that failed in the middle ends them, too."""
    world = World(Keeper)
    world.close()

    assert Keeper.is_closed


def test_nothing_is_read_where_there_is_no_reporter():
    """The last one may have been taken out of the settings."""
    world = World()
    world.measure()
    world.runtime.advance(3 * INTERVAL_MS)

    assert world.readings == 0


def test_slow_reporter_gets_fewer_reports(monkeypatch):
    """They do not pile up: the next one comes when the last one is done."""
    world = World(Keeper)
    world.measure()
    held = []

    async def hold(job):
        held.append(world.runtime.scheduler.loop.create_future())
        await held[-1]
        job()

    monkeypatch.setattr(type(world.runtime.background), "run", lambda self, job: hold(job))
    world.runtime.advance(5 * INTERVAL_MS)
    assert (world.readings, len(held)) == (1, 1)
    held[0].set_result(None)
    world.runtime.advance(INTERVAL_MS)

    assert (len(Keeper.reports), world.readings, len(held)) == (1, 2, 2)
    held[1].set_result(None)
    world.runtime.advance(0)


def test_registry_of_its_own_is_measured_and_ticked_until_the_end(monkeypatch):
    """Where metrics are served as well, their listener does both."""
    made, ticks = [], []

    class Metrics:
        def __init__(self, parts, registry):
            made.append(registry)

        def close(self):
            made.clear()

    monkeypatch.setattr("ottla.extensions.measures.metric_reporters.BrokerMetrics", Metrics)
    served, own = World(Keeper), World(Keeper, is_own=True)
    for world in (served, own):
        world.reporters.registry.on_tick(lambda world=world: ticks.append(world))
        world.measure()
        world.runtime.advance(TICK_MS)
    assert made == [own.reporters.registry]
    assert ticks == [own]
    for world in (served, own):
        world.close()
        world.runtime.advance(TICK_MS)

    assert (made, ticks) == ([], [own])


def test_installed_package_that_is_no_reporter_is_refused_while_the_broker_runs(monkeypatch):
    """Its name alone does not make it one."""
    entry = EntryPoint("silent", f"{ME}:Silent", metric_reporters.GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry])

    with pytest.raises(ConfigError, match="must be a subclass"):
        metric_reporters.check_reporters(["silent"], [])
