"""Which partition data go to: the setting partitioner.class."""

from __future__ import annotations

from typing import Any, Protocol

from ottla.clients.producer.partitioner import key_hash
from ottla.errors import ErrorCode, KafkaError


class Partitioner(Protocol):
    """Chooses a partition for a key.

    The result is a place in the topic's list of (broker, partition), sorted by both; the broker
    is the one that leads the partition when all are well.
    """

    def partition(self, key: Any, num_partitions: int) -> int: ...


class DefaultPartitioner:
    """By a hash of the key that is the same in every process.

    Numbers are their own hash. Text and bytes are hashed as Kafka's clients of today hash keys.
    """

    def partition(self, key: Any, num_partitions: int) -> int:
        if isinstance(key, int):
            return abs(key) % num_partitions
        if isinstance(key, str):
            key = key.encode()
        if not isinstance(key, bytes):
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"key {key!r} is a {type(key).__name__}; without partitioner.class it must be "
                "a number, a text or bytes",
            )
        return key_hash(key) % num_partitions
