"""`ottla topics --delete`."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from ottla.cli.terminal import Terminal
from ottla.cli.topics.topic_filter import existing_topics

if TYPE_CHECKING:
    from ottla import Admin


def delete_topics(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """Delete the topics that match; like Kafka's tool it says nothing when that worked."""
    names = existing_topics(admin, arguments.topic, if_exists=arguments.if_exists)
    if names:
        admin.delete_topics(names)
