"""Which topics an expression of the user names."""

from __future__ import annotations

import re
from typing import Protocol

from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.options import did_you_mean
from ottla.structs import INTERNAL_TOPICS


class TopicNames(Protocol):
    """Whoever knows which topics there are: the brokers, or ZooKeeper."""

    def list_topics(self) -> set[str]: ...


def topic_pattern(expression: str) -> re.Pattern[str]:
    """The regular expression of a topic list: quotes and blanks drop out, a comma means 'or'."""
    text = expression.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"'{expression}' is not a regular expression: {error}") from None


def matching_topics(
    source: TopicNames, expression: str | None, *, exclude_internal: bool = False
) -> list[str]:
    """The names, in order, of the topics that the expression matches as a whole."""
    names = sorted(source.list_topics())
    if exclude_internal:
        names = [name for name in names if name not in INTERNAL_TOPICS]
    if expression is None:
        return names
    pattern = topic_pattern(expression)
    return [name for name in names if pattern.fullmatch(name)]


def existing_topics(
    source: TopicNames,
    expression: str,
    *,
    if_exists: bool = False,
    exclude_internal: bool = False,
) -> list[str]:
    """`matching_topics`, and an error where there are none, unless that is allowed."""
    names = matching_topics(source, expression, exclude_internal=exclude_internal)
    if not names and not if_exists:
        near = did_you_mean(expression, source.list_topics())
        raise CommandError(f"topic '{expression}' does not exist{near}")
    return names
