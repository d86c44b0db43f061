"""A consumer whose partitions are lists in memory."""

from __future__ import annotations

from ottla.clients.metadata import PartitionInfo
from ottla.clients.topic_offsets import ListOffsetsResult
from ottla.errors import ErrorCode, KafkaError
from ottla.record.consumer_record import ConsumerRecord, TimestampType
from ottla.structs import TopicPartition

MOST_POLLS = 100


class FakeConsumer:
    """Reads from where its positions are; after many polls it ends as by Ctrl-C.

    `ends` are ends of logs that lie behind their last record, as after a marker.
    """

    def __init__(self, **partition_counts: int) -> None:
        self.logs: dict[TopicPartition, list[ConsumerRecord]] = {
            TopicPartition(topic, number): []
            for topic, count in partition_counts.items()
            for number in range(count)
        }
        self.positions: dict[TopicPartition, int] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.assigned: list[TopicPartition] = []
        self.polls = 0

    def add(
        self,
        partition: TopicPartition,
        timestamp_ms: int,
        value: bytes | None,
        key: bytes | None = None,
        headers=(),
        offset: int | None = None,
    ) -> None:
        """Append a record, at an offset of its own or behind the last one."""
        log = self.logs[partition]
        at = offset if offset is not None else log[-1].offset + 1 if log else 0
        kind = TimestampType.CREATE_TIME
        log.append(ConsumerRecord(*partition, at, timestamp_ms, kind, key, value, tuple(headers)))

    def __enter__(self) -> FakeConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def partitions_for(self, topic: str) -> list[PartitionInfo]:
        numbers = [each.partition for each in self.logs if each.topic == topic]
        if not numbers:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic)
        return [PartitionInfo(topic, number, 0, 0, (0,), (0,), ()) for number in numbers]

    def list_topics(self) -> dict[str, list[PartitionInfo]]:
        return {each.topic: self.partitions_for(each.topic) for each in self.logs}

    def assign(self, partitions) -> None:
        self.assigned = list(partitions)

    def pause(self, partitions) -> None:
        self.assigned = [each for each in self.assigned if each not in set(partitions)]

    def beginning_offsets(self, partitions):
        return {each: self.logs[each][0].offset if self.logs[each] else 0 for each in partitions}

    def end_offsets(self, partitions):
        return {
            each: self.ends.get(each, self.logs[each][-1].offset + 1 if self.logs[each] else 0)
            for each in partitions
        }

    def offsets_for_times(self, times):
        since = {p: [r for r in self.logs[p] if r.timestamp_ms >= at] for p, at in times.items()}
        return {
            p: ListOffsetsResult(new[0].offset, new[0].timestamp_ms) if new else None
            for p, new in since.items()
        }

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions[partition] = offset

    def position(self, partition: TopicPartition) -> int:
        return self.positions[partition]

    def poll(self, timeout_ms: int) -> list[ConsumerRecord]:
        if self.polls >= MOST_POLLS:
            raise KeyboardInterrupt  # as a person ends -f
        self.polls += 1
        found: list[ConsumerRecord] = []
        for partition, end in self.end_offsets(self.assigned).items():
            position = self.positions[partition]
            found += [record for record in self.logs[partition] if record.offset >= position]
            self.positions[partition] = max(position, end)
        return found
