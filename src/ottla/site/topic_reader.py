"""Reads all partitions of a topic from offsets that its caller keeps: no group, no commit.

Alone in a file, as every reader of the site, and the ledger, reads its topic in this way.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla import Consumer, ConsumerRecord, TopicPartition

POLL_WAIT_MS = 200


class TopicReader:
    """A consumer of one topic; partitions without an offset are read from their beginning."""

    def __init__(self, servers: str, topic: str, next_offsets: Mapping[int, int]) -> None:
        self._consumer = Consumer(
            servers, isolation_level="read_committed", max_poll_records=10_000
        )
        self._partitions = [
            TopicPartition(topic, each.partition) for each in self._consumer.partitions_for(topic)
        ]
        self._consumer.assign(self._partitions)
        for partition in self._partitions:
            self._consumer.seek(partition, next_offsets.get(partition.partition, 0))

    def poll(self) -> list[ConsumerRecord]:
        """What comes next; waits a moment for it."""
        return self._consumer.poll(timeout_ms=POLL_WAIT_MS)

    def rest(self) -> list[ConsumerRecord]:
        """All records up to what is now the end, partition by partition."""
        found = []
        ends = self._consumer.end_offsets(self._partitions)
        while any(self._consumer.position(each) < end for each, end in ends.items()):
            found += self.poll()
        return sorted(found, key=lambda record: (record.partition, record.offset))

    def close(self) -> None:
        self._consumer.close()
