"""The names of topics that a request gives by their ids (KIP-516), for checks and handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.structs import NO_UUID

TopicName = Callable[[UUID], str | None]

UNRESOLVED: Final = ""
"""The name, which none can have, of a topic whose id this broker does not know."""


def name_topics(topics: Iterable[Any], topic_name: TopicName) -> None:
    """Put its name beside the id of each topic; `topic_name` gives None if there is none."""
    for topic in topics:
        if topic.topic_id != NO_UUID:
            topic.name = topic_name(topic.topic_id) or UNRESOLVED


def unknown_error(name: str, *, has_ids: bool) -> ErrorCode:
    """The error for a topic, or a partition of it, that this broker does not know."""
    if has_ids and name == UNRESOLVED:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
