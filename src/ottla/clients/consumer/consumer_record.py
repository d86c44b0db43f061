"""The record that a consumer returns, and the interceptors that see it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.config.config_type import ConfigType
from ottla.structs import NO_EPOCH, TopicPartition

logger = logging.getLogger(__name__)


class TimestampType(IntEnum):
    """Which side set the timestamp of a record: its producer, or the broker at the append."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ConsumerRecord(NamedTuple):
    """One record and its place. Key and value are bytes, or a deserializer's results."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...] = ()
    leader_epoch: int = NO_EPOCH


# Interceptors: the application's objects that see the records of each poll, and each commit.


class ConsumerInterceptors:
    """A chain: `on_consume(records)` returns the records for the next one.

    `on_commit(offsets)` is called after each commit. Either method may be absent. An interceptor's
    exceptions are logged: they must not stop the records.
    """

    def __init__(self, setting: Sequence[Any]) -> None:
        found = [ConfigType.CLASS.parse("interceptor.classes", item) for item in setting]
        self._interceptors = [item() if isinstance(item, type) else item for item in found]

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        for interceptor in self._interceptors:
            if hasattr(interceptor, "on_consume"):
                try:
                    records = interceptor.on_consume(records)
                except Exception:
                    logger.exception("on_consume of %r raised", interceptor)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for interceptor in self._interceptors:
            if hasattr(interceptor, "on_commit"):
                try:
                    interceptor.on_commit(offsets)
                except Exception:
                    logger.exception("on_commit of %r raised", interceptor)
