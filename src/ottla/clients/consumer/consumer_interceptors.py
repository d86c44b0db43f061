"""The application's objects that see what a consumer reads and commits."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.clients.callbacks import tell
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.config.config_type import ConfigType
from ottla.record.consumer_record import ConsumerRecord
from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)


class ConsumerInterceptors:
    """The application's objects that see the records of each poll, and each commit.

    They are a chain: `on_consume(records)` returns the records for the next one, None for the same.
    `on_commit(offsets)` is called after each commit. Either method may be absent. An interceptor's
    exceptions are logged, as are results that are no records: they must not stop the records.
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
                    found = interceptor.on_consume(records)
                    records = records if found is None else _checked(found)
                except Exception:
                    logger.exception("on_consume of %r raised", interceptor)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for interceptor in self._interceptors:
            if hasattr(interceptor, "on_commit"):
                tell("on_commit of %r", interceptor, interceptor.on_commit, offsets)


def _checked(found: Iterable[Any]) -> list[ConsumerRecord]:
    """The records that an interceptor has returned; TypeError for anything else."""
    records = list(found)
    for each in records:
        if not isinstance(each, ConsumerRecord):
            raise TypeError(f"on_consume returned {type(each).__name__}, not ConsumerRecord")
    return records
