"""`ottla topics --alter`."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from ottla.cli.command_error import UsageError
from ottla.cli.terminal import Terminal
from ottla.cli.topics.create import parse_assignment, topic_settings
from ottla.cli.topics.topic_filter import existing_topics

if TYPE_CHECKING:
    from ottla import Admin


def alter_topics(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """Add partitions to the topics that match, and change their settings."""
    if not (arguments.partitions or arguments.config or arguments.delete_config):
        raise UsageError("--alter needs --partitions, --config or --delete-config")
    names = existing_topics(admin, arguments.topic, if_exists=arguments.if_exists)
    if arguments.config or arguments.delete_config:
        _change_settings(admin, names, arguments, terminal)
    if arguments.partitions and names:
        _add_partitions(admin, names, arguments)


def _change_settings(
    admin: Admin, names: list[str], arguments: Namespace, terminal: Terminal
) -> None:
    from ottla.clients.admin.descriptions import AlterConfigOp, ConfigResource

    settings = topic_settings(arguments.config)
    operations = [AlterConfigOp(key, value, "SET") for key, value in settings.items()]
    operations += [AlterConfigOp(key, None, "DELETE") for key in arguments.delete_config]
    terminal.note("'ottla configs' is the tool for settings; this option is kept for old scripts.")
    for name in names:
        admin.incremental_alter_configs({ConfigResource.topic(name): operations})
        terminal.print(f"Updated config for topic {name}.")


def _add_partitions(admin: Admin, names: list[str], arguments: Namespace) -> None:
    assignments = None
    if arguments.replica_assignment:
        replicas = parse_assignment(arguments.replica_assignment)
        # The list covers all partitions, also those that exist; the broker wants the new ones.
        assignments = {
            name: [replicas[p] for p in sorted(replicas)][len(topic.partitions) :]
            for name, topic in admin.describe_topics(names).items()
        }
    admin.create_partitions(dict.fromkeys(names, arguments.partitions), assignments)
