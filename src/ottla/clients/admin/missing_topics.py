"""Creates the topics of a program that may start several times at the same moment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.clients.admin.admin import Admin
    from ottla.clients.admin.descriptions import NewTopic


def create_missing_topics(admin: Admin, wanted: Iterable[NewTopic]) -> list[str]:
    """Create those topics that do not exist; returns the names of those that were created here.

    One that another instance, or a broker for a client, creates at the same moment is taken as it
    is. Raises KafkaError if a topic cannot be created.
    """
    existing = admin.list_topics()
    return [new.name for new in wanted if new.name not in existing and _is_created(admin, new)]


def _is_created(admin: Admin, topic: NewTopic) -> bool:
    try:
        admin.create_topics([topic])
    except KafkaError as error:
        if error.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        return False
    return True
