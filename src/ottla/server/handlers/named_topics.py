"""The names of topics that a request gives by their ids (KIP-516), for checks and handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from ottla.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from ottla.network.request_context import RequestContext

TopicName = Callable[[UUID], str | None]

UNRESOLVED: Final = "?"
"""The name, which none can have, of a topic whose id this broker does not know."""
FIRST_VERSIONS: Final[Mapping[ApiKey, int]] = {
    ApiKey.PRODUCE: 13,
    ApiKey.OFFSET_COMMIT: 10,
    ApiKey.OFFSET_FETCH: 10,
    ApiKey.TXN_OFFSET_COMMIT: 6,
}
"""The first version of each request that has ids in the place of names.

A start imports this module, so that it does not name the constants of the messages."""


def has_ids(context: RequestContext, key: ApiKey) -> bool:
    """Whether the request gives its topics by their ids."""
    return context.api_version >= FIRST_VERSIONS[key]


def name_topics(topics: Iterable[Any], topic_name: TopicName) -> None:
    """Put its name beside the id of each topic; `topic_name` gives None if there is none.

    A topic that was named before keeps that name, also UNRESOLVED: rights were checked by it.
    """
    for topic in topics:
        topic.name = topic.name or topic_name(topic.topic_id) or UNRESOLVED


def unknown_error(name: str, *, has_ids: bool) -> ErrorCode:
    """The error for a topic, or a partition of it, that this broker does not know."""
    if has_ids and name == UNRESOLVED:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
