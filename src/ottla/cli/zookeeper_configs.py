"""Settings in the registry, read and changed by commands with `--zookeeper`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.cli.command_error import CommandError
from ottla.cli.zookeeper_session import child_names, node_data
from ottla.registry import paths
from ottla.registry.znodes import decode_config, encode_config, encode_config_change
from ottla.structs import ClientEntity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kazoo.client import KazooClient

PLACES: Final = {"user": "users", "client_id": "clients", "ip": "ips"}
"""Where the components of a client entity lie."""


def configured(client: KazooClient, entity_type: str) -> list[str]:
    """The names of the entities of this type that have a node; "" stands for their default."""

    names = sorted(map(paths.desanitize, child_names(client, paths.configs(entity_type))))
    return ["" if name == paths.DEFAULT_ENTITY else name for name in names]


def stored_settings(client: KazooClient, entity_type: str, name: str) -> dict[str, str] | None:
    """The settings of one entity, in the order in which they are kept; None without a node."""

    path = paths.config(entity_type, name or paths.DEFAULT_ENTITY)
    data = node_data(client, path)
    return None if data is None else decode_config(path, data)


def settings_of(client: KazooClient, entity_type: str, name: str) -> Mapping[str, str]:
    """The settings of the entity that was asked for; a topic has to be there."""

    stored = stored_settings(client, entity_type, name)
    if stored is None and entity_type == "topics" and client.exists(paths.topic(name)) is None:
        raise CommandError(f"there is no topic '{name}'")
    return stored or {}


def client_entities(
    client: KazooClient, components: Mapping[str, str | None]
) -> Iterator[ClientEntity]:
    """The entities with these components, in the order of their names; None stands for each."""

    attributes = [attribute for attribute in ClientEntity._fields if attribute in components]
    found = [ClientEntity()]
    for attribute in attributes:
        name, place = components[attribute], PLACES[attribute]
        longer = []
        for entity in found:
            names: list[str | None] = [name]
            if name is None:
                below = "/".join(filter(None, ("/config", paths.client_entity(entity), place)))
                nodes = sorted(map(paths.desanitize, child_names(client, below)))
                names = ["" if each == paths.DEFAULT_ENTITY else each for each in nodes]
            longer += [entity._replace(**{attribute: each}) for each in names]
        found = longer
    yield from found


def client_settings(client: KazooClient, entity: ClientEntity) -> dict[str, str]:
    """The quotas and credentials of a user, client id or address."""

    path = f"/config/{paths.client_entity(entity)}"
    return decode_config(path, node_data(client, path) or b"")


def change_client(
    client: KazooClient,
    entity: ClientEntity,
    change: Callable[[dict[str, str]], Mapping[str, str]],
) -> None:
    """Write the settings of an entity as `change` returns them, and have the brokers read them."""
    from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

    entity_path = paths.client_entity(entity)
    path = f"/config/{entity_path}"
    while True:
        try:
            data, stat = client.get(path)
            after = encode_config(change(decode_config(path, data or b"")))
            client.set(path, after, version=stat.version)
            break
        except NoNodeError:
            try:
                client.create(path, encode_config(change({})), makepath=True)
                break
            except NodeExistsError:
                continue  # a broker was faster
        except BadVersionError:
            continue  # likewise
    notice = encode_config_change(entity_path)
    client.create(paths.CONFIG_CHANGE_PREFIX, notice, sequence=True, makepath=True)
