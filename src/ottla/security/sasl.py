"""SASL on a listener: a client's identity, found out before it may send other requests.

`SaslAuthenticator` is the state machine of one connection. It gets whole frames and does no I/O.

    state                  allowed frames                       next state
    INITIAL_REQUEST        ApiVersions or SaslHandshake         the states below; a frame that is no
                                                                request is a token of GSSAPI (0.9)
    HANDSHAKE_OR_VERSIONS  the same                             an ApiVersions that is refused (35,
                                                                42) may be asked again
    HANDSHAKE_REQUEST      SaslHandshake, after the response    AUTHENTICATE; another mechanism
                           to ApiVersions                       than the listener's: 33, FAILED
    AUTHENTICATE           after SaslHandshake v0: tokens as    COMPLETE with the last token, or
                           bare frames; else SaslAuthenticate   FAILED: 58 (34 for another request)
    COMPLETE               all requests; SaslHandshake begins   AUTHENTICATE
                           again where sessions end (KIP-368)
    FAILED                 nothing is read any longer           the last answer, delayed, then close

A mechanism is a `SaslServer`: it gets the client's tokens one by one, and returns its responses,
and in the end the principal. A `SaslError` of it is for the log; a client gets the same sentence
for each cause, unless the error has one for it (KIP-152).

The client's side of a mechanism is a `SaslClient`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from ottla.config.jaas import GSSAPI
from ottla.errors import ErrorCode, RemoteProtocolError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.api_versions import ApiVersionsRequest
from ottla.protocol.header import (
    SIZE,
    RequestHeader,
    decode_request,
    decode_request_header,
    encode_response,
)
from ottla.protocol.message import error_response, request_class
from ottla.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from ottla.protocol.types import Part
from ottla.runtime import Clock, Runtime
from ottla.security.principal import ANONYMOUS, KafkaPrincipal
from ottla.structs import NamedTuple, Value, field

MAX_TOKEN_BYTES: Final = 64 * 1024
"""The longest token of a mechanism that has no limit of its own: tickets and JWTs are shorter."""
MIN_REAUTHENTICATION_MS: Final = 1_000
"""A client that authenticates more often is refused: each time costs more than a request."""


class SaslError(Exception):
    """A client is refused. The text is for the log; `shown`, where there is one, for the client."""

    def __init__(self, reason: str, shown: str | None = None) -> None:
        super().__init__(reason)
        self.shown = shown


class SaslServer(ABC):
    """One exchange of one mechanism, from the first token of a client to the last.

    Once `is_complete`, `principal` is whom the client has proved to be, and `expires_ms` when that
    ends (milliseconds since 1970; None for never).
    """

    is_complete: bool = False
    principal: KafkaPrincipal = ANONYMOUS
    expires_ms: int | None = None
    max_token_bytes: int = MAX_TOKEN_BYTES

    @abstractmethod
    def evaluate(self, token: bytes) -> bytes:
        """The answer to the next token, which may be empty.

        Raises:
            SaslError: the client is refused; the exchange is over.
        """


class SaslClient(ABC):
    """One exchange of one mechanism; `is_complete` once the client has nothing more to say."""

    is_complete: bool = False

    @abstractmethod
    def first(self) -> bytes:
        """The token that begins the exchange."""

    @abstractmethod
    def evaluate(self, challenge: bytes) -> bytes | None:
        """The answer to a token of the broker; None where it wants none.

        Raises:
            SaslAuthenticationError: the broker has another identity, or breaks the mechanism.
        """


class PlainServer(SaslServer):
    """PLAIN (RFC 4616): name and password as they are, so for use with TLS."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def evaluate(self, token: bytes) -> bytes:
        authorization_id, name, password = _plain_parts(token)
        expected = self._passwords.get(name)
        # An unknown name costs as much time as a wrong password (CVE-2021-38153).
        from hmac import compare_digest

        is_equal = compare_digest(password.encode(), (expected or "").encode())
        if expected is None or not is_equal:
            raise _plain("Authentication failed: Invalid username or password")
        if authorization_id not in ("", name):
            raise _plain(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        self.principal = KafkaPrincipal.user(name)
        self.is_complete = True
        return b""


class PlainClient(SaslClient):
    """PLAIN (RFC 4616): name and password in one token."""

    def __init__(self, username: str, password: str) -> None:
        self._token = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        self.is_complete = True
        return self._token

    def evaluate(self, challenge: bytes) -> bytes | None:
        return None


def _plain_parts(token: bytes) -> tuple[str, str, str]:
    """The authorization id, the name and the password in a client's message (RFC 4616)."""
    try:
        parts = token.decode().split("\0")
    except UnicodeDecodeError:
        raise _plain("the message is not UTF-8") from None
    if len(parts) != 3:
        raise _plain(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
    authorization_id, name, password = parts
    if not name:
        raise _plain("Authentication failed: username not specified")
    if not password:
        raise _plain("Authentication failed: password not specified")
    return authorization_id, name, password


def _plain(reason: str) -> SaslError:
    return SaslError(reason, shown=reason)


class LoginCounts(Value):
    """How the logins at one listener have gone since the broker began."""

    succeeded: int = 0
    failed: int = 0
    """Also those that proved a name, and got no principal for it."""
    renewed: int = 0
    """Sessions that were begun again on their connection (KIP-368)."""
    renewals_failed: int = 0
    expired: int = 0
    """Connections that were closed as their session had ended."""


class SaslListener(Value, frozen=True):
    """The settings for the clients of one SASL listener."""

    mechanisms: Mapping[str, Callable[[], SaslServer]] = field(repr=False)
    """The beginning of an exchange, by mechanism, in the order in which clients see them; those of
    PLAIN hold passwords, and are not shown."""
    max_reauth_ms: Mapping[str, int]
    """How long a session may last, by its mechanism; 0 is no limit."""
    max_receive_bytes: int
    """The largest frame of a client that is not authenticated."""
    failure_delay_ms: int
    """How long a client that is refused waits for its answer and its end."""
    on_start: tuple[Callable[[Runtime], object], ...] = ()
    """The state that the mechanisms need to have started with the broker."""
    counts: LoginCounts = field(default_factory=LoginCounts)

    def authenticator(self, clock: Clock) -> SaslAuthenticator:
        """The judge of the frames of a new client."""
        return SaslAuthenticator(self, clock)


class SaslState(Enum):
    """How far a connection is, under Kafka's names."""

    INITIAL_REQUEST = "nothing has come yet"
    HANDSHAKE_OR_VERSIONS_REQUEST = "a request has come; it speaks Kafka's protocol"
    HANDSHAKE_REQUEST = "the versions were told"
    AUTHENTICATE = "a mechanism is chosen"
    COMPLETE = "it is authenticated"
    FAILED = "it was refused"


class Action(Enum):
    """The treatment of a frame."""

    PASS_ON = "it is a request to be handled"
    ANSWER = "it is answered by the exchange"
    FAIL = "it is answered later, and the connection ends"
    CLOSE = "the session has ended, and so does the connection"


class Verdict(NamedTuple):
    """The verdict on one frame; `reason` is for the log."""

    action: Action
    answer: list[Part] | None = None
    reason: str = ""

    @property
    def is_request(self) -> bool:
        """Whether the frame is a request for the handlers."""
        return self.action is Action.PASS_ON

    @property
    def is_refusal(self) -> bool:
        """Whether the login has failed."""
        return self.action is Action.FAIL

    @property
    def is_end(self) -> bool:
        """Whether the connection ends without an answer."""
        return self.action is Action.CLOSE


PASS_ON: Final = Verdict(Action.PASS_ON)


class SaslAuthenticator:
    """One connection of a SASL listener.

    Invariant: `principal` is anonymous until the first exchange is complete, and never changes
    after that; nothing but ApiVersions is passed on before.
    """

    __slots__ = (
        "_clock",
        "_has_other_mechanism",
        "_is_framed",
        "_last_token",
        "_server",
        "_session_ends_ms",
        "_started_again_ms",
        "listener",
        "login_count",
        "mechanism",
        "principal",
        "state",
    )

    def __init__(self, listener: SaslListener, clock: Clock) -> None:
        self.listener = listener
        self.state = SaslState.INITIAL_REQUEST
        self.principal = ANONYMOUS
        self.mechanism = ""
        self.login_count = 0  # exchanges that were completed
        self._clock = clock
        self._server: SaslServer | None = None
        self._is_framed = False  # tokens come in SaslAuthenticate, not bare
        self._session_ends_ms: int | None = None  # on the monotonic clock
        self._started_again_ms: int | None = None
        self._has_other_mechanism = ""
        self._last_token: tuple[RequestHeader | None, bytes] = None, b""

    @property
    def is_complete(self) -> bool:
        """Whether the client has proved its identity."""
        return self.state is SaslState.COMPLETE

    @property
    def has_session_end(self) -> bool:
        """Whether requests must still be shown to `receive` once the client is authenticated."""
        return self._session_ends_ms is not None

    def receive(self, frame: memoryview) -> Verdict:
        """Judge the next frame; it is not used after the call."""
        state = self.state
        if state is SaslState.COMPLETE:
            return self._on_request(frame)
        if state is SaslState.AUTHENTICATE:
            return self._on_framed_token(frame) if self._is_framed else self._on_token(frame)
        if state is SaslState.FAILED:
            return Verdict(Action.CLOSE, reason="it was refused")
        return self._on_handshake(frame)

    # Before the mechanism

    def _on_handshake(self, frame: memoryview) -> Verdict:
        is_first = self.state is SaslState.INITIAL_REQUEST
        try:
            header, position = decode_request_header(frame)
        except RemoteProtocolError as error:
            if is_first and GSSAPI in self.listener.mechanisms:
                self._begin(GSSAPI, is_framed=False)
                return self._on_token(frame)
            return self._fail(f"not a request of Kafka's protocol: {error.message}")
        if is_first:
            self.state = SaslState.HANDSHAKE_OR_VERSIONS_REQUEST
        try:
            if header.api_key == ApiKey.SASL_HANDSHAKE:
                return self._choose(header, frame, position)
            if header.api_key == ApiKey.API_VERSIONS:
                return self._ask_versions(header, frame, position)
        except RemoteProtocolError as error:
            return self._fail(f"malformed request: {error.message}")
        return self._fail(f"{ApiKey(header.api_key).name} before SaslHandshake")

    def _ask_versions(self, header: RequestHeader, frame: memoryview, position: int) -> Verdict:
        """Pass it on; one that can be answered is the last."""
        if self.state is SaslState.HANDSHAKE_REQUEST:
            return self._fail("a second ApiVersions before SaslHandshake")
        if header.api_version in ApiVersionsRequest.versions:
            body = decode_request(header, frame, position)
            assert isinstance(body, ApiVersionsRequest)
            if body.names_software(header.api_version):
                self.state = SaslState.HANDSHAKE_REQUEST
        return PASS_ON

    def _choose(self, header: RequestHeader, frame: memoryview, position: int) -> Verdict:
        body = decode_request(header, frame, position)
        assert isinstance(body, SaslHandshakeRequest)
        answer = SaslHandshakeResponse(mechanisms=list(self.listener.mechanisms))
        if body.mechanism not in self.listener.mechanisms:
            answer.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            reason = f"mechanism {body.mechanism[:40]!r} is not enabled on the listener"
            return self._fail(reason, encode_response(header, answer))
        self._begin(body.mechanism, is_framed=header.api_version >= 1)
        return Verdict(Action.ANSWER, encode_response(header, answer))

    def _begin(self, mechanism: str, *, is_framed: bool) -> None:
        if self.mechanism not in ("", mechanism):
            self._has_other_mechanism = mechanism
        else:
            self.mechanism = mechanism
        self._is_framed = is_framed
        self._server = self.listener.mechanisms[mechanism]()
        self.state = SaslState.AUTHENTICATE

    # The exchange

    def _on_token(self, frame: memoryview) -> Verdict:
        """A bare token, as clients of 0.10 and before send it; its failure is a plain close."""
        try:
            self._last_token = None, self._evaluate(frame)
        except SaslError as error:
            return self._fail(str(error))
        return Verdict(Action.ANSWER, self.welcome())

    def _on_framed_token(self, frame: memoryview) -> Verdict:
        try:
            header, position = decode_request_header(frame)
            if header.api_key != ApiKey.SASL_AUTHENTICATE:
                return self._fail_other(header)
            body = decode_request(header, frame, position)
        except RemoteProtocolError as error:
            return self._fail(f"malformed request: {error.message}")
        assert isinstance(body, SaslAuthenticateRequest)
        try:
            self._last_token = header, self._evaluate(body.auth_bytes)
        except SaslError as error:
            return self._fail(str(error), self._refusal(header, error.shown))
        return Verdict(Action.ANSWER, self.welcome())

    def welcome(self) -> list[Part]:
        """The answer to the last token, with the rest of the session's time."""
        header, token = self._last_token
        if header is None:
            return [SIZE.pack(len(token)) + token]
        answer = SaslAuthenticateResponse(auth_bytes=token)
        if self.state is SaslState.COMPLETE and self._session_ends_ms is not None:
            left_ms = self._session_ends_ms - self._clock.monotonic_ms()
            answer.session_lifetime_ms = max(0, left_ms)
        return encode_response(header, answer)

    def refuse(self, reason: str) -> Verdict:
        """Refuse a client whose login is complete, but which gets no principal."""
        header, _ = self._last_token
        shown = "Authentication failed: there is no principal for this login"
        return self._fail(reason, None if header is None else self._refusal(header, shown))

    def _evaluate(self, token: bytes | memoryview) -> bytes:
        """The answer to a token; with the last one the session begins.

        It may be of a request as large as requests are, where a session is renewed.
        """
        if self._has_other_mechanism:
            reason = (
                f"SASL mechanism {self._has_other_mechanism!r} requested by client is not "
                f"supported for re-authentication of mechanism {self.mechanism!r}"
            )
            raise SaslError(reason, shown=reason)
        server = self._server
        assert server is not None, "an exchange is under way"
        if len(token) > server.max_token_bytes:
            raise SaslError(f"a token of {len(token)} bytes: it may have {server.max_token_bytes}")
        answer = server.evaluate(bytes(token))
        if server.is_complete:
            if self._started_again_ms is not None and server.principal != self.principal:
                reason = (
                    "Cannot change principals during re-authentication from "
                    f"{self.principal}: {server.principal}"
                )
                raise SaslError(reason, shown=reason)
            self._begin_session(server)
        return answer

    def _begin_session(self, server: SaslServer) -> None:
        limits = []
        if limit_ms := self.listener.max_reauth_ms.get(self.mechanism, 0):
            limits.append(limit_ms)
        if server.expires_ms is not None:
            limits.append(max(0, server.expires_ms - self._clock.now_ms()))
        self._session_ends_ms = self._clock.monotonic_ms() + min(limits) if limits else None
        self.principal = server.principal
        self.login_count += 1
        if self.login_count == 1:
            self.listener.counts.succeeded += 1
        else:
            self.listener.counts.renewed += 1
        self._server = None
        self.state = SaslState.COMPLETE

    def _refusal(self, header: RequestHeader, shown: str | None = None) -> list[Part]:
        """The same for a wrong password, an unknown user and anything else that does not fit."""
        what = "authentication" if self._started_again_ms is None else "re-authentication"
        answer = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED)
        answer.error_message = shown or (
            f"Authentication failed during {what} due to invalid credentials with SASL mechanism "
            f"{self.mechanism}"
        )
        return encode_response(header, answer)

    # The session

    def _on_request(self, frame: memoryview) -> Verdict:
        """Pass a request on while the session lasts; SaslHandshake may begin another."""
        now_ms = self._clock.monotonic_ms()
        ends_ms = self._session_ends_ms
        if ends_ms is None:
            return PASS_ON
        if int.from_bytes(frame[:2]) == ApiKey.SASL_HANDSHAKE and self._may_start_again(now_ms):
            self._started_again_ms = now_ms
            return self._on_handshake(frame)
        if now_ms >= ends_ms:
            self.listener.counts.expired += 1
            return Verdict(Action.CLOSE, reason="its session has ended")
        return PASS_ON

    def _may_start_again(self, now_ms: int) -> bool:
        before_ms = self._started_again_ms
        return before_ms is None or now_ms - before_ms >= MIN_REAUTHENTICATION_MS

    # The end

    def _fail_other(self, header: RequestHeader) -> Verdict:
        """Refuse any other request, in its own response where that has a field for the error."""
        request = request_class(header.api_key)
        reason = f"{request.api_key.name} instead of SaslAuthenticate"
        if header.api_version not in request.versions:
            return self._fail(reason)
        answer = error_response(request, header.api_version, ErrorCode.ILLEGAL_SASL_STATE)
        return self._fail(reason, None if answer is None else encode_response(header, answer))

    def _fail(self, reason: str, answer: list[Part] | None = None) -> Verdict:
        self.state = SaslState.FAILED
        self._server = None
        if self._started_again_ms is None:
            self.listener.counts.failed += 1
        else:
            self.listener.counts.renewals_failed += 1
        return Verdict(Action.FAIL, answer, reason)
