"""The names in an application: its topics, its folder, the groups of its sinks."""

from __future__ import annotations

import re

STATE_DIR = "streams-state"
REPARTITION = "repartition"
QUERY_ID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(\.\d+)?"


def check_application_id(application_id: str) -> None:
    """Refuse an id that cannot be part of the names of topics and of a folder."""
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", application_id):
        raise ValueError(
            f"application id '{application_id}': may have letters, digits, '.', '_' and '-', and "
            "does not begin with '.'"
        )


def internal_topic(application_id: str, name: str) -> str:
    """The name of a topic that belongs to an application."""
    return f"{application_id}-{name}-{REPARTITION}"


def is_internal(topic: str, application_id: str) -> bool:
    """Whether a topic belongs to an application."""
    return topic.startswith(f"{application_id}-") and topic.endswith(f"-{REPARTITION}")


def is_group_of(group_id: str, application_id: str) -> bool:
    """Whether a group holds the decisions of an application's sink: its name has the query's id."""
    return re.fullmatch(f"{re.escape(application_id)}-{QUERY_ID}", group_id) is not None
