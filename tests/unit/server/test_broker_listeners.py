"""Listeners that come and go while a broker runs, and what a failed log directory ends."""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.errors import ConfigError
from ottla.network.listener_security import LAYERS, BrokerLogins, Layers
from ottla.network.socket_config import network_config
from ottla.runtime.host_name import canonical_host_name
from ottla.server.broker_listeners import BrokerListeners
from ottla.server.log_dir_failure_handler import LogDirFailureHandler
from ottla.structs import TopicPartition
from ottla.testing import mock_runtime

PROTOCOLS = "A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT,S:SASL_PLAINTEXT,R:SASL_PLAINTEXT"


def settings(listeners, **others):
    return BrokerConfig.parse(
        {
            "listeners": listeners,
            "listener.security.protocol.map": PROTOCOLS,
            "inter.broker.listener.name": "A",
            **({"sasl.enabled.mechanisms": "SCRAM-SHA-256"} if {"S", "R"} & set(listeners) else {}),
            **{name.replace("_", "."): value for name, value in others.items()},
        }
    )


def new_login(config, name, started):
    """Stands for a login of a listener, and notes its start."""
    return SimpleNamespace(on_start=[lambda runtime: started.append((name, runtime))])


@pytest.fixture(autouse=True)
def login(monkeypatch):
    """The listeners S and R have the login of this file."""
    monkeypatch.setitem(LAYERS, "SASL_PLAINTEXT", Layers(login=f"{__name__}:new_login"))


class Client:
    """A connection of a client to one of the listeners."""

    def __init__(self, listener_name):
        self.listener_name = listener_name
        self.closed = None

    def close(self, reason):
        self.closed = reason


class Processor:
    """It listens at ports 9001, 9002, ... where none is wanted; some hosts are taken."""

    def __init__(self):
        self.open = {}
        self.network = None
        self.connections = [Client(name) for name in "ABS"]
        self.taken = set()
        self.last_port = 9000

    def update_config(self, network):
        self.network = network

    def listen(self, name, host, port):
        if host in self.taken:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        self.last_port += 1
        self.open[name] = host, port or self.last_port
        return SimpleNamespace(port=port or self.last_port)

    def stop_listening(self, name):
        del self.open[name]

    @property
    def closed(self):
        return [each.listener_name for each in self.connections if each.closed]


class Tls:
    """It notes what it is asked for."""

    def __init__(self):
        self.calls = []

    def follow_listeners(self, config):
        self.calls.append(config)

    def start(self, runtime):
        self.calls.append(runtime)


class World:
    """A broker with the listener A, whose other listeners the tests add and remove."""

    def __init__(self, listeners="A://:0"):
        self.runtime, self.processor, self.tls = mock_runtime(), Processor(), Tls()
        self.started = []
        config = settings(listeners)
        logins = BrokerLogins(config, self.started)
        network = network_config(config, SimpleNamespace(listeners={}), logins)
        self.listeners = BrokerListeners(self.runtime, self.processor, network, self.tls, logins)
        self.listeners.open(config)

    def follow(self, listeners, **others):
        """Whether what is advertised has changed."""
        return self.listeners.follow(settings(listeners, **others))

    @property
    def advertised(self):
        return [(each.listener_name, each.host, each.port) for each in self.listeners.end_points]


def test_real_ports_and_the_name_of_the_machine_are_advertised():
    """What the settings name is advertised as it is there."""
    world = World("A://:0,B://b.example:9093")

    assert world.processor.open == {"A": ("", 9001), "B": ("b.example", 9093)}
    assert world.advertised == [("A", canonical_host_name(), 9001), ("B", "b.example", 9093)]


def test_listener_that_is_added_is_opened_and_advertised():
    """The broker's list of them is the same one as before, which others have kept."""
    world = World()
    kept = world.listeners.end_points

    assert world.follow("A://:0,B://b.example:9093")
    assert world.processor.open["B"] == ("b.example", 9093)
    assert kept == world.listeners.end_points
    assert [name for name, _, _ in world.advertised] == ["A", "B"]
    assert len(world.tls.calls) == 2
    assert world.tls.calls[1] is world.runtime
    assert world.processor.closed == []


def test_listener_that_is_removed_is_closed_with_its_connections():
    """The clients of the others go on, and nobody is sent to it any longer."""
    world = World("A://:0,B://:0")

    assert world.follow("A://:0")
    assert list(world.processor.open) == ["A"]
    assert world.processor.closed == ["B"]
    assert [name for name, _, _ in world.advertised] == ["A"]
    assert world.tls.calls


def test_other_settings_leave_the_listeners_as_they_are():
    """New limits of connections are handed on none the less."""
    world = World("A://:0,B://:0")

    assert not world.follow("A://:0,B://:0", max_connections="7")
    assert world.processor.network.max_connections == 7
    assert (world.processor.closed, world.tls.calls) == ([], [])
    assert len(world.processor.open) == 2


def test_advertised_address_is_followed_alone():
    """The listener keeps its port."""
    world = World()

    assert world.follow("A://:0", advertised_listeners="A://outside.example:19092")
    assert world.advertised == [("A", "outside.example", 19092)]
    assert world.processor.open == {"A": ("", 9001)}


def test_listener_that_cannot_be_opened_is_reported_and_the_others_are_opened(caplog):
    """It is not advertised, and is tried again with the next change."""
    world = World()
    world.processor.taken = {"b.example"}

    assert world.follow("A://:0,B://b.example:0,C://:0")
    assert [name for name, _, _ in world.advertised] == ["A", "C"]
    assert "B://b.example:0 cannot be opened: Address already in use" in caplog.text
    world.processor.taken = set()
    assert world.follow("A://:0,B://b.example:0,C://:0")
    assert [name for name, _, _ in world.advertised] == ["A", "B", "C"]


def test_only_listeners_with_a_login_get_what_judges_it():
    """It is started for a listener that is new, and dropped with it."""
    world = World()
    world.follow("A://:0,S://:0,B://:0")
    first = world.processor.network.sasl["S"]
    world.follow("A://:0,S://:0,R://:0")

    assert world.started == [("S", world.runtime), ("R", world.runtime)]
    assert world.processor.network.sasl.keys() == {"S", "R"}
    assert world.processor.network.sasl["S"] is first
    world.follow("A://:0,R://:0")
    assert world.processor.network.sasl.keys() == {"R"}


def log_dir(path):
    return SimpleNamespace(path=path, is_offline=True)


class Replicas:
    """Each directory has a partition, whose name is that of the directory; /empty has none."""

    broker_id = 3
    log_manager = None
    offline_partitions: frozenset = frozenset()

    def __init__(self):
        self.failed = []

    def on_log_dir_failure(self, failed):
        self.failed.append(failed.path)
        return [] if failed.path == "/empty" else [TopicPartition(failed.path, 0)]


class Failures:
    """A broker with three log directories, the first of which may have the registry."""

    def __init__(self, dirs="/a/,/b,/empty", **others):
        self.runtime, self.replicas = mock_runtime(), Replicas()
        self.told, self.ends = [], 0
        config = BrokerConfig.parse({"log.dirs": dirs, **others})
        self.handler = LogDirFailureHandler(self.runtime, config)
        self.handler.on_fatal = self.end

    def end(self):
        self.ends += 1

    async def on_log_dir_event(self, broker_id):
        self.told.append(broker_id)

    def serve(self):
        self.handler.serve(self.replicas, self)
        self.runtime.advance(0)

    def fail(self, *paths):
        for path in paths:
            self.handler.on_failure(log_dir(path))
        self.runtime.advance(0)


ELSEWHERE = {"zookeeper.connect": "here:2181"}


def test_partitions_of_a_failed_directory_are_told_to_the_controller(caplog):
    """The broker serves on; a directory without partitions is nothing to the controller."""
    failures = Failures(**ELSEWHERE)
    failures.serve()
    failures.fail("/b")
    assert (failures.replicas.failed, failures.told) == (["/b"], [3])
    assert "/b is offline, and with it /b-0" in caplog.text
    failures.fail("/empty")

    assert (failures.replicas.failed, failures.told) == (["/b", "/empty"], [3])
    assert (failures.ends, failures.handler.is_fatal) == (0, False)


def test_directory_that_failed_before_the_broker_served_is_told_when_it_serves():
    """Nothing is asked of parts that do not exist yet."""
    failures = Failures(**ELSEWHERE)
    failures.fail("/b")
    assert failures.told == []
    failures.serve()

    assert (failures.replicas.failed, failures.told) == (["/b"], [3])


@pytest.mark.parametrize(
    ("others", "dirs", "failed", "is_fatal"),
    [
        ({}, "/a/,/b", ["/a"], True),
        ({}, "/,/b", ["/"], True),
        ({}, "/a/,/b", ["/b"], False),
        (ELSEWHERE, "/a/,/b", ["/a"], False),
        (ELSEWHERE, "/a/,/b", ["/b", "/a"], True),
    ],
)
def test_broker_stops_without_its_registry_or_its_last_directory(others, dirs, failed, is_fatal):
    """It stops once, and does nothing more about directories that fail afterwards."""
    failures = Failures(dirs, **others)
    failures.serve()
    failures.fail(*failed)
    assert (failures.handler.is_fatal, failures.ends) == (is_fatal, int(is_fatal))
    handled = len(failures.replicas.failed)
    failures.fail("/c")

    assert len(failures.replicas.failed) == handled + (not is_fatal)


def test_broker_does_not_start_without_the_directory_of_its_registry():
    """With the registry elsewhere it can serve from the other directories."""
    logs = SimpleNamespace(dirs=[SimpleNamespace(path="/a", is_offline=True), log_dir("/b")])
    Failures(**ELSEWHERE).handler.check_registry_dir(logs)
    with pytest.raises(ConfigError, match=r"log\.dirs=/a"):
        Failures().handler.check_registry_dir(logs)
    logs.dirs[0].is_offline = False
    Failures().handler.check_registry_dir(logs)
