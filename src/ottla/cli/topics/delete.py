"""`ottla topics --delete`."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from ottla.cli.command_error import CommandError
from ottla.cli.terminal import Terminal
from ottla.cli.topics.topic_filter import TopicNames, existing_topics
from ottla.errors import KafkaError
from ottla.structs import INTERNAL_TOPICS

if TYPE_CHECKING:
    from ottla import Admin
    from ottla.cli.zookeeper_topics import ZooKeeperTopics


def delete_topics(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """Delete the topics that match and print each; a person confirms what a pattern matches."""
    names = chosen_topics(admin, arguments.topic, if_exists=arguments.if_exists)
    if not names:
        return
    if names != [arguments.topic]:
        confirm(names, arguments, terminal)
    failed: dict[str, KafkaError] = {}
    try:
        admin.delete_topics(names)
    except KafkaError as error:
        results = getattr(error, "results", {})
        failed = {name: each for name, each in results.items() if isinstance(each, KafkaError)}
        if len(names) == 1 or not failed:
            raise
    for name in names:
        if name not in failed:
            terminal.print(f"Deleted topic {name}.")
    for name, refusal in failed.items():
        terminal.note(f"Error: topic '{name}' was not deleted: {refusal.message}")
    if failed:
        raise CommandError(f"{len(failed)} of {len(names)} topics were not deleted")


def chosen_topics(source: TopicNames, expression: str, *, if_exists: bool) -> list[str]:
    """The topics to delete; an internal one only where it is named itself."""
    matched = existing_topics(source, expression, if_exists=if_exists)
    named = {part.strip(" \"'") for part in expression.split(",")}
    names = [name for name in matched if name not in INTERNAL_TOPICS or name in named]
    if matched and not names:
        raise CommandError(
            f"'{expression}' matches internal topics only, which a pattern does not delete: "
            f"{', '.join(matched)}"
        )
    return names


def confirm(names: list[str], arguments: Namespace, terminal: Terminal) -> None:
    """List what goes; on a terminal the number of topics has to be typed, unless with --force."""
    terminal.note(f"Topics that '{arguments.topic}' matches, to be deleted with their records:")
    for name in names:
        terminal.note(f"  {name}")
    if arguments.force or not terminal.can_ask:
        return
    answer = terminal.ask(f"Type their number, {len(names)}, to delete them: ")
    if answer != str(len(names)):
        raise CommandError(f"nothing was deleted: '{answer}' is not {len(names)}")


def delete_nodes(
    admin: Admin, nodes: ZooKeeperTopics, arguments: Namespace, terminal: Terminal
) -> None:
    """The same in the words of the tool that marked topics in ZooKeeper; the brokers do it."""
    marked = nodes.marked_for_deletion()
    names = chosen_topics(nodes, arguments.topic, if_exists=arguments.if_exists)
    if names and names != [arguments.topic]:
        confirm(names, arguments, terminal)
    for name in names:
        if name in marked:
            terminal.print(f"Topic {name} is already marked for deletion.")
            continue
        admin.delete_topics([name])
        terminal.print(
            f"Topic {name} is marked for deletion.\n"
            "Note: This will have no impact if delete.topic.enable is not set to true."
        )
