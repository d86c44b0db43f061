"""Settings that change while the broker runs: those of topics and groups, and their defaults.

The registry has the truth (/config); a notification under /config/changes says what to read anew.
For one topic the values come, first to last, from: its own overrides, this broker's overrides,
the overrides of all brokers, the broker's properties file, the defaults.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ottla.config.broker_config import BrokerConfig
from ottla.config.config_def import ConfigTableType
from ottla.config.consumer_group_config import ConsumerGroupConfig
from ottla.config.topic_config import TopicConfig
from ottla.controller.entity_configs import BROKERS, GROUPS, TOPICS, EntityConfigs
from ottla.errors import KafkaError
from ottla.network.timing import pause
from ottla.registry import paths
from ottla.registry.tree import (
    NoNodeError,
    Registry,
    RegistryFailedError,
    SessionState,
    Watch,
)
from ottla.registry.znodes import decode_config_change
from ottla.runtime import Runtime

logger = logging.getLogger(__name__)

DYNAMIC_BROKER_KEYS: Final = frozenset(
    row.broker_keys[0] for row in TopicConfig.keys.values() if row.broker_keys
) | {
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}
"""The broker's settings that can change while it runs: defaults of topics, rates of replication."""

UNCLEAN_ELECTION_KEY: Final = "unclean.leader.election.enable"

RETRY_MS: Final = 1_000
NOTIFICATION_RETENTION_MS: Final = 15 * 60 * 1000
"""Kafka's: by then every broker that lives has seen a notification."""


class DynamicConfig:
    """The settings in force on one broker, and who wants to know when they change."""

    def __init__(
        self, runtime: Runtime, registry: Registry, broker_config: BrokerConfig, broker_id: int
    ) -> None:
        self.runtime = runtime
        self.registry = registry
        self.static_config = broker_config
        self.broker_config = broker_config
        self.broker_name = str(broker_id)
        self.entities = EntityConfigs(registry)
        self._topics: dict[str, dict[str, str]] = {}
        self._brokers: dict[str, dict[str, str]] = {}
        self._groups: dict[str, ConsumerGroupConfig] = {}
        self._group_defaults = ConsumerGroupConfig.of(broker_config, {})
        self._topic_listeners: list[Callable[[str], object]] = []
        self._broker_listeners: list[Callable[[], object]] = []
        self._watches: list[Watch] = []
        self._last_change = ""
        self._has_news = False
        self._is_behind = False
        """Changes may have been notified of, and the notifications cleared away, unseen."""
        self._is_reading = False

    async def start(self) -> None:
        """Read all overrides, and from here on every change of them."""
        self._watches = [
            self.registry.watch_children(paths.CONFIG_CHANGES, self._on_change),
            self.registry.watch_session(self._on_session),
        ]
        await self._read_all()

    def stop(self) -> None:
        """Read no more changes."""
        for watch in self._watches:
            watch.cancel()
        self._watches = []

    def topic_overrides(self, topic: str) -> Mapping[str, str]:
        return self._topics.get(topic, {})

    def broker_overrides(self, broker_name: str) -> Mapping[str, str]:
        """Those of this broker, or of all brokers (`<default>`)."""
        return self._brokers.get(broker_name, {})

    def topic_config(self, topic: str) -> TopicConfig:
        """What is in force for a topic, whether it exists or not."""
        return TopicConfig.of(self.broker_config, self.topic_overrides(topic))

    def group_config(self, group_id: str) -> ConsumerGroupConfig:
        """What is in force for a consumer group, whether it exists or not."""
        return self._groups.get(group_id, self._group_defaults)

    def allows_unclean_election(self, topic: str) -> bool:
        """Whether the topic's own overrides let a replica lead that is not in sync."""
        return self.topic_overrides(topic).get(UNCLEAN_ELECTION_KEY, "").lower() == "true"

    def on_topic_change(self, listener: Callable[[str], object]) -> None:
        """Call `listener` with the topic after its overrides have changed."""
        self._topic_listeners.append(listener)

    def on_broker_change(self, listener: Callable[[], object]) -> None:
        """Call `listener` after the defaults of all topics have changed."""
        self._broker_listeners.append(listener)

    async def _read_all(self) -> None:
        """Every override there is, and what has become of those that there were."""
        seen = await self.registry.children(paths.CONFIG_CHANGES)
        topics = await self.registry.children(paths.CONFIG_TOPICS)
        groups = await self.registry.children(paths.CONFIG_GROUPS)
        wanted = sorted({*map(paths.desanitize, topics), *self._topics})
        # Every topic has a node: one after the other they would keep the start waiting.
        await asyncio.gather(*(self._read(TOPICS, topic) for topic in wanted))
        for group in sorted({*map(paths.desanitize, groups), *self._groups}):
            await self._read(GROUPS, group)
        for name in (paths.DEFAULT_ENTITY, self.broker_name):
            await self._read(BROKERS, name)
        self._last_change = seen[-1] if seen else ""

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.RENEWED:
            self._is_behind = True
            self._on_change()

    def _on_change(self) -> None:
        self._has_news = True
        if not self._is_reading:
            self._is_reading = True
            self.runtime.scheduler.spawn(self._read_changes(), "config changes")

    async def _read_changes(self) -> None:
        try:
            while self._has_news and self._watches:
                self._has_news = False
                try:
                    await self._catch_up()
                except RegistryFailedError as error:
                    logger.info("changes of settings are read again in a moment: %s", error)
                    self._has_news = True
                    await pause(self.runtime.scheduler, RETRY_MS)
        finally:
            self._is_reading = False

    async def _catch_up(self) -> None:
        if self._is_behind:
            await self._read_all()
            self._is_behind = False
        names = await self.registry.children(paths.CONFIG_CHANGES)
        for name in names:
            if name > self._last_change:
                await self._read_change(f"{paths.CONFIG_CHANGES}/{name}")
                self._last_change = name
        await self._clear_away(names)

    async def _read_change(self, path: str) -> None:
        try:
            data, _ = await self.registry.get(path)
            entity_type, _, name = decode_config_change(path, data).partition("/")
            await self._read(entity_type, paths.desanitize(name))
        except NoNodeError:
            pass  # another broker has cleared it away
        except RegistryFailedError:
            raise
        except KafkaError as error:
            logger.error("cannot follow the change of settings %s: %s", path, error)

    async def _clear_away(self, names: Sequence[str]) -> None:
        """Remove old notifications. They are numbered: behind one that is not old, none is.

        Their age is told by the registry's clock, which made them all: by this broker's, which may
        be wrong, they might be gone before others have read them.
        """
        newest = None
        for name in (*names[-1:], *names[:-1]):
            path = f"{paths.CONFIG_CHANGES}/{name}"
            try:
                stat = await self.registry.exists(path)
                newest = newest or stat
                if newest is None:
                    return  # a newer one has come meanwhile: its turn is next
                if stat is newest:
                    continue
                if (
                    stat is not None
                    and newest.created_ms - stat.created_ms <= NOTIFICATION_RETENTION_MS
                ):
                    return
                await self.registry.delete(path)
            except NoNodeError:
                pass  # another broker was faster
            except KafkaError as error:
                logger.error("cannot clear %s away: %s", path, error)
                return

    async def _read(self, entity_type: str, name: str) -> None:
        """Those of one topic, group or broker; what cannot be read has no effect."""
        try:
            if entity_type == TOPICS:
                await self._read_topic(name)
            elif entity_type == GROUPS:
                await self._read_group(name)
            elif entity_type == BROKERS and name in (paths.DEFAULT_ENTITY, self.broker_name):
                await self._read_broker(name)
        except RegistryFailedError:
            raise
        except KafkaError as error:
            logger.error("overrides of %s %s have no effect: %s", entity_type, name, error)

    async def _read_topic(self, topic: str) -> None:
        overrides = await self.entities.read(TOPICS, topic)
        if overrides == self._topics.get(topic, {}):
            return
        self._topics[topic] = _without_bad_values(f"topic {topic}", TopicConfig, overrides)
        if not overrides:
            del self._topics[topic]
        for listener in self._topic_listeners:
            listener(topic)

    async def _read_group(self, group_id: str) -> None:
        overrides = await self.entities.read(GROUPS, group_id)
        good = _without_bad_values(f"group {group_id}", ConsumerGroupConfig, overrides)
        self._groups[group_id] = ConsumerGroupConfig.of(self.static_config, good)
        if not good:
            del self._groups[group_id]

    async def _read_broker(self, name: str) -> None:
        overrides = await self.entities.read(BROKERS, name)
        if overrides == self._brokers.get(name, {}):
            return
        self._brokers[name] = _without_bad_values(f"broker {name}", BrokerConfig, overrides)
        in_force = self.effective_config(
            self.broker_overrides(paths.DEFAULT_ENTITY), self.broker_overrides(self.broker_name)
        )
        self.broker_config = in_force
        for listener in self._broker_listeners:
            listener()

    def effective_config(self, *overrides: Mapping[str, str]) -> BrokerConfig:
        """The broker's settings with these overrides, later ones over earlier ones."""
        changes: dict[str, Any] = {}
        for layer in overrides:
            changes |= {BrokerConfig.keys[name].attribute: text for name, text in layer.items()}
        return self.static_config.replace(**changes)


def _without_bad_values(
    owner: str, table: ConfigTableType, overrides: Mapping[str, str]
) -> dict[str, str]:
    """Whoever wrote the registry may have known other rules: what breaks ours is left out."""
    good = {}
    for name, text in overrides.items():
        row = table.keys.get(name)
        try:
            if row is not None:
                row.parse(text)
        except KafkaError as error:
            logger.error("%s: an override in the registry has no effect: %s", owner, error.message)
        else:
            good[name] = text
    return good
