"""Objects of the application that see the records of each poll, and each commit."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.clients.consumer.consumer_record import ConsumerRecord
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.config.config_type import ConfigType
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)


class ConsumerInterceptors:
    """A chain: `on_consume(records)` returns the records to go on with, `on_commit(offsets)` sees.

    Either method may be absent. What an interceptor raises is logged: it must not stop the records.
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
