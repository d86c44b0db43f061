"""SaslHandshake (17): the mechanism of a login; SaslAuthenticate (36): its exchange of tokens."""

from __future__ import annotations

from ottla.protocol.message import Request, Response
from ottla.protocol.types import Array, Bytes, Int16, Int64, String, field


class SaslHandshakeRequest(Request, api_key=17):
    """Choose a mechanism.

    v0 tokens follow as bare frames · v1 in SaslAuthenticate (KIP-152).
    """

    mechanism: str = field(String)


class SaslHandshakeResponse(Response, api_key=17):
    """Whether the listener has the mechanism, and all that it has."""

    error_code: int = field(Int16)
    mechanisms: list[str] = field(Array(String))


class SaslAuthenticateRequest(Request, api_key=36, flexible="2+"):
    """A token of the client. v1 the session may have an end (KIP-368) · v2 flexible."""

    auth_bytes: bytes = field(Bytes)

    def __repr__(self) -> str:
        return f"SaslAuthenticateRequest(auth_bytes=<{len(self.auth_bytes)} bytes>)"


class SaslAuthenticateResponse(Response, api_key=36, flexible="2+"):
    """A token of the broker, or why it refuses the client.

    `session_lifetime_ms` is 0 for a session without end; else the client has to authenticate again
    within that time.
    """

    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    auth_bytes: bytes = field(Bytes)
    session_lifetime_ms: int = field(Int64, versions="1+", ignorable=True)
