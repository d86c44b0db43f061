"""The application's objects that see what a consumer reads and commits."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.config.config_type import ConfigType
from ottla.record.consumer_record import ConsumerRecord
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)


class ConsumerInterceptors:
    """The application's objects that see the records of each poll, and each commit.

    They are a chain: `on_consume(records)` returns the records for the next one.
    `on_commit(offsets)` is called after each commit. Either method may be absent. An interceptor's
    exceptions are logged: they must not stop the records.
    """

    def __init__(self, setting: Sequence[Any]) -> None:
        found = [ConfigType.CLASS.parse("interceptor.classes", item) for item in setting]
        self._interceptors = [item() if isinstance(item, type) else item for item in found]

    def __bool__(self) -> bool:
        return bool(self._interceptors)

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
