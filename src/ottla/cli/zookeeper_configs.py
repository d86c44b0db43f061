"""Settings as ZooKeeper has them: `ottla configs --zookeeper --describe` without --all.

As Kafka 2.3's tool does, it also shows entities whose settings were all removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.cli.command_error import CommandError
from ottla.cli.zookeeper_session import child_names, node_data

if TYPE_CHECKING:
    from kazoo.client import KazooClient


def configured(client: KazooClient, entity_type: str) -> list[str]:
    """The names of the entities of this type that have a node; "" stands for their default."""
    from ottla.registry import paths

    names = sorted(map(paths.desanitize, child_names(client, paths.configs(entity_type))))
    return ["" if name == paths.DEFAULT_ENTITY else name for name in names]


def stored_settings(client: KazooClient, entity_type: str, name: str) -> dict[str, str] | None:
    """The settings of one entity, in the order in which they are kept; None without a node."""
    from ottla.registry import paths
    from ottla.registry.znodes import decode_config

    path = paths.config(entity_type, name or paths.DEFAULT_ENTITY)
    data = node_data(client, path)
    return None if data is None else decode_config(path, data)


def settings_of(client: KazooClient, entity_type: str, name: str) -> Mapping[str, str]:
    """The settings of the entity that was asked for; a topic has to be there."""
    from ottla.registry import paths

    stored = stored_settings(client, entity_type, name)
    if stored is None and entity_type == "topics" and client.exists(paths.topic(name)) is None:
        raise CommandError(f"there is no topic '{name}'")
    return stored or {}
