"""The record that a consumer returns."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any

from ottla.record.record import BatchHeader, FieldsOfRecord
from ottla.structs import NO_EPOCH, NamedTuple


class TimestampType(IntEnum):
    """The side that set the timestamp of a record: its producer, or the broker at the append."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ConsumerRecord(NamedTuple):
    """One record and its place. Key and value are bytes, or a deserializer's results."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...] = ()
    leader_epoch: int = NO_EPOCH


def placed(
    records: Iterable[FieldsOfRecord], batch: BatchHeader, topic: str, partition: int
) -> list[ConsumerRecord]:
    """The records of a batch with their place; in half the time of a call of the class for each."""
    new, cls = tuple.__new__, ConsumerRecord
    time_type, epoch = TimestampType(batch.is_log_append_time), batch.partition_leader_epoch
    return [
        new(cls, (topic, partition, offset, time_ms, time_type, key, value, headers, epoch))
        for offset, time_ms, key, value, headers in records
    ]
