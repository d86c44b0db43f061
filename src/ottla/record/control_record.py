"""Control records: the markers that end a transaction, and others that only brokers write.

A control batch holds one record. Its key says what it is (int16 version, int16 type); the value of
an end-of-transaction marker is an int16 version and the epoch of the coordinator that wrote it.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from ottla.record.batch_builder import build_batch
from ottla.record.record import CorruptRecordError, Record

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")
_VERSION = 0


class ControlRecordType(IntEnum):
    """What a control record marks. Types of newer brokers are UNKNOWN, to be passed over."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1

    @classmethod
    def of(cls, record: Record) -> ControlRecordType:
        """What a record of a control batch marks, by its key."""
        if record.key is None or len(record.key) < _KEY.size:
            raise CorruptRecordError(
                f"the control record at offset {record.offset}: its key {record.key!r} has not "
                f"the {_KEY.size} bytes of version and type"
            )
        _, number = _KEY.unpack_from(record.key)
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN


class EndTransactionMarker(NamedTuple):
    """The end of a producer's transaction: everything of it in the partition lies before."""

    type: ControlRecordType
    coordinator_epoch: int

    @property
    def is_commit(self) -> bool:
        return self.type is ControlRecordType.COMMIT


def build_end_transaction_marker(
    marker: EndTransactionMarker, timestamp_ms: int, producer_id: int, producer_epoch: int
) -> bytes:
    """The control batch that commits or aborts the transaction of a producer."""
    if marker.type not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        raise ValueError(f"{marker.type.name} does not end a transaction")
    key = _KEY.pack(_VERSION, marker.type)
    value = _MARKER.pack(_VERSION, marker.coordinator_epoch)
    return build_batch(
        [(timestamp_ms, key, value, ())],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def parse_end_transaction_marker(record: Record) -> EndTransactionMarker | None:
    """The marker in a record of a control batch; None if it marks something else."""
    type_ = ControlRecordType.of(record)
    if type_ not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        return None
    if record.value is None or len(record.value) < _MARKER.size:
        raise CorruptRecordError(
            f"the control record at offset {record.offset}: its value {record.value!r} has not "
            f"the {_MARKER.size} bytes of version and coordinator epoch"
        )
    _, coordinator_epoch = _MARKER.unpack_from(record.value)
    return EndTransactionMarker(type_, coordinator_epoch)
