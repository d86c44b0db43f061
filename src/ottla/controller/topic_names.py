"""The names that a topic may have."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.errors import ErrorCode, KafkaError
from ottla.structs import INTERNAL_TOPICS


def refuse_internal(name: str, verb: str) -> None:
    """INVALID_TOPIC_EXCEPTION for an act on an internal topic that no client may do."""
    if name in INTERNAL_TOPICS:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is internal and cannot be {verb} by clients"
        )


def refuse_collision(name: str, existing: Iterable[str]) -> None:
    """'.' and '_' are the same in names of metrics, so two topics may not differ in them alone."""
    if "." not in name and "_" not in name:
        return
    metric_name, length = name.replace(".", "_"), len(name)
    for other in existing:  # of thousands nearly all differ in their length, or at once
        if len(other) == length and other != name and other.replace(".", "_") == metric_name:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{name!r} differs from the topic {other!r} only in '.' and '_', "
                "which names of metrics cannot tell apart",
            )
