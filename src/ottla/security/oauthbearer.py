"""OAUTHBEARER (RFC 7628, KIP-255, KIP-768): a token identifies a client, and ends at its time.

    client                                      broker
    n,,^Aauth=Bearer <token>^A^A          ->
                                          <-    nothing: the token is good
                                          <-    {"status":"invalid_token"}: it is not
    ^A                                    ->
                                          <-    58, with the same text

A token is a JWT. Its signature is verified by the keys of the authority that issues tokens (JWKS),
which are read from a URL again and again; a listener for tests takes tokens without a signature.
The session of a client ends with its token.
"""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.config.oauthbearer_config import JWKS_URL, OAuthBearerSettings, unsecured_option
from ottla.runtime import Clock, Runtime
from ottla.security.jwks import Jwks, TokenError, require_jwt
from ottla.security.principal import KafkaPrincipal
from ottla.security.sasl import SaslClient, SaslError, SaslServer
from ottla.structs import NamedTuple, Value

logger = logging.getLogger(__name__)

INSUFFICIENT_SCOPE: Final = "insufficient_scope"
SIGNED_BY: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
"""Algorithms with a public key: with a shared secret, a key of JWKS would be a password."""


_CONTROL_A: Final = "\x01"
_FIRST: Final = re.compile(
    r"n,(?:a=(?P<authzid>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_BEARER: Final = re.compile(r"(?i:bearer) +([-_~+/.A-Za-z0-9]+=*)")


class OAuthBearerToken(NamedTuple):
    """The claims of a token."""

    principal_name: str
    expires_ms: int
    scope: frozenset[str]


Validate = Callable[[str], OAuthBearerToken]


class OAuthBearerServer(SaslServer):
    """One exchange. A client that is refused must say that it has read why, before the end."""

    def __init__(self, validate: Validate) -> None:
        self._validate = validate
        self._refusal = ""
        self._reason = ""

    def evaluate(self, token: bytes) -> bytes:
        if self._refusal:
            raise SaslError(self._reason, shown=self._refusal)
        authorization_id, value = parse_first(token)
        try:
            valid = self._validate(value)
        except TokenError as error:
            body = {"status": error.status} | ({"scope": error.scope} if error.scope else {})
            self._refusal = json.dumps(body, separators=(",", ":"))
            self._reason = f"the token is refused: {error}"
            return self._refusal.encode()
        if authorization_id not in ("", valid.principal_name):
            reason = (
                "Authentication failed: Client requested an authorization id "
                f"({authorization_id}) that is different from the token's principal name "
                f"({valid.principal_name})"
            )
            raise SaslError(reason, shown=reason)
        self.principal = KafkaPrincipal.user(valid.principal_name)
        self.expires_ms = valid.expires_ms
        self.is_complete = True
        return b""


def parse_first(message: bytes) -> tuple[str, str]:
    """The authorization id, which may be empty, and the token of a client's first message.

    Raises:
        SaslError: it is not one (RFC 7628).
    """
    match = _FIRST.fullmatch(message.decode("latin-1"))
    if match is None:
        raise SaslError("the first message of OAUTHBEARER is malformed")
    pairs = dict(pair.split("=", 1) for pair in match["pairs"].split(_CONTROL_A) if pair)
    bearer = _BEARER.fullmatch(pairs.get("auth", ""))
    if bearer is None:
        raise SaslError("the first message of OAUTHBEARER has no bearer token")
    name = (match["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return name, bearer[1]


class OAuthBearerClient(SaslClient):
    """One exchange of a client that has a token."""

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        more = "".join(f"{key}={value}{_CONTROL_A}" for key, value in (extensions or {}).items())
        self._first = f"n,,{_CONTROL_A}auth=Bearer {token}{_CONTROL_A}{more}{_CONTROL_A}".encode()

    def first(self) -> bytes:
        return self._first

    def evaluate(self, challenge: bytes) -> bytes | None:
        if challenge:  # why the token is refused; the broker ends the exchange once it was read
            return _CONTROL_A.encode()
        self.is_complete = True
        return None


class TokenRules(Value, frozen=True):
    """The claims that a token must have."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: frozenset[str] = frozenset()
    audience: frozenset[str] = frozenset()
    """One of them must be among the token's; empty: any."""
    issuer: str = ""
    """Empty: any."""
    clock_skew_ms: int = 30_000
    needs_issue_time: bool = True

    def check(self, claims: Mapping[str, Any], now_ms: int) -> OAuthBearerToken:
        """The token with these claims.

        Raises:
            TokenError: it breaks a rule.
        """
        expires_ms = self._check_times(claims, now_ms)
        name = claims.get(self.principal_claim)
        if not isinstance(name, str) or not name or name != name.strip():
            # Without its blanks it would be the name of another one.
            raise TokenError(
                f"the claim {self.principal_claim} must be a text that names somebody, without "
                "blanks around it"
            )
        if self.issuer and claims.get("iss") != self.issuer:
            raise TokenError(f"the claim iss must be {self.issuer}, not {claims.get('iss')!r}")
        if self.audience and not self.audience & _texts(claims.get("aud")):
            wanted = ", ".join(sorted(self.audience))
            raise TokenError(f"the claim aud must have one of {wanted}, not {claims.get('aud')!r}")
        scope = _texts(claims.get(self.scope_claim), separator=" ")
        if not self.required_scope <= scope:
            wanted = " ".join(sorted(self.required_scope))
            raise TokenError(f"its scope must have {wanted}", INSUFFICIENT_SCOPE, wanted)
        return OAuthBearerToken(name, expires_ms, scope)

    def _check_times(self, claims: Mapping[str, Any], now_ms: int) -> int:
        expires_ms = time_ms(claims, "exp")
        issued_ms = time_ms(claims, "iat", is_needed=self.needs_issue_time)
        starts_ms = time_ms(claims, "nbf", is_needed=False)
        assert expires_ms is not None, "it is needed"
        if expires_ms <= now_ms - self.clock_skew_ms:
            raise TokenError(f"it has expired (exp={claims['exp']})")
        for key, moment_ms in (("iat", issued_ms), ("nbf", starts_ms)):
            if moment_ms is not None and moment_ms > now_ms + self.clock_skew_ms:
                raise TokenError(f"it begins later ({key}={claims[key]})")
        if issued_ms is not None and expires_ms <= issued_ms:
            raise TokenError("it expires before it is issued")
        return expires_ms


def time_ms(claims: Mapping[str, Any], key: str, is_needed: bool = True) -> int | None:
    """A claim in seconds, as milliseconds."""
    value = claims.get(key)
    if value is None and not is_needed:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1 << 53:
        raise TokenError(f"the claim {key} must be a time in seconds, not {value!r}")
    return int(value * 1000)


def _texts(value: object, separator: str | None = None) -> frozenset[str]:
    if isinstance(value, str):
        return frozenset(value.split() if separator else [value])
    if isinstance(value, list):
        return frozenset(each for each in value if isinstance(each, str))
    return frozenset()


def unsecured_validator(rules: TokenRules, clock: Clock) -> Validate:
    """Takes tokens that nobody has signed: everybody can make one, so for tests only."""

    def validate(token: str) -> OAuthBearerToken:
        header, claims, signature = split_token(token)
        if header.get("alg") != "none" or signature:
            raise TokenError("a token without a signature is expected, with alg none")
        return rules.check(claims, clock.now_ms())

    return validate


def signed_validator(rules: TokenRules, keys: Jwks, clock: Clock) -> Validate:
    """Takes tokens that a key of the authority has signed."""
    from jwt.api_jws import PyJWS
    from jwt.exceptions import PyJWTError

    verifier = PyJWS()

    def validate(token: str) -> OAuthBearerToken:
        header, claims, _ = split_token(token)
        algorithm = header.get("alg")
        if algorithm not in SIGNED_BY:
            raise TokenError(f"alg {algorithm!r} is not one of {', '.join(sorted(SIGNED_BY))}")
        if header.get("crit"):
            raise TokenError("it has critical headers (crit), which are not known")
        key = keys.find(header.get("kid"), algorithm)
        try:
            verifier.decode_complete(token, key, algorithms=[algorithm])
        except PyJWTError as error:
            raise TokenError(f"its signature does not verify: {error}") from None
        return rules.check(claims, clock.now_ms())

    return validate


def split_token(token: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Header, claims and signature of a JWT, none of them verified; TokenError if it is not one."""
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenError("it is not a JWT: it must have three parts")
    return _json_part(parts[0], "header"), _json_part(parts[1], "payload"), parts[2]


def _json_part(part: str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(base64.b64decode(part + "=" * (-len(part) % 4), b"-_", validate=True))
    except (ValueError, RecursionError):
        raise TokenError(f"it is not a JWT: its {what} is not base64url of JSON") from None
    if not isinstance(value, dict):
        raise TokenError(f"it is not a JWT: its {what} is not an object of JSON")
    return value


class ListenerTokens:
    """The tokens that one listener takes: a mechanism of its own for each exchange."""

    def __init__(
        self, listener_name: str, settings: OAuthBearerSettings, options: Mapping[str, str]
    ) -> None:
        self._validate: Validate | None = None
        url = settings.sasl_oauthbearer_jwks_endpoint_url
        if url is None:
            logger.warning(
                "listener %s takes tokens of OAUTHBEARER without a signature: every client can "
                "make one for any name",
                listener_name,
            )
            self._keys = None
            self._rules = _unsecured_rules(options)
            return
        require_jwt(JWKS_URL)
        if not (
            settings.sasl_oauthbearer_expected_audience
            and settings.sasl_oauthbearer_expected_issuer
        ):
            logger.warning(
                "sasl.oauthbearer.expected.audience or .issuer is not set: tokens that were issued "
                "for other services, or by others, may be taken"
            )
        self._keys = Jwks(url, settings.sasl_oauthbearer_jwks_endpoint_refresh_ms)
        self._rules = TokenRules(
            principal_claim=settings.sasl_oauthbearer_sub_claim_name,
            scope_claim=settings.sasl_oauthbearer_scope_claim_name,
            audience=frozenset(settings.sasl_oauthbearer_expected_audience),
            issuer=settings.sasl_oauthbearer_expected_issuer or "",
            clock_skew_ms=settings.sasl_oauthbearer_clock_skew_seconds * 1000,
        )

    def start(self, runtime: Runtime) -> None:
        """Read the keys, where there are any."""
        if self._keys is None:
            self._validate = unsecured_validator(self._rules, runtime.clock)
        else:
            self._keys.start(runtime)
            self._validate = signed_validator(self._rules, self._keys, runtime.clock)

    def server(self) -> SaslServer:
        """The broker's side of one exchange."""
        assert self._validate is not None, "the broker has started"
        return OAuthBearerServer(self._validate)


def _unsecured_rules(options: Mapping[str, str]) -> TokenRules:
    return TokenRules(
        principal_claim=unsecured_option(options, "unsecuredValidatorPrincipalClaimName"),
        scope_claim=unsecured_option(options, "unsecuredValidatorScopeClaimName"),
        required_scope=frozenset(
            unsecured_option(options, "unsecuredValidatorRequiredScope").split()
        ),
        clock_skew_ms=int(unsecured_option(options, "unsecuredValidatorAllowableClockSkewMs")),
        needs_issue_time=False,
    )
