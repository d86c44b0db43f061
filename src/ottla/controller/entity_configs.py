"""The overrides of topics, brokers, groups and clients in the registry, and the notifications of
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ottla.registry import paths
from ottla.registry.tree import (
    BadVersionError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Operation,
    Registry,
    Set,
    create_or_set,
    ensure_path,
)
from ottla.registry.znodes import decode_config, encode_config, encode_config_change
from ottla.runtime import Slices
from ottla.runtime.scheduler import gather_each
from ottla.structs import ClientEntity, NamedTuple

TOPICS: Final = "topics"
BROKERS: Final = "brokers"
GROUPS: Final = "groups"
CLIENT_METRICS: Final = "client-metrics"

SLICE_ENTITIES: Final = 2000
NO_NODE: Final = -1
"""In place of the version of a node that is not there."""


class ConfigPlan(NamedTuple):
    """Parts of a `multi`, and whether brokers must be notified afterwards (`notify`)."""

    operations: tuple[Operation, ...]
    has_news: bool


class EntityConfigs:
    """Reads and writes /config; each change leaves a notification for the brokers."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._slices = Slices()

    async def read(self, entity_type: str, entity_name: str) -> dict[str, str]:
        """The overrides; none where there is no node."""
        path = paths.config(entity_type, entity_name)
        try:
            data, _ = await self.registry.get(path)
        except NoNodeError:
            return {}
        return decode_config(path, data)

    async def write(self, entity_type: str, entity_name: str, config: Mapping[str, str]) -> None:
        """Put `config` in place of all overrides."""
        path = paths.config(entity_type, entity_name)
        if entity_type == CLIENT_METRICS:  # Kafka on ZooKeeper has none, and makes no node
            await ensure_path(self.registry, paths.CONFIG_CLIENT_METRICS)
        await create_or_set(self.registry, path, encode_config(config))
        await self.notify(entity_type, entity_name)

    async def plan(
        self, entity_type: str, entity_name: str, config: Mapping[str, str] | None
    ) -> ConfigPlan:
        """How to put `config` in place of all overrides; None takes the node away.

        A node without overrides is made as well, as Kafka does for topics. One that is gone may
        have been removed by a controller that died before it notified the brokers.
        """
        path = paths.config(entity_type, entity_name)
        nothing = encode_config({})
        try:
            before, _ = await self.registry.get(path)
        except NoNodeError:
            before = None
        if config is None:
            return ConfigPlan(() if before is None else (Delete(path),), before != nothing)
        data = encode_config(config)
        has_news = bool(config) or before not in (None, nothing)
        return ConfigPlan((Create(path, data) if before is None else Set(path, data),), has_news)

    async def notify(self, entity_type: str, entity_name: str) -> None:
        """Have all brokers read these overrides again."""
        await self._notify(f"{entity_type}/{paths.sanitize(entity_name)}")

    async def _notify(self, entity_path: str) -> None:
        data = encode_config_change(entity_path)
        await self.registry.create(paths.CONFIG_CHANGE_PREFIX, data, sequential=True)

    async def subscriptions(self) -> list[str]:
        """The names of the subscriptions to clients' metrics."""
        return [paths.desanitize(name) for name in await self._children("/config/client-metrics")]

    async def client_entities(self) -> list[ClientEntity]:
        """The users, client ids and addresses that have a node."""
        found: list[ClientEntity] = []
        for place in ("users", "clients", "ips"):
            names = await self._children(f"/config/{place}")
            async for name in self._slices.over(names, SLICE_ENTITIES):
                entity = paths.parse_client_entity(f"{place}/{name}")
                found += () if entity is None else (entity,)
        users = [entity for entity in found if entity.user is not None]
        for below in await gather_each(self._clients_of, users):
            found += below
        return found

    async def _clients_of(self, user: ClientEntity) -> list[ClientEntity]:
        path = f"{paths.client_entity(user)}/clients"
        entities = [
            paths.parse_client_entity(f"{path}/{name}")
            for name in await self._children(f"/config/{path}")
        ]
        return [entity for entity in entities if entity is not None]

    async def _children(self, path: str) -> list[str]:
        try:
            return await self.registry.children(path)
        except NoNodeError:
            return []

    async def read_client(self, entity: ClientEntity) -> dict[str, str]:
        """The quotas and the credentials of a client entity; none where there is no node."""
        return (await self._read_versioned(f"/config/{paths.client_entity(entity)}"))[0]

    async def change_client(
        self, entity: ClientEntity, change: Callable[[dict[str, str]], Mapping[str, str]]
    ) -> None:
        """Write the values as `change` returns them; it gets them again if another has written.

        Quotas and credentials share a node: a change keeps the keys that it does not know.
        """
        entity_path = paths.client_entity(entity)
        path = f"/config/{entity_path}"
        while True:
            before, version = await self._read_versioned(path)
            data = encode_config(change(dict(before)))
            try:
                if version == NO_NODE:
                    await ensure_path(self.registry, path.rpartition("/")[0])
                    await self.registry.create(path, data)
                else:
                    await self.registry.set(path, data, version)
                break
            except (NodeExistsError, NoNodeError, BadVersionError):
                continue  # another writer was faster: its values are changed next
        await self._notify(entity_path)

    async def _read_versioned(self, path: str) -> tuple[dict[str, str], int]:
        try:
            data, stat = await self.registry.get(path)
        except NoNodeError:
            return {}, NO_NODE
        return decode_config(path, data), stat.version
