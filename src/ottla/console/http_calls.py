"""Calls of the console over HTTP: bounded in time and in bytes, however the other end behaves.

They block: `Runtime.background` runs them. Redirects and proxies of the environment are not
followed, so that only the address of the command line is ever asked.
"""

from __future__ import annotations

import urllib.request
from base64 import b64encode
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit, urlunsplit

if TYPE_CHECKING:
    from http.client import HTTPResponse

    from ottla.runtime import Clock

PIECE: Final = 64 * 1024
CALL_LIMIT_S: Final = 5.0
"""How long a call may take."""
SILENCE_S: Final = 3.0
"""How long a server may send nothing."""


class CallError(Exception):
    """A call that has failed; the message is the reason, without the address and its secrets."""


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Takes a redirect for the error that it has the status of."""

    def redirect_request(self, *_arguments: Any) -> None:
        return None


def shown_url(url: str) -> str:
    """An address without the name and password that it may have."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def read_text(clock: Clock, url: str, most_bytes: int, limit_s: float) -> str:
    """The text at an address; CallError for one that is too long, too late, or not there."""
    return call(clock, request_of(url), most_bytes, limit_s).decode("utf-8", "replace")


def post_json(clock: Clock, url: str, body: bytes, limit_s: float) -> None:
    """Send JSON, and wait for a status below 300; the rest of the answer is not read."""
    request = request_of(url, body)
    request.add_header("content-type", "application/json")
    call(clock, request, 0, limit_s)


def request_of(url: str, body: bytes | None = None) -> urllib.request.Request:
    """A request, with the name and password of the address in a header of its own."""
    parts = urlsplit(url)
    request = urllib.request.Request(shown_url(url), body, {"user-agent": "ottla-console"})
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_header("authorization", f"Basic {b64encode(pair.encode()).decode()}")
    return request


def call(clock: Clock, request: urllib.request.Request, most_bytes: int, limit_s: float) -> bytes:
    """The body of an answer, none of it for `most_bytes` 0."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirects)
    ends_ms = clock.monotonic_ms() + round(1000 * limit_s)
    try:
        with opener.open(request, timeout=min(SILENCE_S, limit_s)) as answer:
            return body_of(clock, answer, most_bytes, ends_ms)
    except HTTPError as error:
        with error:
            raise CallError(f"it answers {error.code} {error.reason}") from None
    except URLError as error:
        raise CallError(str(error.reason)) from None
    except (OSError, ValueError, HTTPException) as error:
        raise CallError(str(error) or type(error).__name__) from None


def body_of(clock: Clock, answer: HTTPResponse, most_bytes: int, ends_ms: int) -> bytes:
    """The body, as far as it comes in time; CallError where it is longer than `most_bytes`."""
    body = bytearray()
    while most_bytes and (piece := answer.read1(PIECE)):
        body += piece
        if len(body) > most_bytes:
            raise CallError(f"it answers more than {most_bytes:,} bytes")
        if clock.monotonic_ms() > ends_ms:
            raise CallError("it has not sent all of its answer in time")
    return bytes(body)
