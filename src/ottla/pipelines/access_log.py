"""Access logs: files as lines, or made-up traffic where there is no log.

`AccessLog` reads a file, plain or compressed, and its `LogLedger` counts the lines that became
requests (`logged_request`), and the others by the reason why they did not.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from ottla.pipelines.logged_request import (
    DAMAGED,
    FORMATS,
    LONGEST_CLIENT,
    NOT_ENDED,
    TOO_LONG,
    LoggedRequest,
    NoRequestError,
    parse_line,
    request_of,
    trimmed,
)
from ottla.pipelines.site_traffic import SiteActivity

CHUNK = 64 * 1024
LONGEST_LINE = 1_000_000
"""A longer line is left out: with its key it has to fit into a request (`max.request.size`)."""
HINT_LENGTH = 80
GZIP, ZSTD = "gzip", "zstd"
READABLE: Final = {
    b"\x1f\x8b": GZIP,
    b"\x28\xb5\x2f\xfd": ZSTD,
    **{bytes([0x50 + number]) + b"\x2a\x4d\x18": ZSTD for number in range(16)},
}
REFUSED: Final = {
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"\x5d\0\0\x80\0": "lzma",
    b"PK\x03\x04": "zip",
    b"\x04\x22\x4d\x18": "lz4",
    b"7z\xbc\xaf\x27\x1c": "7-Zip",
    b"Rar!": "rar",
    b"LZIP": "lzip",
    b"\x89LZO": "lzop",
    b"\x1f\x9d": "compress",
    b"\xff\x06\0\0sNaPpY": "snappy",
}
REFUSED_NAMES: Final = {".br": "brotli", ".lzma": "lzma", ".7z": "7-Zip"}
WIDE_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
TAR, TAR_PLACE = b"ustar", slice(257, 262)


class LogError(ValueError):
    """A file that cannot be read as a log; the text says why, and names a remedy."""


class DamagedError(Exception):
    """Compressed bytes that end too early, or are none."""


class LogLine(NamedTuple):
    """A line of a log without its end. `key` is its client's address, or the text in its place.

    `is_new` is False for the lines before the position that the log is read from.
    """

    key: bytes
    value: bytes
    request: LoggedRequest | None
    problem: str = ""
    is_new: bool = True


def log_line(value: bytes, *, is_new: bool = True) -> LogLine:
    """A line with its key; the requests of one client share a key, so they stay in order."""
    try:
        request = parse_line(value)
    except NoRequestError as error:
        key = trimmed(value).partition(b" ")[0][:LONGEST_CLIENT]
        return LogLine(key, value, None, str(error), is_new)
    return LogLine(request.client.encode(), value, request, "", is_new)


@dataclass(slots=True)
class LogLedger:
    """The fate of the lines of a log: each is a request, or left out for a reason.

    `unit` and `noun` are other words where a file is no log: its rows are events.
    """

    requests: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    first_lines: dict[str, int] = field(default_factory=dict)
    example: str = ""
    unit: str = "lines"
    noun: str = "request"

    @property
    def lines(self) -> int:
        return self.requests.total() + self.left_out.total()

    def count(self, number: int, line: LogLine) -> None:
        if line.request is not None:
            self.requests[line.request.form] += 1
        else:
            self.leave_out(number, line.problem, line.value)

    def leave_out(self, number: int, reason: str, value: bytes = b"") -> None:
        self.left_out[reason] += 1
        if reason not in self.first_lines:
            self.first_lines[reason] = number
        if not self.example and value:
            self.example = value[:HINT_LENGTH].decode("utf-8", "replace")

    def rows(self) -> list[dict[str, Any]]:
        """A row for each format and each reason; the last one adds them up."""
        return [
            *(
                {"outcome": f"{self.noun} ({form})", self.unit: count, "first_line": None}
                for form, count in sorted(self.requests.items())
            ),
            *(
                {"outcome": reason, self.unit: count, "first_line": self.first_lines[reason]}
                for reason, count in sorted(self.left_out.items())
            ),
            {"outcome": f"{self.unit} read", self.unit: self.lines, "first_line": None},
        ]

    def words(self) -> str:
        """The balance in one line, and a hint where no line is a request."""
        forms = ", ".join(f"{count:,} {form}" for form, count in sorted(self.requests.items()))
        reasons = "; ".join(
            f"{count:,}: {reason}, first in line {self.first_lines[reason]:,}"
            for reason, count in sorted(self.left_out.items())
        )
        found = (
            f"{self.lines:,} {self.unit} read = {self.requests.total():,} {self.noun}s"
            + (f" ({forms})" if forms else "")
            + f" + {self.left_out.total():,} left out"
            + (f" ({reasons})" if reasons else "")
        )
        if self.lines and not self.requests and self.unit == "lines":
            found += (
                f"; no line has a format that is known ({FORMATS}); the first one begins with "
                f"{self.example!r}"
            )
        return found

    def to_json(self) -> dict[str, Any]:
        """The state for the next run, which meets a line again that has no end yet."""
        passing = (NOT_ENDED, DAMAGED)
        return {
            "requests": dict(self.requests),
            "left_out": {name: n for name, n in self.left_out.items() if name not in passing},
            "first_lines": self.first_lines,
            "example": self.example,
            "unit": self.unit,
            "noun": self.noun,
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> LogLedger:
        return cls(
            Counter(kept["requests"]),
            Counter(kept["left_out"]),
            dict(kept["first_lines"]),
            kept["example"],
            kept.get("unit", "lines"),
            kept.get("noun", "request"),
        )


class Position(NamedTuple):
    """A place between two lines: how many lines and bytes, decompressed, are before it."""

    line: int = 0
    offset: int = 0


LOG_START = Position()


class AccessLog:
    """A log file, from one position up to another; `ledger` has the fate of the lines.

    `reached` is how far they have been taken, and `digest` identifies all bytes before that.
    """

    def __init__(
        self,
        path: Path,
        start: Position = LOG_START,
        stop: Position | None = None,
        longest_line: int = LONGEST_LINE,
    ) -> None:
        self.path = path
        self._longest = longest_line
        self.start = start
        self.compression = compression_of(path)
        self.ledger = LogLedger()
        self.reached = start
        self._stop = stop
        self._digest = hashlib.sha256()

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def lines(self, *, with_old: bool = False) -> Iterator[LogLine]:
        """The lines that can be records; others are in the ledger only.

        Lines before the start come only if they are asked for, and are not counted again.
        """
        position = Position()
        if self._stop is not None and not self._stop.offset:
            return
        try:
            for value, length in self._raw_lines():
                is_new = position.offset >= self.start.offset
                position = Position(position.line + 1, position.offset + length)
                if is_new:
                    self.reached = position
                if len(value) > self._longest:
                    if is_new:
                        self.ledger.leave_out(position.line, TOO_LONG)
                elif is_new or with_old:
                    line = log_line(value, is_new=is_new)
                    if is_new:
                        self.ledger.count(position.line, line)
                    yield line
                # The digest has the bytes taken from the file: nothing behind the last line.
                if self._stop is not None and position.offset >= self._stop.offset:
                    return
        except DamagedError:
            self.ledger.leave_out(position.line + 1, DAMAGED)

    def beginning(self, length: int) -> bytes:
        """The first bytes, decompressed."""
        found = b""
        try:
            for chunk in self._chunks():
                found += chunk
                if len(found) >= length:
                    break
        except DamagedError:
            pass  # the rest is missing, and the reader of the lines gets the error
        return found[:length]

    def digest_up_to(self, offset: int) -> str:
        """Identifies the bytes before an offset."""
        digest, left = hashlib.sha256(), offset
        try:
            for chunk in self._chunks():
                digest.update(chunk[:left])
                left -= len(chunk)
                if left <= 0:
                    break
        except DamagedError:
            pass  # the bytes that are there are compared
        return digest.hexdigest()

    def _raw_lines(self) -> Iterator[tuple[bytes, int]]:
        """Each line without its end, and its length in the file.

        No more than one byte over LONGEST_LINE is kept of a line, and nothing of the NULs that a
        log begins with after it was truncated under its server's hands. The last line may lack its
        end: it counts if nothing can be missing of it.
        """
        digest, kept, length = hashlib.sha256(), b"", 0
        for chunk in self._chunks():
            begin = 0
            while (end := chunk.find(b"\n", begin)) >= 0:
                digest.update(memoryview(chunk)[begin : end + 1])
                self._digest = digest
                value = _joined(kept, chunk[begin:end])
                yield value.removesuffix(b"\r"), length + end + 1 - begin
                kept, length, begin = b"", 0, end + 1
            if begin < len(chunk):
                self._digest = digest.copy() if not length else self._digest
                digest.update(memoryview(chunk)[begin:])
                kept = _joined(kept, chunk[begin:])
                length += len(chunk) - begin
        if length:
            yield from self._last_line(kept, length, digest)

    def _last_line(
        self, value: bytes, length: int, digest: hashlib._Hash
    ) -> Iterator[tuple[bytes, int]]:
        if self.compression or _is_whole(value):
            self._digest = digest
            yield value, length
        else:
            self.ledger.leave_out(self.reached.line + 1, NOT_ENDED)

    def _chunks(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            if self.compression is None:
                while chunk := file.read(CHUNK):
                    yield chunk
            else:
                yield from _decompressed(file, self.compression)


def compression_of(path: Path) -> str | None:
    """How a file is compressed; raises LogError for a file that cannot be read as a log."""
    with path.open("rb") as file:
        head = file.read(TAR_PLACE.stop)
    for magic, name in REFUSED.items():
        if head.startswith(magic):
            raise LogError(f"{path}: is compressed with {name}; {GZIP} and {ZSTD} are read")
    if path.suffix in REFUSED_NAMES:
        name = REFUSED_NAMES[path.suffix]
        raise LogError(f"{path}: is compressed with {name}; {GZIP} and {ZSTD} are read")
    if head.startswith(WIDE_MARKS):
        raise LogError(f"{path}: is text in UTF-16; logs are read in UTF-8")
    found = next((name for magic, name in READABLE.items() if head.startswith(magic)), None)
    if found is not None:
        head = _first_bytes(path, found)
    if head[TAR_PLACE] == TAR:
        raise LogError(f"{path}: is an archive of tar; give the log in it")
    return found


def _first_bytes(path: Path, compression: str) -> bytes:
    with path.open("rb") as file:
        try:
            return next(_decompressed(file, compression), b"")
        except DamagedError:
            return b""


def _decompressed(file: IO[bytes], compression: str) -> Iterator[bytes]:
    """The bytes of all members or frames of a file; raises DamagedError behind the last good."""
    import zstandard

    def decoder() -> Any:
        if compression == GZIP:
            return zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        return zstandard.ZstdDecompressor(max_window_size=2**31).decompressobj()

    current, is_between = decoder(), True
    try:
        while data := file.read(CHUNK):
            while data:
                if found := current.decompress(data):
                    yield found
                is_between = current.eof
                data = current.unused_data.lstrip(b"\0") if is_between else b""
                current = decoder() if is_between else current
    except (zlib.error, zstandard.ZstdError):
        raise DamagedError from None
    if not is_between:
        raise DamagedError


def _joined(kept: bytes, piece: bytes) -> bytes:
    """A line and its continuation, up to the length that is too long."""
    if not kept:
        piece = piece.lstrip(b"\0")
    return (kept + piece[: LONGEST_LINE + 1 - len(kept)]) if kept else piece[: LONGEST_LINE + 1]


def _is_whole(value: bytes) -> bool:
    """Whether nothing can be missing of a line without an end: its last field is closed."""
    request = request_of(value)
    return request is not None and value.rstrip().endswith((b'"', b"}"))


def lines_of(
    log: AccessLog | None, seed: int, events: int, *, with_old: bool = False
) -> Iterator[LogLine]:
    """The lines of a log that are new, or of made-up traffic where there is none."""
    if log is not None:
        return log.lines(with_old=with_old)
    return (log_line(line) for line in SiteActivity(seed, events).lines())


def requests(lines: Iterable[LogLine]) -> Iterator[LoggedRequest]:
    """The lines that are requests, in their order; the ledger of their log counts the others."""
    return (line.request for line in lines if line.request is not None)
