"""What the network layer is told by the broker's configuration."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

NO_LIMIT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """Kafka's keys for sockets, under Kafka's names and defaults.

    The limits of one turn of the processor are not Kafka's: they bound how long everything else
    on the loop has to wait. So does the limit of a TLS handshake.
    """

    socket_request_max_bytes: int = 100 * 1024 * 1024
    socket_send_buffer_bytes: int = 102_400
    socket_receive_buffer_bytes: int = 102_400
    socket_listen_backlog_size: int = NO_LIMIT
    """NO_LIMIT leaves it to the operating system, which cuts it to its own limit."""

    max_connections: int = NO_LIMIT
    max_connections_per_ip: int = NO_LIMIT
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    connections_max_idle_ms: int = 600_000
    inter_broker_listener_name: str | None = None
    tls_contexts: Mapping[str, ssl.SSLContext] = field(default_factory=dict)
    """By listener; those without are plain."""

    tls_handshake_timeout_ms: int = 10_000
    turn_max_accepts: int = 512
    turn_max_requests: int = 512
    turn_max_send_bytes_per_connection: int = 1024 * 1024
