"""A .kafka file, the segment of Kafka 0.7: a line per message, found by its position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.output import one_line
from ottla.cli.segment_file import base_offset, mapped
from ottla.record.legacy_positional import PositionalMessage, positional_messages
from ottla.record.record_batch import CorruptRecordError, Record
from ottla.structs import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ottla.cli.log_dump import RecordParser
    from ottla.cli.segment_conversion import SegmentConversion
    from ottla.cli.terminal import Terminal


class PositionalDump:
    """Prints one file; with a conversion it also writes the messages into a segment."""

    def __init__(
        self,
        path: Path,
        parser: RecordParser | None,
        conversion: SegmentConversion | None,
        terminal: Terminal,
    ) -> None:
        self.path = path
        self.parser = parser
        self.conversion = conversion
        self.terminal = terminal
        self.sound = True
        self.valid_bytes = 0

    def run(self) -> bool:
        """Print the file and return whether every message in it is valid."""
        self.terminal.print(f"Starting offset: {base_offset(self.path)}")
        with mapped(self.path) as view:
            if self.conversion is None:
                for _ in self._messages(view):
                    pass
            else:
                written = self.conversion.write_positional(self._messages(view))
                self.terminal.note(f"wrote {written}")
            left_over = len(view) - self.valid_bytes
        if left_over:
            self.terminal.print(f"Found {left_over} invalid bytes at the end of {self.path.name}")
        return self.sound

    def _messages(self, view: memoryview) -> Iterator[PositionalMessage]:
        """Print and yield each message, also those inside compressed sets."""
        try:
            for message in positional_messages(view, base_offset(self.path)):
                self.terminal.print(message_line(message))
                for inner in message.inner():
                    self._print_payload(inner)
                    yield inner
                self.valid_bytes += message.next_position - message.position
        except CorruptRecordError as error:
            self.sound = False
            self.terminal.note(f"{self.path}: {error.message}")

    def _print_payload(self, message: PositionalMessage) -> None:
        if self.parser is None:
            return
        record = Record(message.position, NO_TIMESTAMP, None, message.payload, ())
        _, payload = self.parser(record)
        self.terminal.print(
            f"| offset: {message.position} payloadsize: {len(message.payload)} "
            f"payload: {one_line(str(payload))}"
        )


def message_line(message: PositionalMessage) -> str:
    """The line of a message; `offset` is its position in the stream of the partition."""
    return (
        f"offset: {message.position} payloadsize: {len(message.payload)} magic: {message.magic} "
        f"compresscodec: {message.codec.name} crc: {message.crc} isvalid: true"
    )
