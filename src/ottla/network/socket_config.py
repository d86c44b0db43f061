"""The broker's listeners as settings of the network layer: limits, certificates and logins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ottla.config.broker_config import BrokerConfig
from ottla.network.broker_tls import BrokerTls
from ottla.network.descriptors import max_open_files
from ottla.network.listener_security import BrokerLogins
from ottla.runtime import Clock
from ottla.runtime.network import USE_SYSTEM_DEFAULT
from ottla.structs import Value, field

if TYPE_CHECKING:
    from ottla.network.tls_context import ListenerTls
    from ottla.security.sasl import SaslAuthenticator, SaslListener

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
    """The limits of listeners that have their own."""

    max_descriptors: int = NO_LIMIT
    """How many descriptors the process may have, for connections and files together."""

    quota_window_num: int = 11
    quota_window_size_seconds: int = 1
    connections_max_idle_ms: int = 600_000
    inter_broker_listener_name: str | None = None
    tls: Mapping[str, ListenerTls] = field(default_factory=dict)
    """The certificates of listeners; those without are plain."""
    sasl: Mapping[str, SaslListener] = field(default_factory=dict)
    """The logins of listeners; clients of the others need not log in."""

    tls_handshake_timeout_ms: int = 10_000
    turn_max_accepts: int = 512
    turn_max_requests: int = 512
    turn_max_send_bytes_per_connection: int = 1024 * 1024

    def authenticator(self, listener_name: str, clock: Clock) -> SaslAuthenticator | None:
        """The judge of a new client's frames; None where the listener asks for no login."""
        listener = self.sasl.get(listener_name)
        return None if listener is None else listener.authenticator(clock)

    def max_frame_bytes(self, authenticator: SaslAuthenticator | None) -> int:
        """The largest frame of a new client: one that must log in may send less before."""
        if authenticator is None:
            return self.socket_request_max_bytes
        return authenticator.listener.max_receive_bytes


def network_config(config: BrokerConfig, tls: BrokerTls, logins: BrokerLogins) -> SocketConfig:
    """The broker's settings that concern the network layer."""
    return SocketConfig(
        socket_request_max_bytes=config.socket_request_max_bytes,
        socket_send_buffer_bytes=config.socket_send_buffer_bytes,
        socket_receive_buffer_bytes=config.socket_receive_buffer_bytes,
        socket_listen_backlog_size=config.socket_listen_backlog_size or NO_LIMIT,
        **connection_limits(config),
        max_descriptors=max_open_files(),
        quota_window_num=config.quota_window_num,
        quota_window_size_seconds=config.quota_window_size_seconds,
        connections_max_idle_ms=config.connections_max_idle_ms,
        inter_broker_listener_name=config.inter_broker_listener_name,
        tls=tls.listeners,
        sasl=logins.listeners,
    )


def connection_limits(config: BrokerConfig) -> dict[str, Any]:
    """The limits that can change while the broker runs, by their names in SocketConfig."""
    return {
        "max_connections": config.max_connections,
        "max_connection_creation_rate": config.max_connection_creation_rate,
        "connection_creation_rates": config.connection_creation_rates,
        "max_connections_per_ip": config.max_connections_per_ip,
        "max_connections_per_ip_overrides": config.max_connections_per_ip_overrides,
    }
