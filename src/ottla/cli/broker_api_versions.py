"""`ottla broker-api-versions`: which versions of each API the brokers speak."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.command import Command
from ottla.cli.options import add_bootstrap_server, add_command_config, bootstrap_server
from ottla.cli.property_files import command_settings
from ottla.errors import KafkaError
from ottla.protocol.api_keys import MESSAGES, ApiKey
from ottla.protocol.message import request_class

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping

    from ottla.cli.terminal import Terminal
    from ottla.structs import Node


class BrokerApiVersionsCommand(Command):
    """Asks every broker for the APIs that it offers, and says which versions Ottla would use."""

    name = "broker-api-versions"
    examples = ("ottla broker-api-versions --bootstrap-server localhost:9092",)

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_bootstrap_server(parser)
        add_command_config(parser)

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        servers = bootstrap_server(arguments)
        failed = 0
        with terminal.admin(servers, command_settings(arguments)) as admin:
            for node in sorted(admin.describe_cluster().nodes, key=lambda each: each.id):
                try:
                    text = versions_text(admin.api_versions(node.id))
                except KafkaError as error:
                    failed = 1
                    text = f"ERROR: {error}"
                terminal.print(f"{node_text(node)} -> {text}")
        return failed


def node_text(node: Node) -> str:
    """A broker as Kafka writes it: one without a rack has the rack null."""
    return f"{node.host}:{node.port} (id: {node.id} rack: {node.rack or 'null'})"


def versions_text(offered: Mapping[int, tuple[int, int]]) -> str:
    """The APIs in order of their keys, also those that the broker lacks, in brackets."""
    rows = [api_text(key, offered.get(key)) for key in sorted({*map(int, offered), *MESSAGES})]
    return "(\n\t" + ",\n\t".join(rows) + "\n)"


def api_text(key: int, offered: tuple[int, int] | None) -> str:
    """`Produce(0): 0 to 7 [usable: 7]`; a lone version stands for its range."""
    name = f"{api_name(key)}({key}): "
    if offered is None:
        return f"{name}UNSUPPORTED"
    low, high = offered
    versions = f"{low}" if low == high else f"{low} to {high}"
    return f"{name}{versions}{_usable(key, low, high)}"


def api_name(key: int) -> str:
    """`ListOffsets` for the key 2; UNKNOWN for one that has no name here."""
    try:
        return "".join(word.capitalize() for word in ApiKey(key).name.split("_"))
    except ValueError:
        return "UNKNOWN"


def _usable(key: int, low: int, high: int) -> str:
    """The newest version that both sides know; nothing for an API that Ottla does not define."""
    if key not in MESSAGES:
        return ""
    request = request_class(key)
    if request.max_version < low:
        return " [unusable: node too new]"
    if high < request.min_version:
        return " [unusable: node too old]"
    return f" [usable: {min(high, request.max_version)}]"
