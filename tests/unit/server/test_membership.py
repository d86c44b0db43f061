"""Joining a cluster: predecessors, namesakes and other brokers, and sessions that expire."""

from __future__ import annotations

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.controller.broker_registration import ensure_persistent_paths, register_broker
from ottla.controller.controller import Controller
from ottla.errors import ErrorCode, KafkaError
from ottla.registry import paths
from ottla.registry.embedded import EmbeddedRegistry
from ottla.registry.tree import SessionEndedError, SessionState
from ottla.registry.zookeeper import ZooKeeperRegistry
from ottla.server.membership import RETRY_MS, Membership, cluster_registry
from ottla.structs import EndPoint
from ottla.testing import mock_runtime

SESSION_MS = 6000
ADDRESS = EndPoint("PLAINTEXT", "PLAINTEXT", "host", 9092)


class SilentChannel:
    """Brokers that are told everything, and none of which has a failed disk."""

    def leader_and_isr(self, *told):
        pass

    add_broker = remove_broker = update_metadata = stop_replica = leader_and_isr


class Registry(EmbeddedRegistry):
    """The embedded registry, with a session that can end."""

    session_watch = None
    has_ended = False

    def watch_session(self, callback):
        self.session_watch = callback
        return super().watch_session(callback)

    async def create(self, path, data, **kind):
        if self.has_ended:
            raise SessionEndedError("the session has ended")
        return await super().create(path, data, **kind)

    async def expire(self):
        """All ephemeral nodes go, as on a server."""
        for path in (paths.CONTROLLER, paths.broker(0)):
            if await self.exists(path) is not None:
                await self.delete(path)
        self.session_watch(SessionState.EXPIRED)


class World:
    """Broker 0 and its registry, in virtual time."""

    def __init__(self) -> None:
        self.runtime = mock_runtime()
        self.registry = Registry(self.runtime, "/registry")
        self.config = BrokerConfig.parse({"zookeeper.session.timeout.ms": SESSION_MS})
        self.controller = Controller(
            self.runtime, self.registry, self.config, SilentChannel(), broker_id=0
        )
        self.membership = Membership(
            self.runtime, self.registry, self.config, self.controller, [ADDRESS]
        )
        self.run(self.registry.start())
        self.run(ensure_persistent_paths(self.registry))

    def run(self, coroutine):
        return self.runtime.scheduler.run(coroutine)

    def names(self):
        return self.run(self.registry.children(paths.BROKER_IDS))

    def join(self):
        """Begin to join; the task."""
        task = self.runtime.scheduler.spawn(self.membership.join(), "join")
        self.runtime.advance(0)
        return task

    def leave_node_of_predecessor(self):
        """A process with the same addresses was killed a moment ago."""
        self.run(register_broker(self.registry, 0, [ADDRESS], 0))


@pytest.fixture
def world() -> World:
    """A cluster without brokers."""
    return World()


def test_broker_joins_and_is_the_controller(world):
    """Its node is there, and it was elected."""
    world.run(world.membership.join())

    assert world.names() == ["0"]
    assert world.controller.is_active
    stat = world.run(world.registry.exists(paths.broker(0)))
    assert world.membership.broker_epoch == stat.created_id


def test_predecessor_is_waited_for(world):
    """As soon as its node is gone the broker registers."""
    world.leave_node_of_predecessor()
    task = world.join()
    world.runtime.advance(SESSION_MS - 1)
    assert not task.done()
    world.run(world.registry.delete(paths.broker(0)))
    world.runtime.advance(1)

    assert task.done()
    assert task.exception() is None
    assert world.controller.is_active


def test_namesake_that_lives_is_refused(world):
    """It advertises the same addresses, but its session does not expire."""
    world.leave_node_of_predecessor()
    task = world.join()
    world.runtime.advance(2 * SESSION_MS)

    assert task.done()
    assert task.exception().error is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_namesake_elsewhere_is_refused_at_once(world):
    """Another address: it is no predecessor."""
    world.leave_node_of_predecessor()
    world.membership.end_points = [ADDRESS._replace(port=9093)]
    with pytest.raises(KafkaError, match=r"broker\.id=0: a broker of this id is registered"):
        world.run(world.membership.join())


def test_expired_session_is_followed_by_a_new_membership(world):
    """The controller decides nothing in between, and has a new epoch afterwards."""
    world.run(world.membership.join())
    world.run(world.registry.expire())
    assert not world.controller.is_active
    world.registry.session_watch(SessionState.RENEWED)
    world.runtime.advance(0)

    assert world.names() == ["0"]
    assert world.controller.is_active
    assert world.controller.context.epoch == 2


def test_session_that_ends_again_is_left_to_the_next(world, caplog):
    """The attempt ends quietly; the session after it begins another one."""
    world.run(world.membership.join())
    world.run(world.registry.expire())
    world.registry.has_ended = True
    world.registry.session_watch(SessionState.RENEWED)
    world.runtime.advance(10)
    assert world.names() == []
    world.registry.has_ended = False
    world.registry.session_watch(SessionState.RENEWED)
    world.runtime.advance(0)

    assert world.names() == ["0"]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_attempt_that_failed_after_registering_is_repeated(world, monkeypatch):
    """The node of the first attempt is this broker's own, and no namesake's."""
    world.run(world.membership.join())
    world.run(world.registry.expire())
    startup, failures = world.controller.startup, [KafkaError.of(ErrorCode.NOT_CONTROLLER, "no")]

    async def fail_once():
        if failures:
            raise failures.pop()
        await startup()

    monkeypatch.setattr(world.controller, "startup", fail_once)
    world.registry.session_watch(SessionState.RENEWED)
    world.runtime.advance(0)
    epoch = world.membership.broker_epoch
    assert not world.controller.is_active
    world.runtime.advance(RETRY_MS)

    assert world.controller.is_active
    assert world.membership.broker_epoch == epoch


def test_taken_place_is_asked_for_again(world):
    """A namesake came in while this one was away: it tries until that one has gone."""
    world.run(world.membership.join())
    world.run(world.registry.expire())
    namesake = [ADDRESS._replace(port=9093)]
    world.run(register_broker(world.registry, 0, namesake, 0))
    world.registry.session_watch(SessionState.RENEWED)
    world.runtime.advance(0)
    assert not world.controller.is_active
    world.run(world.registry.delete(paths.broker(0)))
    world.runtime.advance(SESSION_MS * 2)

    assert world.controller.is_active
    assert world.names() == ["0"]


def test_registry_is_where_the_settings_say(tmp_path):
    """Embedded without zookeeper.connect."""
    runtime = mock_runtime()
    embedded = cluster_registry(runtime, BrokerConfig.parse({"log.dirs": "/data/"}))

    assert isinstance(embedded, EmbeddedRegistry)
    assert embedded.directory == "/data/registry"
    config = BrokerConfig.parse({"zookeeper.connect": "a:1,b:2/kafka"})
    registry = cluster_registry(runtime, config)
    assert isinstance(registry, ZooKeeperRegistry)
    assert registry.settings.servers == ("a:1", "b:2")
    assert registry.settings.chroot == "/kafka"
