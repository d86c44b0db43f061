"""The registry on a real ZooKeeper ensemble, at Kafka's paths below the chroot.

Its session is held through kazoo and used from one asyncio loop. kazoo has threads of its own. What
runs in them are the methods whose names end in `_thread`: they hand a value over to the loop, and
count the sessions, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from ottla.config.broker_config import BrokerConfig
from ottla.config.config_type import Password
from ottla.config.zookeeper_config import parse_connect
from ottla.errors import ConfigError, ErrorCode, KafkaError, KafkaTimeoutError
from ottla.registry.tree import (
    ANY_VERSION,
    BadVersionError,
    CallbackWatch,
    Check,
    Create,
    Delete,
    EphemeralParentError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    RegistryError,
    RegistryFailedError,
    SessionEndedError,
    SessionState,
    Set,
    Stat,
    Watch,
    WatchKind,
    split_path,
)
from ottla.runtime import Runtime
from ottla.runtime.scheduler import within

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
"""With ACLs, not every client may read these nodes: they hold secrets."""
OPEN_PATHS: Final = ("/consumers",)
"""Consumers of the old kind write here, and they are no brokers."""


TlsContext = Callable[[], ssl.SSLContext]
"""What a connection that is made now is encrypted with; called by kazoo's thread."""


class ZooKeeperSettings(NamedTuple):
    """What a session needs to know of the broker's settings; the chroot is "" for none."""

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
        """Who may do what to a node that is created at this path (below the chroot)."""
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
    """kazoo's threads; what they connect to is encrypted as Kafka's settings say.

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
        """End the session. If no server is there to be told, it will expire."""
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

        A write whose connection broke may have been done. If it is then refused, `landed` says
        what its answer was, or None if it was not done. `check` raises for an answer that is a
        refusal.
        """
        # Before waiting: what was meant for a session is not done in another one.
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
        except RuntimeError:  # the loop has ended, and with it all that could be told
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
        """On the loop: follow the state of the connection, and tell the registry of it."""
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
        """Start kazoo again: it recovers from what it foresees, but not from a failed log-in."""
        if self._is_open:
            self._client.handler.spawn(self._client.start_async)


def _finish(stopped: asyncio.Future[None]) -> None:
    if not stopped.done():
        stopped.set_result(None)


# Watches that last: ZooKeeper's own tell of one change and are gone.


class NodeWatch:
    """One node that is watched, for as many callbacks as want it.

    The server's watch is armed again first, and only then are the callbacks called: what they
    read is newer than the last change that nobody would have told them of. After the connection
    broke, the node is compared with what it was, and the callbacks are called if it has changed.
    """

    def __init__(self, session: ZooKeeperSession, path: str, kind: WatchKind) -> None:
        self.session = session
        self.path = path
        self.kind = kind
        self.callbacks: list[Callable[[], object]] = []
        self._is_known = False
        self._seen: tuple[int, int] | None = None
        self._has_news = False
        self._is_missing = False

    def arm(self) -> None:
        """Ask the server to tell of the next change; harmless if it was asked already."""
        self.session.submit(self._send, self._on_armed)

    def _send(self, client: KazooClient) -> Any:
        # Children of a node that is not there cannot be watched, but its creation can.
        if self.kind is WatchKind.DATA or self._is_missing:
            return client.exists_async(self.path, watch=self._on_event_thread)
        return client.get_children_async(self.path, watch=self._on_event_thread, include_data=True)

    def _on_armed(self, answer: Any, error: BaseException | None) -> None:
        if isinstance(error, kazoo_errors.NoNodeError):
            self._is_missing = True
            self.arm()
        elif isinstance(error, kazoo_errors.ConnectionLoss | kazoo_errors.SessionExpiredError):
            # It is armed again when there is a connection. A caller that has read meanwhile,
            # without a watch, may have missed a change.
            self._has_news = self._has_news or not self._is_known
        elif error is not None:
            reason = "its ACL" if isinstance(error, kazoo_errors.NoAuthError) else repr(error)
            logger.error("%s cannot be watched in ZooKeeper: %s", self.path, reason)
        elif self.kind is WatchKind.CHILDREN and self._is_missing and answer is not None:
            self._is_missing = False
            self.arm()
        else:
            self._compare(answer)

    def _compare(self, answer: Any) -> None:
        seen = self._fingerprint(answer)
        must_call = self._has_news or (self._is_known and seen != self._seen)
        self._seen, self._is_known, self._has_news = seen, True, False
        if must_call:
            for callback in tuple(self.callbacks):
                self.session.runtime.scheduler.call_soon(callback)

    def _fingerprint(self, answer: Any) -> tuple[int, int] | None:
        """What differs after every change; None where there is no node."""
        if answer is None:
            return None
        if self.kind is WatchKind.DATA:
            stat: ZnodeStat = answer
            return stat.czxid, stat.mzxid
        _, stat = answer
        return stat.czxid, stat.pzxid

    def _on_event_thread(self, event: WatchedEvent) -> None:
        if event.type != EventType.NONE:  # the connection broke: connecting again will arm it
            self.session.post_thread(self._on_event)

    def _on_event(self) -> None:
        if self.callbacks:
            self._has_news = True
            self._is_missing = False
            self.arm()


class NodeWatches:
    """All watches of a registry, one for each node and kind."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self.session = session
        self._watches: dict[tuple[str, WatchKind], NodeWatch] = {}

    def add(self, path: str, kind: WatchKind, callback: Callable[[], object]) -> _Subscription:
        """Call back from now on: what is read after this is watched."""
        watch = self._watches.get((path, kind))
        if watch is None:
            watch = self._watches[path, kind] = NodeWatch(self.session, path, kind)
            watch.arm()
        watch.callbacks.append(callback)
        return _Subscription(self, watch, callback)

    def remove(self, watch: NodeWatch, callback: Callable[[], object]) -> None:
        watch.callbacks.remove(callback)
        if not watch.callbacks:
            del self._watches[watch.path, watch.kind]

    def arm_all(self) -> None:
        """The connection is a new one, on which nothing is armed."""
        for watch in self._watches.values():
            watch.arm()


class _Subscription:
    """One callback of a watch."""

    __slots__ = ("_callback", "_is_active", "_watch", "_watches")

    def __init__(
        self, watches: NodeWatches, watch: NodeWatch, callback: Callable[[], object]
    ) -> None:
        self._watches = watches
        self._watch = watch
        self._callback = callback
        self._is_active = True

    def cancel(self) -> None:
        if self._is_active:
            self._is_active = False
            self._watches.remove(self._watch, self._callback)


MAX_PACKET_BYTES: Final = 0xFFFFF
"""jute.maxbuffer: a server closes the connection on which a larger request comes."""
ROOM_FOR_HEADERS: Final = 512

_REFUSALS: Final = {
    kazoo_errors.NoNodeError: (NoNodeError, "there is no node {}, or not the one above it"),
    kazoo_errors.NodeExistsError: (NodeExistsError, "there is a node {} already"),
    kazoo_errors.BadVersionError: (BadVersionError, "{} was written since it was read"),
    kazoo_errors.NotEmptyError: (NotEmptyError, "{} has children"),
    kazoo_errors.NoChildrenForEphemeralsError: (
        EphemeralParentError,
        "{} cannot be created: the node above it is ephemeral",
    ),
    kazoo_errors.NoAuthError: (
        RegistryError,
        "{}: ZooKeeper's ACLs do not permit it to the user of zookeeper.digest.username",
    ),
}


_NOT_TO_BLAME: Final = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)
"""What a `multi` says of the parts before and after the one that was refused."""


class ZooKeeperRegistry:
    """The tree of an ensemble, seen from the chroot.

    While no server answers, operations wait; they fail when the session has ended. A write whose
    connection broke is repeated, and if the repetition is refused, the tree is asked whether the
    first one was done.
    """

    def __init__(self, runtime: Runtime, settings: ZooKeeperSettings) -> None:
        self.runtime = runtime
        self.settings = settings
        self._session_watches: list[CallbackWatch] = []
        self.session = ZooKeeperSession(runtime, settings, self._on_connected, self._on_state)
        self._watches = NodeWatches(self.session)

    async def start(self) -> None:
        """Connect, and make the nodes of the chroot where they are missing."""
        await self.session.open()
        try:
            await self._make_chroot()
        except BaseException:
            await self.close()
            raise

    async def _make_chroot(self) -> None:
        names = self.settings.chroot.split("/")[1:]
        acl = self.settings.acl("/")
        for depth in range(1, len(names) + 1):
            path = "/" + "/".join(names[:depth])
            try:
                # Asked first, because who may not create a node is not told that it is there.
                if await self.session.perform(_sends_exists(path)) is None:
                    await self.session.perform(_sends_create(path, b"", acl))
            except kazoo_errors.NodeExistsError:
                pass  # another broker was faster
            except kazoo_errors.ZookeeperError as error:
                raise _refusal(error, path) from None

    async def close(self) -> None:
        await self.session.close()

    async def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        full_path, acl = self._full_path(path), self.settings.acl(path)
        send = _sends_create(full_path, data, acl, ephemeral=ephemeral, sequence=sequential)
        operation = Create(path, data, ephemeral)

        async def landed() -> str | None:
            return full_path if await self._is_as_after(operation) else None

        # Nobody knows which number the first one got.
        created = await self._write([operation], send, None if sequential else landed)
        return str(created).removeprefix(self.settings.chroot)

    async def get(self, path: str) -> tuple[bytes, Stat]:
        data, stat = await self._get(path)
        return data, self._stat(stat)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        full_path = self._full_path(path)
        operation = Set(path, data, version)

        async def landed() -> ZnodeStat | None:
            return (await self._get(path))[1] if await self._is_as_after(operation) else None

        stat = await self._write(
            [operation], lambda client: client.set_async(full_path, data, version), landed
        )
        return self._stat(stat)

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        split_path(path)
        full_path = self._full_path(path)
        operation = Delete(path, version)

        async def landed() -> bool | None:
            return await self._is_as_after(operation) or None

        await self._write(
            [operation], lambda client: client.delete_async(full_path, version), landed
        )

    async def exists(self, path: str) -> Stat | None:
        stat = await self._read(path, _sends_exists(self._full_path(path)))
        return None if stat is None else self._stat(stat)

    async def children(self, path: str) -> list[str]:
        full_path = self._full_path(path)
        return sorted(await self._read(path, lambda client: client.get_children_async(full_path)))

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        parts = [(operation, self._full_path(operation.path)) for operation in operations]

        def send(client: KazooClient) -> Any:
            transaction = client.transaction()
            for operation, full_path in parts:
                self._add_to(transaction, operation, full_path)
            return transaction.commit_async()

        def check(answers: list[Any]) -> None:
            for (operation, _), answer in zip(parts, answers, strict=True):
                if isinstance(answer, Exception) and not isinstance(answer, _NOT_TO_BLAME):
                    raise PartRefusedError(operation.path, answer)

        async def landed() -> list[Any] | None:
            states = [await self._is_as_after(operation) for operation in operations]
            if not all(states):
                return None
            return [await self._stat_if_set(operation) for operation in operations]

        if not parts:
            return []
        answers = await self._write(operations, send, landed, check)
        return [self._stat(answer) if isinstance(answer, ZnodeStat) else None for answer in answers]

    def watch_data(self, path: str, callback: Callable[[], object]) -> Watch:
        return self._watches.add(self._full_path(path), WatchKind.DATA, callback)

    def watch_children(self, path: str, callback: Callable[[], object]) -> Watch:
        return self._watches.add(self._full_path(path), WatchKind.CHILDREN, callback)

    def watch_session(self, callback: Callable[[SessionState], object]) -> Watch:
        return CallbackWatch(self._session_watches, callback)

    def _on_connected(self) -> None:
        self._watches.arm_all()

    def _on_state(self, state: SessionState) -> None:
        for watch in tuple(self._session_watches):
            watch.callback(state)

    def _full_path(self, path: str) -> str:
        if path == "/":
            return self.settings.chroot or "/"
        split_path(path)
        return self.settings.chroot + path

    async def _get(self, path: str) -> tuple[bytes, ZnodeStat]:
        full_path = self._full_path(path)
        data, stat = await self._read(path, lambda client: client.get_async(full_path))
        return data or b"", stat

    async def _read(self, path: str, send: Send) -> Any:
        try:
            return await self.session.perform(send)
        except kazoo_errors.ZookeeperError as error:
            raise _refusal(error, path) from None

    async def _write(
        self,
        operations: Sequence[Operation],
        send: Send,
        landed: Landed | None,
        check: Callable[[Any], object] | None = None,
    ) -> Any:
        _check_size(operations)
        try:
            return await self.session.perform(send, landed, check)
        except (kazoo_errors.ZookeeperError, PartRefusedError) as error:
            raise _refusal(error, operations[0].path) from None

    def _add_to(self, transaction: Any, operation: Operation, full_path: str) -> None:
        if isinstance(operation, Create):
            acl = self.settings.acl(operation.path)
            transaction.create(full_path, operation.data, acl, operation.ephemeral)
            if not operation.data:  # kazoo takes "none" only outside of transactions
                transaction.operations[-1] = transaction.operations[-1]._replace(data=None)
        elif isinstance(operation, Set):
            transaction.set_data(full_path, operation.data, operation.version)
        elif isinstance(operation, Delete):
            transaction.delete(full_path, operation.version)
        else:
            transaction.check(full_path, operation.version)

    async def _is_as_after(self, operation: Operation) -> bool:
        """Whether the tree is as the operation leaves it: then an earlier sending has done it."""
        try:
            data, stat = await self._get(operation.path)
        except NoNodeError:
            return isinstance(operation, Delete)
        if isinstance(operation, Create):
            owner = self.session.session_id if operation.ephemeral else 0
            return bool(data == operation.data and stat.ephemeralOwner == owner)
        if isinstance(operation, Set):
            is_next = operation.version in (ANY_VERSION, stat.version - 1)
            return data == operation.data and is_next
        return isinstance(operation, Check)  # its version may be what a set beside it has raised

    def _stat(self, stat: ZnodeStat) -> Stat:
        return Stat(
            stat.version,
            stat.cversion,
            stat.czxid,
            stat.mzxid,
            stat.ctime,
            stat.mtime,
            stat.ephemeralOwner != 0,
            stat.dataLength,
            stat.numChildren,
            is_own=stat.ephemeralOwner not in (0, None)
            and stat.ephemeralOwner == self.session.session_id,
        )

    async def _stat_if_set(self, operation: Operation) -> ZnodeStat | None:
        return (await self._get(operation.path))[1] if isinstance(operation, Set) else None


def _sends_create(full_path: str, data: bytes, acl: Any, **kind: bool) -> Send:
    """Nodes that are only places have no data at all, not empty ones, as Kafka makes them."""
    return lambda client: client.create_async(full_path, data or None, acl, **kind)


def _sends_exists(full_path: str) -> Send:
    return lambda client: client.exists_async(full_path)


def _check_size(operations: Sequence[Operation]) -> None:
    size = sum(
        len(operation.path) + len(getattr(operation, "data", b"")) + ROOM_FOR_HEADERS
        for operation in operations
    )
    if size > MAX_PACKET_BYTES:
        raise RegistryError(
            f"{operations[0].path}: {size} bytes are more than ZooKeeper takes at once "
            f"({MAX_PACKET_BYTES})"
        )


def _refusal(error: Exception, path: str) -> RegistryError:
    """What the server answered, as the registry's error."""
    if isinstance(error, PartRefusedError):
        return _refusal(error.reason, error.path)
    for kind, (refusal, text) in _REFUSALS.items():
        if isinstance(error, kind):
            return refusal(text.format(path))
    return RegistryError(f"{path}: ZooKeeper answered {type(error).__name__}")
