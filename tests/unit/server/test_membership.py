"""Joining a cluster: predecessors, namesakes and other brokers, and sessions that expire."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.controller.broker_registration import (
    ensure_cluster_id,
    ensure_persistent_paths,
    register_broker,
)
from ottla.controller.controller import Controller
from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.registry import paths
from ottla.registry.embedded import EmbeddedRegistry
from ottla.registry.tree import (
    REGISTRY_RETRY_MS,
    RegistryFailedError,
    SessionEndedError,
    SessionState,
)
from ottla.registry.zookeeper import ZooKeeperRegistry
from ottla.server.log_dir_failure_handler import LOG_RETRY_MS, LogDirFailureHandler
from ottla.server.membership import EXPIRY_SLACK_MS, ClusterMembership, cluster_registry
from ottla.structs import NO_EPOCH, EndPoint
from ottla.testing import mock_runtime

SESSION_MS = 6000
CLUSTER_ID = "the-cluster"
ADDRESS = EndPoint("PLAINTEXT", "PLAINTEXT", "host", 9092)


class SilentOrders:
    """Brokers that are told everything, and none of which has a failed disk."""

    def leader_and_isr(self, *told):
        pass

    add_broker = remove_broker = update_metadata = stop_replica = leader_and_isr

    async def settle(self):
        """Every order is carried out at once."""


class Registry(EmbeddedRegistry):
    """The embedded registry, with a session that can end."""

    session_watch = None
    open_watches = 0
    has_ended = False
    is_of_predecessor = False
    """The broker's node is not of this session."""

    def watch_session(self, callback):
        self.session_watch = callback
        return SimpleNamespace(cancel=self.forget_session)

    def forget_session(self):
        self.session_watch = lambda state: None

    def watch_data(self, path, callback):
        watch = super().watch_data(path, callback)
        self.open_watches += 1

        def cancel():
            self.open_watches -= 1
            watch.cancel()

        return SimpleNamespace(cancel=cancel)

    async def exists(self, path):
        stat = await super().exists(path)
        return stat and stat._replace(is_own=not self.is_of_predecessor)

    async def create(self, path, data, **kind):
        if self.has_ended:
            raise SessionEndedError("the session has ended")
        return await super().create(path, data, **kind)

    async def expire(self):
        """All ephemeral nodes go, as on a server."""
        self.session_watch(SessionState.EXPIRED)
        for path in (paths.CONTROLLER, paths.broker(0)):
            if await self.exists(path) is not None:
                await self.delete(path)


async def new_event():
    """An event of the running loop."""
    return asyncio.Event()


class World:
    """Broker 0 and its registry, in virtual time."""

    def __init__(self) -> None:
        self.runtime = mock_runtime()
        self.registry = Registry(self.runtime, "/registry")
        self.config = BrokerConfig.parse({"zookeeper.session.timeout.ms": SESSION_MS})
        self.controller = Controller(
            self.runtime, self.registry, self.config, SilentOrders(), broker_id=0
        )
        self.membership = ClusterMembership(
            self.runtime, self.registry, self.config, self.controller, [ADDRESS], CLUSTER_ID
        )
        self.run(self.registry.start())
        self.run(ensure_persistent_paths(self.registry))
        self.run(ensure_cluster_id(self.registry, lambda bits: 0, CLUSTER_ID))

    def run(self, coroutine):
        return self.runtime.scheduler.run(coroutine)

    def names(self):
        return self.run(self.registry.children(paths.BROKER_IDS))

    def join(self):
        """Begin to join; the task."""
        task = self.runtime.scheduler.spawn(self.membership.join(), "join")
        self.runtime.advance(0)
        return task

    def leave_node_of_predecessor(self, address=ADDRESS):
        """A process with the same addresses was killed a moment ago."""
        self.run(register_broker(self.registry, 0, [address], 0))
        self.registry.is_of_predecessor = True


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


def test_broker_without_a_node_tells_nobody_of_its_listeners(world):
    """It is none before it joins, and none between two sessions."""
    moved = ADDRESS._replace(port=9093)

    def told():
        world.run(world.membership.tell_end_points())
        return "9093" in str(world.run(world.registry.get(paths.broker(0))))

    world.membership.end_points = [moved]
    assert (world.membership.is_registered, world.membership.broker_epoch) == (False, NO_EPOCH)
    world.run(world.membership.tell_end_points())
    assert world.names() == []
    world.membership.end_points = [ADDRESS]
    world.run(world.membership.join())
    world.membership.end_points = [moved]
    assert told()
    world.run(world.registry.expire())
    assert not world.membership.is_registered
    world.run(world.membership.tell_end_points())
    assert world.names() == []


@pytest.mark.parametrize("found", [None, "another-cluster"])
def test_broker_does_not_join_a_tree_that_is_not_its_cluster_s(world, caplog, found):
    """Its controller knew no topics: every log was put away, as one of a deleted topic."""
    world.run(world.membership.join())
    kept, _ = world.run(world.registry.get(paths.CLUSTER_ID))
    world.run(world.registry.expire())
    world.run(world.registry.delete(paths.CLUSTER_ID))
    if found:
        world.run(ensure_cluster_id(world.registry, lambda bits: 0, found))
    world.registry.session_watch(SessionState.RENEWED)
    world.runtime.advance(REGISTRY_RETRY_MS)

    assert not world.membership.is_registered
    assert world.names() == []
    assert not world.controller.is_active
    assert f"the registry is not of cluster {CLUSTER_ID} any more" in caplog.text
    if found:
        world.run(world.registry.delete(paths.CLUSTER_ID))
    world.run(world.registry.create(paths.CLUSTER_ID, kept))
    world.runtime.advance(REGISTRY_RETRY_MS)
    assert world.names() == ["0"]


@pytest.mark.parametrize("times", [1, 3])
def test_broker_whose_node_is_removed_registers_again(world, times):
    """An administrator took the node of a broker that lives: it led nothing until a restart."""
    world.run(world.membership.join())
    known = [world.membership.broker_epoch]
    for _ in range(times):
        world.run(world.registry.delete(paths.broker(0)))
        world.runtime.advance(0)
        assert world.names() == ["0"]
        assert world.membership.is_registered
        known.append(world.membership.broker_epoch)

    assert known == sorted(set(known))
    assert world.controller.is_active
    assert world.controller.context.brokers[0].epoch == known[-1]


def test_node_that_changes_is_kept(world):
    """It has other listeners, and the epoch of before."""
    world.run(world.membership.join())
    before = world.membership.broker_epoch
    world.membership.end_points = [ADDRESS._replace(port=9093)]
    world.run(world.membership.tell_end_points())
    world.runtime.advance(REGISTRY_RETRY_MS)

    assert world.membership.is_registered
    assert world.membership.broker_epoch == before


def test_removed_node_is_made_again_once_the_registry_answers(world, monkeypatch):
    """The one word of its removal came while no server could be reached."""
    world.run(world.membership.join())

    async def fail(path, data, **kind):
        raise RegistryFailedError("planted")

    monkeypatch.setattr(world.registry, "create", fail)
    world.run(world.registry.delete(paths.broker(0)))
    world.runtime.advance(REGISTRY_RETRY_MS - 1)
    monkeypatch.undo()
    assert world.names() == []
    world.runtime.advance(1)

    assert world.names() == ["0"]


def test_node_that_is_removed_after_the_broker_has_left_stays_away(world):
    """Its process ends, and with it the session."""
    world.run(world.membership.join())
    world.membership.leave()
    world.run(world.registry.delete(paths.broker(0)))
    world.runtime.advance(REGISTRY_RETRY_MS)

    assert world.names() == []


def test_broker_that_leaves_follows_no_session(world):
    """It would come back as a member whose process has ended."""
    world.run(world.membership.join())
    world.membership.leave()
    world.membership.leave()
    world.run(world.registry.expire())
    world.registry.session_watch(SessionState.RENEWED)
    world.runtime.advance(10)

    assert world.names() == []


def test_broker_whose_controller_cannot_start_follows_no_session(world, monkeypatch):
    """Its start fails, whatever the reason."""

    async def fail():
        raise ValueError("planted")

    monkeypatch.setattr(world.controller, "startup", fail)
    with pytest.raises(ValueError, match="planted"):
        world.run(world.membership.join())
    monkeypatch.undo()
    world.run(world.registry.expire())
    world.registry.session_watch(SessionState.RENEWED)
    world.runtime.advance(10)

    assert world.names() == []


def test_predecessor_whose_node_goes_while_it_is_looked_at_is_not_waited_for(world, monkeypatch):
    """Its session has just expired."""
    world.leave_node_of_predecessor()
    get, path, before = world.registry.get, paths.broker(0), world.registry.open_watches

    async def expire(wanted):
        is_watched = world.registry.open_watches > before
        if wanted == path and is_watched and world.registry.is_of_predecessor:
            world.registry.is_of_predecessor = False
            await world.registry.delete(path)
        return await get(wanted)

    monkeypatch.setattr(world.registry, "get", expire)
    world.run(world.membership.join())

    assert world.controller.is_active


def test_attempt_that_another_one_of_the_same_session_has_overtaken_ends_no_broker(
    world, monkeypatch
):
    """The session was renewed while the broker waited for its predecessor's to end."""
    world.leave_node_of_predecessor()
    get, path, before = world.registry.get, paths.broker(0), world.registry.open_watches

    async def overtake(wanted):
        is_watched = world.registry.open_watches > before
        if wanted == path and is_watched and world.registry.is_of_predecessor:
            found = await get(wanted)
            world.registry.is_of_predecessor = False
            await world.registry.delete(path)
            await register_broker(world.registry, 0, [ADDRESS], 0)
            return found
        return await get(wanted)

    monkeypatch.setattr(world.registry, "get", overtake)
    world.run(world.membership.join())

    assert world.membership.is_registered
    assert world.names() == ["0"]


def test_what_a_predecessor_was_waited_for_with_is_given_back(world, monkeypatch):
    """Neither its watch nor its timer outlives the wait."""
    timers, call_later = [], world.runtime.scheduler.call_later

    def later(delay_ms, callback):
        timer = call_later(delay_ms, callback)
        timers.append(delay_ms)
        return SimpleNamespace(cancel=lambda: (timers.remove(delay_ms), timer.cancel()))

    monkeypatch.setattr(world.runtime.scheduler, "call_later", later)
    world.leave_node_of_predecessor(ADDRESS._replace(port=9093))
    before = world.registry.open_watches
    with pytest.raises(KafkaError):
        world.run(world.membership.join())

    assert (timers, world.registry.open_watches) == ([], before)


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


def test_predecessor_has_its_whole_time_once_a_server_answers_again(world):
    """A server that is started again gives all sessions their time anew."""
    world.leave_node_of_predecessor()
    task = world.join()
    for _ in range(3):
        world.runtime.advance(SESSION_MS)
        world.registry.session_watch(SessionState.SUSPENDED)
        world.runtime.advance(EXPIRY_SLACK_MS)
        world.registry.session_watch(SessionState.RESUMED)
        assert not task.done()
    world.run(world.registry.delete(paths.broker(0)))
    world.runtime.advance(1)

    assert task.exception() is None
    assert world.controller.is_active


def test_namesake_is_refused_though_a_server_was_away(world):
    """Its node stays for a whole session behind that."""
    world.leave_node_of_predecessor()
    task = world.join()
    world.registry.session_watch(SessionState.SUSPENDED)
    world.registry.session_watch(SessionState.RESUMED)
    world.runtime.advance(2 * SESSION_MS)
    assert not task.done()
    world.runtime.advance(2 * SESSION_MS)

    assert task.exception().error is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_time_of_a_predecessor_begins_when_its_node_was_read(world, monkeypatch):
    """No server answered before: that time is none of its session's."""
    world.leave_node_of_predecessor()
    get, answers = world.registry.get, world.run(new_event())

    async def slow(path):
        if path == paths.broker(0):
            await answers.wait()
        return await get(path)

    monkeypatch.setattr(world.registry, "get", slow)
    task = world.join()
    world.runtime.advance(5 * SESSION_MS)
    answers.set()
    world.runtime.advance(SESSION_MS)
    assert not task.done()
    world.run(world.registry.delete(paths.broker(0)))
    world.runtime.advance(1)

    assert task.exception() is None


def test_namesake_that_lives_is_refused(world):
    """It advertises the same addresses, but its session does not expire."""
    world.leave_node_of_predecessor()
    task = world.join()
    world.runtime.advance(2 * SESSION_MS)

    assert task.done()
    assert task.exception().error is ErrorCode.DUPLICATE_BROKER_REGISTRATION


@pytest.mark.parametrize(("host", "port"), [("other", ADDRESS.port), (ADDRESS.host, 9099)])
def test_broker_beside_others_joins(world, host, port):
    """Another host, or another port of the same one."""
    world.run(register_broker(world.registry, 7, [ADDRESS._replace(host=host, port=port)], 0))
    world.run(world.membership.join())

    assert world.names() == ["0", "7"]


def test_address_of_another_broker_is_refused(world):
    """Its clients would be sent to the wrong one of both, whatever the listener is called."""
    taken = ADDRESS._replace(listener_name="OUTSIDE")
    world.run(register_broker(world.registry, 7, [taken._replace(port=9099), taken], 0))
    task = world.join()
    world.runtime.advance(2 * SESSION_MS)

    with pytest.raises(ConfigError, match=f"{ADDRESS} is the address of broker 7"):
        task.result()
    assert world.names() == ["7"]


@pytest.mark.parametrize("more", [[], [ADDRESS._replace(host="::1", port=9099)]])
def test_killed_process_of_another_id_is_waited_for(world, more):
    """A broker whose id is generated has another one after a start on an empty disk."""
    world.run(register_broker(world.registry, 7, [ADDRESS, *more], 0))
    task = world.join()
    world.runtime.advance(SESSION_MS)
    assert not task.done()
    world.run(world.registry.delete(paths.broker(7)))
    world.runtime.advance(1)

    assert task.exception() is None
    assert world.names() == ["0"]


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


@pytest.mark.parametrize(
    "failure", [KafkaError.of(ErrorCode.NOT_CONTROLLER, "no"), ValueError("planted")], ids=repr
)
def test_attempt_that_failed_after_registering_is_repeated(world, monkeypatch, failure):
    """The node of the first attempt is this broker's own, and no namesake's."""
    world.run(world.membership.join())
    world.run(world.registry.expire())
    startup, failures = world.controller.startup, [failure]

    async def fail_once():
        if failures:
            raise failures.pop()
        await startup()

    monkeypatch.setattr(world.controller, "startup", fail_once)
    world.registry.session_watch(SessionState.RENEWED)
    world.runtime.advance(0)
    epoch = world.membership.broker_epoch
    assert not world.controller.is_active
    world.runtime.advance(REGISTRY_RETRY_MS)

    assert world.controller.is_active
    assert world.membership.broker_epoch == epoch


def test_taken_place_is_asked_for_again(world):
    """A namesake came in while this one was away: it tries until that one has gone."""
    world.run(world.membership.join())
    world.run(world.registry.expire())
    world.leave_node_of_predecessor(ADDRESS._replace(port=9093))
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


def test_session_that_ends_while_the_broker_joins_is_followed_by_another_registration(
    world, monkeypatch
):
    """Nobody followed the session yet: the broker served on, and the cluster took it for dead."""
    startup, endings = world.controller.startup, ["once"]

    async def expire_once():
        if endings:
            endings.pop()
            await world.registry.expire()
            world.registry.session_watch(SessionState.RENEWED)
        await startup()

    world.registry.session_watch = lambda state: None
    monkeypatch.setattr(world.controller, "startup", expire_once)
    world.run(world.membership.join())
    world.runtime.advance(10)

    assert world.names() == ["0"]
    assert world.controller.is_active


def test_session_that_ends_before_the_broker_is_registered_is_left_to_the_next(world):
    """The broker was only being started, and ended: ZooKeeper had hung for a few seconds."""
    world.registry.has_ended = True
    world.run(world.membership.join())
    assert world.names() == []
    world.registry.has_ended = False
    world.registry.session_watch(SessionState.RENEWED)
    world.runtime.advance(10)

    assert world.names() == ["0"]
    assert world.controller.is_active


@pytest.mark.parametrize("is_renewed", [True, False])
def test_broker_that_loses_its_first_election_joins_again(world, monkeypatch, is_renewed):
    """It was the controller for a moment, its session ended, and so did the whole broker."""
    startup, failures = world.controller.startup, [KafkaError.of(ErrorCode.NOT_CONTROLLER, "no")]

    async def fail_once():
        if failures:
            if is_renewed:
                await world.registry.expire()
            raise failures.pop()
        await startup()

    monkeypatch.setattr(world.controller, "startup", fail_once)
    world.run(world.membership.join())
    assert not world.controller.is_active
    if is_renewed:
        world.registry.session_watch(SessionState.RENEWED)
        world.runtime.advance(0)
    else:
        world.runtime.advance(REGISTRY_RETRY_MS)

    assert world.names() == ["0"]
    assert world.controller.is_active


def test_own_registration_whose_answer_was_lost_is_known_again(world, monkeypatch):
    """It was taken for a namesake's for ever, while the cluster took the broker for alive."""
    world.run(world.membership.join())
    world.run(world.registry.expire())
    exists, failures = world.registry.exists, [RegistryFailedError("no answer")]

    async def fail_once(path):
        if path == paths.broker(0) and failures:
            raise failures.pop()
        return await exists(path)

    monkeypatch.setattr(world.registry, "exists", fail_once)
    world.registry.session_watch(SessionState.RENEWED)
    world.runtime.advance(2 * REGISTRY_RETRY_MS)

    assert not failures
    assert world.controller.is_active
    stat = world.run(world.registry.exists(paths.broker(0)))
    assert world.membership.broker_epoch == stat.created_id


def test_broker_that_cannot_join_follows_no_session(world):
    """It is on its way out, and must not register in the next one."""
    world.leave_node_of_predecessor(ADDRESS._replace(port=9093))
    with pytest.raises(KafkaError):
        world.run(world.membership.join())

    assert world.membership._watch is None


def test_controller_is_asked_again_until_every_log_is_made():
    """A disk was full when the controller gave its orders, and nobody else tries again."""
    runtime, asked = mock_runtime(), []

    class Controllers:
        async def on_log_dir_event(self, broker_id):
            asked.append(broker_id)
            if len(asked) == 1:
                raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "the registry does not answer")

    logs = SimpleNamespace(may_be_on_disk=lambda partition: partition == "in a failed directory")
    offline = {"refused", "in a failed directory"}
    replicas = SimpleNamespace(broker_id=3, log_manager=logs, offline_partitions=offline)
    handler = LogDirFailureHandler(runtime, BrokerConfig.parse({"log.dirs": "/logs"}))

    handler.serve(replicas, Controllers())
    runtime.advance(3 * LOG_RETRY_MS)
    assert asked == [3, 3, 3]
    offline.remove("refused")
    runtime.advance(3 * LOG_RETRY_MS)
    assert asked == [3, 3, 3]
