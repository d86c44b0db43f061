"""`ottla topics --list`."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from ottla.cli.terminal import Terminal
from ottla.cli.topics.topic_filter import matching_topics

if TYPE_CHECKING:
    from ottla import Admin
    from ottla.cli.zookeeper_topics import ZooKeeperTopics


def list_topics(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """Print a topic name per line."""
    for name in matching_topics(
        admin, arguments.topic, exclude_internal=arguments.exclude_internal
    ):
        terminal.print(name)


def list_nodes(nodes: ZooKeeperTopics, arguments: Namespace, terminal: Terminal) -> None:
    """The same as ZooKeeper has it, where topics are that wait for their deletion, too."""
    marked = nodes.marked_for_deletion()
    for name in matching_topics(
        nodes, arguments.topic, exclude_internal=arguments.exclude_internal
    ):
        terminal.print(f"{name} - marked for deletion" if name in marked else name)
