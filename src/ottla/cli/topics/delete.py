"""`ottla topics --delete`."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from ottla.cli.terminal import Terminal
from ottla.cli.topics.topic_filter import existing_topics

if TYPE_CHECKING:
    from ottla import Admin
    from ottla.cli.zookeeper_topics import ZooKeeperTopics


def delete_topics(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """Delete the topics that match; like Kafka's tool it says nothing when that worked."""
    names = existing_topics(admin, arguments.topic, if_exists=arguments.if_exists)
    if names:
        admin.delete_topics(names)


def delete_nodes(
    admin: Admin, nodes: ZooKeeperTopics, arguments: Namespace, terminal: Terminal
) -> None:
    """The same in the words of the tool that marked topics in ZooKeeper; the brokers do it."""
    marked = nodes.marked_for_deletion()
    for name in existing_topics(nodes, arguments.topic, if_exists=arguments.if_exists):
        if name in marked:
            terminal.print(f"Topic {name} is already marked for deletion.")
            continue
        admin.delete_topics([name])
        terminal.print(
            f"Topic {name} is marked for deletion.\n"
            "Note: This will have no impact if delete.topic.enable is not set to true."
        )
