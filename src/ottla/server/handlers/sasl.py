"""SaslHandshake (17), v0-1, and SaslAuthenticate (36), v0-2, where there is nothing to log in to.

On a SASL listener the connection's own `SaslAuthenticator` answers them. What comes here is a
client of another listener, or one that is authenticated already: ILLEGAL_SASL_STATE (34).

Wing: attaches to `handlers`, for SASL; the core works without it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.errors import ErrorCode
from ottla.network.connection import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ottla.server.apis import Handler


class SaslHandlers:
    """Refuses both; that they are in the table has ApiVersions name them."""

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.SASL_HANDSHAKE: self.handle_sasl_handshake,
            ApiKey.SASL_AUTHENTICATE: self.handle_sasl_authenticate,
        }

    def handle_sasl_handshake(
        self, context: RequestContext, body: SaslHandshakeRequest
    ) -> SaslHandshakeResponse:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)

    def handle_sasl_authenticate(
        self, context: RequestContext, body: SaslAuthenticateRequest
    ) -> SaslAuthenticateResponse:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate came where no SASL exchange is under way",
        )
