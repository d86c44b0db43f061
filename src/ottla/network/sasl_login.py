"""The client's side of a login: a mechanism is agreed on, then tokens go there and back.

SaslHandshake and SaslAuthenticate (KIP-43, KIP-152). Most clients need no login, and do without
this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.config.jaas import OAUTHBEARER
from ottla.config.sasl_client_config import SaslLogin
from ottla.errors import ConfigError, ErrorCode, SaslAuthenticationError
from ottla.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ottla.security.sasl import PlainClient
from ottla.security.scram import ScramClient

if TYPE_CHECKING:
    from ottla.network.channel import Channel
    from ottla.runtime import Runtime
    from ottla.security.sasl import SaslClient
    from ottla.structs import Node


async def log_in(
    channel: Channel, login: SaslLogin, runtime: Runtime, node: Node, version: int
) -> int:
    """Log in to a broker, with this version of SaslAuthenticate.

    The answer is for how many milliseconds the session lasts, 0 where it has no end (KIP-368).
    Raises SaslAuthenticationError where the broker refuses.
    """
    choice = SaslHandshakeRequest(mechanism=login.mechanism)
    offer = await channel.send(choice, SaslHandshakeRequest.max_version)
    assert isinstance(offer, SaslHandshakeResponse)
    if offer.error_code:
        raise _refused_mechanism(login.mechanism, offer, node)
    client = await new_exchange(login, runtime, node.host)
    token: bytes | None = client.first()
    lifetime_ms = 0
    while token is not None:
        answer = await channel.send(SaslAuthenticateRequest(auth_bytes=token), version)
        assert isinstance(answer, SaslAuthenticateResponse)
        if answer.error_code:
            error = ErrorCode.of(answer.error_code)
            reason = answer.error_message or error.sentence
            raise SaslAuthenticationError(f"{node}: {reason}", error)
        lifetime_ms = answer.session_lifetime_ms
        token = client.evaluate(answer.auth_bytes)
    if not client.is_complete:
        raise SaslAuthenticationError(f"{node}: it ended the exchange too early")
    return lifetime_ms


def _refused_mechanism(
    mechanism: str, offer: SaslHandshakeResponse, node: Node
) -> SaslAuthenticationError:
    error = ErrorCode.of(offer.error_code)
    if error is ErrorCode.ILLEGAL_SASL_STATE:
        reason = "the listener asks for no login, so security.protocol must be without SASL_"
    else:
        reason = f"sasl.mechanism={mechanism}: it has {', '.join(offer.mechanisms) or 'none'}"
    return SaslAuthenticationError(f"{node}: {reason}", error)


async def new_exchange(login: SaslLogin, runtime: Runtime, host: str) -> SaslClient:
    """An exchange for a login; the token that it needs may have to be asked for first."""
    if login.mechanism == "GSSAPI":
        from ottla.security.kerberos import gssapi_client  # only where it is used

        return await gssapi_client(login, runtime, host)
    if login.mechanism != OAUTHBEARER:
        return sasl_client(login)
    from ottla.security.oauth_login import oauth_client  # only where it is used

    return await oauth_client(login, runtime)


def sasl_client(login: SaslLogin) -> SaslClient:
    """An exchange for a login that has all it needs."""
    options = login.options
    match login.mechanism:
        case "PLAIN":
            return PlainClient(options["username"], options["password"])
        case "SCRAM-SHA-256" | "SCRAM-SHA-512" as mechanism:
            is_token = options.get("tokenauth", "").lower() == "true"
            extensions = ",tokenauth=true" if is_token else ""
            return ScramClient(mechanism, options["username"], options["password"], extensions)
    raise ConfigError(f"sasl.mechanism={login.mechanism}: there is no such mechanism")
