"""The broker's membership in its cluster: its listeners, and the node that tells of them.

The node lives as long as the session at the registry. After a session has expired, the broker
registers again in the next one and stands for election again; clients are served all the time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from typing import Final

from ottla.config.broker_config import BrokerConfig
from ottla.controller.broker_registration import broker_node, register_broker
from ottla.controller.controller import Controller
from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.log.log_dir import LogDir
from ottla.log.log_manager import LogManager
from ottla.network.listener_security import BrokerLogins
from ottla.network.processor import Processor
from ottla.network.socket_config import SocketConfig, connection_limits
from ottla.network.tls_context import BrokerTls, ClientTls
from ottla.registry import paths
from ottla.registry.embedded import REGISTRY_DIRECTORY, EmbeddedRegistry
from ottla.registry.tree import (
    REGISTRY_RETRY_MS,
    NoNodeError,
    Registry,
    SessionEndedError,
    SessionState,
    Watch,
)
from ottla.registry.znodes import BrokerNode
from ottla.replication.replica_manager import ReplicaManager
from ottla.runtime import Runtime
from ottla.runtime.host_name import canonical_host_name
from ottla.structs import NO_EPOCH, EndPoint, replace

logger = logging.getLogger(__name__)


EXPIRY_SLACK_MS: Final = 3_000
"""A server looks for expired sessions once in a tick, which is 2 seconds by default."""


def cluster_registry(runtime: Runtime, config: BrokerConfig) -> Registry:
    """ZooKeeper where `zookeeper.connect` names one, otherwise the embedded registry."""
    if config.zookeeper_connect is None:
        directory = f"{config.log_dirs[0].rstrip('/')}/{REGISTRY_DIRECTORY}"
        return EmbeddedRegistry(runtime, directory)
    # Only here: kazoo costs a broker without ZooKeeper neither time nor memory.
    from ottla.registry.zookeeper import ZooKeeperRegistry
    from ottla.registry.zookeeper_session import ZooKeeperSettings

    ssl = config.zookeeper_ssl
    tls = None if ssl is None else ClientTls(ssl, "zookeeper.ssl").current_thread
    return ZooKeeperRegistry(runtime, ZooKeeperSettings.of(config, tls))


class BrokerState(IntEnum):
    """What a broker is doing, under the numbers that Kafka's metric has."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class BrokerListeners:
    """The listeners of a broker, which can come and go while it runs, and what it advertises.

    Invariant: a listener keeps its address and its security protocol as long as it is there.
    """

    def __init__(
        self,
        runtime: Runtime,
        processor: Processor,
        network: SocketConfig,
        tls: BrokerTls,
        logins: BrokerLogins,
    ) -> None:
        self.end_points: list[EndPoint] = []
        """What is advertised, with real hosts and ports; the same list all the time."""
        self._runtime, self._processor = runtime, processor
        self._network, self._tls, self._logins = network, tls, logins
        self._ports: dict[str, int] = {}

    def open(self, config: BrokerConfig) -> None:
        """Open the listeners; OSError where an address cannot be had."""
        for each in config.listeners:
            self._open(each)
        self._advertise(config)

    def follow(self, config: BrokerConfig) -> bool:
        """Follow changed settings; returns whether what is advertised has changed."""
        before = list(self.end_points)
        self._network = replace(self._network, **connection_limits(config))
        wanted = {each.listener_name: each for each in config.listeners}
        removed = self._ports.keys() - wanted.keys()
        added = wanted.keys() - self._ports.keys()
        if removed or added:
            for layer in (self._tls, self._logins):
                layer.follow_listeners(config)
                layer.start(self._runtime)
        self._processor.update_config(self._network)
        for name in removed:
            del self._ports[name]
            self._processor.stop_listening(name)
            for each in self._processor.connections:
                if each.listener_name == name:
                    each.close("its listener was removed")
            logger.info("listener %s was removed, and its connections closed", name)
        for name in added:
            try:
                self._open(wanted[name])
            except OSError as error:
                logger.error("listener %s cannot be opened: %s", wanted[name], error.strerror)
            else:
                logger.info("listener %s was added", wanted[name])
        self._advertise(config)
        return self.end_points != before

    def _open(self, end_point: EndPoint) -> None:
        name = end_point.listener_name
        self._ports[name] = self._processor.listen(name, end_point.host, end_point.port).port

    def _advertise(self, config: BrokerConfig) -> None:
        """Real ports in place of 0, and the name of this machine in place of none."""
        self.end_points[:] = [
            each._replace(
                host=each.host or canonical_host_name(),
                port=each.port or self._ports[each.listener_name],
            )
            for each in config.advertised_listeners
            if each.listener_name in self._ports
        ]


class ClusterMembership:
    """Registers this broker and has it stand for election, again in every new session."""

    def __init__(
        self,
        runtime: Runtime,
        registry: Registry,
        config: BrokerConfig,
        controller: Controller,
        end_points: Sequence[EndPoint],
    ) -> None:
        self.runtime = runtime
        self.registry = registry
        self.config = config
        self.controller = controller
        self.broker_id = controller.broker_id
        self.end_points = end_points
        self.broker_epoch = NO_EPOCH
        """The epoch of this broker's present registration (KIP-380)."""
        self.is_registered = False
        """Whether the broker has its node, in a session that has not ended."""
        self._watch: Watch | None = None

    async def join(self) -> None:
        """Become a member; KafkaError where the broker's id is taken.

        Where the session ends in the middle, or another controller has been elected, the broker
        becomes a member a little later, as one does that was a member before.
        """
        # First: a session may end while the broker joins, and then it has to do so again.
        self._watch = self.registry.watch_session(self._on_session)
        try:
            await self._register()
            await self.controller.startup()
        except SessionEndedError as error:
            logger.warning("broker %d joins in the next session: %s", self.broker_id, error)
        except KafkaError as error:
            if error.error is not ErrorCode.NOT_CONTROLLER:
                self.leave()
                raise
            logger.warning("broker %d joins again soon: %s", self.broker_id, error)
            self.runtime.scheduler.call_later(REGISTRY_RETRY_MS, self._retry)
        except BaseException:
            self.leave()
            raise

    async def tell_end_points(self) -> None:
        """What is advertised has changed: the controller tells it to all brokers."""
        if self.is_registered:
            data = broker_node(
                self.end_points, self.runtime.clock.now_ms(), self.config.broker_rack
            )
            await self.registry.set(paths.broker(self.broker_id), data)

    def leave(self) -> None:
        """Stop following the session; its end removes the broker's node."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    async def _register(self) -> None:
        while not await self._has_registered():
            # The predecessor's node is gone; by now another attempt may have made ours.
            pass
        self.is_registered = True

    async def _has_registered(self) -> bool:
        """Whether the node is there; if not, that of a predecessor was, and is gone."""
        try:
            await self._create_node()
        except KafkaError as error:
            if error.error is not ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                raise
            # Or by an attempt of this session that failed later, or is under way: now, or when
            # this one has waited for the session of a predecessor to end.
            if not await self._has_own_node():
                is_gone = await self._outlives_predecessor()
                if not is_gone and not await self._has_own_node():
                    raise
                return not is_gone
        return True

    async def _has_own_node(self) -> bool:
        stat = await self.registry.exists(paths.broker(self.broker_id))
        if stat is None or not stat.is_own:
            return False
        self.broker_epoch = stat.created_id
        return True

    async def _create_node(self) -> None:
        now_ms = self.runtime.clock.now_ms()
        rack = self.config.broker_rack
        self.broker_epoch = await register_broker(
            self.registry, self.broker_id, self.end_points, now_ms, rack
        )

    async def _outlives_predecessor(self) -> bool:
        """Whether the registered node was left by a killed process of this broker, and is gone now.

        If it advertises the same addresses, this waits for as long as its session can last.
        """
        path = paths.broker(self.broker_id)
        news = asyncio.Event()
        watch = self.registry.watch_data(path, news.set)
        timeout_ms = self.config.zookeeper_session_timeout_ms + EXPIRY_SLACK_MS
        timer = self.runtime.scheduler.call_later(timeout_ms, news.set)
        try:
            data, _ = await self.registry.get(path)
            node = BrokerNode.decode(self.broker_id, data)
            if node.endpoints != tuple(map(str, self.end_points)):
                return False
            logger.warning(
                "broker %d is registered by a process that was killed, or by another one that "
                "advertises the same addresses: waiting for up to %d ms for its session to expire",
                self.broker_id,
                timeout_ms,
            )
            await news.wait()
            return await self.registry.exists(path) is None
        except NoNodeError:
            return True
        finally:
            timer.cancel()
            watch.cancel()

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self.is_registered = False
            logger.warning("broker %d lost its session at the registry", self.broker_id)
            self.controller.resign()
        elif state is SessionState.RENEWED:
            self.runtime.scheduler.spawn(self._rejoin(), "register the broker again")

    async def _rejoin(self) -> None:
        try:
            await self._register()
            await self.controller.startup()
            logger.info("broker %d is registered again, in a new session", self.broker_id)
        except SessionEndedError:
            pass  # the next session will call again
        except KafkaError as error:
            logger.error("broker %d cannot register again: %s", self.broker_id, error)
            self.runtime.scheduler.call_later(REGISTRY_RETRY_MS, self._retry)
        except Exception:
            logger.exception("broker %d cannot register again", self.broker_id)
            self.runtime.scheduler.call_later(REGISTRY_RETRY_MS, self._retry)

    def _retry(self) -> None:
        if self._watch is not None:
            self.runtime.scheduler.spawn(self._rejoin(), "register the broker again")


# What the broker does when one of its log directories fails, at start or later.
#
# The directory's partitions go offline, the controller is told, and the others stay in service.
# Where a log could not be made on a full disk, the controller is asked for its orders again.
# The broker stops when none is left, and when the embedded registry was in the directory, as a
# broker of Kafka stops that has lost its metadata log.


LOG_RETRY_MS: Final = 5_000


class LogDirFailureHandler:
    """Is called by the logs about failed directories, in the middle of their operations.

    Nothing is done before the loop's next callback, when no append or read is under way.
    `on_fatal` is called once when the broker cannot continue; `is_fatal` says so from then on.
    """

    def __init__(self, runtime: Runtime, config: BrokerConfig) -> None:
        self._runtime = runtime
        self._paths = config.log_dirs
        self._has_registry = config.zookeeper_connect is None
        self._failed: list[LogDir] = []
        self._replica_manager: ReplicaManager | None = None
        self._controller: Controller | None = None
        self.on_fatal: Callable[[], object] = lambda: None
        self.is_fatal = False

    def check_registry_dir(self, log_manager: LogManager) -> None:
        """ConfigError if the registry would have to be in a directory that cannot be used."""
        first = log_manager.dirs[0]
        if self._has_registry and first.is_offline:
            raise ConfigError(
                f"log.dirs={first.path}: the first of them keeps the registry, and it cannot be "
                "used: repair it; the others alone do not know the topics"
            )

    def on_failure(self, log_dir: LogDir) -> None:
        """A directory has failed; it is offline already."""
        self._failed.append(log_dir)
        self._runtime.scheduler.call_soon(partial(self._handle, log_dir))

    def serve(self, replica_manager: ReplicaManager, controller: Controller) -> None:
        """Handle failures from now on: the partitions and the controller can be told."""
        self._replica_manager = replica_manager
        self._controller = controller
        for log_dir in self._failed:
            self._handle(log_dir)
        self._runtime.scheduler.call_every(LOG_RETRY_MS, self._ask_for_orders)

    def _ask_for_orders(self) -> None:
        """Have the controller send its orders again where logs could not be made.

        No directory has failed, so that the disk has no room, or had none.
        """
        assert self._replica_manager is not None
        logs, offline = self._replica_manager.log_manager, self._replica_manager.offline_partitions
        if not self.is_fatal and any(not logs.may_be_on_disk(each) for each in offline):
            self._tell_controller("of logs that could not be made")

    def _tell_controller(self, what: str) -> None:
        """Have the controller send LeaderAndIsr: its answer says which logs are offline."""
        assert self._controller is not None
        assert self._replica_manager is not None
        event = self._controller.on_log_dir_event(self._replica_manager.broker_id)
        self._runtime.scheduler.spawn(event, f"tell the controller {what}")

    def _handle(self, log_dir: LogDir) -> None:
        if self._replica_manager is None or self._controller is None or self.is_fatal:
            return  # what is offline before the broker serves is so from the first request on
        offline = self._replica_manager.on_log_dir_failure(log_dir)
        reason = self._why_fatal()
        if reason is not None:
            self.is_fatal = True
            logger.critical("The broker stops: %s", reason)
            self.on_fatal()
        elif offline:
            names = ", ".join(map(str, offline))
            logger.error("%s is offline, and with it %s", log_dir.path, names)
            self._tell_controller(f"of {log_dir.path}")

    def _why_fatal(self) -> str | None:
        if len(self._failed) == len(self._paths):
            return f"every log directory has failed: {', '.join(self._paths)}"
        first = self._paths[0].rstrip("/") or "/"
        if self._has_registry and any(log_dir.path == first for log_dir in self._failed):
            return f"the registry was in the log directory {first}, which has failed"
        return None
