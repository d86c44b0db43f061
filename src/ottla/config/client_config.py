"""The settings that every client has, and those of the admin client."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from ottla.config.config_def import HIGH, LOW, config_key
from ottla.config.config_type import INT, INT_MAX, LIST, LONG, STRING, at_least, one_of
from ottla.config.known_keys import ADMIN_UNUSED, CLIENT_REFUSED, Refusal
from ottla.config.network_config import SUPPORTED_PROTOCOLS
from ottla.config.sasl_config import SaslClientConfig
from ottla.config.ssl_config import SslConfig
from ottla.errors import ConfigError


class ClientConfig(SaslClientConfig, SslConfig, group=True):
    """What every client has: where the cluster is, how to connect, when to try again."""

    refused: ClassVar[Mapping[str, Refusal]] = CLIENT_REFUSED

    bootstrap_servers: tuple[str, ...] = config_key(
        default=(),
        type=LIST,
        importance=HIGH,
        doc="Some brokers of the cluster, as host:port with commas between; "
        "the others are learned from them.",
    )
    client_id: str = config_key(
        default="ottla",
        type=STRING,
        doc="The name under which the client appears in logs and quotas of the broker.",
    )
    security_protocol: str = config_key(
        default="PLAINTEXT",
        type=STRING,
        rule=one_of(*SUPPORTED_PROTOCOLS),
        doc="How connections are protected: PLAINTEXT not at all, SSL by TLS, see the ssl.* keys; "
        "with SASL_ before it the client also logs in, see the sasl.* keys.",
    )
    request_timeout_ms: int = config_key(
        default=30000,
        type=INT,
        rule=at_least(0),
        doc="How long a request may wait for its response.",
    )
    retry_backoff_ms: int = config_key(
        default=100,
        type=LONG,
        rule=at_least(0),
        importance=LOW,
        doc="The wait before a request is tried again for the first time.",
    )
    retry_backoff_max_ms: int = config_key(
        default=1000,
        type=LONG,
        rule=at_least(0),
        importance=LOW,
        doc="The wait doubles with each further try up to this.",
    )
    reconnect_backoff_ms: int = config_key(
        default=50,
        type=LONG,
        rule=at_least(0),
        importance=LOW,
        doc="The wait before a broker is connected to again for the first time.",
    )
    reconnect_backoff_max_ms: int = config_key(
        default=1000,
        type=LONG,
        rule=at_least(0),
        importance=LOW,
        doc="The wait doubles with each failed connection up to this.",
    )
    metadata_max_age_ms: int = config_key(
        default=300000,
        type=LONG,
        rule=at_least(0),
        importance=LOW,
        doc="Metadata older than this are fetched again.",
    )
    connections_max_idle_ms: int = config_key(
        default=540000,
        type=LONG,
        doc="A connection that was not used for this long is closed.",
    )
    socket_connection_setup_timeout_ms: int = config_key(
        default=10000,
        type=LONG,
        rule=at_least(1),
        doc="How long a connection may take to be established.",
    )
    send_buffer_bytes: int = config_key(
        default=131072,
        type=INT,
        rule=at_least(-1),
        doc="SO_SNDBUF of connections; -1 leaves it to the operating system.",
    )
    receive_buffer_bytes: int = config_key(
        default=65536,
        type=INT,
        rule=at_least(-1),
        doc="SO_RCVBUF of connections; -1 leaves it to the operating system.",
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        super().complete(values, given)
        for server in values["bootstrap_servers"]:
            host, _, port = str(server).rpartition(":")
            if not host or not (port.isdecimal() and 0 < int(port) < 65536):
                raise ConfigError(f"bootstrap.servers={server}: must be host:port")


class AdminConfig(ClientConfig):
    """Everything that an admin client is set up with."""

    unused: ClassVar[Mapping[str, str]] = ADMIN_UNUSED

    default_api_timeout_ms: int = config_key(
        default=60000,
        type=INT,
        rule=at_least(0),
        doc="How long a call without a time limit of its own may take.",
    )
    retries: int = config_key(
        default=INT_MAX,
        type=INT,
        rule=at_least(0),
        importance=LOW,
        doc="How often a request is tried again, within default.api.timeout.ms.",
    )
