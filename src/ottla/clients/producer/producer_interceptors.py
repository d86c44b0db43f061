"""Objects of the application that see each record before it is sent, and its outcome."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Self

from ottla.clients.callbacks import tell
from ottla.config.config_type import ConfigType
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.clients.producer.producer_batch import OnDelivery, RecordMetadata
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
    """A chain: `on_send(record)` returns the record for the next one, in the order of the settings.

    `on_acknowledgement(metadata, error)` is called in the I/O thread. Either method may be absent.
    An interceptor's exceptions are logged: they must not stop the records.
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
        """The record after the chain, and a callback that reports its delivery to the chain."""
        for interceptor in self._interceptors:
            if hasattr(interceptor, "on_send"):
                try:
                    found = interceptor.on_send(record)
                    if not isinstance(found, ProducerRecord | None):
                        what = type(found).__name__
                        raise TypeError(f"on_send returned {what}, not ProducerRecord")
                    record = found or record
                except Exception:
                    logger.exception("on_send of %r raised", interceptor)

        def acknowledge(metadata: RecordMetadata | None, error: KafkaError | None) -> None:
            for interceptor in self._interceptors:
                if hasattr(interceptor, "on_acknowledgement"):
                    heard = interceptor.on_acknowledgement
                    tell("on_acknowledgement of %r", interceptor, heard, metadata, error)
            if on_delivery is not None:
                on_delivery(metadata, error)

        return record, acknowledge
