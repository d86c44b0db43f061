"""A connection without a socket, and requests that are handed to a table of APIs over it."""

from __future__ import annotations

from ottla.protocol.header import decode_response, encode_request
from ottla.security.principal import ANONYMOUS


class FakeConnection:
    """Keeps what a real connection would send."""

    id = "fake"
    client_host = "127.0.0.1"
    listener_name = "PLAINTEXT"
    authenticator = None
    transport = None

    principal = ANONYMOUS
    is_closing = False
    is_answer_due = True

    def __init__(self):
        self.sent = []
        self.ended = 0
        self.closed = None
        self.muted_until_ms = 0

    def mute_until(self, deadline_ms):
        self.muted_until_ms = deadline_ms

    def send(self, parts):
        self.sent.append(b"".join(bytes(part) for part in parts)[4:])

    def no_response(self):
        self.ended += 1

    def close(self, reason):
        self.closed = reason


class Family:
    """Serves one API with one handler."""

    def __init__(self, key, handler):
        self.served = {key: handler}

    def apis(self):
        return self.served


def ask(apis, connection, request, version):
    """Hand one request over; returns the decoded answer, if one was sent."""
    apis.on_request(connection, memoryview(encode_request(version, 7, "test", request)[4:]))
    if not connection.sent:
        return None
    correlation_id, response = decode_response(type(request), version, connection.sent[-1])
    assert correlation_id == 7
    return response
