"""Settings that change while the broker runs: of topics, groups, clients and the broker itself.

The registry has the truth (/config); a notification under /config/changes names the node to read
again. For one topic the values come, first to last, from: its own overrides, this broker's
overrides, the overrides of all brokers, the broker's properties file, the defaults.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.config.broker_config import BrokerConfig
from ottla.config.config_type import INT
from ottla.config.coordinator_config import ConsumerGroupConfig
from ottla.config.dynamic_keys import (
    DYNAMIC_BROKER_KEYS,
    KEY_STORE_KEYS,
    LISTENER_KEYS,
    NEW_LISTENER_KEYS,
    OF_LISTENER,
    THREAD_KEYS,
    UNCLEAN_ELECTION_KEY,
    changed_keys,
    is_dynamic,
    is_key_store,
    is_of_listener,
    is_of_one_broker,
    is_secret,
    key_of_listener,
    without_bad_values,
)
from ottla.config.known_keys import UNUSED_KEYS, UNUSED_THREAD_KEYS, family_of
from ottla.config.metrics_config import ClientMetricsConfig
from ottla.config.topic_config import TopicConfig
from ottla.controller.entity_configs import BROKERS, CLIENT_METRICS, GROUPS, TOPICS, EntityConfigs
from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.registry import paths
from ottla.registry.change_notifications import ChangeNotifications
from ottla.registry.tree import Registry, RegistryFailedError
from ottla.registry.znodes import decode_config_change
from ottla.runtime import Runtime
from ottla.runtime.scheduler import gather_each
from ottla.structs import ClientEntity, NamedTuple

if TYPE_CHECKING:
    from ottla.security.password_encoder import PasswordEncoder

logger = logging.getLogger(__name__)


class OwnedOverrides(NamedTuple):
    """Overrides of one broker, or of all, that are in force together or not at all."""

    owner: str
    what: str
    overrides: dict[str, str]


class DynamicConfig:
    """The settings in force on one broker, and the listeners to their changes."""

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
        self._last_given: tuple[BrokerConfig, Mapping[str, str]] = (broker_config, {})
        self._last_config = TopicConfig.of(*self._last_given)
        self._wanted: dict[str, dict[str, str]] = {}
        """The overrides of brokers that each alone keeps our rules."""

        self._brokers: dict[str, dict[str, str]] = {}
        """Those of them that fit together, and are in force."""

        self._groups: dict[str, ConsumerGroupConfig] = {}
        self._group_defaults = ConsumerGroupConfig.of(broker_config, {})
        self._clients: dict[ClientEntity, dict[str, str]] = {}
        self.client_change_count = 0
        self.client_metrics: dict[str, ClientMetricsConfig] = {}
        """The subscriptions to the metrics of clients, by their names."""
        self._topic_listeners: list[Callable[[str], object]] = []
        self._client_listeners: list[Callable[[ClientEntity], object]] = []
        self._broker_listeners: list[Callable[[], object]] = []
        self._key_store_listeners: list[Callable[[], object]] = []
        self._encoder: PasswordEncoder | None = None
        if broker_config.password_encoder_secret is not None:
            from ottla.security.password_encoder import PasswordEncoder

            self._encoder = PasswordEncoder(broker_config)
        self.check_key_stores: Callable[[BrokerConfig], object] = lambda config: None
        """Reads the files that settings name; ConfigError where they cannot be used."""

        self.checks: list[Callable[[BrokerConfig], object]] = []
        """What features ask of changed settings; ConfigError where these may not be in force."""

        self._changes = ChangeNotifications(
            runtime, registry, paths.CONFIG_CHANGES, self._read_change, self._read_all
        )

    async def start(self) -> None:
        """Read all overrides, and from here on every change of them."""
        await self._changes.start()

    def stop(self) -> None:
        """Read no more changes."""
        self._changes.stop()

    def topic_overrides(self, topic: str) -> Mapping[str, str]:
        return self._topics.get(topic, {})

    def broker_overrides(self, broker_name: str) -> Mapping[str, str]:
        """The overrides of this broker, or of all brokers (`<default>`)."""
        return self._brokers.get(broker_name, {})

    def topic_config(self, topic: str) -> TopicConfig:
        """The settings in force for a topic, whether it exists or not.

        The last answer is kept: all partitions of a topic ask when they are made.
        """
        given = self.broker_config, self.topic_overrides(topic)
        if self._last_given != given:
            self._last_given, self._last_config = given, TopicConfig.of(*given)
        return self._last_config

    def group_config(self, group_id: str) -> ConsumerGroupConfig:
        """The settings in force for a consumer group, whether it exists or not."""
        return self._groups.get(group_id, self._group_defaults)

    def client_overrides(self, entity: ClientEntity) -> Mapping[str, str]:
        """The quotas and the credentials of a user, client id or address, as they are stored."""
        return self._clients.get(entity, {})

    @property
    def client_entities(self) -> Collection[ClientEntity]:
        """The entities that have quotas or credentials."""
        return self._clients.keys()

    def allows_unclean_election(self, topic: str) -> bool:
        """Whether the topic's own overrides let a replica lead that is not in sync."""
        return self.topic_overrides(topic).get(UNCLEAN_ELECTION_KEY, "").lower() == "true"

    def on_topic_change(self, listener: Callable[[str], object]) -> None:
        """Call `listener` with the topic after its overrides have changed."""
        self._topic_listeners.append(listener)

    def on_client_change(self, listener: Callable[[ClientEntity], object]) -> None:
        """Call `listener` after the quotas or the credentials of an entity have changed."""
        self._client_listeners.append(listener)

    def on_broker_change(self, listener: Callable[[], object]) -> None:
        """Call `listener` after settings of the broker have changed."""
        self._broker_listeners.append(listener)

    def on_key_store_change(self, listener: Callable[[], object]) -> None:
        """Call `listener` when key stores must be read again, also if only the files changed."""
        self._key_store_listeners.append(listener)

    async def _read_all(self) -> None:
        """Read every override, and drop those that are gone."""
        topics = await self.registry.children(paths.CONFIG_TOPICS)
        groups = await self.registry.children(paths.CONFIG_GROUPS)
        wanted = sorted({*map(paths.desanitize, topics), *self._topics})
        # Every topic has a node: one after the other they would keep the start waiting.
        await gather_each(partial(self._read, TOPICS), wanted)
        for group in sorted({*map(paths.desanitize, groups), *self._groups}):
            await self._read(GROUPS, group)
        for name in {*await self.entities.subscriptions(), *self.client_metrics}:
            await self._read(CLIENT_METRICS, name)
        for name in (paths.DEFAULT_ENTITY, self.broker_name):
            await self._read(BROKERS, name)
        clients = {*await self.entities.client_entities(), *self._clients}
        await gather_each(self._read_client, clients)

    async def _read_change(self, path: str, data: bytes) -> None:
        entity_path = decode_config_change(path, data)
        client = paths.parse_client_entity(entity_path)
        if client is not None:
            await self._read_client(client)
            return
        entity_type, _, name = entity_path.partition("/")
        await self._read(entity_type, paths.desanitize(name))

    async def _read(self, entity_type: str, name: str) -> None:
        """The overrides of one topic, group or broker; unreadable ones have no effect."""
        try:
            if entity_type == TOPICS:
                await self._read_topic(name)
            elif entity_type == GROUPS:
                await self._read_group(name)
            elif entity_type == CLIENT_METRICS:
                await self._read_client_metrics(name)
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
        self._topics[topic] = without_bad_values(f"topic {topic}", TopicConfig, overrides)
        if not overrides:
            del self._topics[topic]
        for listener in self._topic_listeners:
            listener(topic)

    async def _read_group(self, group_id: str) -> None:
        overrides = await self.entities.read(GROUPS, group_id)
        good = without_bad_values(f"group {group_id}", ConsumerGroupConfig, overrides)
        self._groups[group_id] = ConsumerGroupConfig.of(self.static_config, good)
        if not good:
            del self._groups[group_id]

    async def _read_client_metrics(self, name: str) -> None:
        self.client_metrics.pop(name, None)
        overrides = await self.entities.read(CLIENT_METRICS, name)
        if overrides:
            self.client_metrics[name] = ClientMetricsConfig.of(overrides)

    async def _read_client(self, entity: ClientEntity) -> None:
        try:
            overrides = await self.entities.read_client(entity)
        except RegistryFailedError:
            raise
        except KafkaError as error:
            logger.error("settings of %s have no effect: %s", entity, error)
            return
        if overrides == self.client_overrides(entity):
            return
        self._clients[entity] = overrides
        self.client_change_count += 1
        if not overrides:
            del self._clients[entity]
        for listener in self._client_listeners:
            listener(entity)

    async def _read_broker(self, name: str) -> None:
        overrides = self._readable(name, await self.entities.read(BROKERS, name))
        good = without_bad_values(f"broker {name}", BrokerConfig, _changeable(name, overrides))
        named: Collection[str] = good
        if good != self._wanted.get(name, {}):
            self._wanted[name] = good
            before = self._brokers.get(self.broker_name, {})
            self.broker_config = self._config_in_force()
            named = changed_keys(before, self._brokers.get(self.broker_name, {}))
            for listener in self._broker_listeners:
                listener()
        # Files are read again where their names are others now, or are just given again.
        for listener in self._key_store_listeners if any(map(is_key_store, named)) else ():
            listener()

    def _config_in_force(self) -> BrokerConfig:
        """The settings with all overrides, or with those that fit; of listeners all or none.

        What was left out is tried again with each change: another may have stood against it.
        """
        self._brokers = dict(self._wanted)
        try:
            return self._with_overrides()
        except ConfigError:
            self._brokers = {}
        left = self._pieces()
        tried: list[OwnedOverrides] = []
        while left != tried:  # one that was taken may have made room for another
            tried, left = left, [each for each in left if self._refusal(each)]
        for each in left:
            message = "broker %s: overrides of %s have no effect: %s"
            logger.error(message, each.owner, each.what, self._refusal(each))
        return self._with_overrides()

    def _pieces(self) -> list[OwnedOverrides]:
        """The overrides, those of listeners together."""
        found: dict[tuple[str, str], OwnedOverrides] = {}
        for owner in (paths.DEFAULT_ENTITY, self.broker_name):
            for name, text in self._wanted.get(owner, {}).items():
                is_listeners = name in LISTENER_KEYS or is_of_listener(name)
                what = "listeners" if is_listeners else name
                piece = found.setdefault((owner, what), OwnedOverrides(owner, what, {}))
                piece.overrides[name] = text
        return list(found.values())

    def _refusal(self, piece: OwnedOverrides) -> str:
        """Put a piece in force beside those that are; or why that cannot be."""
        before = self._brokers.get(piece.owner, {})
        self._brokers[piece.owner] = before | piece.overrides
        try:
            self._with_overrides()
        except ConfigError as error:
            self._brokers[piece.owner] = before
            return error.message
        return ""

    def _with_overrides(self) -> BrokerConfig:
        return self.effective_config(
            self.broker_overrides(paths.DEFAULT_ENTITY), self.broker_overrides(self.broker_name)
        )

    def effective_config(self, *overrides: Mapping[str, str]) -> BrokerConfig:
        """The broker's settings with these overrides, later ones over earlier ones."""
        changes: dict[str, Any] = {}
        of_listeners: dict[str, str] = {}
        for layer in overrides:
            for name, text in layer.items():
                if name in DYNAMIC_BROKER_KEYS:
                    changes[BrokerConfig.keys[name].attribute] = text
                elif is_of_listener(name):
                    of_listeners[name] = text
        return self.static_config.replace(**changes).with_listener_settings(of_listeners)

    def decoded(self, overrides: Mapping[str, str]) -> dict[str, str]:
        """Overrides of a broker as the registry keeps them, with their secrets in the clear.

        Raises:
            KafkaError: INVALID_REQUEST for a secret that cannot be decoded.
        """
        return {
            name: self._decoded(name, text) if is_secret(name) else text
            for name, text in overrides.items()
        }

    def encoded(self, overrides: Mapping[str, str]) -> dict[str, str]:
        """The same overrides as the registry is to keep them."""
        return {
            name: self._encoder.encode(text) if self._encoder and is_secret(name) else text
            for name, text in overrides.items()
        }

    def _decoded(self, name: str, text: str) -> str:
        if self._encoder is None:
            raise _no_encoder(name)
        try:
            return self._encoder.decode(text)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name}: {error.message}") from None

    def _readable(self, owner: str, overrides: Mapping[str, str]) -> dict[str, str]:
        """The overrides whose secrets can be decoded; the others are named in the log."""
        good: dict[str, str] = {}
        for name, text in overrides.items():
            try:
                good |= self.decoded({name: text})
            except KafkaError as error:
                logger.error("broker %s: an override has no effect: %s", owner, error.message)
        return good

    def validate_broker(self, name: str, overrides: Mapping[str, str]) -> None:
        """INVALID_REQUEST for overrides of a broker, or of all, that cannot be in force."""
        for key in overrides:
            _check_changeable(name, key)
            if is_secret(key) and self._encoder is None:
                raise _no_encoder(key)
        try:
            for key, text in overrides.items():
                if key in UNUSED_KEYS:
                    UNUSED_KEYS[key][0].parse(key, text)
                if key in THREAD_KEYS and text != self.broker_overrides(name).get(key):
                    self._check_threads(key, text)
            if name == paths.DEFAULT_ENTITY:
                config = self.effective_config(overrides, self.broker_overrides(self.broker_name))
            else:
                defaults = self.broker_overrides(paths.DEFAULT_ENTITY)
                config = self.effective_config(defaults, overrides)
                self._check_listeners(config, overrides)
                named = changed_keys(self._wanted.get(name, {}), overrides) or overrides
                if any(is_key_store(key) or key in LISTENER_KEYS for key in named):
                    self.check_key_stores(config)
            for check in self.checks:
                check(config)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from None

    def _check_listeners(self, config: BrokerConfig, overrides: Mapping[str, str]) -> None:
        """ConfigError where a listener that stays would not be the same.

        A broker cannot change by which of them the others reach it.
        """
        now = self.broker_config
        before = {each.listener_name: each for each in now.listeners}
        for each in config.listeners:
            was = before.get(each.listener_name, each)
            if each != was:
                raise ConfigError(
                    f"listeners={each} ({each.security_protocol}): the listener {was} "
                    f"({was.security_protocol}) cannot change while it is there; remove it first"
                )
        if config.inter_broker_listener_name != now.inter_broker_listener_name:
            raise ConfigError(
                f"listeners={','.join(map(str, config.listeners))}: brokers use "
                f"{now.inter_broker_listener_name} among themselves, which must stay"
            )
        in_force = self.broker_overrides(self.broker_name)
        for name in overrides.keys() | in_force.keys():
            match = re.fullmatch(OF_LISTENER, name)
            if match is None or key_of_listener(name) not in NEW_LISTENER_KEYS - KEY_STORE_KEYS:
                continue
            listener = match[1].upper()
            stays = listener in before and listener in {x.listener_name for x in config.listeners}
            if stays and overrides.get(name) != in_force.get(name):
                raise ConfigError(
                    f"{name}: cannot change while listener {listener} is there; "
                    "remove the listener, or add another one"
                )

    def _check_threads(self, key: str, text: str) -> None:
        """Twice as many at most, and half as many at least, so that a slip does no harm."""
        count = INT.parse(key, text)
        now = self._thread_count(key)
        if not max(1, now // 2) <= count <= now * 2:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{key}={count}: must be from half of the present {now} (and 1) to its double",
            )

    def _thread_count(self, key: str) -> int:
        if key not in UNUSED_THREAD_KEYS:
            return int(getattr(self.broker_config, BrokerConfig.keys[key].attribute))
        layers = (
            self.broker_overrides(self.broker_name),
            self.broker_overrides(paths.DEFAULT_ENTITY),
        )
        return int(next((layer[key] for layer in layers if key in layer), UNUSED_THREAD_KEYS[key]))


def _no_encoder(name: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REQUEST,
        f"{name}: needs password.encoder.secret in the broker's file, by which it is encrypted",
    )


def _check_changeable(owner: str, name: str) -> None:
    """INVALID_REQUEST for a setting that is fixed; unknown names pass, as in Kafka."""
    if is_of_one_broker(name) and owner == paths.DEFAULT_ENTITY:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name}: must be set for a single broker")
    if is_dynamic(name):
        return
    is_known = name in BrokerConfig.known_names() or family_of(name, BrokerConfig.refused)
    if is_known or re.fullmatch(OF_LISTENER, name):
        hint = "; set it for a listener, as listener.name.<name>." + name
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{name}: cannot be changed while the broker runs"
            + (hint if name in KEY_STORE_KEYS or name in NEW_LISTENER_KEYS else ""),
        )


def _changeable(owner: str, overrides: Mapping[str, str]) -> dict[str, str]:
    """The overrides in the registry that can be in force; the others are named in the log."""
    good = {}
    for name, text in overrides.items():
        try:
            _check_changeable(owner, name)
            good[name] = text
        except KafkaError as error:
            logger.error("broker %s: an override has no effect: %s", owner, error.message)
    return good
