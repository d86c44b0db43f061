"""Messages of old segments, written into segments in today's format.

Indexes are not written: a broker builds those of a segment when it starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.cli.command_error import CommandError
from ottla.record.batch_builder import build_batch_of_values
from ottla.record.conversion import modernised
from ottla.structs import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ottla.record.legacy_positional import PositionalMessage
    from ottla.record.record_batch import RecordBatch


BATCH_BYTES: Final = 64 * 1024


class SegmentConversion:
    """Writes segments into a directory, file by file; `next_offset` continues from one to the next.

    No file is overwritten.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.next_offset = 0

    def write_positional(self, messages: Iterable[PositionalMessage]) -> Path:
        """A segment of 0.7: its messages get the next offsets, and have no timestamps."""
        return self._write(self.next_offset, self._batches(messages))

    def write_batches(self, base_offset: int, batches: Iterable[RecordBatch]) -> Path:
        """A segment of 0.8 and later: offsets and timestamps stay as they are."""
        return self._write(base_offset, (bytes(batch.view) for batch in modernised(batches)))

    def _batches(self, messages: Iterable[PositionalMessage]) -> Iterable[bytes]:
        values: list[bytes] = []
        size = 0
        for message in messages:
            if values and size + len(message.payload) > BATCH_BYTES:
                yield self._batch(values)
                values, size = [], 0
            values.append(message.payload)
            size += len(message.payload)
        if values:
            yield self._batch(values)

    def _batch(self, values: list[bytes]) -> bytes:
        base_offset, self.next_offset = self.next_offset, self.next_offset + len(values)
        return build_batch_of_values(values, NO_TIMESTAMP, base_offset=base_offset)

    def _write(self, base_offset: int, batches: Iterable[bytes]) -> Path:
        path = self.directory / f"{base_offset:020d}.log"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                file.writelines(batches)
        except FileExistsError:
            raise CommandError(f"{path} is there already, and is not overwritten") from None
        return path
