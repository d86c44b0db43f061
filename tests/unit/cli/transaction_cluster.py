"""A cluster with transactions in it, as the commands see it through their admin client."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from ottla.clients.admin.descriptions import TopicDescription, TopicPartitionInfo
from ottla.clients.admin.transactions import (
    HangingTransaction,
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
)
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import TopicPartition

MINUTE_MS = 60_000


class TransactionCluster:
    """Producers by partition, and transactional ids; all changes are kept in `changes`."""

    def __init__(self) -> None:
        self.producers: dict[TopicPartition, list[ProducerDescription]] = {}
        self.ids: dict[str, TransactionDescription] = {}
        self.replicas: tuple[int, ...] = (0,)
        self.asked: list[Any] = []
        self.changes: list[Any] = []

    def __enter__(self) -> TransactionCluster:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def add_producer(
        self, partition: TopicPartition, producer_id: int, start: int | None, minutes: int = 0
    ) -> None:
        """A producer that wrote for the last time so many minutes ago."""
        last_ms = time.time_ns() // 1_000_000 - minutes * MINUTE_MS
        producer = ProducerDescription(producer_id, 3, 41, last_ms, 5, start)
        self.producers.setdefault(partition, []).append(producer)

    def add_id(self, name: str, producer_id: int, *partitions: TopicPartition) -> None:
        """An id with these partitions in its transaction; without them nothing is open."""
        state = "Ongoing" if partitions else "CompleteAbort"
        start_ms = time.time_ns() // 1_000_000 - 5000 if partitions else None
        self.ids[name] = TransactionDescription(
            1, state, producer_id, 3, 60_000, start_ms, frozenset(partitions)
        )

    # What commands call

    def list_topics(self) -> set[str]:
        return {partition.topic for partition in self.producers}

    def describe_topics(self, names: list[str]) -> dict[str, TopicDescription]:
        return {
            name: TopicDescription(
                name,
                partitions=[
                    TopicPartitionInfo(number, 0, 0, self.replicas, self.replicas)
                    for topic, number in self.producers
                    if topic == name
                ],
            )
            for name in names
        }

    def list_transactions(
        self, producer_ids: Any = (), longer_than_ms: Any = None, id_pattern: Any = None
    ) -> list[TransactionListing]:
        self.asked.append((longer_than_ms, id_pattern))
        if id_pattern == "(":
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, "no")
        return [
            TransactionListing(name, each.coordinator_id, each.producer_id, each.state)
            for name, each in self.ids.items()
            if not producer_ids or each.producer_id in producer_ids
        ]

    def describe_transactions(self, names: list[str]) -> dict[str, TransactionDescription]:
        for name in names:
            if name not in self.ids:
                raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"no {name}")
        return {name: self.ids[name] for name in names}

    def describe_producers(
        self, partitions: list[TopicPartition], broker_id: int | None = None
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        self.asked.append(SimpleNamespace(broker_id=broker_id))
        return {each: self.producers[each] for each in partitions}

    def abort_transaction(self, hanging: HangingTransaction) -> None:
        self.changes.append(hanging)

    def fence_producers(self, names: list[str]) -> None:
        self.changes.append(names)
