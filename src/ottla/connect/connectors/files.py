"""FileStreamSource and FileStreamSink: the lines of a file as records, and back.

    connector.class=FileStreamSource        connector.class=FileStreamSink
    file=test.txt                           file=test.sink.txt
    topic=connect-test                      topics=connect-test

A line counts once it has ended, by \\n, \\r\\n or \\r. The offset is a position in bytes behind the
last line. Kafka's own counts characters but skips bytes, so that it is at a wrong place after the
first line that is not ASCII; for ASCII both are the same. A file that became shorter, or was
renamed and made again while the task runs, is read from its start; LogFolderSource is for logs that
are rotated while it does not run.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, Final

from ottla.config.config_def import HIGH, LOW, REQUIRED, ConfigTable, config_key
from ottla.config.rule import at_least, not_empty
from ottla.connect.connector import (
    Place,
    SinkConnector,
    SourceBatch,
    SourceConnector,
    TryAgainError,
)
from ottla.connect.converters import java_string
from ottla.connect.data import STRING as STRING_SCHEMA
from ottla.connect.data import SinkRecord, SourceRecord
from ottla.errors import ConfigError
from ottla.structs import TopicPartition
from ottla.version import __version__

logger = logging.getLogger(__name__)

FILENAME: Final = "filename"
POSITION: Final = "position"
BLOCK_BYTES: Final = 1 << 16


class FileSourceSettings(ConfigTable):
    """The settings of FileStreamSource."""

    file: str | None = config_key(
        default=None,
        importance=HIGH,
        doc="The file to read; standard input if it is not set. It need not be there yet.",
    )
    topic: str = config_key(
        default=REQUIRED,
        rule=not_empty(),
        importance=HIGH,
        doc="The topic that gets a record for each line.",
    )
    batch_size: int = config_key(
        default=2000,
        rule=at_least(1),
        importance=LOW,
        doc="How many lines are taken at once.",
    )


class FileStreamSource(SourceConnector):
    """Reads a file line by line, waits for more, and continues there after a restart."""

    Settings = FileSourceSettings
    kafka_class = "org.apache.kafka.connect.file.FileStreamSourceConnector"
    version = __version__
    settings: FileSourceSettings

    _file: BinaryIO | None = None

    def partition(self) -> Place:
        """Standard input has no name, and no offsets."""
        return {} if self.settings.file is None else {FILENAME: self.settings.file}

    def records(self, offset: dict[str, Any] | None) -> Iterator[SourceRecord | SourceBatch | None]:
        """Lines, and None wherever the file ends at present, or a batch of them."""
        position = _position_of(offset) if self.settings.file is not None else 0
        rest: list[bytes] = []  # blocks of a line, which are put together once, at its end
        size = 0
        while True:
            block = self._read(position + size)
            if block is None:  # it is another file now: nobody ends the last line of the one before
                if rest:
                    yield from self._records_of([b"".join(rest)], position)
                position, rest, size = 0, [], 0
                continue
            if not block:
                yield None
                continue
            may_end = b"\n" in block or b"\r" in block or (rest and rest[-1].endswith(b"\r"))
            rest.append(block)
            size += len(block)
            if not may_end:
                continue
            lines = b"".join(rest).splitlines(keepends=True)
            rest = [] if _is_whole(lines[-1]) else [lines.pop()]
            size = sum(map(len, rest))
            most = self.settings.batch_size
            for start in range(0, len(lines), most):
                some = lines[start : start + most]
                yield from self._records_of(some, position)
                position += sum(map(len, some))

    def _records_of(
        self, lines: Sequence[bytes], position: int
    ) -> Iterator[SourceRecord | SourceBatch | None]:
        """Lines behind a position as one batch; as records, where a worker has to see each."""
        values = [line.rstrip(b"\r\n").decode("utf-8", "replace") for line in lines]
        content = self.context.batch(self.settings.topic, values, STRING_SCHEMA)
        if content is None:
            for line, value in zip(lines, values, strict=True):
                position += len(line)
                yield self._record(value, position)
            return
        behind = position + sum(map(len, lines))
        yield SourceBatch(self.partition(), self._offset(behind), self.settings.topic, content)
        yield None  # it is sent before more is read

    def start(self) -> None:
        self.most_records = self.settings.batch_size

    def _record(self, value: str, position: int) -> SourceRecord:
        return SourceRecord(
            topic=self.settings.topic,
            value=value,
            value_schema=STRING_SCHEMA,
            source_partition=self.partition(),
            source_offset=self._offset(position),
        )

    def _offset(self, position: int) -> Place:
        return {} if self.settings.file is None else {POSITION: position}

    def _read(self, position: int) -> bytes | None:
        """The bytes from `position` on; none at the end of the file, None if it was replaced."""
        if self.settings.file is None:
            return os.read(sys.stdin.fileno(), BLOCK_BYTES)
        try:
            if self._file is None:
                self._file = Path(self.settings.file).open("rb")  # noqa: SIM115 # until stop
        except FileNotFoundError:
            return b""
        size = self._file.seek(0, io.SEEK_END)
        if size < position:
            logger.warning(
                "%s has %d bytes, and %d were read before: it is read from its start, as it was "
                "replaced",
                self.settings.file,
                size,
                position,
            )
            self.stop()
            return None
        self._file.seek(position)
        block = self._file.read(BLOCK_BYTES)
        if not block and self._is_replaced(self._file, self.settings.file):
            logger.warning(
                "%s was read to its end, and is another file now, which is read from its start",
                self.settings.file,
            )
            self.stop()
            return None
        return block

    @staticmethod
    def _is_replaced(file: BinaryIO, path: str) -> bool:
        """Whether the path has another file than the one that is open; not while it has none."""
        try:
            found = os.stat(path)
        except OSError:
            return False
        return not os.path.samestat(found, os.fstat(file.fileno()))

    def stop(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    @classmethod
    def is_exactly_once(cls, settings: ConfigTable) -> bool:
        """A file has positions; standard input has none."""
        return getattr(settings, "file", None) is not None

    @classmethod
    def alter_offsets(
        cls, settings: ConfigTable, offsets: Sequence[tuple[Place, Place | None]]
    ) -> bool:
        """Only positions in files can be set."""
        if getattr(settings, "file", None) is None:
            raise ConfigError("file: must be set, as standard input has no offsets")
        for partition, offset in offsets:
            if set(partition) != {FILENAME}:
                raise ConfigError(f"partition={dict(partition)}: must have the one key {FILENAME}")
            if offset is not None:
                _position_of(offset)
        return True


def _is_whole(line: bytes) -> bool:
    """Whether a line has ended; a \\r that was read last may be half of \\r\\n, and waits."""
    return line.endswith(b"\n")


def _position_of(offset: Mapping[str, Any] | None) -> int:
    if offset is None:
        return 0
    position = offset.get(POSITION)
    if isinstance(position, bool) or not isinstance(position, int) or position < 0:
        raise ConfigError(f"{POSITION}={position}: must be a whole number of bytes, from 0 on")
    return position


class FileSinkSettings(ConfigTable):
    """The settings of FileStreamSink."""

    file: str | None = config_key(
        default=None,
        importance=HIGH,
        doc="The file to append to, which is created; standard output if it is not set.",
    )


def _is_torn(path: Path) -> bool:
    """Whether the last line of a file has no end; that is so for no pipe, and no empty file."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    with path.open("rb") as file:
        file.seek(-1, io.SEEK_END)
        return file.read(1) != b"\n"


class FileStreamSink(SinkConnector):
    """Appends a line to a file for each record: the text of its value."""

    Settings = FileSinkSettings
    kafka_class = "org.apache.kafka.connect.file.FileStreamSinkConnector"
    version = __version__
    settings: FileSinkSettings

    _file: FileIO | None = None
    _is_torn = False
    """Whether the last line of the file has no end."""

    def start(self) -> None:
        self._left = b""
        """What is to be written before all else."""
        self._records: Sequence[SinkRecord] = ()
        """The records of a call whose lines are not all in the file."""
        if self.settings.file is not None:
            self._file = self._opened(self.settings.file)

    def _opened(self, path: str) -> FileIO:
        file = FileIO(path, "a")
        self._is_torn = _is_torn(Path(path))
        self._left = b"\n" if self._is_torn else b""  # the record of that line comes again
        self._records = ()
        return file

    def _followed(self, file: FileIO, path: str) -> FileIO:
        """The file that has the name now: the one that is open may be renamed, or deleted."""
        try:
            if os.path.samestat(os.stat(path), os.fstat(file.fileno())):
                return file
        except FileNotFoundError:
            pass
        logger.warning("%s was renamed or deleted: lines go into a new file of that name", path)
        found = self._opened(path)
        file.close()
        return found

    def put(self, records: Sequence[SinkRecord]) -> None:
        """Append the lines. Where the disk was full it continues in that line, once it is not."""
        path = self.settings.file
        if self._file is None or path is None:
            sys.stdout.write(b"".join(self._lines(records)).decode())
            return
        try:
            self._file = self._followed(self._file, path)
            if not self._records or records != self._records:
                begun, end, _ = self._left.partition(b"\n") if self._is_torn else (b"", b"", b"")
                self._left = begun + end + b"".join(self._lines(records))
            self._records = records
            while self._left:
                count = self._file.write(self._left) or 0
                self._is_torn = not self._left[:count].endswith(b"\n")
                self._left = self._left[count:]
        except OSError as error:
            raise TryAgainError(f"{path}: cannot be written: {error}") from error
        self._records = ()

    def _lines(self, records: Sequence[SinkRecord]) -> Iterator[bytes]:
        for record in records:
            try:
                yield f"{java_string(record.value, record.value_schema)}\n".encode()
            except Exception as error:  # of this record: bytes, text that UTF-8 cannot hold
                self.context.report(record, error)

    def flush(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self._file is None:
            sys.stdout.flush()

    def stop(self) -> None:
        if self._file is not None:
            self._file.close()

    @classmethod
    def alter_offsets(
        cls, settings: ConfigTable, offsets: Mapping[TopicPartition, int | None]
    ) -> bool:
        """Any offset will do: a file can be appended to from anywhere."""
        return True
