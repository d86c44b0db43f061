"""`ottla topics --alter`."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Final

from ottla.cli.command_error import UsageError
from ottla.cli.terminal import Terminal
from ottla.cli.topics.create import parse_assignment, topic_settings
from ottla.cli.topics.topic_filter import existing_topics

if TYPE_CHECKING:
    from ottla import Admin

CONFIGS_WARNING: Final = (
    "WARNING: Altering topic configuration from this script has been deprecated and may be "
    "removed in future releases.\n"
    "         Going forward, please use 'ottla configs' for this functionality"
)
KEYS_WARNING: Final = (
    "WARNING: If partitions are increased for a topic that has a key, the partition logic or "
    "ordering of the messages will be affected"
)
"""Kafka's tool says so where it changes the nodes itself, with --zookeeper."""


def alter_topics(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """Add partitions to the topics that match, and change their settings."""
    if not (arguments.partitions or arguments.config or arguments.delete_config):
        raise UsageError("--alter needs --partitions, --config or --delete-config")
    names = existing_topics(admin, arguments.topic, if_exists=arguments.if_exists)
    if arguments.config or arguments.delete_config:
        _change_settings(admin, names, arguments, terminal)
    if arguments.partitions:
        for name in names:
            _add_partitions(admin, name, arguments, terminal)


def _change_settings(
    admin: Admin, names: list[str], arguments: Namespace, terminal: Terminal
) -> None:
    from ottla.clients.admin.descriptions import AlterConfigOp, ConfigResource

    settings = topic_settings(arguments.config)
    operations = [AlterConfigOp(key, value, "SET") for key, value in settings.items()]
    operations += [AlterConfigOp(key, None, "DELETE") for key in arguments.delete_config]
    for name in names:
        terminal.print(CONFIGS_WARNING)
        admin.incremental_alter_configs({ConfigResource.topic(name): operations})
        terminal.print(f"Updated config for topic {name}.")


def _add_partitions(admin: Admin, name: str, arguments: Namespace, terminal: Terminal) -> None:
    assignments = None
    if arguments.zookeeper:
        terminal.print(KEYS_WARNING)
    if arguments.replica_assignment:
        replicas = parse_assignment(arguments.replica_assignment)
        # The list covers all partitions, also those that exist; the broker wants the new ones.
        existing = len(admin.describe_topics([name])[name].partitions)
        assignments = {name: [replicas[p] for p in sorted(replicas)][existing:]}
    admin.create_partitions({name: arguments.partitions}, assignments)
    if arguments.zookeeper:
        terminal.print("Adding partitions succeeded!")
