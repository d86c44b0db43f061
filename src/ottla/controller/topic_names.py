"""Which names a topic may have."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from ottla.errors import ErrorCode, KafkaError
from ottla.structs import INTERNAL_TOPICS

MAX_NAME_LENGTH: Final = 249
"""A directory name of 255 holds the name, a dash, and the digits of a partition."""

_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_SHOWN_LENGTH: Final = 64


def validate_topic_name(name: str) -> None:
    """INVALID_TOPIC_EXCEPTION for what cannot be the name of a topic."""
    if len(name) > MAX_NAME_LENGTH:
        reason = f"it has {len(name)} characters, {MAX_NAME_LENGTH} are allowed"
    elif name in (".", ".."):
        reason = "it would be a directory of its own"
    elif _NAME.fullmatch(name) is None:
        reason = "it must be made of ASCII letters, digits, '.', '_' and '-'"
    else:
        return
    shown = name if len(name) <= _SHOWN_LENGTH else name[:_SHOWN_LENGTH] + "..."
    raise KafkaError(
        ErrorCode.INVALID_TOPIC_EXCEPTION, f"{shown!r} cannot be a topic's name: {reason}"
    )


def refuse_internal(name: str, verb: str) -> None:
    """INVALID_TOPIC_EXCEPTION where a client wants to do to an internal topic what it may not."""
    if name in INTERNAL_TOPICS:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is internal and cannot be {verb} by clients"
        )


def refuse_collision(name: str, existing: Iterable[str]) -> None:
    """'.' and '_' are the same in names of metrics, so two topics may not differ in them alone."""
    if "." not in name and "_" not in name:
        return
    metric_name = name.replace(".", "_")
    for other in existing:
        if other.replace(".", "_") == metric_name and other != name:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{name!r} differs from the topic {other!r} only in '.' and '_', "
                "which names of metrics cannot tell apart",
            )
