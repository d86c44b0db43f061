"""A .log file: a line per batch and, with deep iteration, a line per record, as Kafka prints it."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla.cli.group_records import key_and_payload
from ottla.cli.output import one_line, text_decoder
from ottla.cli.segment_file import base_offset, mapped
from ottla.record.memory_records import batches
from ottla.record.record_batch import MAGIC, CorruptRecordError, Record, RecordBatch

if TYPE_CHECKING:
    from pathlib import Path

    from ottla.cli.segment_conversion import SegmentConversion
    from ottla.cli.terminal import Terminal


Texts = tuple[str | None, str | None]
RecordParser = Callable[["Record"], Texts]
"""Turns a key and a value into text; None stays None."""


def decoding_parser(key_decoder: str, value_decoder: str) -> RecordParser:
    """Decodes keys and values with the decoders of these names."""
    decode_key, decode_value = text_decoder(key_decoder), text_decoder(value_decoder)

    def parse(record: Record) -> Texts:
        return (
            None if record.key is None else decode_key(record.key),
            None if record.value is None else decode_value(record.value),
        )

    return parse


def parse_offsets(record: Record) -> Texts:
    """Reads records as those of __consumer_offsets."""
    return key_and_payload(record.key, record.value)


SEQUENCES: Final = 1 << 31
CONTROL_TYPES: Final = {0: "ABORT", 1: "COMMIT"}
_CONTROL_KEY: Final = Struct(">hh")  # version, type
_END_TXN_MARKER: Final = Struct(">hi")  # version, coordinator epoch


class LogDump:
    """Prints one file from its start, and reports each fault where it is found."""

    def __init__(
        self,
        path: Path,
        parser: RecordParser | None,
        max_batch_bytes: int | None,
        terminal: Terminal,
        conversion: SegmentConversion | None,
    ) -> None:
        self.path = path
        self.conversion = conversion
        self.parser = parser
        self.limit = {} if max_batch_bytes is None else {"max_bytes": max_batch_bytes}
        self.terminal = terminal
        self.last_offset = -1
        self.gaps: list[tuple[int, int]] = []
        self.sound = True

    def run(self, *, deep: bool) -> bool:
        """Print the file and return whether every batch in it is valid."""
        self.terminal.print(f"Starting offset: {base_offset(self.path)}")
        with mapped(self.path) as view:
            valid_bytes = self._batches(view, deep)
            if self.conversion is not None:
                self._convert(view[:valid_bytes], self.conversion)
            left_over = len(view) - valid_bytes
        if left_over:
            self.terminal.print(f"Found {left_over} invalid bytes at the end of {self.path.name}")
        if self.gaps:
            self.terminal.note(f"Non-consecutive offsets in {self.path.absolute()}")
        for first, second in self.gaps:
            self.terminal.note(f"  {first} is followed by {second}")
        return self.sound

    def _convert(self, view: memoryview, conversion: SegmentConversion) -> None:
        try:
            written = conversion.write_batches(base_offset(self.path), batches(view))
        except CorruptRecordError as error:
            self._fault(f"not all of it could be converted: {error.message}")
        else:
            self.terminal.note(f"wrote {written}")

    def _batches(self, view: memoryview, deep: bool) -> int:
        """Print the batches and return the position where they end."""
        position = 0
        try:
            for batch in batches(view):
                if batch.magic > MAGIC:
                    self._fault(f"position {position} holds magic {batch.magic}, not {MAGIC}")
                    break
                self._print_batch(batch, position, deep)
                position += batch.size_in_bytes
        except CorruptRecordError as error:
            self._fault(error.message)
        return position

    def _print_batch(self, batch: RecordBatch, position: int, deep: bool) -> None:
        valid = is_valid(batch)
        self.sound &= valid
        self.terminal.print(batch_line(batch, position, valid))
        if not deep:
            return
        try:
            records = list(batch.records(**self.limit))
        except CorruptRecordError as error:
            self._fault(error.message)
            return
        for record in records:
            self._print_record(batch, record)

    def _print_record(self, batch: RecordBatch, record: Record) -> None:
        if self.last_offset >= 0 and record.offset != self.last_offset + 1:
            self.gaps.append((self.last_offset, record.offset))
        self.last_offset = record.offset
        line = record_line(batch, record)
        if batch.is_control:
            line += control_text(record)
        elif self.parser is not None:
            key, payload = self.parser(record)
            line += "" if key is None else f" key: {one_line(key)}"
            line += "" if payload is None else f" payload: {one_line(payload)}"
        self.terminal.print(line)

    def _fault(self, text: str) -> None:
        self.sound = False
        self.terminal.note(f"{self.path}: {text}")


def is_valid(batch: RecordBatch) -> bool:
    """Whether length, CRC and counts of the batch are right."""
    try:
        batch.verify()
    except CorruptRecordError:
        return False
    return True


def batch_line(batch: RecordBatch, position: int, valid: bool) -> str:
    """The line of a batch, or of a message from before Kafka 0.11, which has fewer fields."""
    if batch.magic < MAGIC:
        return f"offset: {batch.last_offset} {common_fields(batch, position, valid)}"
    return (
        f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} "
        f"count: {batch.record_count} baseSequence: {batch.base_sequence} "
        f"lastSequence: {batch.last_sequence} producerId: {batch.producer_id} "
        f"producerEpoch: {batch.producer_epoch} "
        f"partitionLeaderEpoch: {batch.partition_leader_epoch} "
        f"isTransactional: {_java(batch.is_transactional)} isControl: {_java(batch.is_control)} "
        f"{common_fields(batch, position, valid)}"
    )


def common_fields(batch: RecordBatch, position: int, valid: bool) -> str:
    """The last fields of a line, which all formats have."""
    return (
        f"position: {position} {timestamp_type(batch)}: {batch.max_timestamp} "
        f"size: {batch.size_in_bytes} magic: {batch.magic} "
        f"compresscodec: {codec_name(batch)} crc: {batch.crc} isvalid: {_java(valid)}"
    )


def record_line(batch: RecordBatch, record: Record) -> str:
    """The line of a record, without key and value."""
    line = (
        f"| offset: {record.offset} {timestamp_type(batch)}: {record.timestamp_ms} "
        f"keysize: {_size(record.key)} valuesize: {_size(record.value)}"
    )
    if batch.magic < MAGIC:
        return f"{line} isvalid: true"
    headers = ",".join(key for key, _ in record.headers)
    return f"{line} sequence: {sequence(batch, record)} headerKeys: [{headers}]"


def sequence(batch: RecordBatch, record: Record) -> int:
    """The sequence number of a record, which wraps from 2^31 - 1 to 0; -1 without a producer id."""
    if batch.base_sequence < 0:
        return -1
    return (batch.base_sequence + record.offset - batch.base_offset) % SEQUENCES


def control_text(record: Record) -> str:
    """The fields of a control record: the end of a transaction, or an unknown type."""
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        return " controlType: UNKNOWN(-1)"
    type_id = _CONTROL_KEY.unpack_from(record.key)[1]
    name = CONTROL_TYPES.get(type_id)
    if name is None or record.value is None or len(record.value) < _END_TXN_MARKER.size:
        return f" controlType: {name or 'UNKNOWN'}({type_id})"
    epoch = _END_TXN_MARKER.unpack_from(record.value)[1]
    return f" endTxnMarker: {name} coordinatorEpoch: {epoch}"


def timestamp_type(batch: RecordBatch) -> str:
    """The kind of timestamp: set by the producer, by the broker, or none."""
    if not batch.magic:
        return "NoTimestampType"
    return "LogAppendTime" if batch.is_log_append_time else "CreateTime"


def codec_name(batch: RecordBatch) -> str:
    """The name of the batch's codec, or its number where no codec has it."""
    try:
        return batch.compression.name
    except CorruptRecordError:
        return f"UNKNOWN({batch.attributes & 7})"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _java(value: bool) -> str:
    return "true" if value else "false"
