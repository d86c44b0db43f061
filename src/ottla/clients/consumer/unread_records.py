"""Records that were polled for an iteration, which has not returned them yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from ottla.clients.consumer.consumer_record import ConsumerRecord


class UnreadRecords:
    """They do not count as read: positions and commits stay before them."""

    __slots__ = ("_records",)

    def __init__(self) -> None:
        self._records: list[ConsumerRecord] = []  # from the next to the last, reversed

    def __bool__(self) -> bool:
        return bool(self._records)

    def fill(self, records: list[ConsumerRecord]) -> None:
        """Take over the records of a poll, when the others were returned."""
        self._records = records[::-1]

    def pop(self) -> ConsumerRecord:
        """The next record, which counts as read from now on."""
        return self._records.pop()

    def take(self) -> list[ConsumerRecord]:
        """All of them, in order."""
        records, self._records = self._records[::-1], []
        return records

    def offsets(self) -> dict[TopicPartition, int]:
        """The offset of each partition's first record."""
        return {TopicPartition(r.topic, r.partition): r.offset for r in self._records}

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the records of partitions."""
        dropped = {TopicPartition(*partition) for partition in partitions}
        self._records = [r for r in self._records if (r.topic, r.partition) not in dropped]

    def give_back(
        self, partitions: Iterable[TopicPartition], rewind: Callable[[TopicPartition, int], object]
    ) -> None:
        """Have the records of partitions fetched again later."""
        offsets = self.offsets()
        for partition in partitions:
            if partition in offsets:
                self.drop([partition])
                rewind(partition, offsets[partition])
