"""Log files as lines, and lines as requests or as reasons."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from datetime import UTC, datetime

import pytest
import zstandard

from ottla.pipelines.access_log import LONGEST_LINE, AccessLog, LogError, LogLedger, Position
from ottla.pipelines.logged_request import (
    BAD_TIME,
    DAMAGED,
    EMPTY,
    NO_OBJECT,
    NO_VALUE,
    NOT_ENDED,
    TOO_LONG,
    UNKNOWN_FORMAT,
    NoRequestError,
    parse_line,
)

TEN = datetime(2026, 11, 26, 10, 0, 5, tzinfo=UTC)
TIME = "[26/Nov/2026:10:00:05 +0000]"
COMBINED = f'192.0.2.1 - - {TIME} "GET /a?b=1 HTTP/1.1" 200 7 "-" "x"'


def line(
    client="192.0.2.1", user="-", time=TIME, request="GET /a HTTP/1.1", end='200 7 "-" "x"'
) -> bytes:
    return f'{client} - {user} {time} "{request}" {end}'.encode()


def as_json(**fields) -> bytes:
    known = {"remote_addr": "192.0.2.1", "time": "2026-11-26T10:00:05Z", "status": 200}
    return json.dumps({**known, "request": "GET /a HTTP/1.1", **fields}).encode()


CADDY = {
    "ts": 1795687205.25,
    "request": {
        "remote_ip": "192.0.2.1",
        "method": "GET",
        "uri": "/a?b",
        "headers": {"User-Agent": ["x"], "Referer": ["-"]},
    },
    "status": 200,
    "size": 7,
}
OLD_CADDY = {**CADDY, "request": {"remote_addr": "[::1]:4711", "method": "GET", "uri": "/a"}}
TRAEFIK = {
    "ClientHost": "192.0.2.1",
    "StartUTC": "2026-11-26T10:00:05.123456789Z",
    "RequestMethod": "GET",
    "RequestPath": "/a",
    "DownstreamStatus": 200,
    "DownstreamContentSize": 7,
}
ECS = {
    "@timestamp": "2026-11-26T10:00:05.000Z",
    "source": {"ip": "192.0.2.1"},
    "http": {"request": {"method": "GET"}, "response": {"status_code": 200, "body": {"bytes": 7}}},
    "url": {"path": "/a"},
}
DOCKER = {"log": COMBINED + "\n", "stream": "stdout", "time": "2026-11-26T10:00:06Z"}

# What a line holds, and of the request in it: its form, client, method, path, status and size.
REQUESTS = {
    "combined": (COMBINED.encode(), "combined", "192.0.2.1", "GET", "/a", 200, 7),
    "common": (line(end="200 7"), "common", "192.0.2.1", "GET", "/a", 200, 7),
    "no size": (line(end='304 - "-" "x"'), "combined", "192.0.2.1", "GET", "/a", 304, None),
    "vhost": (
        b"www.example.com:443 " + line(),
        "vhost_combined",
        "192.0.2.1",
        "GET",
        "/a",
        200,
        7,
    ),
    "vhost without port": (
        b"www.example.com " + line(),
        "vhost_combined",
        "192.0.2.1",
        "GET",
        "/a",
        200,
        7,
    ),
    **{
        f"further fields: {more}": (
            f"{COMBINED} {more}".encode(),
            "combined with further fields",
            "192.0.2.1",
            "GET",
            "/a",
            200,
            7,
        )
        for more in (
            'rt=0.005 uct="0.000" uht="-, 0.2" urt="a\\"b"',
            "431 0.001 [default-web-80] [] 10.0.0.1:80, 10.0.0.2:80 0, 7 0.0, 0.1 502, 200 4f1c",
        )
    },
    **{
        f"behind proxies: {chain}": (
            line().replace(b"192.0.2.1", chain.encode(), 1),
            "combined",
            "192.0.2.1",
            "GET",
            "/a",
            200,
            7,
        )
        for chain in (
            "192.0.2.1, 10.0.0.1",
            "192.0.2.1,10.0.0.1",
            "192.0.2.1:51213, 2001:db8::1, unknown, 10.0.0.1",
        )
    },
    "vhost behind proxies": (
        b"a.example:80 " + line().replace(b"192.0.2.1", b"192.0.2.1, 10.0.0.1", 1),
        "vhost_combined",
        "192.0.2.1",
        "GET",
        "/a",
        200,
        7,
    ),
    "vhost in IPv6": (b"[::1]:80 " + line(), "vhost_combined", "192.0.2.1", "GET", "/a", 200, 7),
    "vhost common": (
        b"a.example:80 " + line(end="200 7"),
        "vhost_common",
        "192.0.2.1",
        "GET",
        "/a",
        200,
        7,
    ),
    "nginx main": (
        line(end='200 7 "-" "x" "203.0.113.9, 10.0.0.1"'),
        "nginx main",
        "192.0.2.1",
        "GET",
        "/a",
        200,
        7,
    ),
    "more fields": (
        line(end='200 7 "-" "x" 12 "web@docker" "http://10.0.0.2:80" 3ms'),
        "combined with further fields",
        "192.0.2.1",
        "GET",
        "/a",
        200,
        7,
    ),
    "common and a duration": (
        line(end="200 7 0.003"),
        "common with further fields",
        "192.0.2.1",
        "GET",
        "/a",
        200,
        7,
    ),
    "user with a blank": (
        line(user="John Smith"),
        "combined",
        "192.0.2.1",
        "GET",
        "/a",
        200,
        7,
    ),
    "user that is empty": (line(user='""'), "combined", "192.0.2.1", "GET", "/a", 200, 7),
    "IPv6": (line("2001:db8::1"), "combined", "2001:db8::1", "GET", "/a", 200, 7),
    "IPv6 and a user with blanks": (
        line("2001:db8::80", user="a b"),
        "combined",
        "2001:db8::80",
        "GET",
        "/a",
        200,
        7,
    ),
    "IPv4 and a port": (line("192.0.2.1:5123"), "combined", "192.0.2.1", "GET", "/a", 200, 7),
    "IPv6 and a port": (line("[2001:db8::1]:80"), "combined", "2001:db8::1", "GET", "/a", 200, 7),
    "JSON and a port": (
        as_json(remote_addr="192.0.2.1:5123"),
        "JSON",
        "192.0.2.1",
        "GET",
        "/a",
        200,
        None,
    ),
    "a name as client": (line("host.example"), "combined", "host.example", "GET", "/a", 200, 7),
    "a socket as client": (line("unix:"), "combined", "unix:", "GET", "/a", 200, 7),
    "no request": (line(request="-", end="408 -"), "common", "192.0.2.1", None, "-", 408, None),
    "TLS, escaped": (
        line(request="\\x16\\x03\\x01\\x00", end='400 157 "-" "-"'),
        "combined",
        "192.0.2.1",
        None,
        "\\x16\\x03\\x01\\x00",
        400,
        157,
    ),
    "TLS, raw": (
        b"192.0.2.1 - - " + TIME.encode() + b' "\x16\x03\x01\x02" 400 157',
        "common",
        "192.0.2.1",
        None,
        "\x16\x03\x01\x02",
        400,
        157,
    ),
    "SSH": (
        line(request="SSH-2.0-Go", end='400 0 "-" "-"'),
        "combined",
        "192.0.2.1",
        None,
        "SSH-2.0-Go",
        400,
        0,
    ),
    "empty request": (line(request="", end="400 0"), "common", "192.0.2.1", None, "", 400, 0),
    "M-SEARCH": (
        line(request="M-SEARCH * HTTP/1.1", end='405 0 "-" "x"'),
        "combined",
        "192.0.2.1",
        "M-SEARCH",
        "*",
        405,
        0,
    ),
    "HTTP/2": (line(request="GET /a HTTP/2.0"), "combined", "192.0.2.1", "GET", "/a", 200, 7),
    "HTTP/3": (line(request="GET /a HTTP/3"), "combined", "192.0.2.1", "GET", "/a", 200, 7),
    "HTTP/2's first words": (
        line(request="PRI * HTTP/2.0", end="400 0"),
        "common",
        "192.0.2.1",
        "PRI",
        "*",
        400,
        0,
    ),
    "RTSP": (
        line(request="OPTIONS / RTSP/1.0", end="400 0"),
        "common",
        "192.0.2.1",
        "OPTIONS",
        "/",
        400,
        0,
    ),
    "HTTP/0.9": (line(request="GET /a"), "combined", "192.0.2.1", "GET", "/a", 200, 7),
    "URL with a blank": (
        line(request="GET /two words HTTP/1.1", end='404 9 "-" "x"'),
        "combined",
        "192.0.2.1",
        "GET",
        "/two words",
        404,
        9,
    ),
    "CONNECT": (
        line(request="CONNECT example.com:443 HTTP/1.1", end="405 0"),
        "common",
        "192.0.2.1",
        "CONNECT",
        "example.com:443",
        405,
        0,
    ),
    "quotes in quotes": (
        line(request='GET /\\"a\\" HTTP/1.1', end='200 7 "-" "say \\"hi\\" \\\\"'),
        "combined",
        "192.0.2.1",
        "GET",
        '/\\"a\\"',
        200,
        7,
    ),
    "bytes that are no text": (
        b"192.0.2.1 - - " + TIME.encode() + b' "GET /\xff\xfe HTTP/1.1" 200 7 "-" "\xe9"',
        "combined",
        "192.0.2.1",
        "GET",
        "/\ufffd\ufffd",
        200,
        7,
    ),
    "byte order mark": (b"\xef\xbb\xbf" + line(), "combined", "192.0.2.1", "GET", "/a", 200, 7),
    "NULs": (b"\0" * 9 + line() + b"\0", "combined", "192.0.2.1", "GET", "/a", 200, 7),
    "carriage return": (line() + b"\r", "combined", "192.0.2.1", "GET", "/a", 200, 7),
    "blanks behind": (line() + b"  \t", "combined", "192.0.2.1", "GET", "/a", 200, 7),
    "huge size": (
        line(end='200 99999999999999999999 "-" "x"'),
        "combined",
        "192.0.2.1",
        "GET",
        "/a",
        200,
        None,
    ),
    "status 499": (line(end='499 0 "-" "x"'), "combined", "192.0.2.1", "GET", "/a", 499, 0),
    "leap second": (
        line(time="[26/Nov/2026:10:00:60 +0000]"),
        "combined",
        "192.0.2.1",
        "GET",
        "/a",
        200,
        7,
    ),
    "JSON": (as_json(body_bytes_sent=7), "JSON", "192.0.2.1", "GET", "/a", 200, 7),
    "JSON with a path and a request": (
        as_json(uri="/b", size=7),
        "JSON",
        "192.0.2.1",
        "GET",
        "/b",
        200,
        7,
    ),
    "JSON, all texts": (
        as_json(status="200", body_bytes_sent="7"),
        "JSON",
        "192.0.2.1",
        "GET",
        "/a",
        200,
        7,
    ),
    "JSON, a failed request": (
        as_json(status=400, request="\u0016\u0003"),
        "JSON",
        "192.0.2.1",
        None,
        "\x16\x03",
        400,
        None,
    ),
    "JSON, method and URI": (
        as_json(request_method="PUT", request_uri="/p?q"),
        "JSON",
        "192.0.2.1",
        "PUT",
        "/p",
        200,
        None,
    ),
    "JSON that nginx did not escape": (
        as_json(request="GET /XX HTTP/1.1").replace(b"XX", rb"\x22\xE9"),
        "JSON",
        "192.0.2.1",
        "GET",
        '/"\xe9',
        200,
        None,
    ),
    "JSON with half a character": (
        as_json(request="GET /\ud83d HTTP/1.1"),
        "JSON",
        "192.0.2.1",
        "GET",
        "/?"[:1],
        200,
        None,
    ),
    "Caddy": (json.dumps(CADDY).encode(), "JSON", "192.0.2.1", "GET", "/a", 200, 7),
    "older Caddy": (json.dumps(OLD_CADDY).encode(), "JSON", "::1", "GET", "/a", 200, 7),
    "Traefik": (json.dumps(TRAEFIK).encode(), "JSON", "192.0.2.1", "GET", "/a", 200, 7),
    "Elastic": (json.dumps(ECS).encode(), "JSON", "192.0.2.1", "GET", "/a", 200, 7),
    "Docker": (json.dumps(DOCKER).encode(), "combined", "192.0.2.1", "GET", "/a", 200, 7),
}

REASONS = {
    "no value": (None, NO_VALUE),
    "nothing": (b"", EMPTY),
    "blanks": (b" \t ", EMPTY),
    "NULs only": (b"\0" * 50, EMPTY),
    "a byte order mark only": (b"\xef\xbb\xbf", EMPTY),
    "no line at all": (b"rubbish", UNKNOWN_FORMAT),
    "an error log": (b"2026/11/26 10:00:05 [error] 7#7: *1 open() failed", UNKNOWN_FORMAT),
    "IIS": (b"2026-11-26 10:00:05 10.0.0.1 GET / - 80 - 192.0.2.1 x 200 0 0 1", UNKNOWN_FORMAT),
    "W3C's head": (b"#Fields: date time s-ip", UNKNOWN_FORMAT),
    "cut off": (COMBINED.encode()[:-3], UNKNOWN_FORMAT),
    "two lines in one": (COMBINED.encode() * 2, UNKNOWN_FORMAT),
    "NULs in the middle": (COMBINED.encode()[:30] + b"\0" * 9 + COMBINED.encode(), UNKNOWN_FORMAT),
    "no status": (line(end='- 0 "-" "x"'), UNKNOWN_FORMAT),
    "31 February": (line(time="[31/Feb/2026:10:00:05 +0000]"), BAD_TIME),
    "hour 24": (line(time="[26/Nov/2026:24:00:05 +0000]"), BAD_TIME),
    "second 61": (line(time="[26/Nov/2026:10:00:61 +0000]"), BAD_TIME),
    "another language's month": (line(time="[26/Okt/2026:10:00:05 +0000]"), BAD_TIME),
    "no zone": (line(time="[26/Nov/2026:10:00:05]"), BAD_TIME),
    "no such zone": (line(time="[26/Nov/2026:10:00:05 +9900]"), BAD_TIME),
    "before the first year": (line(time="[01/Jan/0001:00:00:05 +0100]"), BAD_TIME),
    "behind the last year": (line(time="[31/Dec/9999:23:59:59 -0100]"), BAD_TIME),
    "year 0": (line(time="[01/Jan/0000:00:00:05 +0000]"), BAD_TIME),
    "JSON, cut off": (as_json()[:-2], NO_OBJECT),
    "JSON, deep": (b'{"a":' * 100_000, NO_OBJECT),
    "JSON without client": (as_json(remote_addr=None), "the JSON object has no client's address"),
    "JSON without status": (as_json(status=None), "the JSON object has no status"),
    "JSON, status NaN": (as_json(status=float("nan")), "the JSON object has no status"),
    "JSON, status true": (as_json(status=True), "the JSON object has no status"),
    "JSON, status 1000": (as_json(status=1000), "the JSON object has no status"),
    "JSON without time": (as_json(time=None), BAD_TIME),
    "JSON, local time": (as_json(time="2026-11-26T10:00:05"), BAD_TIME),
    "JSON, far time": (as_json(time="+12026-01-01T10:00:00Z"), BAD_TIME),
    "JSON, endless time": (as_json(time=float("inf")), BAD_TIME),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_line_is_a_request(name):
    """Whatever servers write is read, failed requests and rubbish that was answered included."""
    value, *expected = REQUESTS[name]
    found = parse_line(value)

    shown = (found.form, found.client, found.method, found.path, found.status, found.size)
    assert shown == tuple(expected)
    assert abs((found.time - TEN).total_seconds()) <= 55
    assert all(part == part.encode().decode() for part in found if isinstance(part, str))


COLLECTED = [
    "2026-11-26T10:00:06.123456789Z stdout F ",
    "2026-11-26T15:45:06.1+05:45 stderr F ",
    "Nov 26 10:00:06 web1 nginx: ",
    "Nov  6 10:00:06 web1 nginx[1234]: ",
    "<134>Nov 26 10:00:06 10.0.0.9 apache2[7]: ",
    "2026-11-26T10:00:06.123456+00:00 web1 nginx: ",
    "<134>1 2026-11-26T10:00:06Z web1 nginx 1234 - - ",
    "web-1  | ",
    "web_1 | ",
]


@pytest.mark.parametrize("name", REQUESTS)
def test_what_a_collector_has_written_before_a_line_is_no_part_of_it(name):
    """Container runtimes and syslog begin lines with words of their own, which are no client."""
    value = REQUESTS[name][0]
    if not value[:1].isascii() or value[:1] in b"\0\xef":
        return
    expected = parse_line(value)
    for before in COLLECTED:
        assert parse_line(before.encode() + value) == expected


@pytest.mark.parametrize("client", ["192.0.2.1", "2001:db8::1", "www.example.org"])
@pytest.mark.parametrize("before", ["app 7", "web1 nginx", "10:00:06 web1", "a b c"])
def test_line_behind_words_of_nobody_knows_whom_is_left_out(before, client):
    """One of the words would be taken for the client."""
    with pytest.raises(NoRequestError, match=UNKNOWN_FORMAT):
        parse_line(f"{before} ".encode() + line(client, user="john"))


def test_user_cannot_make_another_client_of_himself():
    """The name that a browser sends may look like the beginning of a line."""
    assert parse_line(line("198.51.100.9", user="a 192.0.2.1 - -")).client == "198.51.100.9"
    assert (
        parse_line(line("198.51.100.9", user="web1 nginx: 192.0.2.1 - -")).client == "198.51.100.9"
    )


@pytest.mark.parametrize("name", REASONS)
def test_line_is_left_out_for_a_reason(name):
    """What is no request says why, and nothing is guessed."""
    value, reason = REASONS[name]

    with pytest.raises(NoRequestError) as raised:
        parse_line(value)
    assert str(raised.value) == reason


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("26/Nov/2026:10:00:05 +0000", TEN),
        ("26/Nov/2026:15:45:05 +0545", TEN),
        ("26/Nov/2026:06:30:05 -0330", TEN),
        ("27/Nov/2026:00:00:05 +1400", TEN),
        ("25/Nov/2026:22:00:05 -1200", TEN),
        ("26/Nov/2026:10:00:05 -0000", TEN),
        ("26/Nov/2026:10:00:05 +00:00", TEN),
        ("26/Nov/2026:10:00:05.250 +0000", TEN.replace(microsecond=250_000)),
        ("2026-11-26T11:00:05+01:00", TEN),
        ("26/Nov/2026:10:00:60 +0000", TEN.replace(minute=1, second=0)),
        ("31/Dec/2026:23:59:60 +0000", datetime(2027, 1, 1, tzinfo=UTC)),
        ("2026-12-31T23:59:60Z", datetime(2027, 1, 1, tzinfo=UTC)),
        ("2026-11-26T11:00:60.5+01:00", TEN.replace(minute=1, second=0, microsecond=500_000)),
    ],
)
def test_time_is_the_moment_in_utc(text, expected):
    """In every zone there is, and in a leap second, which is the moment behind the one before."""
    assert parse_line(line(time=f"[{text}]")).time == expected


@pytest.mark.parametrize("number", [1795687205, 1795687205000, 1795687205e6, 1795687205 * 10**9])
def test_time_in_json_may_be_a_number(number):
    """Seconds, milliseconds, microseconds and nanoseconds are told apart by their size."""
    assert parse_line(as_json(time=number)).time == TEN
    assert parse_line(as_json(time=f"{number:.0f}")).time == TEN


@pytest.mark.parametrize(
    "value",
    [
        b"a b c [" + b" [" * 300_000,
        line(end='200 1 "-" "' + '\\"' * 300_000),
        line(end='200 1 "' + '" 200 1 "' * 50_000 + '" "-'),
        line(end="200 1" + ' "" ""' * 100_000 + "["),
        line(end='200 1 "" ""' + ' a="b" [c]' * 100_000 + "["),
        line(end='200 1 "" "" a="' + '\\"' * 300_000),
        b"192.0.2.1, " * 100_000 + line() + b"[",
        b"1, " * 49 + b"2" * 300_000 + b"[",
        b"{" + b"\\x" * 300_000,
    ],
)
def test_hostile_line_takes_no_time(value):
    """The pattern looks at each character a few times only: else this does not end."""
    with pytest.raises(NoRequestError):
        parse_line(value)


# Files.


def read(path, **where):
    """The values of the lines, and the log."""
    log = AccessLog(path, **where)
    return [each.value for each in log.lines()], log


def test_bytes_of_a_line_are_kept(tmp_path):
    """Whatever a line holds is its value, without its end; the key is the client's address."""
    path = tmp_path / "access.log"
    path.write_bytes(b"192.0.2.1 - \xff\x00\n\nwww.example:80 " + line() + b"\r\n")

    assert [(each.key, each.value) for each in AccessLog(path).lines()] == [
        (b"192.0.2.1", b"192.0.2.1 - \xff\x00"),
        (b"", b""),
        (b"192.0.2.1", b"www.example:80 " + line()),
    ]


def test_first_line_is_that_of_its_client(tmp_path):
    """A byte order mark, and the NULs that a truncated log begins with, make no other client."""
    path = tmp_path / "access.log"
    for before in (b"\xef\xbb\xbf", b"\0" * 200_000):
        path.write_bytes(before + line() + b"\n")
        (found,) = AccessLog(path).lines()
        assert (found.key, found.problem) == (b"192.0.2.1", "")


def compressed(name, data):
    """The bytes of a file as a program of this name makes them."""
    whole = io.BytesIO()
    if name == "zip":
        with zipfile.ZipFile(whole, "w") as archive:
            archive.writestr("access.log", data)
    elif name in ("tar", "tar.gz"):
        with tarfile.open(fileobj=whole, mode="w:gz" if name == "tar.gz" else "w") as archive:
            info = tarfile.TarInfo("access.log")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    else:
        codecs = {
            "gz": gzip.compress,
            "gz, two members": lambda data: gzip.compress(data[:100]) + gzip.compress(data[100:]),
            "zst": zstandard.ZstdCompressor().compress,
            "zst, two frames": lambda data: b"".join(
                zstandard.ZstdCompressor().compress(part) for part in (data[:100], data[100:])
            ),
            "zst, streamed": lambda data: (
                zstandard.ZstdCompressor().compressobj().compress(data) and _streamed(data)
            ),
            "bz2": bz2.compress,
            "xz": lzma.compress,
            "lz4": lambda data: b"\x04\x22\x4d\x18" + data,
            "br": lambda data: data,
            "utf-16": lambda data: data.decode().encode("utf-16"),
        }
        return codecs[name](data)
    return whole.getvalue()


def _streamed(data):
    codec = zstandard.ZstdCompressor().compressobj()
    return codec.compress(data) + codec.flush()


@pytest.mark.parametrize(
    "name", ["gz", "gz, two members", "zst", "zst, two frames", "zst, streamed"]
)
def test_compressed_log_is_read(tmp_path, name):
    """Whatever its name is, and the digest is that of the lines."""
    lines = [line(f"192.0.2.{number % 250}") for number in range(3000)]
    plain, path = tmp_path / "access.log", tmp_path / "access"
    plain.write_bytes(b"".join(each + b"\n" for each in lines))
    path.write_bytes(compressed(name, plain.read_bytes()))

    values, log = read(path)

    assert values == lines
    assert log.digest == read(plain)[1].digest == log.digest_up_to(log.reached.offset)


@pytest.mark.parametrize("name", ["bz2", "xz", "zip", "lz4", "br", "tar", "tar.gz", "utf-16"])
def test_other_files_are_refused(tmp_path, name):
    """By a sentence that says what they are: nobody gets rubbish for lines."""
    path = tmp_path / f"access.log.{name}"
    path.write_bytes(compressed(name, COMBINED.encode() * 50))

    with pytest.raises(
        LogError, match=r"is compressed with|is an archive of tar|is text in UTF-16"
    ):
        AccessLog(path)


@pytest.mark.parametrize("name", ["gz", "zst"])
def test_damaged_log_is_read_up_to_there(tmp_path, name):
    """A file that is cut off ends with a reason, behind all lines that are there."""
    path = tmp_path / "access.log"
    noise = [line(f"host-{number * 7919 % 100_003}.example") for number in range(20_000)]
    data = compressed(name, b"\n".join(noise))
    path.write_bytes(data[: len(data) // 2])

    values, log = read(path)

    assert 0 < len(values) < len(noise)
    assert values == noise[: len(values)]
    assert log.ledger.left_out == {DAMAGED: 1}


def test_line_that_is_too_long_is_left_out_alone(tmp_path):
    """It is told by its number, and the lines around it are read."""
    path = tmp_path / "access.log"
    long = line(end='200 7 "-" "' + "x" * LONGEST_LINE + '"')
    path.write_bytes(b"\n".join([line(), long, line(), long + long, line(), b""]))

    values, log = read(path)

    assert values == [line()] * 3
    assert log.ledger.left_out == {TOO_LONG: 2}
    assert log.ledger.first_lines == {TOO_LONG: 2}
    assert log.reached == Position(5, path.stat().st_size)


@pytest.mark.parametrize("cut", range(1, len(COMBINED)))
def test_line_that_is_being_written_is_read_once(tmp_path, cut):
    """Wherever a server's write is seen half, the next run reads the line, and reads it whole."""
    path = tmp_path / "access.log"
    path.write_bytes(line() + b"\n" + COMBINED.encode()[:cut])

    first, log = read(path)
    path.write_bytes(line() + b"\n" + COMBINED.encode() + b"\n" + line() + b"\n")
    second, _ = read(path, start=log.reached)

    assert first == [line()]
    assert log.ledger.left_out == {NOT_ENDED: 1}
    assert second == [COMBINED.encode(), line()]


def test_whole_last_line_needs_no_end(tmp_path):
    """A file that was made by a program that ends no last line has all of its lines."""
    path = tmp_path / "access.log"
    path.write_bytes(COMBINED.encode() + b"\n" + COMBINED.encode())

    values, log = read(path)

    assert len(values) == 2
    assert log.digest == log.digest_up_to(log.reached.offset)
    path.write_bytes(path.read_bytes() + b"\n" + line() + b"\n")
    assert read(path, start=log.reached)[0] == [line()]


def test_part_of_a_log_is_read(tmp_path):
    """From one position to another; the lines before it come where they are asked for."""
    path = tmp_path / "access.log"
    lines = [line(f"192.0.2.{number}") for number in range(10)]
    path.write_bytes(b"".join(each + b"\n" for each in lines))
    whole = AccessLog(path)
    places = [Position()] + [whole.reached for _ in whole.lines()]

    for first in range(10):
        for last in range(first, 11):
            log = AccessLog(path, places[first], places[last])
            found = list(log.lines(with_old=True))
            assert [each.value for each in found if each.is_new] == lines[first:last]
            old = [each.value for each in found if not each.is_new]
            assert old == (lines[:first] if last else [])
            assert log.ledger.lines == last - first
            assert log.reached == places[last]


def test_ledger_says_what_became_of_the_lines(tmp_path):
    """Read = requests + left out, by form and by reason, with the first line of each."""
    path = tmp_path / "access.log"
    path.write_bytes(b"\n".join([line(), b"", line(end="200 7"), b"#x", b"#y", b""]))
    _, log = read(path)

    assert log.ledger.words() == (
        "5 lines read = 2 requests (1 combined, 1 common) + 3 left out (2: not in a known log "
        "format, first in line 4; 1: the line is empty, first in line 2)"
    )
    assert log.ledger.rows()[-1] == {"outcome": "lines read", "lines": 5, "first_line": None}
    assert sum(row["lines"] for row in log.ledger.rows()[:-1]) == 5
    assert LogLedger.from_json(json.loads(json.dumps(log.ledger.to_json()))) == log.ledger


def test_log_of_another_format_has_a_hint(tmp_path):
    """Where no line is a request, the formats that are known stand beside the first line."""
    path = tmp_path / "access.log"
    path.write_bytes(b"2026-11-26 10:00:05 10.0.0.1 GET /\n" * 3)
    _, log = read(path)

    assert log.ledger.words().endswith(
        "no line has a format that is known (combined, common, vhost_combined, nginx main and "
        "JSON); the first one begins with '2026-11-26 10:00:05 10.0.0.1 GET /'"
    )
