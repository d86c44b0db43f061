"""Calls over HTTP, bounded in time and in bytes, however the other end behaves.

They block. One deadline is for the connection, the headers and the body together. Redirects and
proxies of the environment are not followed, so that only the address that was given is ever asked.
"""

from __future__ import annotations

import io
import socket
import ssl
from base64 import b64encode
from concurrent.futures import Future
from http.client import HTTPConnection, HTTPException
from threading import Thread
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

from ottla.runtime.timing import Deadline
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from http.client import HTTPResponse

    from _typeshed import WriteableBuffer

    from ottla.runtime import Clock

PIECE: Final = 64 * 1024
CALL_LIMIT_S: Final = 5.0
"""How long a call may take."""
SUCCESS: Final = range(200, 300)


class CallError(OSError):
    """A call that has failed; the message is the reason, without the address and its secrets."""


class HttpRequest(NamedTuple):
    """A request; a name and password in the address, or those of `login`, become a header."""

    url: str
    method: str = "GET"
    body: bytes | None = None
    login: tuple[str, str] | None = None
    content_type: str = "application/json"
    """That of the body."""
    ca_file: str | None = None
    """The certificates to trust for https, in PEM; None for those of the machine."""


class HttpAnswer(NamedTuple):
    """An answer of any status."""

    status: int
    reason: str
    body: bytes


class SocketBytes(io.RawIOBase):
    """What a socket receives until a deadline; TimeoutError after it."""

    def __init__(self, endpoint: socket.socket, deadline: Deadline) -> None:
        super().__init__()
        self._socket = endpoint
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        self._socket.settimeout(left_s(self._deadline))
        return self._socket.recv_into(buffer)

    def close(self) -> None:
        """Close the socket, as nothing more is read."""
        self._socket.close()
        super().close()


class TimedSocket:
    """The part of a socket that `http.client` uses; each of its steps ends at one deadline."""

    def __init__(self, endpoint: socket.socket, deadline: Deadline) -> None:
        self._socket = endpoint
        self._deadline = deadline
        self._is_read = False

    def sendall(self, data: bytes) -> None:
        """Send all of it, piece by piece."""
        rest = memoryview(data)
        while rest:
            self._socket.settimeout(left_s(self._deadline))
            rest = rest[self._socket.send(rest) :]

    def makefile(self, _mode: str) -> io.BufferedReader:
        """The bytes that come; the end of their reader is that of the socket."""
        self._is_read = True
        return io.BufferedReader(SocketBytes(self._socket, self._deadline), PIECE)

    def close(self) -> None:
        """Close the socket, unless the answer is still read from it."""
        if not self._is_read:
            self._socket.close()


class TimedConnection(HTTPConnection):
    """A connection for one request, which ends at a deadline."""

    def __init__(
        self, host: str, port: int, secure: ssl.SSLContext | None, deadline: Deadline
    ) -> None:
        super().__init__(host, port)
        self._secure = secure
        self._deadline = deadline

    def connect(self) -> None:
        """Try the addresses of the host, one after another."""
        endpoint = connected(self.host, self.port, self._deadline)
        self.sock: Any = TimedSocket(endpoint, self._deadline)
        if self._secure is not None:
            endpoint.settimeout(left_s(self._deadline))  # for all of the handshake
            secure = self._secure.wrap_socket(endpoint, server_hostname=self.host)
            self.sock = TimedSocket(secure, self._deadline)


def left_s(deadline: Deadline) -> float:
    """The seconds that are left; TimeoutError for none."""
    left_ms = deadline.left_ms
    if not left_ms:
        raise TimeoutError
    return left_ms / 1000


def connected(host: str, port: int, deadline: Deadline) -> socket.socket:
    """A connection to the first address of a host that takes one.

    Each has its share of the time: the first may be of a network that answers nothing.
    """
    *others, last = addresses_of(host, port, deadline)
    for count, address in enumerate(others):
        try:
            share_s = left_s(deadline) / (len(others) + 1 - count)
            return socket.create_connection((address, port), share_s)
        except OSError:
            continue
    return socket.create_connection((last, port), left_s(deadline))


def addresses_of(host: str, port: int, deadline: Deadline) -> list[str]:
    """The addresses of a host; TimeoutError where they are not known by the deadline.

    Nothing ends a look-up of the system, so that a thread is left behind with it.
    """
    found: Future[list[str]] = Future()

    def look_up() -> None:
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.set_result([str(each[4][0]) for each in entries])
        except Exception as error:
            found.set_exception(error)

    Thread(target=look_up, name=f"ottla-addresses-of-{host}", daemon=True).start()
    return found.result(left_s(deadline))


def shown_url(url: str) -> str:
    """An address without the name and password that it may have."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def read_text(clock: Clock, url: str, most_bytes: int, limit_s: float) -> str:
    """The text at an address; CallError for one that is too long, too late, or not there."""
    body = successful(exchange(clock, HttpRequest(url), most_bytes, limit_s)).body
    return body.decode("utf-8", "replace")


def post_json(clock: Clock, url: str, body: bytes, limit_s: float) -> None:
    """Send JSON, and wait for a status below 300; the rest of the answer is not read."""
    successful(exchange(clock, HttpRequest(url, "POST", body), 0, limit_s))


def successful(answer: HttpAnswer) -> HttpAnswer:
    """The same answer; CallError for one that is a refusal or a redirect."""
    if answer.status not in SUCCESS:
        raise CallError(f"it answers {answer.status} {answer.reason}")
    return answer


def exchange(clock: Clock, request: HttpRequest, most_bytes: int, limit_s: float) -> HttpAnswer:
    """The answer to a request, without its body for `most_bytes` 0; CallError where none comes."""
    deadline = Deadline(clock, round(1000 * limit_s))
    try:
        return _exchange(request, most_bytes, deadline)
    except CallError:
        raise
    except TimeoutError:
        raise CallError(f"timed out: no whole answer in {limit_s:g} s") from None
    except (OSError, ValueError, HTTPException) as error:
        words = getattr(error, "strerror", None) or str(error)
        raise CallError(words or type(error).__name__) from None


def _exchange(request: HttpRequest, most_bytes: int, deadline: Deadline) -> HttpAnswer:
    parts = urlsplit(request.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CallError("the address must begin with http:// or https:// and a host")
    is_secure = parts.scheme == "https"
    port = parts.port or (443 if is_secure else 80)
    secure = ssl.create_default_context(cafile=request.ca_file) if is_secure else None
    connection = TimedConnection(parts.hostname, port, secure, deadline)
    place = urlunsplit(("", "", parts.path or "/", parts.query, ""))
    try:
        connection.request(request.method, place, request.body, headers_of(request))
        with connection.getresponse() as answer:
            body = body_of(answer, most_bytes)
            return HttpAnswer(answer.status, answer.reason, body)
    finally:
        connection.close()


def headers_of(request: HttpRequest) -> dict[str, str]:
    """The headers of a request, with its name and password."""
    headers = {"user-agent": "ottla", "connection": "close", "accept": "application/json, */*"}
    if request.body is not None:
        headers["content-type"] = request.content_type
    if (login := request.login or login_in(request.url)) is not None:
        headers["authorization"] = f"Basic {b64encode(':'.join(login).encode()).decode()}"
    return headers


def login_in(url: str) -> tuple[str, str] | None:
    """The name and password that an address may have."""
    parts = urlsplit(url)
    if parts.username is None:
        return None
    return unquote(parts.username), unquote(parts.password or "")


def body_of(answer: HTTPResponse, most_bytes: int) -> bytes:
    """The body; CallError where it is longer than `most_bytes`, or ends before it should."""
    body, promised = bytearray(), answer.length or 0
    while most_bytes and (piece := answer.read1(PIECE)):
        body += piece
        if len(body) > most_bytes:
            raise CallError(f"it answers more than {most_bytes:,} bytes")
    if most_bytes and len(body) < promised:
        raise CallError(f"it answers {len(body):,} of {promised:,} bytes")
    return bytes(body)
