"""The token with which a client logs in: requested, or unsecured."""

from __future__ import annotations

import base64
import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from ottla.errors import SaslAuthenticationError
from ottla.security.jwks import TokenError, fetch
from ottla.security.oauthbearer import OAuthBearerClient, split_token, time_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ottla.config.sasl_client_config import SaslLogin
    from ottla.runtime import Runtime

TOKEN_SHARE: Final = 0.8
"""A token is used for this part of its life, and then another one is asked for."""

EXTENSION: Final = "extension_"
"""How the JAAS options begin that are sent beside the token (KIP-342)."""


async def oauth_client(login: SaslLogin, runtime: Runtime) -> OAuthBearerClient:
    """An exchange with the token of this login, which is asked for if there is none at hand.

    Raises:
        SaslAuthenticationError: there is no token to be had.
    """
    options, now_ms = login.options, runtime.clock.now_ms()
    extensions = {
        name.removeprefix(EXTENSION): text
        for name, text in options.items()
        if name.startswith(EXTENSION)
    }
    url, source = options.get("url"), login.held.get("source")
    if url is None and source is None:
        return OAuthBearerClient(unsecured_login(options, now_ms), extensions)
    if now_ms >= login.held.get("until_ms", 0):
        what = (url or "", *(options.get(name, "") for name in CLIENT_OPTIONS))
        ask = partial(request_token, *what) if source is None else partial(ask_source, source)
        token = await runtime.background.run(ask)
        login.held.update(token=token, until_ms=_good_until_ms(token, now_ms))
    return OAuthBearerClient(login.held["token"], extensions)


CLIENT_OPTIONS: Final = ("clientId", "clientSecret", "scope")


def ask_source(source: Callable[[], str]) -> str:
    """The token of a program's own source.

    Raises:
        SaslAuthenticationError: it fails, or gives something else than text.
    """
    name = "sasl.oauthbearer.token.source"
    try:
        token = source()
    except Exception as error:
        raise SaslAuthenticationError(f"{name} failed: {error!r}") from error
    if not isinstance(token, str) or not token:
        raise SaslAuthenticationError(f"{name} gave no text, but a {type(token).__name__}")
    return token


def _good_until_ms(token: str, now_ms: int) -> int:
    """When the next token is asked for: at once after one that does not say when it expires."""
    try:
        expires_ms = time_ms(split_token(token)[1], "exp")
    except TokenError:
        return 0
    return now_ms + int(((expires_ms or now_ms) - now_ms) * TOKEN_SHARE)


def unsecured_token(claims: Mapping[str, Any]) -> str:
    """A token that nobody has signed."""
    parts = ({"alg": "none"}, dict(claims))
    texts = [json.dumps(part, separators=(",", ":")).encode() for part in parts]
    return ".".join(base64.urlsafe_b64encode(text).decode().rstrip("=") for text in texts) + "."


UNSECURED_CLAIM: Final = re.compile(r"unsecuredLogin(String|Number|List)Claim_(.+)")
DEFAULT_LIFE_S: Final = 3600


def unsecured_login(options: Mapping[str, str], now_ms: int) -> str:
    """The token that the options of a JAAS entry describe, as Kafka's login module makes it.

    `unsecuredLoginStringClaim_sub="alice"` is the name; further claims are strings, numbers and
    lists; the first character of a list separates its items.
    """
    life_s = float(options.get("unsecuredLoginLifetimeSeconds", DEFAULT_LIFE_S))
    claims: dict[str, Any] = {"iat": now_ms / 1000, "exp": now_ms / 1000 + life_s}
    for option, text in options.items():
        match = UNSECURED_CLAIM.fullmatch(option)
        if match is None:
            continue
        if match[1] == "Number":
            claims[match[2]] = float(text)
        elif match[1] == "List":
            claims[match[2]] = text[1:].split(text[0]) if text else []
        else:
            claims[match[2]] = text
    return unsecured_token(claims)


def request_token(url: str, client_id: str, client_secret: str, scope: str) -> str:
    """A token by the grant client_credentials (RFC 6749), or out of a file; for the background.

    Raises:
        SaslAuthenticationError: there is none to be had.
    """
    try:
        if urlsplit(url).scheme == "file":
            return fetch(url).decode("ascii").strip()
        form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
        answer = json.loads(fetch(url, form, (client_id, client_secret)))
        token = answer["access_token"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SaslAuthenticationError(f"no token can be had from {url}: {error!r}") from None
    if not isinstance(token, str):
        raise SaslAuthenticationError(f"no token can be had from {url}: access_token is not a text")
    return token
