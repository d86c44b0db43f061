"""The names in an application: its topics, its folder, the groups of its sinks."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable
from pathlib import Path

from ottla.runtime.local_disk import LocalDiskLock

STATE_DIR = "streams-state"
LOCK_FILE = ".lock"
HELD = (errno.EAGAIN, errno.EWOULDBLOCK)
REPARTITION = "repartition"
CHANGELOG = "changelog"
QUERY_ID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(\.\d+)?"


def check_application_id(application_id: str) -> None:
    """Refuse an id that cannot be part of the names of topics and of a folder."""
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", application_id):
        raise ValueError(
            f"application id '{application_id}': may have letters, digits, '.', '_' and '-', and "
            "does not begin with '.'"
        )


def lock_folder(folder: Path) -> LocalDiskLock | None:
    """Hold an application's folder until the release; None on a file system without locks.

    ValueError where an instance runs in it: each would replace the files of the other.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return LocalDiskLock(str(folder / LOCK_FILE))
    except OSError as error:
        if error.errno in HELD:
            raise ValueError(
                f"an instance of {folder.name} runs in {folder}: another one needs a state_dir of "
                "its own"
            ) from None
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
        return None


def internal_topic(application_id: str, name: str) -> str:
    """The name of a topic that belongs to an application."""
    return f"{application_id}-{name}-{REPARTITION}"


def changelog_topic(application_id: str, query: str) -> str:
    """The name of the topic that holds the state of a query."""
    return f"{application_id}-{query}-{CHANGELOG}"


def is_internal(topic: str, application_id: str) -> bool:
    """Whether a topic belongs to an application."""
    ends = (f"-{REPARTITION}", f"-{CHANGELOG}")
    return topic.startswith(f"{application_id}-") and topic.endswith(ends)


def applications_of(group_ids: Iterable[str]) -> set[str]:
    """The applications whose sinks have decisions in these groups."""
    found = (re.fullmatch(f"(.+)-{QUERY_ID}", each) for each in group_ids)
    return {each[1] for each in found if each is not None}


def is_group_of(group_id: str, application_id: str) -> bool:
    """Whether a group is that of an application's instances, or holds decisions of its sinks."""
    decisions = f"{re.escape(application_id)}-{QUERY_ID}"
    return group_id == application_id or re.fullmatch(decisions, group_id) is not None
