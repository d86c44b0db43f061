"""What a listener says to a client with these settings: nothing, where they do not fit it.

A broker closes the connection of a client that speaks without TLS to a listener that wants it, or
asks before its login. The clients of programs try again, as the broker may be on its way down; a
person at a terminal has forgotten a setting, and is told at once.
"""

from __future__ import annotations

import socket
import ssl
import time
from typing import TYPE_CHECKING, Final

from ottla.cli.command_error import CommandError
from ottla.config.ssl_config import SslSettings
from ottla.errors import RemoteProtocolError
from ottla.network.channel import TLS_ALERT
from ottla.network.tls_context import client_context
from ottla.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.metadata import MetadataRequest
from ottla.runtime.clock import SystemClock
from ottla.runtime.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.protocol.message import Request

LIMIT_S: Final = 2.0
"""After which nothing is known of a listener that says nothing."""
NO_BROKER: Final = "no broker serves there"
"""Such as behind the port of a container or a balancer, which takes connections and closes them."""
PAUSE_S: Final = 0.5
LARGEST: Final = 1 << 20
PROTOCOL: Final = "security.protocol"


def check_listener(host: str, port: int, settings: Mapping[str, str]) -> None:
    """Ask a broker for its versions, as a client with these settings; twice, as it may be leaving.

    Raises:
        CommandError: it ends the connection, as the listener is of another security protocol.
    """
    protocol = settings.get(PROTOCOL, "").strip().upper() or "PLAINTEXT"
    for pause_s in (PAUSE_S, 0):
        try:
            found = difference(host, port, protocol, settings)
        except (OSError, RemoteProtocolError):
            return  # it is slow, has gone, or does not trust us: the client has better words
        if not found:
            return
        time.sleep(pause_s)
    raise CommandError(
        f"{host}:{port} closes the connection of a client with {PROTOCOL}={protocol}: {found}, "
        "it seems"
    )


def difference(host: str, port: int, protocol: str, settings: Mapping[str, str]) -> str:
    """The way a listener seems to differ from a client's settings; empty if it answers."""
    with socket.create_connection((host, port), LIMIT_S) as plain:
        endpoint = plain if "SSL" not in protocol else with_tls(plain, host, settings)
        if endpoint is None:
            return "its listener has no TLS" if speaks(host, port, has_tls=False) else NO_BROKER
        with endpoint:
            versions = answer_to_versions(endpoint)
            if versions is None and "SSL" in protocol:
                return "its listener is of another kind"
            if versions is None:
                return "its listener has TLS" if speaks(host, port, has_tls=True) else NO_BROKER
            if "SASL" not in protocol and not may_ask(endpoint, versions):
                return "its listener wants a login"
    return ""


def speaks(host: str, port: int, has_tls: bool) -> bool:
    """Whether a server answers at all, in TLS or without.

    It does as well if its answer is of no use: a certificate that is not trusted, another protocol.
    """
    try:
        with socket.create_connection((host, port), LIMIT_S) as plain:
            if not has_tls:
                return answer_to_versions(plain) is not None
            endpoint = with_tls(plain, host, {})
            if endpoint is None:
                return False
            endpoint.close()
            return True
    except (OSError, RemoteProtocolError):
        return True


def with_tls(plain: socket.socket, host: str, settings: Mapping[str, str]) -> ssl.SSLSocket | None:
    """The connection after its handshake; None where the other side does not speak TLS."""
    own = {name: text for name, text in settings.items() if name in SslSettings.keys}
    context = client_context(SslSettings.parse(own))
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except (ConnectionError, ssl.SSLEOFError):
        return None
    except ssl.SSLError as error:
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            return None
        raise


def answer_to_versions(endpoint: socket.socket) -> dict[int, tuple[int, int]] | None:
    """The versions of APIs that the broker has; None where it closes the connection."""
    answer = exchange(endpoint, 0, ApiVersionsRequest())
    if answer is None:
        return None
    _, response = decode_response(ApiVersionsRequest, 0, answer)
    assert isinstance(response, ApiVersionsResponse)
    return {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}


def may_ask(endpoint: socket.socket, versions: Mapping[int, tuple[int, int]]) -> bool:
    """Whether a request without a login is answered: the metadata of no topic."""
    low, high = versions.get(MetadataRequest.api_key, (0, -1))
    version = max(low, 1)  # 0 would ask for all topics
    if version > min(high, MetadataRequest.max_version):
        return True
    return exchange(endpoint, version, MetadataRequest(topics=[])) is not None


def exchange(endpoint: socket.socket, version: int, request: Request) -> bytes | None:
    """The answer to a request; None where the connection is closed, or an alert of TLS comes.

    It has to be there as a whole after `LIMIT_S`: some servers send a byte now and then.
    """
    deadline = Deadline(SystemClock(), int(1000 * LIMIT_S))
    try:
        endpoint.sendall(encode_request(version, 1, "ottla", request))
        head = received(endpoint, 4, deadline)
        if len(head) < 4 or head.startswith(TLS_ALERT):
            return None
        size = int.from_bytes(head)
        if size > LARGEST:
            raise RemoteProtocolError(f"an answer of {size} bytes is none of a broker's")
        answer = received(endpoint, size, deadline)
    except ConnectionError:
        return None
    return answer if len(answer) == size else None


def received(endpoint: socket.socket, count: int, deadline: Deadline) -> bytes:
    """The next bytes, so many, or fewer at the end of the connection; TimeoutError if late."""
    data = b""
    while len(data) < count:
        if deadline.has_passed:
            raise TimeoutError
        endpoint.settimeout(max(1, deadline.left_ms) / 1000)
        more = endpoint.recv(count - len(data))
        if not more:
            break
        data += more
    return data
