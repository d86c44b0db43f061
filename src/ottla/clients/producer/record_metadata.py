"""What a producer is told about a record that was written."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.errors import KafkaError

NO_OFFSET = -1
NO_TIMESTAMP = -1


class RecordMetadata(NamedTuple):
    """Where a record was written. `offset` is -1 where the broker does not tell it (acks=0)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    serialized_key_size: int
    serialized_value_size: int


OnDelivery = Callable[[RecordMetadata | None, KafkaError | None], object]
"""Called in the I/O thread, in the order of sending per partition, with metadata or an error."""
