"""What a consumer reads."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from ottla.structs import NO_EPOCH


class TimestampType(IntEnum):
    """Who set the timestamp of a record: its producer, or the broker when it appended it."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ConsumerRecord(NamedTuple):
    """One record and where it stands. Key and value are bytes, or what a deserializer made."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...] = ()
    leader_epoch: int = NO_EPOCH
