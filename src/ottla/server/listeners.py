"""The broker's listeners as settings of the network layer: limits, keys, trusted certificates.

Wing: attaches to `broker`, for several listeners; the core works without it.
"""

from __future__ import annotations

import ssl
from typing import Any

from ottla.config.broker_config import BrokerConfig
from ottla.errors import ConfigError
from ottla.network.acceptor import NO_LIMIT, SocketConfig
from ottla.network.tls_context import client_context, server_context
from ottla.structs import EndPoint


def network_config(config: BrokerConfig) -> SocketConfig:
    """What the network layer needs to know of the broker's settings."""
    return SocketConfig(
        socket_request_max_bytes=config.socket_request_max_bytes,
        socket_send_buffer_bytes=config.socket_send_buffer_bytes,
        socket_receive_buffer_bytes=config.socket_receive_buffer_bytes,
        socket_listen_backlog_size=config.socket_listen_backlog_size or NO_LIMIT,
        **connection_limits(config),
        connections_max_idle_ms=config.connections_max_idle_ms,
        inter_broker_listener_name=config.inter_broker_listener_name,
        tls_contexts={
            end_point.listener_name: _server_tls(config, end_point)
            for end_point in config.listeners
            if end_point.security_protocol == "SSL"
        },
    )


def connection_limits(config: BrokerConfig) -> dict[str, Any]:
    """The limits that can change while the broker runs, by their names in NetworkConfig."""
    return {
        "max_connections": config.max_connections,
        "max_connections_per_ip": config.max_connections_per_ip,
        "max_connections_per_ip_overrides": config.max_connections_per_ip_overrides,
    }


def inter_broker_tls(config: BrokerConfig) -> ssl.SSLContext | None:
    """What this broker connects to others with; None for plaintext.

    It presents the certificate of that listener, and trusts what the listener trusts.
    """
    name = config.inter_broker_listener_name
    if config.listener_security_protocol_map[name] != "SSL":
        return None
    return client_context(config.ssl_of(name))


def _server_tls(config: BrokerConfig, end_point: EndPoint) -> ssl.SSLContext:
    try:
        return server_context(config.ssl_of(end_point.listener_name))
    except ConfigError as error:
        raise ConfigError(f"listener {end_point}: {error.message}") from None
