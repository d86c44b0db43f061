"""The keys of the authority that signs tokens."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlencode, urlsplit

from ottla.errors import ConfigError
from ottla.runtime.clock import SystemClock
from ottla.runtime.http_calls import HttpRequest, exchange, successful

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.runtime import Runtime

logger = logging.getLogger(__name__)
INVALID_TOKEN: Final = "invalid_token"

MAX_ANSWER_BYTES: Final = 1 << 20
LIMIT_S: Final = 10
"""How long a call may take, from the connection to the last byte of the answer."""
FORM: Final = "application/x-www-form-urlencoded"
MIN_REFRESH_MS: Final = 10_000
"""How soon keys are read again for a token that names one that is not known."""


class TokenError(Exception):
    """A token is refused. The text is for the log, `status` and `scope` for the client."""

    def __init__(self, reason: str, status: str = INVALID_TOKEN, scope: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


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
    """The content of an https or file URL; with `form` by POST. For a background thread.

    Redirects are not followed: another server would get the client's secret.

    Raises:
        OSError: it cannot be read, is larger than `MAX_ANSWER_BYTES`, or not there in `LIMIT_S`.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        with open(unquote(parts.path), "rb") as file:
            return file.read(MAX_ANSWER_BYTES)
    # Only here: most clients and brokers never ask, and the module takes its time to load.

    request = HttpRequest(url, login=login)
    if form is not None:
        body = urlencode(form).encode()
        request = request._replace(method="POST", body=body, content_type=FORM)
    return successful(exchange(SystemClock(), request, MAX_ANSWER_BYTES, LIMIT_S)).body
