"""The session of a broker on ZooKeeper: its connection, its login, and calls that are repeated.

It is held through kazoo and used from one asyncio loop. kazoo has threads of its own: they run the
methods whose names end in `_thread`, which hand a value over to the loop, and count the sessions,
and do nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, Final

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from ottla.config.broker_config import BrokerConfig
from ottla.config.config_type import Password
from ottla.config.zookeeper_config import parse_connect
from ottla.errors import ConfigError, ErrorCode, KafkaError, KafkaTimeoutError
from ottla.registry.tree import RegistryFailedError, SessionEndedError, SessionState
from ottla.runtime import Runtime
from ottla.runtime.scheduler import within
from ottla.structs import NamedTuple

logger = logging.getLogger(__name__)

Send = Callable[[KazooClient], Any]
"""Gives a request to kazoo and returns its promise of an answer."""
Landed = Callable[[], Awaitable[Any]]

MAX_ATTEMPTS: Final = 10
"""A request is given up when so many connections broke under it: it may be what breaks them."""
FIRST_RETRY_S: Final = 0.05
LAST_RETRY_S: Final = 1.0
RESTART_DELAY_MS: Final = 1_000
ATTEMPTS_PER_SESSION: Final = 4
MIN_ATTEMPT_MS: Final = 1_000
"""kazoo waits for the first word of a server as long as a session may last, divided by the number
of addresses. A server that starts may accept a connection and forget it: with its address given
several times there is time for another attempt before the session expires. But the server writes a
new session to its disk before it answers: where that takes longer than an attempt may, because the
machine is busy, no attempt ever comes to its end."""
CLOSE_TIMEOUT_MS: Final = 1_500
REFUSED: Final = "ZooKeeper has refused the login of zookeeper.sasl.username"

PRIVATE_PATHS: Final = ("/config/users", "/config/brokers", "/delegation_token")
"""The nodes that not every client may read where there are ACLs: they hold secrets."""
OPEN_PATHS: Final = ("/consumers",)
"""Consumers of the old kind write here, and they are no brokers."""

TlsContext = Callable[[], ssl.SSLContext]
"""The TLS context of a connection that is made now; called by kazoo's thread."""


class ZooKeeperSettings(NamedTuple):
    """The broker's settings that concern a session; the chroot is "" for none."""

    servers: tuple[str, ...]
    chroot: str = ""
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    max_in_flight_requests: int = 10
    set_acl: bool = False
    digest_username: str | None = None
    digest_password: Password | None = None
    sasl_username: str | None = None
    sasl_password: Password | None = None
    tls: TlsContext | None = None

    @classmethod
    def of(cls, config: BrokerConfig, tls: TlsContext | None = None) -> ZooKeeperSettings:
        assert config.zookeeper_connect is not None, "there is a ZooKeeper to connect to"
        address = parse_connect("zookeeper.connect", config.zookeeper_connect)
        session_timeout_ms = config.zookeeper_session_timeout_ms
        return cls(
            address.servers,
            address.chroot,
            session_timeout_ms,
            config.zookeeper_connection_timeout_ms or session_timeout_ms,
            config.zookeeper_max_in_flight_requests,
            config.zookeeper_set_acl,
            config.zookeeper_digest_username,
            config.zookeeper_digest_password,
            config.zookeeper_sasl_username,
            config.zookeeper_sasl_password,
            tls,
        )

    @property
    def addresses(self) -> tuple[str, ...]:
        """Each server as often as leaves time enough for an attempt to connect."""
        attempts = min(ATTEMPTS_PER_SESSION, self.session_timeout_ms // MIN_ATTEMPT_MS)
        return self.servers * max(1, attempts // len(self.servers))

    def acl(self, path: str) -> Any:
        """The ACL of a node that is created at this path (below the chroot)."""
        if not self.set_acl or _is_below(path, OPEN_PATHS):
            return OPEN_ACL_UNSAFE
        if _is_below(path, PRIVATE_PATHS):
            return CREATOR_ALL_ACL
        return CREATOR_ALL_ACL + READ_ACL_UNSAFE

    @property
    def sasl_options(self) -> dict[str, str] | None:
        """As kazoo has them; None where the broker does not log in by SASL.

        Raises:
            ConfigError: kazoo cannot do it here.
        """
        if self.sasl_username is None or self.sasl_password is None:
            return None
        if find_spec("puresasl") is None:
            raise ConfigError(
                f"zookeeper.sasl.username={self.sasl_username}: needs "
                "`pip install ottla[zookeeper-sasl]`"
            )
        return {
            "mechanism": "DIGEST-MD5",
            "username": self.sasl_username,
            "password": self.sasl_password.value,
        }


class PartRefusedError(Exception):
    """One part of a `multi` was refused, and with it all others."""

    def __init__(self, path: str, reason: Exception) -> None:
        super().__init__(f"{path}: {reason!r}")
        self.path = path
        self.reason = reason


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    """kazoo's threads; their connections are encrypted as Kafka's settings say.

    kazoo's own TLS would also trust the authorities of the operating system.
    """

    def __init__(self, tls: TlsContext) -> None:
        super().__init__()
        self._tls = tls
        self.failure = ""
        """Why the last handshake failed; empty if it did not."""

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float, **others: Any
    ) -> ssl.SSLSocket:
        endpoint = super().create_connection(address=address, timeout=timeout)
        try:
            encrypted = self._tls().wrap_socket(endpoint, server_hostname=hostname)
        except OSError as error:
            endpoint.close()
            self.failure = f"TLS with {hostname}: {error}"
            raise
        self.failure = ""
        return encrypted


def _is_below(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)


class ZooKeeperSession:
    """Sends requests and gives their answers to the loop; a new session follows an expired one.

    Invariant: no answer is believed that was not given in the session in which its request began.
    """

    def __init__(
        self,
        runtime: Runtime,
        settings: ZooKeeperSettings,
        on_connected: Callable[[], object],
        on_state: Callable[[SessionState], object],
    ) -> None:
        self.runtime = runtime
        self.settings = settings
        self._on_connected = on_connected
        self._on_state = on_state
        self.on_latency: Callable[[int], object] | None = None
        """Told how many ms each request took to be answered, where they are measured."""
        # Counts sessions; written only by kazoo's connection thread, which runs one at a time.
        self._generation = 0
        self._is_open = False
        self._has_ended = False
        self._is_first = True
        self._is_refused = False
        self._connected = asyncio.Event()
        self._slots = asyncio.Semaphore(settings.max_in_flight_requests)
        self._waiting: set[asyncio.Future[Any]] = set()
        digest = (settings.digest_username, settings.digest_password)
        if digest[1] is not None and settings.tls is None:
            logger.warning(
                "zookeeper.digest.password goes over the network in clear text; "
                "zookeeper.ssl.client.enable=true encrypts it"
            )
        self._tls = None if settings.tls is None else TlsHandler(settings.tls)
        self._client = KazooClient(
            hosts=",".join(settings.addresses),
            timeout=settings.session_timeout_ms / 1000,
            auth_data=[("digest", f"{digest[0]}:{digest[1].value}")] if digest[1] else None,
            sasl_options=settings.sasl_options,
            handler=self._tls,
            connection_retry=KazooRetry(max_tries=-1, delay=FIRST_RETRY_S, max_delay=LAST_RETRY_S),
            logger=logging.getLogger(f"{__name__}.kazoo"),
        )
        self._client.add_listener(self._on_state_thread)

    @property
    def session_id(self) -> int:
        """The id of the session, as `ephemeralOwner` has it; 0 while there is none."""
        client_id = self._client.client_id
        return int(client_id[0] or 0) if client_id is not None else 0

    async def open(self) -> None:
        """Connect; KafkaError where no server answers in time."""
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        self._client.start_async()
        try:
            await within(
                self.runtime.scheduler,
                self.settings.connection_timeout_ms,
                self._connected.wait(),
                "no connection to ZooKeeper",
            )
        except BaseException as error:
            await self.close()
            if not isinstance(error, KafkaTimeoutError):
                raise
            servers = ",".join(self.settings.servers)
            why = self._why_not_connected()
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"zookeeper.connect={servers}{self.settings.chroot}: no ZooKeeper server answered "
                f"within {self.settings.connection_timeout_ms} ms{why}",
            ) from None

    def _why_not_connected(self) -> str:
        if self._tls is not None and self._tls.failure:
            return f" ({self._tls.failure})"
        return f" ({REFUSED})" if self._is_refused else ""

    async def close(self) -> None:
        """End the session. If no server is there, it will expire."""
        if not self._is_open:
            return
        self._is_open = False
        self._connected.set()  # a call that waits for it finds the session closed
        for future in self._waiting:
            if not future.done():
                future.set_exception(RegistryFailedError("the connection to ZooKeeper was closed"))
        stopped = self._loop.create_future()
        self._client.handler.spawn(self._stop_thread, stopped)
        try:
            await within(self.runtime.scheduler, CLOSE_TIMEOUT_MS, stopped, "not stopped")
        except KafkaTimeoutError:
            logger.warning("ZooKeeper did not confirm the end of the session; it will expire")

    async def perform(
        self,
        send: Send,
        landed: Landed | None = None,
        check: Callable[[Any], object] | None = None,
    ) -> Any:
        """Send a request until it is answered; kazoo's errors, and SessionEndedError.

        A write whose connection broke may have been done. If it is then refused, `landed` returns
        its answer, or None if it was not done. `check` raises for an answer that is a refusal.
        """
        # Before waiting: a call that was meant for a session is not made in another one.
        generation = self._generation
        await self._connected.wait()
        for attempt in range(MAX_ATTEMPTS):
            try:
                async with self._slots:
                    self._require_session(generation)
                    answer = await self._request(send)
                if check is not None:
                    check(answer)
            except kazoo_errors.ConnectionLoss:
                continue
            except kazoo_errors.SessionExpiredError:
                self._require_open()
                raise self._session_ended() from None
            except (kazoo_errors.ZookeeperError, PartRefusedError):
                self._require_session(generation)
                answer = await landed() if attempt and landed is not None else None
                if answer is None:
                    raise
            self._require_session(generation)
            return answer
        raise RegistryFailedError(f"{MAX_ATTEMPTS} connections to ZooKeeper broke, one by one")

    def submit(self, send: Send, on_answer: Callable[[Any, BaseException | None], object]) -> None:
        """Send a request at once, before all that are sent later; its answer or its error."""
        if self._is_open:
            send(self._client).rawlink(partial(self._answer_thread, on_answer))

    def post_thread(self, callback: Callable[..., object], *arguments: object) -> None:
        """Have the loop call `callback`; for the threads of kazoo."""
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop has ended, and with it all listeners
            logger.debug("ZooKeeper's word came after the loop was closed")

    async def _request(self, send: Send) -> Any:
        future: asyncio.Future[Any] = self._loop.create_future()

        def answer(value: Any, error: BaseException | None) -> None:
            if future.done():  # the caller was cancelled, or the session closed
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)

        self._waiting.add(future)
        clock = self.runtime.clock
        began_ms = clock.monotonic_ms()
        try:
            self.submit(send, answer)
            answered = await future
            if self.on_latency is not None:
                self.on_latency(clock.monotonic_ms() - began_ms)
            return answered
        finally:
            self._waiting.discard(future)

    def _require_open(self) -> None:
        if not self._is_open:
            raise RegistryFailedError("the connection to ZooKeeper is closed")

    def _require_session(self, generation: int) -> None:
        self._require_open()
        if generation != self._generation:
            raise self._session_ended()

    def _session_ended(self) -> SessionEndedError:
        if self._is_refused:
            return SessionEndedError(REFUSED)
        return SessionEndedError(
            "the session at ZooKeeper ended before the answer came: it is not known what was done"
        )

    def _answer_thread(
        self, on_answer: Callable[[Any, BaseException | None], object], result: Any
    ) -> None:
        self.post_thread(on_answer, result.value, result.exception)

    def _stop_thread(self, stopped: asyncio.Future[None]) -> None:
        try:
            self._client.stop()
            self._client.close()
        finally:
            self.post_thread(_finish, stopped)

    def _on_state_thread(self, state: str) -> None:
        if state == KazooState.LOST:
            self._generation += 1
            self._is_refused = self._client.client_state == KeeperState.AUTH_FAILED
        self.post_thread(self._apply_state, state, self._client.client_state)

    def _apply_state(self, state: str, client_state: str) -> None:
        """Follow the state of the connection on the loop, and report it to the registry."""
        if not self._is_open:
            return
        if state == KazooState.CONNECTED:
            before, self._has_ended = self._has_ended, False
            self._connected.set()
            self._on_connected()
            if not self._is_first:
                self._tell(SessionState.RENEWED if before else SessionState.RESUMED)
            self._is_first = False
            return
        self._connected.clear()
        if state == KazooState.LOST:
            self._has_ended = True
            self._tell(SessionState.EXPIRED)
            if client_state != KeeperState.EXPIRED_SESSION:
                logger.error(
                    "the connection to ZooKeeper ended (%s): connecting again", client_state
                )
                self.runtime.scheduler.call_later(RESTART_DELAY_MS, self._restart)
        else:
            self._tell(SessionState.SUSPENDED)

    def _tell(self, state: SessionState) -> None:
        logger.info("The session at ZooKeeper is %s", state.value)
        self._on_state(state)

    def _restart(self) -> None:
        """Start kazoo again: it recovers from many failures, but not from a failed log-in."""
        if self._is_open:
            self._client.handler.spawn(self._client.start_async)


def _finish(stopped: asyncio.Future[None]) -> None:
    if not stopped.done():
        stopped.set_result(None)
