"""OAUTHBEARER (RFC 7628, KIP-255, KIP-768): a token says who a client is, and until when.

    client                                      broker
    n,,^Aauth=Bearer <token>^A^A          ->
                                          <-    nothing: the token is good
                                          <-    {"status":"invalid_token"}: it is not
    ^A                                    ->
                                          <-    58, with the same text

A token is a JWT. Its signature is verified by the keys of the authority that issues tokens (JWKS),
which are read from a URL again and again; a listener for tests takes tokens without a signature.
The session of a client ends with its token.

Wing: attaches to `security.sasl`, for OAUTHBEARER; the core works without it.
"""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from ottla.config.oauthbearer_config import JWKS_URL, OAuthBearerSettings, unsecured_option
from ottla.config.sasl_client_config import SaslLogin
from ottla.errors import ConfigError, SaslAuthenticationError
from ottla.runtime import Clock, Runtime
from ottla.security.principal import KafkaPrincipal
from ottla.security.sasl import SaslClient, SaslError, SaslServer
from ottla.structs import Value

logger = logging.getLogger(__name__)

INVALID_TOKEN: Final = "invalid_token"
INSUFFICIENT_SCOPE: Final = "insufficient_scope"
SIGNED_BY: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
"""Algorithms with a public key: with a shared secret, a key of JWKS would be a password."""

MAX_ANSWER_BYTES: Final = 1 << 20
TIMEOUT_S: Final = 10
MIN_REFRESH_MS: Final = 10_000
"""How soon keys are read again for a token that names one that is not known."""

_CONTROL_A: Final = "\x01"
_FIRST: Final = re.compile(
    r"n,(?:a=(?P<authzid>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_BEARER: Final = re.compile(r"(?i:bearer) +([-_~+/.A-Za-z0-9]+=*)")


class TokenError(Exception):
    """A token is refused. The text is for the log, `status` and `scope` for the client."""

    def __init__(self, reason: str, status: str = INVALID_TOKEN, scope: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


class OAuthBearerToken(NamedTuple):
    """What a token says."""

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


# What a token must say


class TokenRules(Value, frozen=True):
    """What is asked of the claims of a token."""

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
        expires_ms = _time_ms(claims, "exp")
        issued_ms = _time_ms(claims, "iat", is_needed=self.needs_issue_time)
        starts_ms = _time_ms(claims, "nbf", is_needed=False)
        assert expires_ms is not None, "it is needed"
        if expires_ms <= now_ms - self.clock_skew_ms:
            raise TokenError(f"it has expired (exp={claims['exp']})")
        for key, moment_ms in (("iat", issued_ms), ("nbf", starts_ms)):
            if moment_ms is not None and moment_ms > now_ms + self.clock_skew_ms:
                raise TokenError(f"it begins later ({key}={claims[key]})")
        if issued_ms is not None and expires_ms <= issued_ms:
            raise TokenError("it expires before it is issued")
        return expires_ms


def _time_ms(claims: Mapping[str, Any], key: str, is_needed: bool = True) -> int | None:
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


# How a token is read


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
    """Which tokens one listener takes: a mechanism of its own for each exchange."""

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
        """For one exchange."""
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


# The keys of the authority


class Jwks:
    """The public keys by which tokens are signed (RFC 7517), read from a URL from time to time.

    They stay in use where the URL cannot be read for a while. A token that names a key that is not
    known has them read soon; until then it is refused.
    """

    def __init__(self, url: str, refresh_ms: int) -> None:
        self.url = url
        self._refresh_ms = refresh_ms
        self._keys: list[Any] = []
        self._runtime: Runtime | None = None
        self._read_ms: int | None = None  # on the monotonic clock
        self._is_reading = False

    def start(self, runtime: Runtime) -> None:
        """Read the keys, and again every `refresh_ms`."""
        self._runtime = runtime
        self._read()
        runtime.scheduler.call_every(self._refresh_ms, self._read)

    def find(self, key_id: object, algorithm: str) -> Any:
        """The public key with an id, or the only one for the algorithm where a token names none.

        Raises:
            TokenError: there is none.
        """
        fitting = [
            key
            for key in self._keys
            if (key_id is None or key.key_id == key_id)
            and key.public_key_use in (None, "sig")
            and _suits(key, algorithm)
        ]
        if len(fitting) != 1:
            self._read_soon()
            raise TokenError(f"no key for alg {algorithm} with kid {key_id!r} at {self.url}")
        return fitting[0].key

    def _read_soon(self) -> None:
        if self._runtime is None:
            return
        now_ms = self._runtime.clock.monotonic_ms()
        if self._read_ms is None or now_ms - self._read_ms >= MIN_REFRESH_MS:
            self._read()

    def _read(self) -> None:
        assert self._runtime is not None, "it was started"
        if not self._is_reading:
            self._is_reading = True
            self._read_ms = self._runtime.clock.monotonic_ms()
            self._runtime.background.submit(lambda: read_jwks(self.url), self._take, self._fail)

    def _take(self, keys: list[Any]) -> None:
        self._is_reading = False
        self._keys = keys

    def _fail(self, error: BaseException) -> None:
        self._is_reading = False
        logger.error("the keys of OAUTHBEARER cannot be read from %s: %s", self.url, error)


def _suits(key: Any, algorithm: str) -> bool:
    kinds = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
    named = key._jwk_data.get("alg")
    return key.key_type == kinds[algorithm[:2]] and named in (None, algorithm)


def read_jwks(url: str) -> list[Any]:
    """The keys at a URL that are of use here; ValueError or OSError where there are none."""
    from jwt import PyJWKSet
    from jwt.exceptions import PyJWTError

    try:
        return list(PyJWKSet.from_dict(json.loads(fetch(url))).keys)
    except (PyJWTError, AttributeError, TypeError) as error:
        raise ValueError(f"it is not a JSON Web Key Set: {error}") from None


def require_jwt(key: str) -> None:
    """ConfigError where the packages that verify signatures are not installed."""
    try:
        import cryptography
        import jwt
    except ImportError:
        raise ConfigError(
            f"{key}: signatures of tokens need the packages pyjwt and cryptography, "
            "pip install ottla[oauth]"
        ) from None
    del cryptography, jwt


def fetch(
    url: str, form: Mapping[str, str] | None = None, login: tuple[str, str] | None = None
) -> bytes:
    """What an https or file URL holds; with `form` it is asked by POST. For a background thread.

    Raises:
        OSError: it cannot be read.
    """
    # Only here: most clients and brokers never ask, and the module takes its time to load.
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, Request, build_opener, url2pathname

    class NoRedirect(HTTPRedirectHandler):
        """Follows no redirect: another server would get the client's secret."""

        def redirect_request(self, *_: object) -> None:
            return None

    parts = urlsplit(url)
    if parts.scheme == "file":
        with open(url2pathname(parts.path), "rb") as file:
            return file.read(MAX_ANSWER_BYTES)
    request = Request(url, headers={"Accept": "application/json"})
    if form is not None:
        request.data = urlencode(form).encode()
    if login is not None:
        pair = ":".join(login).encode()
        request.add_header("Authorization", f"Basic {base64.b64encode(pair).decode()}")
    try:
        with build_opener(NoRedirect).open(request, timeout=TIMEOUT_S) as answer:
            data: bytes = answer.read(MAX_ANSWER_BYTES)
            return data
    except HTTPError as error:
        error.close()
        raise


# A client's token

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
        expires_ms = _time_ms(split_token(token)[1], "exp")
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
