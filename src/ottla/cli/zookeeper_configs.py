"""Settings as ZooKeeper has them: `ottla configs --zookeeper --describe` without --all.

Like Kafka 2.3's tool it shows what was ever given settings, also where none are left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.cli.command_error import CommandError

if TYPE_CHECKING:
    from kazoo.client import KazooClient

ROOT: Final = "/config"


def configured(client: KazooClient, entity_type: str) -> list[str]:
    """The names of the entities of this type that have a node; "" stands for their default."""
    from kazoo.exceptions import NoNodeError

    from ottla.registry import paths

    try:
        nodes = client.get_children(f"{ROOT}/{entity_type}")
    except NoNodeError:
        return []
    names = sorted(map(paths.desanitize, nodes))
    return ["" if name == paths.DEFAULT_ENTITY else name for name in names]


def settings_of(client: KazooClient, entity_type: str, name: str) -> Mapping[str, str]:
    """The settings of one entity; a topic has to be there."""
    from kazoo.exceptions import NoNodeError

    from ottla.registry import paths
    from ottla.registry.znodes import decode_config

    path = paths.config(entity_type, name or paths.DEFAULT_ENTITY)
    try:
        return decode_config(path, client.get(path)[0] or b"")
    except NoNodeError:
        if entity_type == "topics" and client.exists(paths.topic(name)) is None:
            raise CommandError(f"there is no topic '{name}'") from None
        return {}
