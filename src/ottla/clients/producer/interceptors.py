"""Objects of the application that see each record before it is sent, and what became of it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from ottla.clients.producer.record_metadata import OnDelivery, RecordMetadata
from ottla.config.config_type import ConfigType
from ottla.errors import KafkaError

logger = logging.getLogger(__name__)


class ProducerRecord(NamedTuple):
    """A record as `send` was given it, before serialization."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Any = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptors:
    """A chain: `on_send(record)` returns the record to go on with, in the order of the settings.

    `on_acknowledgement(metadata, error)` is called in the I/O thread. Either method may be absent.
    What an interceptor raises is logged: it must not stop the records.
    """

    def __init__(self, interceptors: Sequence[Any]) -> None:
        self._interceptors = interceptors

    @classmethod
    def of(cls, setting: Sequence[Any]) -> Self | None:
        """The chain that `interceptor.classes` names, None if it names nothing."""
        if not setting:
            return None
        found = [ConfigType.CLASS.parse("interceptor.classes", item) for item in setting]
        return cls([item() if isinstance(item, type) else item for item in found])

    def on_send(
        self, record: ProducerRecord, on_delivery: OnDelivery | None
    ) -> tuple[ProducerRecord, OnDelivery | None]:
        """The record after the chain, and a callback that tells the chain of its delivery."""
        for interceptor in self._interceptors:
            if hasattr(interceptor, "on_send"):
                try:
                    record = interceptor.on_send(record) or record
                except Exception:
                    logger.exception("on_send of %r raised", interceptor)

        def acknowledge(metadata: RecordMetadata | None, error: KafkaError | None) -> None:
            for interceptor in self._interceptors:
                if hasattr(interceptor, "on_acknowledgement"):
                    interceptor.on_acknowledgement(metadata, error)
            if on_delivery is not None:
                on_delivery(metadata, error)

        return record, acknowledge
