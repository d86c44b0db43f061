"""The overrides of topics, brokers and groups in the registry, and the word that they changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.registry import paths
from ottla.registry.tree import (
    Create,
    Delete,
    NoNodeError,
    Operation,
    Registry,
    Set,
    create_or_set,
)
from ottla.registry.znodes import decode_config, encode_config, encode_config_change

TOPICS: Final = "topics"
BROKERS: Final = "brokers"
GROUPS: Final = "groups"


class ConfigPlan(NamedTuple):
    """Parts of a `multi`, and whether somebody has to be told of them afterwards (`notify`)."""

    operations: tuple[Operation, ...]
    has_news: bool


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

    async def write(self, entity_type: str, entity_name: str, config: Mapping[str, str]) -> None:
        """Put `config` in place of all overrides."""
        path = paths.config(entity_type, entity_name)
        await create_or_set(self.registry, path, encode_config(config))
        await self.notify(entity_type, entity_name)

    async def plan(
        self, entity_type: str, entity_name: str, config: Mapping[str, str] | None
    ) -> ConfigPlan:
        """How to put `config` in place of all overrides; None takes the node away.

        A node without overrides is made as well, as Kafka does for topics. One that is gone may
        have been taken away by a controller that did not live to tell of it.
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
        entity_path = f"{entity_type}/{paths.sanitize(entity_name)}"
        data = encode_config_change(entity_path)
        await self.registry.create(paths.CONFIG_CHANGE_PREFIX, data, sequential=True)
