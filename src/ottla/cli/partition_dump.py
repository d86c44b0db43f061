"""What the files of a partition hold, entry by entry, as `ottla dump-log` prints it.

It reads segments of every format, indexes, snapshots of producers and checkpoints of leader epochs.
"""

from __future__ import annotations

import mmap
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.cli.command_error import CommandError
from ottla.cli.output import text_decoder
from ottla.cli.terminal import Terminal
from ottla.log.index_file import (
    TRANSACTION_INDEX_VERSION,
    CorruptIndexError,
    IndexFile,
    OffsetIndex,
    OffsetPosition,
    TimeIndex,
    TimestampOffset,
    TransactionIndex,
)
from ottla.log.leader_epoch_cache import CorruptCheckpointError, LeaderEpochCache
from ottla.log.producer_state_manager import (
    CorruptSnapshotError,
    ProducerStateEntry,
    decode_snapshot,
)
from ottla.record.batch_builder import build_batch_of_values
from ottla.record.conversion import modernised
from ottla.record.legacy_positional import PositionalMessage, positional_messages
from ottla.record.record_batch import (
    MAGIC,
    CorruptRecordError,
    Record,
    RecordBatch,
    batch_at,
    batches,
)
from ottla.runtime.disk import LocalDisk
from ottla.structs import NO_TIMESTAMP

if TYPE_CHECKING:
    EntryT = TypeVar("EntryT", OffsetPosition, TimestampOffset)

# A segment's file mapped for reading, and the offset in its name.


@contextmanager
def mapped(path: Path) -> Iterator[memoryview]:
    """The bytes of the file without reading them all; an empty file cannot be mapped."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            yield memoryview(b"")
            return
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        with memoryview(pages) as view:
            yield view
        # Not after an error, while the exception may still hold parts of the view.
        pages.close()


def base_offset(path: Path) -> int:
    """The offset that a file of a segment is named after."""
    digits = path.name.partition(".")[0]
    if not digits.isdigit():
        raise CommandError(f"{path} is not named after an offset, as files of a segment are")
    return int(digits)


# .index and .timeindex files: their entries, and whether they fit the segment beside them.


Pairs = list[tuple[int, int]]


def dump_offset_index(path: Path, arguments: Namespace, terminal: Terminal) -> bool:
    """Print the entries of an offset index and report those that the segment contradicts."""
    index = OffsetIndex(LocalDisk(), str(path), base_offset(path), path.stat().st_size)
    log = path.with_suffix(".log")
    if arguments.index_sanity_check:
        return _check_sanity(index, log, terminal)
    _open(index)
    mismatches: Pairs = []
    with mapped(log) as view:
        for entry in filled(index.entries(), index.base_offset):
            found = last_offset_at(view, entry.position)
            if found != entry.offset:
                mismatches.append((entry.offset, found))
            if not arguments.verify_index_only:
                terminal.print(f"offset: {entry.offset} position: {entry.position}")
    _report(f"Mismatches in :{path.absolute()}", "Index offset", "log offset", mismatches, terminal)
    return not mismatches


def dump_time_index(path: Path, arguments: Namespace, terminal: Terminal) -> bool:
    """Print the entries of a time index and report those that the segment contradicts."""
    index = TimeIndex(LocalDisk(), str(path), base_offset(path), path.stat().st_size)
    log = path.with_suffix(".log")
    if arguments.index_sanity_check:
        return _check_sanity(index, log, terminal)
    _open(index)
    entries = list(filled(index.entries(), index.base_offset))
    if not arguments.verify_index_only:
        for entry in entries:
            terminal.print(f"timestamp: {entry.timestamp_ms} offset: {entry.offset}")
    with mapped(log) as view:
        wrong_time, not_found = compare_times(entries, view)
    out_of_order = _out_of_order(entries)
    where = path.absolute()
    _report(
        f"Found timestamp mismatch in :{where}",
        "Index timestamp",
        "log timestamp",
        wrong_time,
        terminal,
    )
    _report(
        f"Found out of order timestamp in :{where}",
        "Index timestamp",
        "Previously indexed timestamp",
        out_of_order,
        terminal,
    )
    _report(
        "The following indexed offsets are not found in the log.",
        "Indexed offset",
        "found log offset",
        not_found,
        terminal,
    )
    return not (wrong_time or out_of_order or not_found)


def _out_of_order(entries: Sequence[TimestampOffset]) -> Pairs:
    """The times that are not after the one of the entry before, with that one."""
    return [
        (later.timestamp_ms, earlier.timestamp_ms)
        for earlier, later in pairwise(entries)
        if earlier.timestamp_ms >= later.timestamp_ms
    ]


def _open(index: IndexFile) -> None:
    try:
        index.open()
    except CorruptIndexError as error:
        raise CommandError(str(error)) from error


def compare_times(entries: Sequence[TimestampOffset], view: memoryview) -> tuple[Pairs, Pairs]:
    """Entries whose batch has another newest timestamp, and entries without a batch."""
    wrong_time: Pairs = []
    not_found: Pairs = []
    following = iter(batches(view))
    batch = next(following, None)
    for timestamp, offset in entries:
        while batch is not None and batch.last_offset < offset:
            batch = next(following, None)
        if batch is None or batch.last_offset != offset:
            not_found.append((offset, -1 if batch is None else batch.last_offset))
        elif (newest := newest_timestamp(batch)) != timestamp:
            wrong_time.append((timestamp, newest))
    return wrong_time, not_found


def newest_timestamp(batch: RecordBatch) -> int:
    """The newest timestamp of the records themselves; -1 where they cannot be read."""
    try:
        return max((record.timestamp_ms for record in batch.records()), default=-1)
    except CorruptRecordError:
        return -1


def last_offset_at(view: memoryview, position: int) -> int:
    """The last offset of the batch at a position; -1 where there is none."""
    try:
        return batch_at(view, position).last_offset
    except CorruptRecordError:
        return -1


def filled(entries: Iterator[EntryT], first_offset: int) -> Iterator[EntryT]:
    """The entries before the zeros that a crash may leave in a preallocated file."""
    for number, entry in enumerate(entries):
        if number and entry.offset == first_offset:
            return
        yield entry


def _check_sanity(index: IndexFile, log: Path, terminal: Terminal) -> bool:
    try:
        index.open()
        if isinstance(index, OffsetIndex):
            index.check(log.stat().st_size)
    except CorruptIndexError as error:
        terminal.note(str(error))
        return False
    terminal.print(f"{index.path} passed sanity check.")
    return True


def _report(title: str, left: str, right: str, pairs: Pairs, terminal: Terminal) -> None:
    if pairs:
        terminal.note(title)
    for first, second in pairs:
        terminal.note(f"  {left}: {first}, {right}: {second}")


# Keys and values of records as text.


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
    from ottla.cli.group_records import key_and_payload

    return key_and_payload(record.key, record.value)


# Messages of old segments written into segments in today's format. A broker builds the indexes
# of a segment when it starts.


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


# A .log file: a line per batch and, with deep iteration, a line per record, as Kafka prints it.


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
        conversion: SegmentConversion | None = None,
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
            line += "" if key is None else f" key: {key}"
            line += "" if payload is None else f" payload: {payload}"
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


# A .kafka file, the segment of Kafka 0.7: a line per message, found by its position.


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
            f"| offset: {message.position} payloadsize: {len(message.payload)} payload: {payload}"
        )


def message_line(message: PositionalMessage) -> str:
    """The line of a message; `offset` is its position in the stream of the partition."""
    return (
        f"offset: {message.position} payloadsize: {len(message.payload)} magic: {message.magic} "
        f"compresscodec: {message.codec.name} crc: {message.crc} isvalid: true"
    )


# .snapshot, .txnindex and leader-epoch-checkpoint files: a line per entry.


def dump_transaction_index(path: Path, _arguments: Namespace, terminal: Terminal) -> bool:
    """Print the aborted transactions of a segment."""
    try:
        entries = TransactionIndex(LocalDisk(), str(path), base_offset(path)).entries()
    except CorruptIndexError as error:
        terminal.note(str(error))
        return False
    for aborted in entries:
        terminal.print(
            f"version: {TRANSACTION_INDEX_VERSION} producerId: {aborted.producer_id} "
            f"firstOffset: {aborted.first_offset} lastOffset: {aborted.last_offset} "
            f"lastStableOffset: {aborted.last_stable_offset}"
        )
    return True


def dump_producer_snapshot(path: Path, _arguments: Namespace, terminal: Terminal) -> bool:
    """Print the producers that the partition remembered when the snapshot was made."""
    try:
        producers = decode_snapshot(str(path), path.read_bytes())
    except CorruptSnapshotError as error:
        terminal.note(str(error))
        return False
    for producer in producers.values():
        terminal.print(producer_line(producer))
    return True


def producer_line(producer: ProducerStateEntry) -> str:
    """The line of one producer, with its newest batch if it is remembered."""
    txn = producer.current_txn_first_offset
    line = (
        f"producerId: {producer.producer_id} producerEpoch: {producer.producer_epoch} "
        f"coordinatorEpoch: {producer.coordinator_epoch} "
        f"currentTxnFirstOffset: {'None' if txn < 0 else f'Some({txn})'} "
    )
    if not producer.batches:
        return line
    last = producer.batches[-1]
    return line + (
        f"firstSequence: {last.first_sequence} lastSequence: {last.last_sequence} "
        f"lastOffset: {last.last_offset} offsetDelta: {last.offset_delta} "
        f"timestamp: {last.timestamp_ms}"
    )


def dump_leader_epochs(path: Path, _arguments: Namespace, terminal: Terminal) -> bool:
    """Print which leader epochs wrote the log, and where each begins."""
    cache = LeaderEpochCache(LocalDisk(), str(path))
    try:
        if not cache.load():
            raise FileNotFoundError(2, "No such file or directory", str(path))
    except CorruptCheckpointError as error:
        terminal.note(str(error))
        return False
    for epoch, start_offset in cache.entries:
        terminal.print(f"epoch: {epoch} startOffset: {start_offset}")
    return True
