"""The error for a name that no topic may have, which brokers and clients share."""

from __future__ import annotations

from typing import Final

from ottla.errors import ErrorCode, KafkaError
from ottla.structs import MAX_TOPIC_NAME_LENGTH, is_topic_name

_SHOWN_LENGTH: Final = 64


def validate_topic_name(name: object) -> None:
    """INVALID_TOPIC_EXCEPTION for a name that no topic, and so no directory, may have."""
    if is_topic_name(name):
        return
    if not isinstance(name, str):
        reason = f"it is of the type {type(name).__name__}, and must be a str"
    elif len(name) > MAX_TOPIC_NAME_LENGTH:
        reason = f"it has {len(name)} characters, {MAX_TOPIC_NAME_LENGTH} are allowed"
    elif name in (".", ".."):
        reason = "it would be a directory of its own"
    else:
        reason = "it must be made of ASCII letters, digits, '.', '_' and '-'"
    raise KafkaError(
        ErrorCode.INVALID_TOPIC_EXCEPTION, f"{_shown(name)} cannot be a topic's name: {reason}"
    )


def _shown(name: object) -> str:
    """A name as an error shows it, or the beginning of a long one."""
    if not isinstance(name, str):
        text = repr(name)
        return text if len(text) <= _SHOWN_LENGTH else text[:_SHOWN_LENGTH] + "..."
    return repr(name if len(name) <= _SHOWN_LENGTH else name[:_SHOWN_LENGTH] + "...")
