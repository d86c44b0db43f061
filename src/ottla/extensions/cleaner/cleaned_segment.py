"""The segment that takes the place of others, while it is being written.

Its files are named `.cleaned`: a start that finds them throws them away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config.topic_config import TopicConfig
from ottla.log.log_files import CLEANED_SUFFIX
from ottla.log.log_segment import LogSegment
from ottla.log.segment_files import set_suffix, sync_files
from ottla.log.transaction_index import AbortedTxn
from ottla.record.record_batch import RecordBatch
from ottla.runtime import Disk

if TYPE_CHECKING:
    from typing_extensions import Buffer


class CleanedSegment:
    """Writes a segment batch by batch, a buffer full at a time."""

    __slots__ = ("_buffer", "_buffer_bytes", "_disk", "_written", "segment")

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        config: TopicConfig,
        newest_ms: int,
        buffer_bytes: int,
    ) -> None:
        self._disk = disk
        self._buffer = bytearray()
        self._buffer_bytes = buffer_bytes
        self._written = 0
        self.segment = LogSegment(disk, directory, base_offset, config, newest_ms)
        set_suffix(self.segment, CLEANED_SUFFIX)
        self.segment.txn_index.reset()
        self.segment.create()

    def append(self, data: Buffer) -> None:
        """Write a batch behind those that are there."""
        batch = RecordBatch(data)
        self._buffer += batch.buffer
        self.segment.add_batch(
            batch.size_in_bytes, batch.base_offset, batch.last_offset, batch.max_timestamp
        )
        if len(self._buffer) >= self._buffer_bytes:
            self._write_out()

    def append_aborted(self, transaction: AbortedTxn) -> None:
        """Note a transaction whose marker is in this segment."""
        self.segment.txn_index.append(transaction)

    def finish(self) -> LogSegment:
        """Bring all files to the disk, and close them until they are read."""
        self._write_out()
        segment = self.segment
        segment.become_inactive()
        segment.release_indexes()
        if segment.max_timestamp_ms < 0:  # then its age is that of the file
            self._disk.set_modified_ms(segment.path, segment.created_ms)
        sync_files(self._disk, segment)
        segment.close()
        return segment

    def discard(self) -> None:
        """Remove the files; the segment will not be used."""
        self.segment.close()
        for path in self.segment.files():
            self._disk.unlink(path)

    def _write_out(self) -> None:
        if not self._buffer:
            return
        self.segment.file.pwrite(self._buffer, self._written)
        self._written += len(self._buffer)
        self._buffer = bytearray()
