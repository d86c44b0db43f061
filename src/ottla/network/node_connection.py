"""A connection to one broker: opened when needed, versions agreed on, kept alive.

Clients have it, and brokers towards each other.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ottla.config.sasl_client_config import SaslLogin
from ottla.errors import (
    ErrorCode,
    InvalidMetadataError,
    KafkaError,
    SaslAuthenticationError,
    UnusableConnectionError,
)
from ottla.network.channel import Channel
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.message import Request, Response, versions_of
from ottla.runtime import Background, Runtime, Timer
from ottla.runtime.network import StreamOptions
from ottla.runtime.scheduler import is_under_way, within
from ottla.runtime.timing import NEVER_MS, Backoff
from ottla.structs import Node
from ottla.version import __version__

logger = logging.getLogger(__name__)

SOFTWARE_NAME = "ottla-python"
HIGHEST_VERSION = (1 << 15) - 1
FIRST_PRODUCE_THAT_ANSWERS_FIRST = 6
"""A broker with this version answers throttled requests at once (KIP-219)."""
FIRST_HANDSHAKE_VERSION = 1
"""Tokens come in SaslAuthenticate, and a refusal says why."""
LOGIN_AGAIN_FROM = 0.85
LOGIN_AGAIN_SPREAD = 0.1
"""A client logs in again when this much of its session is over; not all clients at once."""
LOGIN_AGAIN_LEAST_MS = 500
"""A request goes out between two logins, however short the broker says that sessions are."""


class ConnectionSettings(Protocol):
    """The settings of a connection, which those of every client have."""

    @property
    def client_id(self) -> str: ...

    @property
    def request_timeout_ms(self) -> int: ...

    @property
    def reconnect_backoff_ms(self) -> int: ...

    @property
    def reconnect_backoff_max_ms(self) -> int: ...

    @property
    def socket_connection_setup_timeout_ms(self) -> int: ...

    @property
    def send_buffer_bytes(self) -> int: ...

    @property
    def receive_buffer_bytes(self) -> int: ...


OutgoingTls = Callable[[Background], Awaitable[ssl.SSLContext]]
"""Makes the context for a connection that is made now: its certificate, and whom it trusts."""


class NodeConnection:
    """One broker as the side that connects uses it.

    Invariant: `versions` is filled exactly while `channel` is open. After a failure the broker is
    left alone until `retry_at_ms`, longer each time.
    """

    def __init__(
        self,
        runtime: Runtime,
        settings: ConnectionSettings,
        node: Node,
        tls: OutgoingTls | None = None,
        login: SaslLogin | None = None,
    ) -> None:
        self.node = node
        self.channel: Channel | None = None
        self.versions: dict[int, tuple[int, int]] = {}
        # The levels of features that were in force when the connection was opened (KIP-584).
        self.features: dict[str, int] = {}
        self.in_flight = 0
        self.retry_at_ms = 0
        self.last_used_ms = 0
        self.throttled_until_ms = 0
        self._runtime = runtime
        self._settings = settings
        self._tls = tls
        self._login = login
        self._authenticate_version = 0
        self._login_again_ms = NEVER_MS
        self._quiet: asyncio.Future[None] | None = None  # done when nothing is in flight
        self._failures = 0
        self._is_closed = False
        self._connecting: asyncio.Task[None] | None = None
        self._backoff = Backoff(
            settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, runtime.random.random
        )

    @property
    def is_ready(self) -> bool:
        return self.channel is not None and not self.channel.is_closed

    @property
    def _must_log_in(self) -> bool:
        """Whether the session at the broker ends soon, or has ended (KIP-368)."""
        if self._login_again_ms == NEVER_MS:
            return False
        is_due = self._runtime.clock.monotonic_ms() >= self._login_again_ms
        return is_due or is_under_way(self._connecting)

    @property
    def is_backing_off(self) -> bool:
        return self._runtime.clock.monotonic_ms() < self.retry_at_ms

    @property
    def throttle_left_ms(self) -> int:
        """The time for which the broker reads no more requests, as it has said (KIP-219)."""
        if not self.throttled_until_ms:
            return 0
        return max(0, self.throttled_until_ms - self._runtime.clock.monotonic_ms())

    async def ready(self) -> None:
        """Connect, or log in again, unless that is done; callers wait for the same attempt."""
        if self.is_ready and not self._must_log_in:
            return
        if self._is_closed:
            raise self._unreachable("the connection was closed")
        connecting = self._connecting
        if not is_under_way(connecting):
            name = f"connect to {self.node}"
            connecting = asyncio.get_running_loop().create_task(self._connect(), name=name)
            # The waiting callers see the error; if all have gone, it can be dropped.
            connecting.add_done_callback(lambda task: task.cancelled() or task.exception())
            self._connecting = connecting
        try:
            await asyncio.shield(connecting)
        except asyncio.CancelledError:
            # Either the caller that waits must stop, or the attempt is over because we were closed.
            waiting = asyncio.current_task()
            if not connecting.cancelled() or (waiting is not None and waiting.cancelling()):
                raise
            raise self._unreachable("the connection was closed") from None

    def send(self, request: Request, version: int, timeout_ms: int) -> asyncio.Future[Response]:
        """Send at once; without an answer in time the connection is given up, as it is in order.

        Where the session ends soon, requests follow the login that begins the next one.
        """
        if self._must_log_in:
            return self._after_login(self.send, request, version, timeout_ms)
        channel = self._open_channel()
        future = channel.send(request, version)
        self._watch(future, channel, timeout_ms, type(request).__name__)
        return future

    def send_without_response(
        self, request: Request, version: int, timeout_ms: int
    ) -> asyncio.Future[Any] | None:
        """Send what brokers do not answer; the future, if any, is that of the channel, in time."""
        if self._must_log_in:
            return self._after_login(self.send_without_response, request, version, timeout_ms)
        channel = self._open_channel()
        written = channel.send_without_response(request, version)
        self.last_used_ms = self._runtime.clock.monotonic_ms()
        if written is not None:
            self._watch(written, channel, timeout_ms, type(request).__name__)
        return written

    def _after_login(self, send: Callable[..., Any], *request: Any) -> asyncio.Future[Any]:
        """Requests keep their order: all wait for the same login."""

        async def call() -> Any:
            await self.ready()
            sent = send(*request)
            return None if sent is None else await asyncio.shield(sent)

        later = asyncio.ensure_future(call())
        later.add_done_callback(lambda task: task.cancelled() or task.exception())
        return later

    def version_of(self, request: type[Request], low: int = 0, high: int = HIGHEST_VERSION) -> int:
        """The highest version within `low` and `high` that both sides know."""
        if not self.is_ready:
            raise self._unreachable("it is not connected")
        first, last = self.versions.get(request.api_key, (0, -1))
        lowest, highest = max(first, request.min_version, low), min(last, request.max_version, high)
        if lowest > highest:
            wanted = f"{max(low, request.min_version)} to {min(high, request.max_version)}"
            offered = f"{first} to {last}" if last >= 0 else "none"
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{request.api_key.name}: this client needs one of the versions {wanted}, "
                f"the broker {self.node} has {offered}",
            )
        return highest

    def close(self, reason: str) -> None:
        """Close for good; requests that wait for an answer fail."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        self._drop(reason)

    def _open_channel(self) -> Channel:
        if self.channel is None or self.channel.is_closed:
            raise self._unreachable("it is not connected")
        return self.channel

    def _watch(
        self, future: asyncio.Future[Any], channel: Channel, timeout_ms: int, what: str
    ) -> None:
        clock, call_later = self._runtime.clock, self._runtime.scheduler.call_later
        sent_ms = clock.monotonic_ms()
        timers: list[Timer] = []

        def expire() -> None:
            # The broker reads it when it no longer throttles us; as long as for an answer, at most.
            limit_ms = min(max(self.throttled_until_ms, sent_ms), sent_ms + timeout_ms) + timeout_ms
            if limit_ms > clock.monotonic_ms():
                timers.append(call_later(limit_ms - clock.monotonic_ms(), expire))
                return
            channel.close(f"no answer to {what} within {timeout_ms} ms")
            self._lost()

        timers.append(call_later(timeout_ms, expire))
        self.in_flight += 1

        def done(answered: asyncio.Future[Any]) -> None:
            timers[-1].cancel()
            self.in_flight -= 1
            self.last_used_ms = self._runtime.clock.monotonic_ms()
            if not answered.cancelled() and answered.exception() is None:
                self._note_throttle(answered.result())
            if self._quiet is not None and not self.in_flight:
                self._quiet.set_result(None)
                self._quiet = None
            if channel.is_closed:
                self._lost(channel)

        future.add_done_callback(done)

    def _note_throttle(self, response: Response) -> None:
        """Send nothing for as long as the answer says, or requests would wait at the broker.

        A broker of before 2.0 has waited already when it answers.
        """
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms <= 0:
            return
        if self.versions.get(ApiKey.PRODUCE, (0, 0))[1] >= FIRST_PRODUCE_THAT_ANSWERS_FIRST:
            self.throttled_until_ms = max(self.throttled_until_ms, self.last_used_ms + throttle_ms)

    def _drop(self, reason: str) -> None:
        if self.channel is not None:
            self.channel.close(reason)
        self._lost()

    def _lost(self, channel: Channel | None = None) -> None:
        """The connection is gone (unless there is another one already)."""
        if channel is None or channel is self.channel:
            self.channel = None
            self.versions = {}
            self._login_again_ms = NEVER_MS

    async def _connect(self) -> None:
        try:
            if self.channel is not None and not self.channel.is_closed:
                await self._log_in_again(self.channel)
            else:
                await self._open()
        except (OSError, KafkaError) as cause:
            self._failures += 1
            delay_ms = self._backoff.delay_ms(self._failures)
            self.retry_at_ms = self._runtime.clock.monotonic_ms() + delay_ms
            self._drop(f"cannot connect: {cause}")
            logger.debug("cannot connect to %s: %s", self.node, cause)
            if isinstance(cause, UnusableConnectionError):
                raise
            raise self._unreachable(str(cause)) from cause
        finally:
            self._connecting = None
        self._failures = 0

    async def _open(self) -> None:
        settings = self._settings
        tls = None if self._tls is None else await self._tls(self._runtime.background)
        channel = await Channel.connect(
            self._runtime,
            self.node.host,
            self.node.port,
            client_id=settings.client_id,
            timeout_ms=settings.socket_connection_setup_timeout_ms,
            options=StreamOptions(settings.send_buffer_bytes, settings.receive_buffer_bytes, tls),
        )
        try:
            if self._is_closed:
                raise self._unreachable("the connection was closed")
            answer = await within(
                self._runtime.scheduler,
                settings.request_timeout_ms,
                self._agree_on_versions(channel),
                f"no answer to ApiVersions from {self.node}",
            )
            await self._log_in(channel, answer)
        except BaseException:
            channel.close("the versions were not agreed on, or the login was refused")
            raise
        self.channel = channel
        self.versions = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
        self.features = {each.name: each.max_version_level for each in answer.finalized_features}
        self.last_used_ms = self._runtime.clock.monotonic_ms()

    async def _log_in(self, channel: Channel, versions: ApiVersionsResponse) -> None:
        """Log in to the broker, where the settings have a login."""
        login = self._login
        if login is None:
            return
        known = {key.api_key: key.max_version for key in versions.api_keys}
        if known.get(ApiKey.SASL_HANDSHAKE, 0) < FIRST_HANDSHAKE_VERSION:
            raise SaslAuthenticationError(
                f"{self.node}: it has no SaslAuthenticate (Kafka before 1.0, or no SASL)"
            )
        self._authenticate_version = min(
            known.get(ApiKey.SASL_AUTHENTICATE, 0), versions_of(ApiKey.SASL_AUTHENTICATE).last
        )
        await within(
            self._runtime.scheduler,
            self._settings.request_timeout_ms,
            self._exchange(channel, login),
            f"no answer to the login at {self.node}",
        )

    async def _log_in_again(self, channel: Channel) -> None:
        """The same on a connection in use, once nothing else is under way on it (KIP-368)."""
        assert self._login is not None
        while self.in_flight:
            self._quiet = self._quiet or asyncio.get_running_loop().create_future()
            await self._quiet
        await within(
            self._runtime.scheduler,
            self._settings.request_timeout_ms,
            self._exchange(channel, self._login),
            f"no answer to the login at {self.node}",
        )

    async def _exchange(self, channel: Channel, login: SaslLogin) -> None:
        """Log in, and note when the session must be renewed."""
        from ottla.network.sasl_login import log_in  # most clients need no login

        version = self._authenticate_version
        lifetime_ms = await log_in(channel, login, self._runtime, self.node, version)
        self._login_again_ms = NEVER_MS
        if lifetime_ms > 0:
            share = LOGIN_AGAIN_FROM + LOGIN_AGAIN_SPREAD * self._runtime.random.random()
            wait_ms = max(int(lifetime_ms * share), LOGIN_AGAIN_LEAST_MS)
            self._login_again_ms = self._runtime.clock.monotonic_ms() + wait_ms

    async def _agree_on_versions(self, channel: Channel) -> ApiVersionsResponse:
        """Ask with our highest version; a broker that does not know it names its own."""
        response = await self._ask_versions(channel, ApiVersionsRequest.max_version)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            known = {key.api_key: key.max_version for key in response.api_keys}
            version = min(known.get(ApiKey.API_VERSIONS, 0), ApiVersionsRequest.max_version)
            response = await self._ask_versions(channel, version)
        if response.error_code:
            raise KafkaError.of(response.error_code, f"ApiVersions was refused by {self.node}")
        return response

    async def _ask_versions(self, channel: Channel, version: int) -> ApiVersionsResponse:
        request = ApiVersionsRequest()
        if version >= 3:
            request.client_software_name = SOFTWARE_NAME
            request.client_software_version = __version__
        response = await channel.send(request, version)
        assert isinstance(response, ApiVersionsResponse)
        return response

    def _unreachable(self, why: str) -> KafkaError:
        return InvalidMetadataError(ErrorCode.NETWORK_EXCEPTION, f"broker {self.node}: {why}")
