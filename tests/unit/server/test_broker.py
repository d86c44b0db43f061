"""A broker's life: what it takes over, in what order it starts and stops, and who it is."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from broker_world import LOG_DIR, BrokerWorld

from ottla.controller.controller import Controller
from ottla.errors import ConfigError
from ottla.log.log_manager import LogManager
from ottla.network.broker_tls import BrokerTls
from ottla.network.listener_security import LAYERS, Layers
from ottla.replication.replica_manager import ReplicaManager
from ottla.server import extension
from ottla.server.cluster_link import ClusterLink
from ottla.server.extension import Extension
from ottla.server.handlers.api_versions import Features
from ottla.server.membership import BrokerState

ME = __name__
IN_CLUSTER = {"zookeeper_connect": "here:2181", "broker_id": 0}


class Noted(Extension):
    """A feature that notes when its hooks are called."""

    world: BrokerWorld

    async def start(self):
        self.world.note("feature.start")

    def before_logs(self):
        self.world.note("feature.before_logs")

    async def before_clients(self):
        self.world.note("feature.before_clients")

    async def after_logs(self):
        self.world.note("feature.after_logs")

    def begin(self):
        self.world.note("feature.begin")

    def stop(self):
        self.world.note("feature.stop")

    def wrap(self):
        self.world.note("feature.wrap")

    async def leave(self):
        self.world.note("feature.leave")

    async def close(self):
        self.world.note("feature.close")


@pytest.fixture
def noted(monkeypatch):
    """A setting that every broker has wants a feature, which attaches to the next broker."""
    monkeypatch.setattr(extension, "EXTENSIONS", {"log.dirs": f"{ME}:Noted"})


def note_start(world, monkeypatch):
    """Note the steps of a start that are calls of other parts."""
    for owner, method, step in (
        (LogManager, "startup", "recovery"),
        (Controller, "startup", "election"),
        (ReplicaManager, "join_cluster", "others"),
        (ReplicaManager, "startup", "replicas"),
        (BrokerTls, "start", "tls.start"),
        (Features, "start", "features.start"),
        (ClusterLink, "wait_for_metadata", "metadata"),
    ):
        made = getattr(owner, method)

        def call(*arguments, made=made, step=step):
            world.note(step)
            return made(*arguments)

        monkeypatch.setattr(owner, method, call)
    world.spy(world.registry, "start", "registry")


@pytest.mark.parametrize("settings", [IN_CLUSTER, {}], ids=["cluster", "alone"])
def test_broker_starts_in_the_order_in_which_its_parts_need_each_other(
    noted, monkeypatch, settings
):
    """No client is served before the logs are recovered and the broker is a member."""
    world = BrokerWorld(**settings)
    Noted.world = world
    note_start(world, monkeypatch)
    assert world.broker.state is BrokerState.NOT_RUNNING
    world.start()

    others = [("others", "STARTING")] if settings else []
    last = [("metadata", "STARTING")] if settings else []
    assert world.steps == [
        ("feature.start", "STARTING"),
        ("feature.before_logs", "STARTING"),
        ("registry", "STARTING"),
        ("feature.before_clients", "STARTING"),
        ("features.start", "STARTING"),
        ("recovery", "RECOVERY"),
        ("feature.after_logs", "STARTING"),
        ("listen", "STARTING"),
        *others,
        ("feature.wrap", "STARTING"),
        ("feature.begin", "STARTING"),
        ("replicas", "STARTING"),
        ("election", "STARTING"),
        ("processor.start", "STARTING"),
        ("tls.start", "STARTING"),
        *last,
    ]
    assert world.broker.state is BrokerState.RUNNING
    assert world.broker.membership.is_registered


STOPS = (
    ("link.controlled_shutdown", "PENDING_CONTROLLED_SHUTDOWN"),
    ("feature.leave", "SHUTTING_DOWN"),
    ("membership.leave", "SHUTTING_DOWN"),
    ("controller.shutdown", "SHUTTING_DOWN"),
    ("coordinators.shutdown", "SHUTTING_DOWN"),
    ("replica_manager.shutdown", "SHUTTING_DOWN"),
    ("processor.stop", "SHUTTING_DOWN"),
    ("dynamic_config.stop", "SHUTTING_DOWN"),
    ("tls.stop", "SHUTTING_DOWN"),
    ("features.stop", "SHUTTING_DOWN"),
    ("feature.stop", "SHUTTING_DOWN"),
    ("link.close", "SHUTTING_DOWN"),
    ("registry.close", "SHUTTING_DOWN"),
    ("log_manager.shutdown", "SHUTTING_DOWN"),
    ("feature.close", "SHUTTING_DOWN"),
)


@pytest.mark.parametrize("settings", [IN_CLUSTER, {}], ids=["cluster", "alone"])
def test_every_part_of_a_broker_is_stopped(noted, settings, core_source):
    """Waiting clients are answered before their connections are closed, and logs end last."""
    world = BrokerWorld(**settings)
    Noted.world = world
    world.start()
    world.steps.clear()
    expected = [step for step in STOPS if settings or not step[0].startswith("link.")]
    for step, _ in expected:
        part, method = step.split(".")
        if part not in ("processor", "feature"):
            world.spy(getattr(world.broker, part), method, step)
    world.stop()

    assert world.steps == expected
    assert world.broker.replica_manager.is_leaving


def test_broker_without_its_disks_hands_no_leaders_over():
    """It could not say which partitions it leads."""
    world = BrokerWorld(**IN_CLUSTER).start()
    world.broker.log_dir_failures.is_fatal = True
    asked = world.spy(world.broker.link, "controlled_shutdown")
    world.stop()

    assert asked == []


def test_failed_start_leaves_nothing_behind(noted):
    """The cluster would think that the broker lives, and metrics would be served for ever."""
    world = BrokerWorld()
    Noted.world = world
    closed = world.spy(world.registry, "close")
    world.refused = OSError("in use")
    with pytest.raises(OSError, match="in use"):
        world.start()

    assert len(closed) == 1
    assert world.steps[-1] == ("feature.close", "STARTING")


# Who the broker is


def test_broker_without_an_id_has_the_same_one_for_ever():
    """Its first process is given one, and the log directories keep it."""
    world = BrokerWorld(broker_id=-1).start()
    first = world.broker.broker_id
    assert first >= 0
    world = world.again(broker_id=-1)

    assert world.broker.broker_id == first


@pytest.mark.parametrize("broker_id", [6, 0])
def test_log_directories_of_another_broker_are_refused(broker_id):
    """Its id would be told for another one's data."""
    world = BrokerWorld(broker_id=5).start()
    assert world.broker.broker_id == 5
    world.stop()

    with pytest.raises(ConfigError, match="it belongs to"):
        BrokerWorld(world.disk, broker_id=broker_id).start()


def lose_registry(world):
    """What the broker knew of its topics is gone, and its partitions are there."""
    world.disk.end_process()
    world.disk.remove_tree(f"{LOG_DIR}/registry")


def test_log_directories_of_another_cluster_are_refused():
    """With ZooKeeper the cluster has its id there; the embedded registry takes that of the disk."""
    world = BrokerWorld(broker_id=0).start()
    cluster_id = world.broker.cache.cluster_id
    world.stop()
    lose_registry(world)
    with pytest.raises(ConfigError, match=cluster_id):
        BrokerWorld(world.disk, **IN_CLUSTER).start()
    lose_registry(world)
    after = BrokerWorld(world.disk).start()

    assert (after.broker.broker_id, after.broker.cache.cluster_id) == (0, cluster_id)


def test_broker_does_not_start_on_partitions_that_its_registry_does_not_know():
    """It has written nothing that Kafka would not know."""
    world = BrokerWorld().start()
    world.create("t", segment_bytes=5_000)
    world.stop()
    lose_registry(world)
    with pytest.raises(ConfigError, match="has 1 partition"):
        BrokerWorld(world.disk).start()

    assert not world.disk.exists(f"{LOG_DIR}/registry")


def test_broker_does_not_start_without_the_directory_of_its_registry(monkeypatch):
    """The others alone do not know the topics."""
    world = BrokerWorld(log_dirs=f"{LOG_DIR},/other")
    world.disk.make_dirs("/other")
    made = LogManager.acquire

    def fail(logs):
        owner = made(logs)
        logs.dirs[0].is_offline = True
        return owner

    monkeypatch.setattr(LogManager, "acquire", fail)
    with pytest.raises(ConfigError, match="keeps the registry"):
        world.start()


@pytest.mark.parametrize(
    ("listeners", "is_told"),
    [(None, True), ("PLAINTEXT://localhost:9092", False), ("PLAINTEXT://:9092", False)],
)
def test_broker_that_only_this_machine_can_reach_says_so(caplog, listeners, is_told):
    """Unless somebody has chosen that."""
    caplog.set_level(logging.INFO)
    BrokerWorld(**({} if listeners is None else {"listeners": listeners})).start()

    assert ("This machine alone is served" in caplog.text) is is_told


def new_login(config, listener_name, users):
    """Stands for a login of a listener, and notes its start."""
    return SimpleNamespace(on_start=[started.append])


started: list[Any] = []


def test_logins_that_need_a_start_are_started(monkeypatch):
    """Keys of an identity provider are fetched before the first client comes."""
    monkeypatch.setitem(LAYERS, "PLAINTEXT", Layers(login=f"{__name__}:new_login"))
    world = BrokerWorld().start()

    assert started == [world.runtime]


def test_broker_stops_when_the_directory_of_its_registry_fails():
    """It is told by the logs, from the moment on in which it serves."""
    world, ends = BrokerWorld().start(), []
    world.broker.log_dir_failures.on_fatal = lambda: ends.append(True)
    (log_dir,) = world.broker.log_manager.dirs
    log_dir.is_offline = True
    world.broker.log_dir_failures.on_failure(log_dir)
    world.runtime.advance(10)

    assert ends == [True]
