"""`ottla topics --list`."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from ottla.cli.terminal import Terminal
from ottla.cli.topics.topic_filter import matching_topics

if TYPE_CHECKING:
    from ottla import Admin


def list_topics(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """Print a topic name per line."""
    for name in matching_topics(
        admin, arguments.topic, exclude_internal=arguments.exclude_internal
    ):
        terminal.print(name)
