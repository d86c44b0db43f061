"""The overrides of topics, brokers and groups in the registry, and the word that they changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.registry import paths
from ottla.registry.tree import NodeExistsError, NoNodeError, Registry, create_or_set
from ottla.registry.znodes import decode_config, encode_config, encode_config_change

TOPICS: Final = "topics"
BROKERS: Final = "brokers"
GROUPS: Final = "groups"


class EntityConfigs:
    """Reads and writes /config; each change leaves a notification for whoever acts on it."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    async def read(self, entity_type: str, entity_name: str) -> dict[str, str]:
        """The overrides; none where there is no node."""
        path = paths.config(entity_type, entity_name)
        try:
            data, _ = await self.registry.get(path)
        except NoNodeError:
            return {}
        return decode_config(path, data)

    async def begin(self, entity_type: str, entity_name: str, config: Mapping[str, str]) -> None:
        """Make the node of something new, also without overrides, as Kafka does for topics."""
        path = paths.config(entity_type, entity_name)
        try:
            await self.registry.create(path, encode_config(config))
        except NodeExistsError:  # what an older one of this name has left
            await self.write(entity_type, entity_name, config)
            return
        if config:
            await self._notify(entity_type, entity_name)

    async def write(self, entity_type: str, entity_name: str, config: Mapping[str, str]) -> None:
        """Put `config` in place of all overrides."""
        path = paths.config(entity_type, entity_name)
        await create_or_set(self.registry, path, encode_config(config))
        await self._notify(entity_type, entity_name)

    async def remove(self, entity_type: str, entity_name: str) -> None:
        """Forget the overrides, and tell of it if there were any."""
        path = paths.config(entity_type, entity_name)
        try:
            data, _ = await self.registry.get(path)
            await self.registry.delete(path)
        except NoNodeError:
            return
        if data != encode_config({}):
            await self._notify(entity_type, entity_name)

    async def _notify(self, entity_type: str, entity_name: str) -> None:
        entity_path = f"{entity_type}/{paths.sanitize(entity_name)}"
        data = encode_config_change(entity_path)
        await self.registry.create(paths.CONFIG_CHANGE_PREFIX, data, sequential=True)
