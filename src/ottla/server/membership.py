"""The broker's membership in its cluster: its listeners, and the node that has them.

The node lives as long as the session at the registry. After a session has expired, or somebody has
removed the node, the broker registers again and stands for election; clients are served meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum
from functools import partial
from typing import Final

from ottla.config.broker_config import BrokerConfig
from ottla.controller.broker_registration import broker_node, live_brokers, register_broker
from ottla.controller.controller import Controller
from ottla.errors import ConfigError, ErrorCode, KafkaError
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
from ottla.registry.znodes import BrokerNode, decode_cluster_id
from ottla.runtime import Runtime
from ottla.structs import NO_EPOCH, EndPoint

logger = logging.getLogger(__name__)


EXPIRY_SLACK_MS: Final = 3_000
"""A server looks for expired sessions once in a tick, which is 2 seconds by default."""


def cluster_registry(runtime: Runtime, config: BrokerConfig) -> Registry:
    """ZooKeeper where `zookeeper.connect` names one, otherwise the embedded registry."""
    if config.zookeeper_connect is None:
        directory = f"{config.log_dirs[0].rstrip('/')}/{REGISTRY_DIRECTORY}"
        return EmbeddedRegistry(runtime, directory)
    # Only here: kazoo costs a broker without ZooKeeper neither time nor memory.
    from ottla.network.tls_context import ClientTls
    from ottla.registry.zookeeper import ZooKeeperRegistry
    from ottla.registry.zookeeper_session import ZooKeeperSettings

    ssl = config.zookeeper_ssl
    tls = None if ssl is None else ClientTls(ssl, "zookeeper.ssl").current_thread
    return ZooKeeperRegistry(runtime, ZooKeeperSettings.of(config, tls))


class BrokerState(IntEnum):
    """The state of a broker, under the numbers that Kafka's metric has."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


class ClusterMembership:
    """Registers this broker and has it stand for election, again in every new session."""

    def __init__(
        self,
        runtime: Runtime,
        registry: Registry,
        config: BrokerConfig,
        controller: Controller,
        end_points: Sequence[EndPoint],
        cluster_id: str,
    ) -> None:
        self.runtime = runtime
        self.registry = registry
        self.config = config
        self.controller = controller
        self.broker_id = controller.broker_id
        self.end_points = end_points
        self.cluster_id = cluster_id
        self.broker_epoch = NO_EPOCH
        """The epoch of this broker's present registration (KIP-380)."""
        self.is_registered = False
        """Whether the broker has its node, in a session that has not ended."""
        self._was_suspended = False
        self._watch: Watch | None = None
        self._node_watch: Watch | None = None

    async def join(self) -> None:
        """Become a member; KafkaError where the broker's id is taken.

        Where the session ends in the middle, or another controller has been elected, the broker
        becomes a member a little later, as one does that was a member before.
        """
        # First: a session may end while the broker joins, and then it has to do so again.
        self._watch = self.registry.watch_session(self._on_session)
        try:
            await self._check_addresses()
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
        """Advertised addresses have changed: the controller sends them to all brokers."""
        if self.is_registered:
            data = broker_node(
                self.end_points, self.runtime.clock.now_ms(), self.config.broker_rack
            )
            await self.registry.set(paths.broker(self.broker_id), data)

    def leave(self) -> None:
        """Stop following the session; its end removes the broker's node."""
        for watch in filter(None, (self._watch, self._node_watch)):
            watch.cancel()
        self._watch = self._node_watch = None

    async def _check_addresses(self) -> None:
        """ConfigError where an address of this broker is advertised by another one that lives.

        A process that was killed, and had another id, as one has that is generated, does not.
        """
        own = {(each.host, each.port): each for each in self.end_points}
        for broker in (await live_brokers(self.registry)).values():
            found = [own.get((each.host, each.port)) for each in broker.endpoints]
            taken = next(filter(None, found), None) if broker.id != self.broker_id else None
            if taken and not await self._outlives(broker.id, broker.endpoints):
                raise ConfigError(
                    f"advertised.listeners: {taken} is the address of broker {broker.id}, "
                    "which is registered with it"
                )

    async def _check_cluster(self) -> None:
        """INCONSISTENT_CLUSTER_ID if the registry was emptied, or has another cluster's tree.

        The controller there does not know the topics of this broker, which would put all logs away.
        """
        with suppress(NoNodeError):
            data, _ = await self.registry.get(paths.CLUSTER_ID)
            if decode_cluster_id(data) == self.cluster_id:
                return
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"the registry is not of cluster {self.cluster_id} any more; logs are kept until it is",
        )

    async def _register(self) -> None:
        await self._check_cluster()
        while not await self._has_registered():
            # The predecessor's node is gone; by now another attempt may have made ours.
            pass
        self.is_registered = True
        if self._watch is not None and self._node_watch is None:
            look = partial(self._retry, is_doubted=True)
            self._node_watch = self.registry.watch_data(paths.broker(self.broker_id), look)

    async def _has_registered(self) -> bool:
        """Whether the node is there; if not, that of a predecessor was, and is gone."""
        try:
            await self._create_node()
        except KafkaError as error:
            if error.error is not ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                raise
            # Or by an attempt of this session that failed later, or is under way: now, or when
            # this one has waited for the session of a predecessor to end.
            if not await self.has_own_node():
                is_gone = await self._outlives(self.broker_id, self.end_points)
                if not is_gone and not await self.has_own_node():
                    raise
                return not is_gone
        return True

    async def has_own_node(self) -> bool:
        """Whether the broker is registered, in this session, which has not ended then."""
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

    async def _outlives(self, broker_id: int, end_points: Sequence[EndPoint]) -> bool:
        """Whether the registered node was left by a killed process, and is gone now.

        While it advertises these addresses, this waits for as long as its session can last. That
        time begins again where no server answered meanwhile: sessions last through its restart.
        """
        path, news = paths.broker(broker_id), asyncio.Event()
        watch = self.registry.watch_data(path, news.set)
        timeout_ms = self.config.zookeeper_session_timeout_ms + EXPIRY_SLACK_MS
        try:
            while True:
                self._was_suspended = False
                data, _ = await self.registry.get(path)
                node = BrokerNode.decode(broker_id, data)
                if node.endpoints != tuple(map(str, end_points)):
                    return False
                logger.warning(
                    "broker %d is registered by a process that was killed, or by another one that "
                    "advertises the same addresses: waiting for up to %d ms for its session to "
                    "expire",
                    broker_id,
                    timeout_ms,
                )
                timer = self.runtime.scheduler.call_later(timeout_ms, news.set)
                try:
                    await news.wait()
                finally:
                    timer.cancel()
                if await self.registry.exists(path) is None:
                    return True
                if not self._was_suspended:
                    return False
                news.clear()
        except NoNodeError:
            return True
        finally:
            watch.cancel()

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.SUSPENDED:
            self._was_suspended = True
        elif state is SessionState.EXPIRED:
            self.is_registered = False
            logger.warning("broker %d lost its session at the registry", self.broker_id)
            self.controller.resign()
        elif state is SessionState.RENEWED:
            self.runtime.scheduler.spawn(self._rejoin(), "register the broker again")

    async def _rejoin(self, is_doubted: bool = False) -> None:
        try:
            if is_doubted and await self.has_own_node():
                return
            await self._register()
            await self.controller.startup()
            logger.info("broker %d is registered again", self.broker_id)
        except SessionEndedError:
            pass  # the next session will call again
        except KafkaError as error:
            logger.error("broker %d cannot register again: %s", self.broker_id, error)
            self.runtime.scheduler.call_later(REGISTRY_RETRY_MS, self._retry)
        except Exception:
            logger.exception("broker %d cannot register again", self.broker_id)
            self.runtime.scheduler.call_later(REGISTRY_RETRY_MS, self._retry)

    def _retry(self, *, is_doubted: bool = False) -> None:
        if self._watch is not None and (self.is_registered or not is_doubted):
            self.runtime.scheduler.spawn(self._rejoin(is_doubted), "register the broker again")
