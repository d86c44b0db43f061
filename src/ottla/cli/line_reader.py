"""Lines into records: what `--property` of the console producer says about keys and headers.

Bytes stay bytes: a line that is not UTF-8 is sent as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import BinaryIO, TextIO

from ottla.cli.command_error import CommandError, UsageError

CHUNK_BYTES = 1 << 18

Headers = tuple[tuple[str, bytes | None], ...]

LineRecord = tuple[bytes | None, bytes | None, Headers]  # key, value, headers


class LineReader:
    """Reads lines as `headers<TAB>key<TAB>value`; only the value is always there.

        parse.headers=true, parse.key=true:   h1:v1,h2:v2<TAB>key<TAB>value

    Invariant: no two separators are equal, and none is empty or equal to null.marker.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.parse_key = _is_true(properties, "parse.key")
        self.parse_headers = _is_true(properties, "parse.headers")
        self.ignore_error = _is_true(properties, "ignore.error")
        self.key_separator = properties.get("key.separator", "\t").encode()
        self.headers_delimiter = properties.get("headers.delimiter", "\t").encode()
        self.headers_separator = properties.get("headers.separator", ",").encode()
        self.headers_key_separator = properties.get("headers.key.separator", ":").encode()
        marker = properties.get("null.marker")
        self.null_marker = None if marker is None else marker.encode()
        self.line_number = 0
        self._check_separators()

    def _check_separators(self) -> None:
        separators = {
            "headers.delimiter": self.headers_delimiter,
            "headers.separator": self.headers_separator,
            "headers.key.separator": self.headers_key_separator,
        }
        for name, separator in {**separators, "key.separator": self.key_separator}.items():
            if not separator:
                raise UsageError(f"{name} must not be empty")
            if separator == self.null_marker:
                raise UsageError(f"{name} and null.marker must differ")
        if len(set(separators.values())) < len(separators):
            raise UsageError(f"{', '.join(separators)} must all differ")

    def read(self, source: BinaryIO, out: TextIO) -> Iterator[list[LineRecord]]:
        """The records of the input, as many at a time as have arrived; a person gets a prompt."""
        if source.isatty():
            return self._read_prompting(source, out)
        return self._read_chunks(source)

    def _read_prompting(self, source: BinaryIO, out: TextIO) -> Iterator[list[LineRecord]]:
        while True:
            out.write(">")
            out.flush()
            line = source.readline()
            if not line:
                out.write("\n")
                return
            yield self.parse_lines(line)

    def _read_chunks(self, source: BinaryIO) -> Iterator[list[LineRecord]]:
        read = getattr(source, "read1", source.read)
        begun: list[bytes] = []  # pieces of a line whose end has not arrived
        while chunk := read(CHUNK_BYTES):
            lines, newline, rest = chunk.rpartition(b"\n")
            if newline:
                yield self.parse_lines(b"".join((*begun, lines, newline)))
                begun.clear()
            begun.append(rest)
        if last := b"".join(begun):
            yield self.parse_lines(last)

    def parse_lines(self, text: bytes) -> list[LineRecord]:
        """The records of whole lines, which end as Java's readLine ends them."""
        lines = text.splitlines()
        if not (self.parse_key or self.parse_headers or self.null_marker):
            self.line_number += len(lines)
            return list(zip(repeat(None), lines, repeat(())))
        return [self.parse_line(line) for line in lines]

    def parse_line(self, line: bytes) -> LineRecord:
        """The record of one line."""
        self.line_number += 1
        headers, rest = self._cut(self.parse_headers, line, self.headers_delimiter, "headers")
        key, value = self._cut(self.parse_key, rest, self.key_separator, "key")
        return self._or_null(key), self._or_null(value), self._split_headers(headers)

    def _cut(
        self, enabled: bool, line: bytes, separator: bytes, part: str
    ) -> tuple[bytes | None, bytes]:
        """The part in front of the separator, and the rest of the line behind it."""
        if not enabled:
            return None, line
        front, found, rest = line.partition(separator)
        if found:
            return front, rest
        if self.ignore_error:
            return None, line
        raise CommandError(
            f"line {self.line_number} has no {part}: '{_text(separator)}' is not in '{_text(line)}'"
        )

    def _split_headers(self, text: bytes | None) -> Headers:
        if text is None or text == self.null_marker:
            return ()
        return tuple(self._header(pair) for pair in text.split(self.headers_separator))

    def _header(self, pair: bytes) -> tuple[str, bytes | None]:
        key, found, value = pair.partition(self.headers_key_separator)
        if not found and not self.ignore_error:
            raise CommandError(
                f"line {self.line_number} has a header without "
                f"'{_text(self.headers_key_separator)}': '{_text(pair)}'"
            )
        if key == self.null_marker:
            raise CommandError(f"line {self.line_number} has a header whose key is null")
        return _text(key), self._or_null(value) if found else None

    def _or_null(self, value: bytes | None) -> bytes | None:
        return None if value == self.null_marker else value


def _is_true(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "").strip().lower() == "true"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
