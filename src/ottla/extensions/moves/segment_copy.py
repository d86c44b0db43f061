"""Copies the files of segments while they are written to, as bytes that are not interpreted."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

from ottla.log.log_dir import LogDir
from ottla.log.log_files import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_path,
)
from ottla.log.log_segment import LogSegment
from ottla.structs import NamedTuple, Value

logger = logging.getLogger(__name__)


class CopyError(Exception):
    """An OSError, and the log directory that is to blame for it."""

    def __init__(self, log_dir: LogDir, cause: OSError, action: str) -> None:
        super().__init__(f"{action}: {cause}")
        self.log_dir = log_dir
        self.cause = cause


@contextmanager
def blaming(log_dir: LogDir, action: str) -> Iterator[None]:
    """Turn an OSError into a CopyError that names the log directory at fault."""
    try:
        yield
    except OSError as error:
        raise CopyError(log_dir, error, action) from error


def file_sizes(segment: LogSegment) -> dict[str, int]:
    """How large each file of a segment is, by suffix; bytes that only memory has do not count."""
    return {
        LOG_SUFFIX: segment.size,
        INDEX_SUFFIX: segment.offset_index.written_bytes,
        TIME_INDEX_SUFFIX: segment.time_index.written_bytes,
        TXN_INDEX_SUFFIX: segment.txn_index.written_bytes(),
    }


class SourceCutError(OSError):
    """A file has become shorter than it was when its part to copy was chosen."""


SOURCE_CHANGED: Final = (FileNotFoundError, SourceCutError)
"""What a truncation or a deletion does to a file that is being copied."""


class SegmentCopy:
    """How much of each file of a segment has been copied. Equal bytes are at equal places.

    A segment only grows at its end; if it changed otherwise it has another revision, and the copy
    is useless.
    """

    __slots__ = ("copied", "is_complete", "revision", "segment")

    def __init__(self, segment: LogSegment) -> None:
        self.segment = segment
        self.revision = segment.revision
        self.copied: dict[str, int] = {}
        self.is_complete = False

    @property
    def is_current(self) -> bool:
        return self.segment.revision == self.revision

    @property
    def size_in_bytes(self) -> int:
        return self.copied.get(LOG_SUFFIX, 0)

    def missing(self) -> dict[str, int]:
        """How many bytes of each file are not copied yet; files are made even if empty."""
        sizes = file_sizes(self.segment)
        return {
            suffix: size - self.copied.get(suffix, 0)
            for suffix, size in sizes.items()
            if size > self.copied.get(suffix, 0)
            or (suffix not in self.copied and suffix != TXN_INDEX_SUFFIX)
        }


class Paths(NamedTuple):
    """A file and its copy, and the log directories that they are in."""

    source_dir: LogDir
    source: str
    target_dir: LogDir
    target: str


class Piece(Value, frozen=True):
    """A part of a file that must be copied, as a value for a background thread."""

    paths: Paths
    position: int
    length: int

    def __call__(self) -> None:
        """CopyError if it cannot be copied; FileNotFoundError if the source has been renamed,
        SourceCutError if it has been cut.
        """
        source_dir, source, target_dir, target = self.paths
        try:
            with blaming(source_dir, f"reading {source}"):
                data = _read(source_dir, source, self.length, self.position)
                modified_ms = source_dir.disk.modified_ms(source)
        except CopyError as error:
            if isinstance(error.cause, SOURCE_CHANGED):
                raise error.cause from None
            raise
        with blaming(target_dir, f"writing {target}"):
            with closing(target_dir.disk.open(target, create=not self.position)) as file:
                file.pwrite(data, self.position)
            target_dir.disk.set_modified_ms(target, modified_ms)


def _read(log_dir: LogDir, path: str, length: int, position: int) -> bytes:
    with closing(log_dir.disk.open(path)) as file:
        data = file.pread(length, position)
    if len(data) < length:
        raise SourceCutError(f"{path} has no {length} bytes at {position}")
    return data


def piece_of(
    copy: SegmentCopy, suffix: str, length: int, paths: tuple[LogDir, LogDir, str]
) -> Piece:
    """The next `length` bytes of a file of the segment; `paths`: source, target, its directory."""
    source_dir, target_dir, directory = paths
    segment = copy.segment
    return Piece(
        Paths(
            source_dir,
            segment_path(segment.directory, segment.base_offset, suffix),
            target_dir,
            segment_path(directory, segment.base_offset, suffix),
        ),
        copy.copied.get(suffix, 0),
        length,
    )
