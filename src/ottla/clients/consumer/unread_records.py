"""Records that were polled for an iteration, which has not returned them yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ottla.record.consumer_record import ConsumerRecord
from ottla.structs import TopicPartition


class UnreadRecords(list[ConsumerRecord]):
    """They do not count as read: positions and commits stay before them.

    The list is reversed, so that `pop` returns the next record, which counts as read from then on.
    """

    __slots__ = ()

    def fill(self, records: list[ConsumerRecord]) -> None:
        """Take over the records of a poll, when the others were returned."""
        self[:] = reversed(records)

    def take(self) -> list[ConsumerRecord]:
        """All of them, in order."""
        records = self[::-1]
        self.clear()
        return records

    def offsets(self) -> dict[TopicPartition, int]:
        """The offset of each partition's first record."""
        return {TopicPartition(r.topic, r.partition): r.offset for r in self}

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the records of partitions."""
        dropped = {TopicPartition(*partition) for partition in partitions}
        self[:] = [r for r in self if (r.topic, r.partition) not in dropped]

    def give_back(
        self, partitions: Iterable[TopicPartition], rewind: Callable[[TopicPartition, int], object]
    ) -> None:
        """Have the records of partitions fetched again later."""
        offsets = self.offsets()
        for partition in partitions:
            if partition in offsets:
                self.drop([partition])
                rewind(partition, offsets[partition])
