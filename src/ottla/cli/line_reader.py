"""Lines of a file or a terminal as records for `ottla console-producer`."""

from __future__ import annotations

import json
from base64 import b64decode
from itertools import repeat
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.exact_json import exact_json
from ottla.cli.options import word_bytes
from ottla.cli.times import moment_ms
from ottla.config.config_type import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CHUNK_BYTES = 1 << 18
PLACE_FIELDS = ("topic", "partition", "offset")
"""Fields of a JSON record that say where it was read; they are not used."""
JSON_FIELDS = ("key", "key_base64", "value", "value_base64", "headers", "timestamp", *PLACE_FIELDS)

Headers = tuple[tuple[str, bytes | None], ...]

LineRecord = tuple[bytes | None, bytes | None, Headers, int | None]
"""Key, value, headers, and the timestamp in ms where the line has one."""


class LineReader:
    """Reads lines as `headers<TAB>key<TAB>value`; only the value is always there.

        parse.headers=true, parse.key=true:   h1:v1,h2:v2<TAB>key<TAB>value

    Invariant: no two separators are equal, and none is empty or equal to null.marker.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.parse_key = _is_true(properties, "parse.key")
        self.parse_headers = _is_true(properties, "parse.headers")
        self.ignore_error = _is_true(properties, "ignore.error")
        self.key_separator = word_bytes(properties.get("key.separator", "\t"))
        self.headers_delimiter = word_bytes(properties.get("headers.delimiter", "\t"))
        self.headers_separator = word_bytes(properties.get("headers.separator", ","))
        self.headers_key_separator = word_bytes(properties.get("headers.key.separator", ":"))
        marker = properties.get("null.marker")
        self.null_marker = None if marker is None else word_bytes(marker)
        self.line_number = 0
        self.is_plain = not (self.parse_key or self.parse_headers or self.null_marker)
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
        """Yield the records of the input as they arrive; on a terminal prompt for each line."""
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
            yield from self.parse_lines(line)

    def _read_chunks(self, source: BinaryIO) -> Iterator[list[LineRecord]]:
        read = getattr(source, "read1", source.read)
        begun: list[bytes] = []  # pieces of a line whose end has not arrived
        while chunk := read(CHUNK_BYTES):
            lines, newline, rest = chunk.rpartition(b"\n")
            if newline:
                yield from self.parse_lines(b"".join((*begun, lines, newline)))
                begun.clear()
            begun.append(rest)
        if last := b"".join(begun):
            yield from self.parse_lines(last)

    def parse_lines(self, text: bytes) -> Iterator[list[LineRecord]]:
        """The records of whole lines, which end as Java's readLine ends them.

        Those before a line that cannot be read are given first, and then the error is raised.
        """
        lines = text.splitlines()
        if self.is_plain:
            self.line_number += len(lines)
            yield list(zip(repeat(None), lines, repeat(()), repeat(None)))
            return
        records: list[LineRecord] = []
        try:
            for line in lines:
                self.line_number += 1
                records += self.parse_line(line)
        except CommandError:
            yield records
            raise
        yield records

    def parse_line(self, line: bytes) -> Sequence[LineRecord]:
        """The record of one line."""
        headers, rest = self._cut(self.parse_headers, line, self.headers_delimiter, "headers")
        key, value = self._cut(self.parse_key, rest, self.key_separator, "key")
        return [(self._or_null(key), self._or_null(value), self._split_headers(headers), None)]

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


class JsonLineReader(LineReader):
    """Reads lines as `ottla tail --format json` prints them: an object for each record.

        {"key": "k", "value": {"n": 1}, "headers": [{"key": "h", "value": "v"}]}

    A string stands for its UTF-8, null and a missing field for null, any other value for its JSON;
    `key_base64` and `value_base64` are bytes that are no text. `timestamp` is a time as in
    2026-03-02T08:00:00.000Z, or milliseconds since 1970. Blank lines are passed over.
    """

    def __init__(self) -> None:
        super().__init__({})
        self.is_plain = False

    def parse_line(self, line: bytes) -> Sequence[LineRecord]:
        return [self._record(line)] if line.strip() else ()

    def _record(self, line: bytes) -> LineRecord:
        try:
            found = exact_json(line)
        except (ValueError, RecursionError) as error:
            raise self._mistake(f"is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise self._mistake('is not a JSON object such as {"value": ...}')
        for field in found:
            if field not in JSON_FIELDS:
                raise self._mistake(f"has a field '{field}'; there are {', '.join(JSON_FIELDS)}")
        key, value = self._bytes(found, "key"), self._bytes(found, "value")
        return key, value, self._headers(found.get("headers")), self._timestamp(found)

    def _bytes(self, found: Mapping[str, Any], field: str) -> bytes | None:
        encoded = found.get(f"{field}_base64")
        if encoded is None:
            return json_bytes(found.get(field))
        try:
            return b64decode(encoded, validate=True)
        except (TypeError, ValueError):
            raise self._mistake(f"has a {field}_base64 that is not base64: '{encoded}'") from None

    def _headers(self, given: Any) -> Headers:
        if given is None:
            return ()
        pairs = given if isinstance(given, list) else [given]
        for pair in pairs:
            if not isinstance(pair, dict) or not isinstance(pair.get("key"), str):
                text = json.dumps(given)
                raise self._mistake(f'has headers that are no list of {{"key": ...}}: {text}')
        return tuple((pair["key"], self._bytes(pair, "value")) for pair in pairs)

    def _timestamp(self, found: Mapping[str, Any]) -> int | None:
        given = found.get("timestamp")
        if given is None or (type(given) is int and 0 <= given <= LONG_MAX):
            return given
        moment = moment_ms(given, 0) if isinstance(given, str) else None
        if moment is None or moment < 0:
            raise self._mistake(
                f"has a timestamp that is neither a time such as 2026-03-02T08:00:00.000Z nor "
                f"milliseconds since 1970: {json.dumps(given)}"
            )
        return moment

    def _mistake(self, text: str) -> CommandError:
        return CommandError(f"line {self.line_number} {text}")


def json_bytes(value: Any) -> bytes | None:
    """The bytes that a value in JSON stands for: text as it is, anything else as JSON."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError:  # half of a pair of surrogates, which only an escape can name
        return json.dumps(value, separators=(",", ":")).encode()


def _is_true(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "").strip().lower() == "true"


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
