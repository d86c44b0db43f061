"""Control records: the only record of a control batch, which says how a transaction ended."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

from ottla.record.record import CorruptRecordError, Record
from ottla.record.record_batch import RecordBatch
from ottla.structs import NamedTuple

CONTROL_KEY: Final = struct.Struct(">hh")
END_MARKER: Final = struct.Struct(">hi")
CONTROL_RECORD_VERSION: Final = 0


class ControlRecordType(IntEnum):
    """The types of control records, which end transactions or are written by brokers alone.

    A control batch holds one record. Its key has an int16 version and this int16 type; the value of
    an end-of-transaction marker is an int16 version and the epoch of the coordinator that wrote it.
    Types of newer brokers are UNKNOWN, and are skipped.
    """

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
        """The type of a record of a control batch, by its key."""
        if record.key is None or len(record.key) < CONTROL_KEY.size:
            raise CorruptRecordError(
                f"the control record at offset {record.offset}: its key {record.key!r} has not "
                f"the {CONTROL_KEY.size} bytes of version and type"
            )
        _, number = CONTROL_KEY.unpack_from(record.key)
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN


class EndTransactionMarker(NamedTuple):
    """The end of a producer's transaction: all its records in the partition lie before it."""

    type: ControlRecordType
    coordinator_epoch: int

    @property
    def is_commit(self) -> bool:
        return self.type is ControlRecordType.COMMIT


def parse_end_transaction_marker(record: Record) -> EndTransactionMarker | None:
    """The marker in a record of a control batch; None if it marks something else."""
    type_ = ControlRecordType.of(record)
    if type_ not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        return None
    if record.value is None or len(record.value) < END_MARKER.size:
        raise CorruptRecordError(
            f"the control record at offset {record.offset}: its value {record.value!r} has not "
            f"the {END_MARKER.size} bytes of version and coordinator epoch"
        )
    _, coordinator_epoch = END_MARKER.unpack_from(record.value)
    return EndTransactionMarker(type_, coordinator_epoch)


def end_of_transaction(batch: RecordBatch) -> EndTransactionMarker | None:
    """The marker that a control batch holds; None if it marks something else, or nothing."""
    record = next(batch.records(), None)
    return None if record is None else parse_end_transaction_marker(record)
