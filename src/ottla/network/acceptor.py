"""Listeners, and which clients are accepted.

`max.connections` counts all listeners together: when it is reached, no client is accepted until
another leaves, except on the listener of the brokers, where the client that was quiet for
longest makes room (KIP-402). `max.connections.per.ip` is checked after accepting: one too many is
closed at once. How fast clients may come is limited as well (`ConnectionRates`).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.config.broker_config import BrokerConfig
from ottla.config.sasl_config import OAUTHBEARER, SaslSettings, users_of
from ottla.errors import ConfigError
from ottla.network.client_quotas import Rate
from ottla.network.connection import Connection
from ottla.network.tls_context import BrokerTls, ListenerTls
from ottla.network.transport import TlsSide, TlsTransport, Transport
from ottla.runtime import Clock, Runtime, Timer
from ottla.runtime.network import AUTO, READABLE, USE_SYSTEM_DEFAULT, WRITABLE, Poller
from ottla.security.principal import KafkaPrincipal, NoMatchingRuleError
from ottla.structs import Value, field

if TYPE_CHECKING:
    from ottla.security.sasl import SaslAuthenticator, SaslListener, SaslServer
    from ottla.security.scram import FindToken

logger = logging.getLogger(__name__)


# What the network layer is told by the broker's configuration.


NO_LIMIT = 2**31 - 1


class SocketConfig(Value, frozen=True):
    """Kafka's keys for sockets, under Kafka's names and defaults.

    The limits of one turn of the processor are not Kafka's: they bound how long everything else
    on the loop has to wait. So does the limit of a TLS handshake.
    """

    socket_request_max_bytes: int = 100 * 1024 * 1024
    socket_send_buffer_bytes: int = USE_SYSTEM_DEFAULT
    socket_receive_buffer_bytes: int = 102_400
    socket_listen_backlog_size: int = NO_LIMIT
    """NO_LIMIT leaves it to the operating system, which cuts it to its own limit."""

    max_connections: int = NO_LIMIT
    max_connections_per_ip: int = NO_LIMIT
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    max_connection_creation_rate: int = NO_LIMIT
    connection_creation_rates: Mapping[str, int] = field(default_factory=dict)
    """By listener; those without have none of their own."""

    quota_window_num: int = 11
    quota_window_size_seconds: int = 1
    connections_max_idle_ms: int = 600_000
    inter_broker_listener_name: str | None = None
    tls: Mapping[str, ListenerTls] = field(default_factory=dict)
    """By listener; those without are plain."""
    sasl: Mapping[str, SaslListener] = field(default_factory=dict)
    """By listener; clients of the others need not log in."""

    poller: str = AUTO
    """One of `ottla.runtime.network.POLLERS`, or AUTO for the best that the system has."""

    tls_handshake_timeout_ms: int = 10_000
    turn_max_accepts: int = 512
    turn_max_requests: int = 512
    turn_max_send_bytes_per_connection: int = 1024 * 1024

    def authenticator(self, listener_name: str, clock: Clock) -> SaslAuthenticator | None:
        """What judges the frames of a new client; None where the listener asks for no login."""
        listener = self.sasl.get(listener_name)
        if listener is None:
            return None
        from ottla.security.sasl import SaslAuthenticator

        return SaslAuthenticator(listener, clock)

    def max_frame_bytes(self, authenticator: SaslAuthenticator | None) -> int:
        """The largest frame of a new client: one that must log in may send less before."""
        if authenticator is None:
            return self.socket_request_max_bytes
        return authenticator.listener.max_receive_bytes


# No descriptors or memory at present: waiting helps, trying at once does not.
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
EXHAUSTED_PAUSE_MS = 100
MAX_IDLE_RATES: Final = 1024
MAX_REFUSED: Final = 1024
"""So many clients are kept waiting before they are closed; more are closed at once."""
MAPPED_IPV4 = "::ffff:"


class Listener(Value, frozen=True):
    """A named place where clients connect; `port` is the real one if 0 was asked for."""

    name: str
    host: str
    port: int


class ConnectionRates:
    """How many connections a second come in: on all listeners, on each, and from each address.

    Who is above the limit of an address is closed after a while, which keeps it from asking again
    at once; above the other limits a listener waits before it accepts the next client (KIP-612).
    A wait is one window at most.
    """

    def __init__(self, clock: Clock, config: SocketConfig) -> None:
        self._clock = clock
        self._window_ms = config.quota_window_size_seconds * 1000
        self._new_rate = partial(Rate, config.quota_window_num, self._window_ms)
        self._of_listeners: dict[str | None, Rate] = {}
        """None has those of all listeners together."""
        self._of_ips: dict[str, Rate] = {}
        self._ip_limits: dict[str, float] = {}
        self._sweep_at = MAX_IDLE_RATES

    def limit_ip(self, ip: str, limit: float | None) -> None:
        """Set the limit of an address, or "" for all without one of their own; None removes it."""
        if limit is None:
            self._ip_limits.pop(ip, None)
        else:
            self._ip_limits[ip] = limit

    def refuses_ip(self, ip: str) -> int:
        """Note a connection; returns after how many ms to close it, 0 if the limit admits it."""
        limit = self._ip_limits.get(ip, self._ip_limits.get("")) if self._ip_limits else None
        if limit is None:
            return 0
        now_ms = self._clock.monotonic_ms()
        if len(self._of_ips) >= self._sweep_at:
            self._of_ips = {k: v for k, v in self._of_ips.items() if not v.is_idle(0, now_ms)}
            self._sweep_at = max(MAX_IDLE_RATES, 2 * len(self._of_ips))
        rate = self._of_ips.setdefault(ip, self._new_rate())
        wait_ms = self._record(rate, limit, now_ms)
        if wait_ms:
            rate.record(-1, limit, now_ms)  # those that are refused do not count
        return wait_ms

    def pause_ms(self, limits: Mapping[str | None, int]) -> int:
        """Note a connection; returns how long its listener must wait with the next one.

        `limits` are those that hold for it: of its listener and, under None, of all listeners.
        """
        now_ms = self._clock.monotonic_ms()
        pause_ms = 0
        for name, limit in limits.items():
            rate = self._of_listeners.setdefault(name, self._new_rate())
            pause_ms = max(pause_ms, self._record(rate, limit, now_ms))
        return pause_ms

    def _record(self, rate: Rate, limit: float, now_ms: int) -> int:
        rate.record(1, limit, now_ms)
        return min(self._window_ms, rate.delay_ms(limit, now_ms))


class Acceptor:
    """All listening sockets of a broker, in its poller while clients can be accepted."""

    def __init__(
        self,
        runtime: Runtime,
        config: SocketConfig,
        poller: Poller,
        admit: Callable[[socket.socket, Listener, tuple[str, int]], object],
        quietest: Callable[[Listener], Connection | None],
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._poller = poller
        self._admit = admit
        self._quietest = quietest
        self._sockets: dict[int, tuple[socket.socket, Listener]] = {}
        self._watched: set[int] = set()
        self._count = 0
        self._count_by_ip: Counter[str] = Counter()
        self._is_accepting = False
        self._is_exhausted = False
        self.rates = ConnectionRates(runtime.clock, config)
        self._pausing: set[str] = set()
        self._refused: dict[socket.socket, Timer] = {}

    @property
    def listeners(self) -> list[Listener]:
        return list(dict.fromkeys(listener for _, listener in self._sockets.values()))

    @property
    def watched(self) -> Iterable[int]:
        """The listening sockets on which clients can be accepted now."""
        return self._watched

    def listen(self, name: str, host: str, port: int) -> Listener:
        """Open the sockets of a listener; clients wait in the backlog until `start`."""
        sockets = self._runtime.network.listen(
            host,
            port,
            backlog=self._config.socket_listen_backlog_size,
            receive_buffer_bytes=self._config.socket_receive_buffer_bytes,
        )
        listener = Listener(name, host, int(sockets[0].getsockname()[1]))
        for endpoint in sockets:
            self._sockets[endpoint.fileno()] = (endpoint, listener)
        self._watch()
        return listener

    def stop_listening(self, name: str) -> None:
        """Close the sockets of a listener, and with them the clients in its backlog."""
        for fd, (endpoint, listener) in list(self._sockets.items()):
            if listener.name == name:
                if fd in self._watched:
                    self._poller.unregister(fd)
                    self._watched.discard(fd)
                del self._sockets[fd]
                _refuse_from_now_on(endpoint)

    def update_config(self, config: SocketConfig) -> None:
        """Follow changed limits; clients that are connected stay."""
        self._config = config
        self._watch()

    def start(self) -> None:
        self._is_accepting = True
        self._watch()

    def close(self) -> None:
        """Stop listening; the kernel refuses clients that wait in the backlog."""
        self._is_accepting = False
        self._watch()
        for endpoint, _ in self._sockets.values():
            _refuse_from_now_on(endpoint)
        self._sockets.clear()
        for client in list(self._refused):
            self._end_refused(client)

    def accept(self, fd: int) -> None:
        """Accept from a listening socket that is ready, a bounded number of clients."""
        endpoint, listener = self._sockets[fd]
        for _ in range(self._config.turn_max_accepts):
            leaver = None
            if self._is_full():
                leaver = self._replaceable_by(listener)
                if leaver is None:
                    self._watch()
                    return
            try:
                client, address = endpoint.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in EXHAUSTED:
                    self._pause(listener, error)
                    return
                continue  # this client has gone already; the next one may be there
            if not address:  # so has this one, as macOS tells it
                client.close()
                continue
            if leaver is not None:
                leaver.close("max.connections is reached and a broker wants to connect")
            self._let_in(client, listener, (address[0].removeprefix(MAPPED_IPV4), address[1]))
            if listener.name in self._pausing:
                return

    def left(self, client_host: str) -> None:
        """A client has gone, so that another one can be accepted."""
        self._count -= 1
        self._count_by_ip[client_host] -= 1
        if not self._count_by_ip[client_host]:
            del self._count_by_ip[client_host]
        if len(self._watched) < len(self._sockets):
            self._watch()

    def _let_in(self, client: socket.socket, listener: Listener, address: tuple[str, int]) -> None:
        host = address[0]
        wait_ms = self.rates.refuses_ip(host)
        if wait_ms:
            self._refuse(client, host, wait_ms)
            return
        self._note_rate(listener)
        limit = self._config.max_connections_per_ip_overrides.get(
            host, self._config.max_connections_per_ip
        )
        if self._count_by_ip[host] >= limit:
            client.close()
            logger.info(
                "Closed a connection of %s: it has %d (max.connections.per.ip)", host, limit
            )
            return
        self._count += 1
        self._count_by_ip[host] += 1
        self._admit(client, listener, address)

    def _note_rate(self, listener: Listener) -> None:
        """Have a listener wait whose clients come too fast."""
        config = self._config
        limits: dict[str | None, int] = {}
        if listener.name in config.connection_creation_rates:
            limits[listener.name] = config.connection_creation_rates[listener.name]
        is_protected = listener.name == config.inter_broker_listener_name
        if config.max_connection_creation_rate < NO_LIMIT and not (
            is_protected and len(self.listeners) > 1
        ):
            limits[None] = config.max_connection_creation_rate
        pause_ms = self.rates.pause_ms(limits)
        if pause_ms:
            self._pausing.add(listener.name)
            self._watch()
            end = partial(self._end_pause, listener.name)
            self._runtime.scheduler.call_later(pause_ms, end)

    def _end_pause(self, listener_name: str) -> None:
        self._pausing.discard(listener_name)
        self._watch()

    def _refuse(self, client: socket.socket, host: str, wait_ms: int) -> None:
        """Close a client later, so that it does not come again at once."""
        logger.debug(
            "Refused a connection of %s for %d ms: connection_creation_rate", host, wait_ms
        )
        if len(self._refused) >= MAX_REFUSED:
            client.close()
            return
        end = partial(self._end_refused, client)
        self._refused[client] = self._runtime.scheduler.call_later(wait_ms, end)

    def _end_refused(self, client: socket.socket) -> None:
        self._refused.pop(client).cancel()
        client.close()

    def _is_full(self) -> bool:
        return self._count >= self._config.max_connections

    def _replaceable_by(self, listener: Listener) -> Connection | None:
        if listener.name != self._config.inter_broker_listener_name:
            return None
        return self._quietest(listener)

    def _pause(self, listener: Listener, error: OSError) -> None:
        """Leave clients in the backlog for a moment; to ask again at once would only burn time."""
        logger.warning("Cannot accept on listener %s for now: %s", listener.name, error.strerror)
        self._is_exhausted = True
        self._watch()
        self._runtime.scheduler.call_later(EXHAUSTED_PAUSE_MS, self._resume)

    def _resume(self) -> None:
        self._is_exhausted = False
        self._watch()

    def _watch(self) -> None:
        """Have the poller watch exactly the sockets on which a client could be accepted now."""
        for fd, (_, listener) in self._sockets.items():
            wanted = self._is_accepting and not self._is_exhausted
            if listener.name in self._pausing:
                wanted = False
            if self._is_full() and self._replaceable_by(listener) is None:
                wanted = False
            if wanted and fd not in self._watched:
                self._poller.register(fd, READABLE)
                self._watched.add(fd)
            elif not wanted and fd in self._watched:
                self._poller.unregister(fd)
                self._watched.discard(fd)


# Clients whose TLS handshake is under way: they are not connections yet.
#
# Nobody waits for them. A step is taken when bytes have come, a bounded number of them in a turn,
# for the signature of one costs as much as hundreds of requests; a client that is not done in time
# is closed, however slowly it sends.


TURN_STEPS: Final = 16


OnAuthenticated = Callable[[Transport, KafkaPrincipal], object]
"""Takes over a client whose handshake is done, under the name of its certificate."""


class Handshake(Value):
    """One client, and what the poller watches for."""

    transport: TlsTransport
    tls: ListenerTls
    listener: Listener
    client: tuple[str, int]
    on_done: OnAuthenticated
    timer: Timer
    interest: int = READABLE


class Handshakes:
    """All handshakes of a processor; `on_gone` is called for those that did not finish.

    A connection whose handshake is done stays registered with the poller, for reading.
    """

    def __init__(
        self,
        runtime: Runtime,
        poller: Poller,
        timeout_ms: int,
        on_gone: Callable[[str], object],
    ) -> None:
        self.side = TlsSide()
        self._scheduler = runtime.scheduler
        self._poller = poller
        self._timeout_ms = timeout_ms
        self._on_gone = on_gone
        self._by_fd: dict[int, Handshake] = {}
        self._steps_left = TURN_STEPS

    def __len__(self) -> int:
        return len(self._by_fd)

    def __contains__(self, fd: int) -> bool:
        return fd in self._by_fd

    def begin(
        self,
        endpoint: socket.socket,
        tls: ListenerTls,
        listener: Listener,
        client: tuple[str, int],
        on_done: OnAuthenticated,
    ) -> None:
        """Await the first bytes of a client; when all is done, `on_done` takes it over.

        The poller watches for its bytes already.
        """
        transport = TlsTransport(endpoint, tls.context, self.side)
        fd = transport.fileno()
        expire = partial(self._end, fd, f"not done within {self._timeout_ms} ms")
        timer = self._scheduler.call_later(self._timeout_ms, expire)
        self._by_fd[fd] = Handshake(transport, tls, listener, client, on_done, timer)

    def begin_turn(self) -> None:
        self._steps_left = TURN_STEPS

    def step(self, fd: int) -> None:
        """Continue one that the poller has reported; not in this turn if its steps are used up."""
        if not self._steps_left:
            return
        self._steps_left -= 1
        handshake = self._by_fd[fd]
        try:
            is_done = handshake.transport.handshake()
        except ssl.SSLError as error:
            self._end(fd, error.reason or error.strerror or str(error))
            return
        except OSError as error:
            self._end(fd, error.strerror)
            return
        self._watch(fd, handshake)
        if is_done:
            self._authenticate(fd, handshake)

    def _authenticate(self, fd: int, handshake: Handshake) -> None:
        """Name the client after its certificate, and hand it over; close it without a name."""
        try:
            principal = handshake.tls.principal_of(handshake.transport.peer_certificate)
        except (NoMatchingRuleError, ValueError) as error:
            self._end(fd, error)
            return
        handshake.timer.cancel()
        del self._by_fd[fd]
        handshake.on_done(handshake.transport, principal)

    def close(self) -> None:
        """The processor stops."""
        for fd in list(self._by_fd):
            self._end(fd, "the broker is stopping")

    def close_listener(self, name: str) -> None:
        """A listener is no more."""
        for fd in [fd for fd, each in self._by_fd.items() if each.listener.name == name]:
            self._end(fd, "the listener was removed")

    def _watch(self, fd: int, handshake: Handshake) -> None:
        wanted = WRITABLE if handshake.transport.wants_to_send else READABLE
        if handshake.interest != wanted:
            handshake.interest = wanted
            self._poller.modify(fd, wanted)

    def _end(self, fd: int, why: object) -> None:
        handshake = self._by_fd.pop(fd)
        handshake.timer.cancel()
        self._poller.unregister(fd)
        handshake.transport.close()
        host, port = handshake.client
        logger.info(
            "TLS handshake of %s:%d on listener %s failed: %s",
            host,
            port,
            handshake.listener.name,
            why,
        )
        self._on_gone(host)


# The broker's listeners as settings of the network layer: limits, keys, trusted certificates.


EARLIEST_LOGIN: Final = 0.85
"""Clients log in again after this share of a session, at the earliest (KIP-368)."""


class UserSettings(NamedTuple):
    """What the registry has of users: among it, SCRAM credentials by mechanism."""

    of: Callable[[str], Mapping[str, str]]
    names: Callable[[], Iterable[str]]
    find_token: FindToken | None = None
    """The login of a delegation token; None where there are none."""


NO_USERS: Final = UserSettings(lambda name: {}, tuple)
"""As before any user is made: nobody can log in by SCRAM."""


def _refuse_from_now_on(endpoint: socket.socket) -> None:
    """Close a listening socket, also where another thread waits for it in poll(2).

    The kernel keeps a socket open until that call returns: until then it would let clients in whom
    nobody serves.
    """
    with contextlib.suppress(OSError):  # no system but Linux shuts down a socket that listens
        endpoint.shutdown(socket.SHUT_RDWR)
    endpoint.close()


def network_config(
    config: BrokerConfig,
    tls: BrokerTls,
    user_settings: UserSettings = NO_USERS,
) -> SocketConfig:
    """What the network layer needs to know of the broker's settings."""
    sasl = {name: sasl_listener(config, name, user_settings) for name in config.sasl_listeners}
    return SocketConfig(
        socket_request_max_bytes=config.socket_request_max_bytes,
        socket_send_buffer_bytes=config.socket_send_buffer_bytes,
        socket_receive_buffer_bytes=config.socket_receive_buffer_bytes,
        socket_listen_backlog_size=config.socket_listen_backlog_size or NO_LIMIT,
        **connection_limits(config),
        quota_window_num=config.quota_window_num,
        quota_window_size_seconds=config.quota_window_size_seconds,
        connections_max_idle_ms=config.connections_max_idle_ms,
        poller=config.ottla_network_poller,
        inter_broker_listener_name=config.inter_broker_listener_name,
        tls=tls.listeners,
        sasl=sasl,
    )


def sasl_listener(
    config: BrokerConfig,
    listener_name: str,
    user_settings: UserSettings,
) -> SaslListener:
    """The mechanisms of a SASL listener, made from its settings."""
    from ottla.security.sasl import MIN_REAUTHENTICATION_MS, SaslListener  # only where it is used

    settings = config.sasl_of(listener_name)
    factories: dict[str, Callable[[], SaslServer]] = {}
    on_start = []
    for each in settings.mechanisms:
        if each == OAUTHBEARER and settings.oauth is not None:
            from ottla.security.oauthbearer import ListenerTokens  # only where it is used

            entry = settings.entries.get(each)
            oauth = ListenerTokens(listener_name, settings.oauth, entry.options if entry else {})
            on_start.append(oauth.start)
            factories[each] = oauth.server
        else:
            factories[each] = _mechanism(each, settings, user_settings)
    for each, limit_ms in settings.max_reauth_ms.items():
        if 0 < limit_ms * EARLIEST_LOGIN < MIN_REAUTHENTICATION_MS:
            logger.warning(
                "connections.max.reauth.ms=%d (%s of listener %s) is too short: a client that logs "
                "in again within %d ms is refused, and one that does not is closed",
                limit_ms,
                each,
                listener_name,
                MIN_REAUTHENTICATION_MS,
            )
    return SaslListener(
        factories,
        settings.max_reauth_ms,
        config.sasl_server_max_receive_size,
        config.connection_failed_authentication_delay_ms,
        tuple(on_start),
    )


def _mechanism(
    name: str, settings: SaslSettings, user_settings: UserSettings
) -> Callable[[], SaslServer]:
    """What begins an exchange of a mechanism."""
    match name:
        case "PLAIN":
            from ottla.security.sasl import PlainServer

            return partial(PlainServer, users_of(settings.entries[name]))
        case "SCRAM-SHA-256" | "SCRAM-SHA-512":
            from ottla.security.scram import ScramServer, UserCredentials, no_tokens  # if used

            return partial(
                ScramServer,
                name,
                UserCredentials(name, user_settings.of, user_settings.names),
                find_token=user_settings.find_token or no_tokens,
            )
        case "GSSAPI":
            from ottla.security.kerberos import new_server  # only where it is used

            return new_server(
                "the sasl.jaas.config of GSSAPI",
                settings.entries[name].options,
                settings.kerberos_rules,
                settings.kerberos_service,
            )
    raise ConfigError(f"sasl.enabled.mechanisms={name}: there is no such mechanism")


def connection_limits(config: BrokerConfig) -> dict[str, Any]:
    """The limits that can change while the broker runs, by their names in NetworkConfig."""
    return {
        "max_connections": config.max_connections,
        "max_connection_creation_rate": config.max_connection_creation_rate,
        "connection_creation_rates": config.connection_creation_rates,
        "max_connections_per_ip": config.max_connections_per_ip,
        "max_connections_per_ip_overrides": config.max_connections_per_ip_overrides,
    }
