"""Where `ottla acls` finds ACLs, and the resources and words that its options name."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from ottla.cli.command_error import UsageError
from ottla.cli.options import bootstrap_server, key_values
from ottla.cli.property_files import command_settings, zookeeper_settings
from ottla.cli.zookeeper_acls import stored_acls

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Iterator, Mapping

    from ottla.cli.terminal import Terminal
    from ottla.security.acls import AclBinding, AclBindingFilter, Named


N = TypeVar("N", bound="Named")
RESOURCES: Final = {
    "topic": "TOPIC",
    "group": "GROUP",
    "transactional_id": "TRANSACTIONAL_ID",
    "delegation_token": "DELEGATION_TOKEN",
    "user_principal": "USER",
}


class AclSource(Protocol):
    """Reads and writes ACLs: an admin client, or ZooKeeper."""

    def describe_acls(self, wanted: AclBindingFilter | None = None) -> list[AclBinding]: ...

    def create_acls(self, bindings: Iterable[AclBinding]) -> None: ...

    def delete_acls(
        self, filters: Iterable[AclBindingFilter]
    ) -> Mapping[AclBindingFilter, list[AclBinding]]: ...


def named_resources(arguments: Namespace) -> list[tuple[str, str]]:
    """The types and names of the resources that the options name, but for the cluster."""
    return [
        (type_, name.strip())
        for option, type_ in RESOURCES.items()
        for name in getattr(arguments, option)
    ]


@contextmanager
def open_source(arguments: Namespace, terminal: Terminal) -> Iterator[AclSource]:
    """The admin client, or ZooKeeper where --authorizer-properties names one."""
    if not arguments.authorizer_properties:
        servers = bootstrap_server(arguments)
        with terminal.admin(servers, command_settings(arguments)) as admin:
            yield admin
        return
    properties = key_values(arguments.authorizer_properties)
    connect = properties.get("zookeeper.connect")
    if not connect:
        raise UsageError("--authorizer-properties needs zookeeper.connect=HOST:PORT/PATH")

    with stored_acls(zookeeper_settings(connect, arguments)) as stored:
        yield stored


def parsed(table: type[N], word: str, option: str) -> N:
    """The member that the word of an option names."""
    try:
        return table.parse(word)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
