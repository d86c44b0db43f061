"""The nodes by which clients of Kafka 0.7 find a broker and its partitions in ZooKeeper.

    [chroot]/brokers/ids/[id]               creator:host:port         ephemeral
    [chroot]/brokers/topics/[topic]/[id]    number of partitions      ephemeral

They are those of the broker's session: they vanish with it, and are made again in the next one.
"""

from __future__ import annotations

import logging

from ottla.errors import KafkaError
from ottla.registry import paths
from ottla.registry.tree import (
    REGISTRY_RETRY_MS,
    NodeExistsError,
    Registry,
    SessionState,
    Watch,
    ensure_path,
)
from ottla.runtime import Runtime

logger = logging.getLogger(__name__)


class BrokerNodes:
    """Makes nodes, and keeps them there as long as the broker lives.

    A node that a killed predecessor has left is waited for until the end of its session.
    """

    def __init__(self, runtime: Runtime, registry: Registry, chroot: str, broker_id: int) -> None:
        self._runtime = runtime
        self._registry = registry
        self._chroot = chroot
        self._broker_id = broker_id
        self._wanted: dict[str, bytes] = {}
        self._made: set[str] = set()
        self._is_busy = False
        self._said = ""
        self._watch: Watch | None = None

    def start(self, host: str, port: int, topics: dict[str, int]) -> None:
        """Register the broker, and the topics that it has with their numbers of partitions."""
        creator = f"{host}-{self._runtime.clock.now_ms()}"
        self._want(paths.broker(self._broker_id), f"{creator}:{host}:{port}")
        for topic, count in topics.items():
            self._want(f"{paths.topic(topic)}/{self._broker_id}", str(count))
        self._watch = self._registry.watch_session(self._on_session)
        self._begin()

    def add_topic(self, topic: str, partition_count: int) -> None:
        """Register a topic that was made."""
        self._want(f"{paths.topic(topic)}/{self._broker_id}", str(partition_count))
        self._begin()

    def stop(self) -> None:
        """Make no more nodes; the end of the session deletes them."""
        self._wanted.clear()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _want(self, path: str, text: str) -> None:
        self._wanted[self._chroot + path] = text.encode()

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._made.clear()
        elif state is SessionState.RENEWED:
            self._begin()

    def _begin(self) -> None:
        if not self._is_busy and self._watch is not None:
            self._is_busy = True
            self._runtime.scheduler.spawn(self._make(), "nodes of the first design")

    async def _make(self) -> None:
        """Make the nodes that are missing; a failed one is tried again soon."""
        try:
            while missing := [path for path in self._wanted if path not in self._made]:
                for path in missing:
                    await self._create(path)
        except KafkaError as error:
            self._warn(error.message)
            self._runtime.scheduler.call_later(REGISTRY_RETRY_MS, self._begin)
        finally:
            self._is_busy = False

    def _warn(self, reason: str) -> None:
        """Say once why nodes are made later: it is tried again and again."""
        if reason != self._said:
            self._said = reason
            logger.warning("the nodes of the first design are made later: %s", reason)

    async def _create(self, path: str) -> None:
        data = self._wanted.get(path)
        if data is None:
            return
        await ensure_path(self._registry, path.rpartition("/")[0])
        try:
            await self._registry.create(path, data, ephemeral=True)
        except NodeExistsError:
            stat = await self._registry.exists(path)
            if stat is None or not stat.is_own:
                raise NodeExistsError(
                    f"{path} is of another session; that of a killed process ends by itself"
                ) from None
        self._made.add(path)
