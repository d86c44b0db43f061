"""A log manager with a compacted topic, and what tests of compaction do with it."""

from __future__ import annotations

from log_world import SMALL, LogWorld, read_all

from ottla.log.log_validator import AppendOrigin
from ottla.record.batch_builder import build_batch, build_end_transaction_marker
from ottla.record.control_record import ControlRecordType, EndTransactionMarker
from ottla.record.memory_records import batches
from ottla.record.record_batch import Record, RecordBatch

COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "segment.bytes": "400",
    "delete.retention.ms": "5000",
}
BACKOFF_MS = 1 << 40


class CleanerWorld(LogWorld):
    """`put` appends one record a batch, `roll` closes the segment, `clean` compacts."""

    TOPIC = SMALL | COMPACTED

    def __init__(self, **broker_settings: str) -> None:
        super().__init__(
            **{"log.cleaner.backoff.ms": str(BACKOFF_MS), "log.retention.ms": "-1"}
            | broker_settings
        )

    def put(self, *records: tuple, **header) -> int:
        """Append one batch of (key, value) or (key, value, timestamp); returns its first offset."""
        now_ms = self.runtime.clock.now_ms()
        full = [(*record, now_ms)[:3] for record in records]
        return self.append_batch(
            build_batch([(ms, key, value, ()) for key, value, ms in full], **header)
        )

    def append_batch(self, data: bytes, origin: AppendOrigin = AppendOrigin.CLIENT) -> int:
        log = self.log()
        now_ms = self.runtime.clock.now_ms()
        batch = RecordBatch(data)
        if batch.is_transactional and not batch.is_control:
            producers = log.producer_state_manager
            verification = producers.begin_verification(
                batch.producer_id, batch.producer_epoch, batch.base_sequence
            )
            if verification is not None:
                verification.is_confirmed = True
        info = log.append_as_leader(memoryview(bytearray(data)), 0, now_ms=now_ms, origin=origin)
        log.update_high_watermark(log.log_end_offset)
        return info.first_offset

    def end_transaction(self, producer_id: int, commit: bool, epoch: int = 0) -> int:
        """Append the marker that ends a producer's transaction."""
        kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
        now_ms = self.runtime.clock.now_ms()
        marker = build_end_transaction_marker(
            EndTransactionMarker(kind, 0), now_ms, producer_id, epoch
        )
        return self.append_batch(marker, AppendOrigin.COORDINATOR)

    def roll(self) -> None:
        self.log().roller.roll()
        self.runtime.scheduler.run_ready()

    def clean(self) -> None:
        """Compact whatever should be, until nothing is left to do."""
        self.cleaner.clean_filthiest()
        self.runtime.scheduler.run_ready()

    def stop_cleaning(self) -> None:
        """Give up the round that is under way; the log stays as that has left it."""
        self.runtime.scheduler.run(self.cleaner.shutdown())

    def roll_and_clean(self) -> None:
        self.roll()
        self.clean()

    def records(self) -> list[Record]:
        """What readers get, markers left out."""
        markers = {batch.base_offset for batch in self.batches() if batch.is_control}
        return [record for record in read_all(self.log()) if record.offset not in markers]

    def pairs(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """Offset, key and value of each record."""
        return [(record.offset, record.key, record.value) for record in self.records()]

    def batches(self) -> list[RecordBatch]:
        """Every batch in the files of the log."""
        found: list[RecordBatch] = []
        for segment in self.log().segments:
            found += batches(segment.file.pread(segment.size, 0))
        return found

    def leftovers(self) -> list[str]:
        """Files of a swap that was not finished."""
        return [name for name in self.names() if name.endswith((".cleaned", ".swap"))]
