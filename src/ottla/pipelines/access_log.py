"""Access logs: lines as requests, files as lines, and made-up traffic where there is no log.

`parse_line` is the one reader of lines, for feeds that publish events and for Spark's tasks alike:
each line is a request, or has a reason why it is none. `AccessLog` reads a file, plain or
compressed, and its `LogLedger` counts what became of each line. `SiteActivity` makes up the traffic
of a web site: lines in combined log format.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import random
import re
import zlib
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from itertools import accumulate, islice
from math import isfinite
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

# A line as a request.

QUOTED = r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
WORDS_BEHIND = r"(?: [^\s\"\[\]]++)*+"
# Also `rt="0.2"`, and names in brackets; a time in brackets belongs to a second line.
TEXT_BEHIND = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
FIELDS_BEHIND = rf'(?: (?:[^\s"\[\]]++(?:{TEXT_BEHIND})?+|{TEXT_BEHIND}|\[[\w.-]*+\]))*+'
# Every part has a bound or is possessive: hostile lines cost no more time than others.
LINE = re.compile(
    r'(\S{1,255}) (\S{1,255}) (""|[^"\[\]]{0,255}?) \[([^\]]{1,64})\] '
    rf"{QUOTED} (\d{{3}}) (\d+|-)(?:({WORDS_BEHIND})| {QUOTED} {QUOTED}({FIELDS_BEHIND}))\s*",
    re.DOTALL,
)
# The name of the site before the client, as in vhost_combined; an IPv6 address has more colons.
SITE_AND_PORT = re.compile(r"(?:[^\s:\[\]]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")
ADDRESS_AND_PORT = re.compile(r"(\d+\.\d+\.\d+\.\d+):\d{1,5}|\[([0-9A-Fa-f:.]+)\](?::\d{1,5})?")
# The addresses of a client and of proxies, as in X-Forwarded-For, in the client's place.
CHAIN = re.compile(r"([^\s,]{1,255}),(?: ?[^\s,]{1,255},){0,50}+ ?[^\s,]{1,255}(?= )")
ADDRESS = re.compile(r"[0-9A-Fa-f]*[.:][0-9A-Fa-f.:%a-z]+")
TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
REQUEST = re.compile(rf"({TOKEN}) (.+) [A-Z]{{2,8}}/\d(?:\.\d)?", re.DOTALL)
OLD_REQUEST = re.compile(r"([A-Z]+) (/\S*)")
TIME = re.compile(
    r"(\d\d)/([A-Z][a-z][a-z])/(\d{4}):(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))? "
    r"([+-])(\d\d):?(\d\d)"
)
ISO_LEAP_SECOND = re.compile(r"(T\d\d:\d\d:)60")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
ASSET = re.compile(r"\.(?:css|js|png|jpe?g|gif|ico|svg|webp|woff2?|ttf|map)$", re.IGNORECASE)
FIRST_ERROR_STATUS = 400
XFF = re.compile(r' "[^"\\]*"')
MINUTES_OF_AN_HOUR, LEAP_SECOND, MAX_STATUS = 60, 60, 999
NUMBER = re.compile(r"-?\d{1,30}(?:\.\d{1,30})?")
LATEST_SECONDS = 1e11
"""A greater number is one of milliseconds, microseconds or nanoseconds."""
LONGEST_PART = 8192
LONGEST_SIZE = 18
"""Sizes with more digits are no sizes."""

COMMON, COMBINED, VHOST, MAIN = "common", "combined", "vhost_combined", "nginx main"
MORE_FIELDS, JSON_LINES = "with further fields", "JSON"
FORMATS = f"{COMBINED}, {COMMON}, {VHOST}, {MAIN} and {JSON_LINES}"

NO_VALUE = "the record has no value"
EMPTY = "the line is empty"
UNKNOWN_FORMAT = "not in a known log format"
BAD_TIME = "the time cannot be read"
NO_OBJECT = "the line is no JSON object"
TOO_LONG = "the line is too long"
NOT_ENDED = "the line has no end yet"
DAMAGED = "the file cannot be decompressed from here on"


class LoggedRequest(NamedTuple):
    """The request in a line; `time` is in UTC, and the path is without the query.

    Rubbish that a server has answered is a request, too: it has no method, and its path is all that
    the client has sent. A response without a body has no size.
    """

    client: str
    time: datetime
    method: str | None
    path: str
    status: int
    size: int | None
    referrer: str | None
    user_agent: str | None
    form: str

    @property
    def is_page(self) -> bool:
        """Whether a page was served: images, styles and scripts are none."""
        is_served = self.status < FIRST_ERROR_STATUS and self.method is not None
        return is_served and not ASSET.search(self.path)


class NoRequestError(ValueError):
    """A line is no request; the text is the reason."""


def parse_line(value: bytes | None) -> LoggedRequest:
    """The request that a line tells of, in any of FORMATS; raises NoRequestError.

    A byte order mark and the NULs that a truncated log begins with are no part of a line.
    """
    if value is None:
        raise NoRequestError(NO_VALUE)
    text = trimmed(value).decode("utf-8", "replace").rstrip("\r\n")
    if not text.strip():
        raise NoRequestError(EMPTY)
    return _from_json(text) if text.lstrip().startswith("{") else _from_line(text)


def request_of(value: bytes | None) -> LoggedRequest | None:
    """The request in a line; None where it has none."""
    try:
        return parse_line(value)
    except NoRequestError:
        return None


def trimmed(value: bytes) -> bytes:
    """A line without what is left before it by editors and by truncation, and behind it."""
    return value.removeprefix(BOM_UTF8).strip(b"\0").removeprefix(BOM_UTF8)


def _from_line(text: str) -> LoggedRequest:
    site, _, behind = text.partition(" ")
    is_vhost = SITE_AND_PORT.fullmatch(site) is not None
    found = _matched(behind if is_vhost else text)
    if found is None and is_vhost:
        # It may be the client with its port, which looks the same.
        is_vhost, found = False, _matched(text)
    if found is None:
        raise NoRequestError(UNKNOWN_FORMAT)
    client, second, user, time, asked, status, size, words, referrer, agent, more = found.groups()
    if " " in user and ADDRESS.fullmatch(second):
        # The name of the site stands first here, too, but without its port.
        client, is_vhost = second, True
    method, path = _asked(asked)
    return LoggedRequest(
        _without_port(client),
        _logged_time(time),
        method,
        path,
        int(status),
        _size(size),
        _part(referrer),
        _part(agent),
        _form(is_vhost, agent is not None, words or more or ""),
    )


def _matched(text: str) -> re.Match[str] | None:
    chain = CHAIN.match(text)
    return LINE.fullmatch(text if chain is None else chain[1] + text[chain.end() :])


def _form(is_vhost: bool, has_agent: bool, more: str) -> str:
    if has_agent and not is_vhost and XFF.fullmatch(more):
        return MAIN
    form = ("vhost_" if is_vhost else "") + (COMBINED if has_agent else COMMON)
    return f"{form} {MORE_FIELDS}" if more else form


def _asked(request: str) -> tuple[str | None, str]:
    """Method and path of a request line; rubbish has no method, and is its own path."""
    found = REQUEST.fullmatch(request) or OLD_REQUEST.fullmatch(request)
    if found is None:
        return None, request[:LONGEST_PART]
    return found[1], _path(found[2])


def _path(target: str) -> str:
    return target.partition("?")[0][:LONGEST_PART]


def _without_port(client: str) -> str:
    """A client's address: each of its connections has a port of its own."""
    found = ADDRESS_AND_PORT.fullmatch(client)
    return client if found is None else found[1] or found[2]


def _part(text: str | None) -> str | None:
    return None if text is None else text[:LONGEST_PART]


def _size(text: str) -> int | None:
    return int(text) if text != "-" and len(text) <= LONGEST_SIZE else None


@lru_cache(maxsize=4096)
def _logged_time(text: str) -> datetime:
    """A moment as servers write it, or as ISO 8601; always with its zone."""
    try:
        found = TIME.fullmatch(text)
        return _iso_time(text) if found is None else _server_time(*found.groups())
    except (ValueError, OverflowError):
        raise NoRequestError(BAD_TIME) from None


def _iso_time(text: str) -> datetime:
    # A leap second is second 60: the moment behind second 59.
    second_59 = ISO_LEAP_SECOND.sub(r"\g<1>59", text)
    leap = second_59 != text
    return _utc(datetime.fromisoformat(second_59)) + timedelta(seconds=leap)


def _server_time(day: str, month: str, year: str, *more: str) -> datetime:
    hour, minute, second, fraction, sign, hours, minutes = more
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    if int(minutes) >= MINUTES_OF_AN_HOUR or month not in MONTHS:
        raise NoRequestError(BAD_TIME)
    leap = int(second) == LEAP_SECOND
    moment = datetime(
        int(year),
        MONTHS.index(month) + 1,
        int(day),
        int(hour),
        int(minute),
        int(second) - leap,
        int((fraction or "0").ljust(6, "0")[:6]),
        timezone(-offset if sign == "-" else offset),
    )
    return _utc(moment) + timedelta(seconds=leap)


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise NoRequestError(BAD_TIME)
    return moment.astimezone(UTC)


# Lines that are JSON: the names of nginx's, Apache's, Caddy's, Traefik's and Elastic's fields.
NAMES: Final[Mapping[str, list[str]]] = {
    name: names.split()
    for name, names in {
        "client": (
            "remote_addr remoteaddr remote_ip request.remote_ip request.client_ip "
            "clienthost client_ip clientip client.ip client.address source.ip "
            "source.address client remote_host ip"
        ),
        "time": (
            "time_iso8601 time_local startutc @timestamp timestamp time ts msec datetime date"
        ),
        "method": "request_method request.method requestmethod http.request.method method",
        "path": "request_uri request.uri requestpath url.original url.path uri path url",
        "request": "request request_line requestline",
        "status": (
            "status status_code statuscode downstreamstatus http.response.status_code "
            "response_code code"
        ),
        "size": (
            "body_bytes_sent downstreamcontentsize http.response.body.bytes response_size "
            "bytes_sent size bytes"
        ),
        "referrer": (
            "http_referer http_referrer referer referrer request_referer "
            "http.request.referrer request.headers.referer"
        ),
        "user_agent": (
            "http_user_agent user_agent useragent agent request_user-agent "
            "user_agent.original request.headers.user-agent"
        ),
    }.items()
}
WRAPPED = "log"
"""The field that Docker and Kubernetes keep a line of any format in."""
DEEPEST = 4
RAW_BYTE = re.compile(r"(?<!\\)((?:\\\\)*)\\x([0-9A-Fa-f]{2})")
"""What nginx writes in place of a byte where its format does not say escape=json."""


def _from_json(text: str, is_wrapped: bool = False) -> LoggedRequest:
    fields = _fields(text)
    wrapped = fields.get(WRAPPED)
    if isinstance(wrapped, str) and not is_wrapped:
        inner = wrapped.rstrip("\r\n")
        is_json = inner.lstrip().startswith("{")
        return _from_json(inner, is_wrapped=True) if is_json else _from_line(inner)
    found = {
        name: next((fields[each] for each in names if fields.get(each) is not None), None)
        for name, names in NAMES.items()
    }
    client, status = _text(found["client"]), _number(found["status"])
    if not client:
        raise NoRequestError("the JSON object has no client's address")
    if status is None or not 0 <= status <= MAX_STATUS:
        raise NoRequestError("the JSON object has no status")
    asked_method, asked_path = _asked(_text(found["request"]) or "-")
    method, path = _text(found["method"]) or asked_method, _text(found["path"])
    if path is None:
        path = asked_path
    size = _number(found["size"])
    return LoggedRequest(
        _without_port(client[:LONGEST_CLIENT]),
        _json_time(found["time"]),
        method if method is None or re.fullmatch(TOKEN, method) else None,
        _path(path),
        status,
        size if size is not None and 0 <= size < 10**LONGEST_SIZE else None,
        _part(_text(found["referrer"])),
        _part(_text(found["user_agent"])),
        JSON_LINES,
    )


def _fields(text: str) -> dict[str, Any]:
    """The fields of an object by their names in small letters; those within are `outer.inner`."""
    try:
        try:
            value = json.loads(text)
        except ValueError:
            value = json.loads(RAW_BYTE.sub(r"\1\\u00\2", text))
    except (ValueError, RecursionError):
        raise NoRequestError(NO_OBJECT) from None
    if not isinstance(value, dict):
        raise NoRequestError(NO_OBJECT)
    return dict(_flat(value, "", DEEPEST))


def _flat(value: Mapping[str, Any], prefix: str, deepest: int) -> Iterator[tuple[str, Any]]:
    for name, each in value.items():
        path = f"{prefix}{name.lower()}"
        if isinstance(each, dict) and deepest:
            yield from _flat(each, f"{path}.", deepest - 1)
        else:
            yield path, each[0] if isinstance(each, list) and each else each


def _text(value: Any) -> str | None:
    """Text that UTF-8 can hold: JSON can hold half a character."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None


def _number(value: Any) -> int | None:
    try:
        is_number = isinstance(value, int | float | str) and not isinstance(value, bool)
        return int(value) if is_number else None
    except (ValueError, OverflowError):
        return None


def _json_time(value: Any) -> datetime:
    """A moment as text, or as a number: seconds since 1970 and its thousandths and so on."""
    try:
        if isinstance(value, str) and not NUMBER.fullmatch(value):
            return _logged_time(value)
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise NoRequestError(BAD_TIME)
        seconds = float(value)
        if not isfinite(seconds):
            raise NoRequestError(BAD_TIME)
        while abs(seconds) >= LATEST_SECONDS:
            seconds /= 1000
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    except (ValueError, OverflowError):
        raise NoRequestError(BAD_TIME) from None


# Lines as rows, in the tasks of Spark.

LINE_ROWS = (
    "_topic string, _partition int, _offset bigint, time timestamp, client string, method string, "
    "path string, status int, bytes bigint, referrer string, user_agent string, problem string, "
    "value binary"
)
_PLACE = ("topic", "partition", "offset")
_NO_PARTS = (None,) * 8


def rows_of_lines(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows of LINE_ROWS for records with a place and a value; `problem` says why one is no line."""
    import pyarrow as pa

    kinds = (
        *(pa.string(), pa.int32(), pa.int64(), pa.timestamp("us", "UTC")),
        *(pa.string(), pa.string(), pa.string(), pa.int32(), pa.int64()),
        *(pa.string(), pa.string(), pa.string(), pa.binary()),
    )
    names = [column.split()[0] for column in LINE_ROWS.split(", ")]
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    for batch in batches:
        places = zip(*(batch[name].to_pylist() for name in _PLACE), strict=True)
        values = batch["value"].to_pylist()
        rows = [(*place, *_parts(value)) for place, value in zip(places, values, strict=True)]
        columns = zip(*rows, strict=True) if rows else [[] for _ in schema]
        arrays = [pa.array(column, each.type) for column, each in zip(columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _parts(value: bytes | None) -> tuple[object, ...]:
    try:
        found = parse_line(value)
    except NoRequestError as error:
        return (*_NO_PARTS, str(error), value)
    return (
        found.time,
        found.client,
        found.method,
        found.path,
        found.status,
        found.size,
        found.referrer,
        found.user_agent,
        None,
        value,
    )


# A file as lines.

CHUNK = 64 * 1024
LONGEST_LINE = 1_000_000
"""A longer line is left out: with its key it has to fit into a request (`max.request.size`)."""
LONGEST_CLIENT = 255
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
    """A file that cannot be read as a log; the text says why, and what can be done."""


class DamagedError(Exception):
    """Compressed bytes that end too early, or are none."""


class LogLine(NamedTuple):
    """A line of a log without its end. `key` is its client's address, or what stands there.

    `is_new` is False for the lines before the position that the log is read from.
    """

    key: bytes
    value: bytes
    request: LoggedRequest | None
    problem: str = ""
    is_new: bool = True


def log_line(value: bytes, *, is_new: bool = True) -> LogLine:
    """A line with what it tells; the requests of one client share a key, so they stay in order."""
    try:
        request = parse_line(value)
    except NoRequestError as error:
        key = trimmed(value).partition(b" ")[0][:LONGEST_CLIENT]
        return LogLine(key, value, None, str(error), is_new)
    return LogLine(request.client.encode(), value, request, "", is_new)


@dataclass(slots=True)
class LogLedger:
    """What became of the lines of a log: each is a request, or left out for a reason.

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
        """What is kept for the next run, which meets a line again that has no end yet."""
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
    """A log file, from one position up to another; `ledger` has what became of the lines.

    `reached` is how far they have been taken, and `digest` tells all bytes before that from others.
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
                # The digest has what was taken from the file: nothing behind the last line.
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
            pass  # the rest is missing, and whoever reads the lines is told
        return found[:length]

    def digest_up_to(self, offset: int) -> str:
        """Tells the bytes before an offset from others."""
        digest, left = hashlib.sha256(), offset
        try:
            for chunk in self._chunks():
                digest.update(chunk[:left])
                left -= len(chunk)
                if left <= 0:
                    break
        except DamagedError:
            pass  # what is there is compared
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
    """A line and what follows of it, up to the length that is too long."""
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


# Made-up traffic.

START = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
"""The moment that made-up events begin at, in every pipeline."""


def zipf_weights(count: int) -> list[float]:
    """Popularity by rank (Zipf): the second is half as popular as the first, the third a third."""
    return [1 / rank for rank in range(1, count + 1)]


DEFAULT_EVENTS = 100_000
DEFAULT_SEED = 2011
DURATION_S = 2 * 3600
PAGE_COUNT = 400
MISSING_PAGES = ("/wp-login.php", "/admin.php", "/old/index.html", "/.env", "/articles/drafts/7")
SECTIONS = ("articles", "blog", "projects", "talks", "notes")
WORDS = ("log", "stream", "offset", "broker", "record", "batch", "replica", "window", "table")
BROWSERS = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/141.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) "
    "Version/18.5 Safari/605.1.15",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 "
    "(KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1",
)
CRAWLERS = (
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
    "ExampleSpider/1.3 (+https://spider.example/about)",
)
REFERRERS = ("-", "-", "https://search.example/?q=logs", "https://news.example/item?id=1729")
CRAWLER_SHARE = 0.12
BURST_SHARE = 0.10
BURST_FROM_S, BURST_UNTIL_S = 4200, 4500
NOT_FOUND_SHARE = 0.02
FAILED_SHARE = 0.004
NOT_MODIFIED_SHARE = 0.05
MEAN_PAGES_PER_SESSION = 6


@dataclass(frozen=True, slots=True)
class Visitor:
    """A client of the site: an address, a program, and the seconds between two requests."""

    address: str
    user_agent: str
    referrer: str
    pause_s: float
    page: str | None = None  # the only page requested by those who follow a link


class SiteActivity:
    """A site and its visitors; `lines` yields the log that its server would have written.

    It is the same for the same seed. People read in sessions, popular pages more often than others
    (Zipf); some come in a burst, as when a page is linked to from somewhere big; crawlers go
    through the site, one of them far too fast. A few pages do not exist, and now and then the
    server fails. Times never go back.
    """

    def __init__(self, seed: int = DEFAULT_SEED, events: int = DEFAULT_EVENTS) -> None:
        self._random = random.Random(seed)
        self._events = events
        self._pages = self._site()
        # Zipf: the page of rank n is asked for n times less often than the first one.
        self._weights = list(accumulate(zipf_weights(len(self._pages))))

    def lines(self) -> Iterator[bytes]:
        """As many lines as asked for, in the order of their times."""
        return islice(self._merged(), self._events)

    def _site(self) -> list[str]:
        pages = ["/"]
        for number in range(1, PAGE_COUNT):
            section = self._random.choice(SECTIONS)
            word = self._random.choice(WORDS)
            pages.append(f"/{section}/{word}-{number}")
        return pages

    def _merged(self) -> Iterator[bytes]:
        """The sessions side by side: of all visitors, the one whose time comes first is next."""
        waiting: list[tuple[float, int, Visitor, int]] = []
        for number, (start_s, visitor, requests) in enumerate(self._sessions()):
            while waiting and waiting[0][0] <= start_s:
                yield self._step(waiting)
            heapq.heappush(waiting, (start_s, number, visitor, requests))
        while waiting:
            yield self._step(waiting)

    def _step(self, waiting: list[tuple[float, int, Visitor, int]]) -> bytes:
        now_s, number, visitor, left = waiting[0]
        if left > 1:
            pause_s = self._random.expovariate(1 / visitor.pause_s)
            heapq.heapreplace(waiting, (now_s + pause_s, number, visitor, left - 1))
        else:
            heapq.heappop(waiting)
        return self._line(now_s, visitor)

    def _sessions(self) -> Iterator[tuple[float, Visitor, int]]:
        """Start, visitor and number of requests of each session, in the order of the starts."""
        plan: list[tuple[float, Visitor, int]] = []
        planned = 0
        while planned < self._events:
            start_s, visitor, requests = self._session()
            plan.append((start_s, visitor, requests))
            planned += requests
        plan.sort(key=lambda session: session[0])
        return iter(plan)

    def _session(self) -> tuple[float, Visitor, int]:
        kind = self._random.random()
        start_s = self._random.uniform(0, DURATION_S)
        requests = 1 + int(self._random.expovariate(1 / MEAN_PAGES_PER_SESSION))
        if kind < CRAWLER_SHARE / 10:
            fast = self._random.random() < 0.2
            pause_s = 0.4 if fast else 6.0
            visitor = self._visitor(self._random.choice(CRAWLERS), "-", pause_s)
            return start_s, visitor, 10 * requests
        if kind < CRAWLER_SHARE / 10 + BURST_SHARE:
            start_s = self._random.triangular(BURST_FROM_S, BURST_UNTIL_S, BURST_FROM_S)
            page = self._pages[1]
            visitor = self._visitor(self._random.choice(BROWSERS), REFERRERS[-1], 20, page)
            return start_s, visitor, 1 + requests // 3
        referrer = self._random.choice(REFERRERS)
        return start_s, self._visitor(self._random.choice(BROWSERS), referrer, 25), requests

    def _visitor(
        self, user_agent: str, referrer: str, pause_s: float, page: str | None = None
    ) -> Visitor:
        # 198.18.0.0/15 is reserved for tests: no real client has such an address.
        number = self._random.randrange(1 << 17)
        address = f"198.{18 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
        return Visitor(address, user_agent, referrer, pause_s, page)

    def _line(self, now_s: float, visitor: Visitor) -> bytes:
        chance = self._random.random()
        path = visitor.page or self._random.choices(self._pages, cum_weights=self._weights)[0]
        status, size = 200, str(2000 + int(self._random.expovariate(1 / 9000)))
        if chance < NOT_FOUND_SHARE:
            path, status, size = self._random.choice(MISSING_PAGES), 404, "209"
        elif chance < NOT_FOUND_SHARE + FAILED_SHARE:
            status, size = 500, "613"
        elif chance < NOT_FOUND_SHARE + FAILED_SHARE + NOT_MODIFIED_SHARE:
            status, size = 304, "-"
        time = (START + timedelta(seconds=int(now_s))).strftime("%d/%b/%Y:%H:%M:%S %z")
        return (
            f'{visitor.address} - - [{time}] "GET {path} HTTP/1.1" {status} {size} '
            f'"{visitor.referrer}" "{visitor.user_agent}"'
        ).encode()
