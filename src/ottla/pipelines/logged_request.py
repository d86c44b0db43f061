"""A line of an access log as a request, in each format that is known.

`parse_line` is the one reader of lines, for feeds that publish events and for Spark's tasks alike:
each line is a request, or has a reason why it is none.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from ipaddress import ip_address
from math import isfinite
from typing import Any, Final, NamedTuple

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
MOMENT = r"\d{4}-\d\d-\d\d[T ][\d:.]{8,18}(?:Z|[+-]\d\d:?\d\d)"
TAG = r"[\w./-]{1,128}(?:\[\d{1,10}\])?:"
# What collectors put before the lines of a server: container runtimes, syslog, `compose logs`.
COLLECTED = re.compile(
    rf"{MOMENT} (?:stdout|stderr) F "
    rf"|(?:<\d{{1,3}}>)?(?:[A-Z][a-z][a-z] [ \d]\d \d\d:\d\d:\d\d|{MOMENT}) \S{{1,255}} {TAG} "
    rf"|<\d{{1,3}}>1 {MOMENT} \S{{1,255}} \S{{1,48}} \S{{1,128}} \S{{1,32}} - "
    r"|[\w.-]{1,128} {1,40}\| "
)
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
    """The request of a line, in any of FORMATS; raises NoRequestError.

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
    """A line without the leavings of editors and truncation on both sides."""
    return value.removeprefix(BOM_UTF8).strip(b"\0").removeprefix(BOM_UTF8)


def _from_line(text: str, *, is_collected: bool = False) -> LoggedRequest:
    site, _, behind = text.partition(" ")
    is_vhost = SITE_AND_PORT.fullmatch(site) is not None
    found = _matched(behind if is_vhost else text)
    if found is None and is_vhost:
        # It may be the client with its port, which looks the same.
        is_vhost, found = False, _matched(text)
    if found is None:
        return _behind_prefix(text, is_collected)
    client, second, user, time, asked, status, size, words, referrer, agent, more = found.groups()
    if " " in user and not _is_address(client):
        if _is_address(second):
            # The name of the site stands first here, too, but without its port.
            client, is_vhost = second, True
        elif COLLECTED.match(text) or _has_client(user.split(" ")):
            return _behind_prefix(text, is_collected)
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


def _behind_prefix(text: str, is_collected: bool) -> LoggedRequest:
    """The request in a line that a collector has written its own words before."""
    found = None if is_collected else COLLECTED.match(text)
    if found is None:
        raise NoRequestError(UNKNOWN_FORMAT)
    rest = text[found.end() :]
    is_json = rest.lstrip().startswith("{")
    return _from_json(rest) if is_json else _from_line(rest, is_collected=True)


def _has_client(words: Sequence[str]) -> bool:
    """Whether the client is among these words: who knows what stands before it."""
    return words[-2] == "-" or any(map(_is_address, words))


def _is_address(text: str) -> bool:
    try:
        ip_address(_without_port(text))
    except ValueError:
        return False
    return True


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


NAMES: Final[Mapping[str, list[str]]] = {
    name: names.split()
    for name, names in {
        "client": (
            "remote_addr remoteaddr remote_ip request.remote_ip request.client_ip "
            "request.remote_addr clienthost client_ip clientip client.ip client.address source.ip "
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
"""Lines that are JSON: the names of nginx's, Apache's, Caddy's, Traefik's and Elastic's fields."""
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


LONGEST_CLIENT = 255
