"""The broker's settings for listeners, sockets, connections and client quotas.

A listener is written as `NAME://host:port`; it becomes a typed value here, and rules tie the
settings of listeners together.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from ottla.config.config_def import HIGH, LOW, ConfigTable, config_key
from ottla.config.config_type import INT_MAX, LIST, LONG, LONG_MAX
from ottla.config.rule import at_least, between, one_of
from ottla.config.whole_number import number_of
from ottla.errors import ConfigError
from ottla.runtime.poller import AUTO, POLLERS
from ottla.structs import EndPoint

SUPPORTED_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
WILDCARD_HOSTS: Final = ("0.0.0.0", "::")
_LISTENER: Final = r"([A-Za-z0-9_.-]+)://(\[[^\]]*\]|[^:\[\]]*):(-?[0-9]+)\Z"


def is_sasl(protocol: str) -> bool:
    """Whether clients of a security protocol log in by SASL."""
    return protocol in ("SASL_PLAINTEXT", "SASL_SSL")


def parse_protocol_map(key: str, entries: Iterable[str]) -> dict[str, str]:
    """`CLIENT:PLAINTEXT,REPLICATION:PLAINTEXT`: the security protocol of each listener name."""
    protocols = {}
    for entry in entries:
        name, colon, protocol = entry.partition(":")
        if not (name and colon and protocol):
            raise ConfigError(f"{key}={entry}: each entry must be LISTENER_NAME:PROTOCOL")
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def parse_listeners(
    key: str, listeners: Sequence[str], protocols: Mapping[str, str]
) -> tuple[EndPoint, ...]:
    """The end points of a setting such as `PLAINTEXT://:9092,CLIENT://0.0.0.0:9093`."""
    end_points = tuple(_parse_listener(key, text, protocols) for text in listeners)
    if not end_points:
        raise ConfigError(f"{key}=: must name at least one listener, as PLAINTEXT://:9092")
    names = [end_point.listener_name for end_point in end_points]
    if len(set(names)) != len(names):
        raise ConfigError(f"{key}={','.join(listeners)}: each listener name must be there once")
    return end_points


def _parse_listener(key: str, text: str, protocols: Mapping[str, str]) -> EndPoint:
    match = re.match(_LISTENER, text)
    if match is None:
        raise ConfigError(f"{key}={text}: must be NAME://host:port, as PLAINTEXT://:9092")
    name, host, port = match[1].upper(), match[2].strip("[]"), int(match[3])
    if not 0 <= port <= 65535:
        raise ConfigError(f"{key}={text}: the port must be from 0 to 65535")
    protocol = protocols.get(name)
    if protocol is None:
        raise ConfigError(
            f"{key}={text}: no security protocol is given for listener {name}; "
            f"add {name}:PLAINTEXT to listener.security.protocol.map"
        )
    if protocol not in SUPPORTED_PROTOCOLS:
        raise ConfigError(
            f"{key}={text}: security protocol {protocol} is not supported; "
            f"this version serves {', '.join(SUPPORTED_PROTOCOLS)} listeners only"
        )
    return EndPoint(name, protocol, host, port)


def require_distinct_ports(key: str, end_points: Iterable[EndPoint]) -> None:
    """Two listeners cannot bind the same port; port 0 (any free one) may be there many times."""
    seen: dict[int, EndPoint] = {}
    for end_point in end_points:
        if end_point.port and end_point.port in seen:
            raise ConfigError(
                f"{key}: {seen[end_point.port]} and {end_point} must have different ports"
            )
        seen[end_point.port] = end_point


LOOPBACK_NAME: Final = "localhost"
OPENING: Final = frozenset(
    {"host.name", "advertised.listeners", "advertised.host.name", "advertised.port"}
)
"""A user that sets one of these without `listeners` has clients on other machines in mind."""


class NetworkConfig(ConfigTable, group=True):
    """Listeners, sockets, connections and client quotas."""

    listeners: tuple[EndPoint, ...] = config_key(
        default=("PLAINTEXT://localhost:9092",),
        type=LIST,
        importance=HIGH,
        doc="Where the broker listens, as NAME://host:port; an empty host is every address. Unset: "
        "for this machine alone, unless an advertised listener or host is set.",
    )
    advertised_listeners: tuple[EndPoint, ...] = config_key(
        default=None,
        type=LIST,
        importance=HIGH,
        doc="Where clients are told to connect. Unset: the listeners, an empty or wildcard host "
        "replaced by the name of this machine.",
    )
    listener_security_protocol_map: dict[str, str] = config_key(
        default=(
            "PLAINTEXT:PLAINTEXT",
            "SSL:SSL",
            "SASL_PLAINTEXT:SASL_PLAINTEXT",
            "SASL_SSL:SASL_SSL",
        ),
        type=LIST,
        doc="The security protocol of each listener name, as CLIENT:PLAINTEXT.",
    )
    inter_broker_listener_name: str = config_key(
        default=None,
        doc="The listener that brokers use among themselves. Unset: the one that is named as "
        "security.inter.broker.protocol says; where that is not set either, the PLAINTEXT one, "
        "or the first where no listener has that name.",
    )
    ottla_inter_broker_listener_names: tuple[str, ...] = config_key(
        default=(),
        doc="More listeners on which other brokers are answered, while inter.broker.listener.name "
        "changes from broker to broker. Keep clients from them. Ottla's own setting.",
    )
    security_inter_broker_protocol: str = config_key(
        default="PLAINTEXT",
        rule=one_of(*SUPPORTED_PROTOCOLS),
        doc="The protocol, and so the listener of that name, that brokers use among themselves; "
        "not together with inter.broker.listener.name.",
    )
    host_name: str = config_key(
        default="",
        importance=LOW,
        doc="Old form: the host of the only listener, used when listeners is not set.",
    )
    port: int = config_key(
        default=9092,
        rule=between(0, 65535),
        importance=LOW,
        doc="Old form: the port of the only listener, used when listeners is not set.",
    )
    advertised_host_name: str | None = config_key(
        default=None,
        importance=LOW,
        doc="Old form: the advertised host, used when advertised.listeners is not set.",
    )
    advertised_port: int | None = config_key(
        default=None,
        rule=between(0, 65535),
        importance=LOW,
        doc="Old form: the advertised port, used when advertised.listeners is not set.",
    )
    socket_send_buffer_bytes: int = config_key(
        default=-1,
        rule=at_least(-1),
        importance=HIGH,
        doc="SO_SNDBUF of client connections; -1 leaves it to the operating system, whose buffer "
        "grows with what a reader takes. A fixed one makes the broker send small pieces, which "
        "costs twice the CPU time.",
    )
    socket_receive_buffer_bytes: int = config_key(
        default=102400,
        rule=at_least(-1),
        importance=HIGH,
        doc="SO_RCVBUF of client connections; -1 leaves it to the operating system.",
    )
    socket_request_max_bytes: int = config_key(
        default=104857600,
        rule=at_least(1),
        importance=HIGH,
        doc="The largest request; a connection that announces a larger one is closed.",
    )
    socket_listen_backlog_size: int | None = config_key(
        default=None,
        rule=at_least(1),
        doc="How many connections may wait to be accepted. Unset: as many as the operating system "
        "allows (net.core.somaxconn on Linux), which also limits what is set. Kafka's default of "
        "50 overflows when all clients come back at once; each one left over waits a second.",
    )
    max_request_partition_size_limit: int = config_key(
        default=2000,
        rule=at_least(1),
        doc="How many partitions one answer to DescribeTopicPartitions may have (KIP-966).",
    )
    max_connections: int = config_key(
        default=INT_MAX,
        rule=at_least(0),
        doc="How many client connections may be open at once.",
    )
    max_connections_per_ip: int = config_key(
        default=INT_MAX,
        rule=at_least(0),
        doc="How many connections one address may have open at once.",
    )
    max_connections_per_ip_overrides: dict[str, int] = config_key(
        default=(),
        type=LIST,
        doc="Other limits for some addresses, as 10.0.0.7:100,127.0.0.1:200.",
    )
    max_connection_creation_rate: int = config_key(
        default=INT_MAX,
        rule=at_least(1),
        doc="How many connections a second are accepted on all listeners together, but not on that "
        "of the brokers if it is one of several; listener.name.<name>.max.connection.creation.rate "
        "is the same for one listener (KIP-612). More of them wait.",
    )
    connections_max_idle_ms: int = config_key(
        default=600000,
        type=LONG,
        doc="A connection without a request for this long is closed.",
    )
    quota_producer_default: int = config_key(
        default=LONG_MAX,
        type=LONG,
        rule=at_least(1),
        importance=HIGH,
        doc="How many bytes a second each client id may produce to this broker, where neither "
        "the client id nor a default has a producer_byte_rate. Kafka 3.0 has dropped it.",
    )
    quota_consumer_default: int = config_key(
        default=LONG_MAX,
        type=LONG,
        rule=at_least(1),
        importance=HIGH,
        doc="How many bytes a second each client id may fetch from this broker, where neither "
        "the client id nor a default has a consumer_byte_rate. Kafka 3.0 has dropped it.",
    )
    quota_window_num: int = config_key(
        default=11,
        rule=at_least(1),
        importance=LOW,
        doc="Over how many samples the rates of client quotas are measured.",
    )
    quota_window_size_seconds: int = config_key(
        default=1,
        rule=at_least(1),
        importance=LOW,
        doc="How long one of these samples lasts, in seconds.",
    )
    controller_quota_window_num: int = config_key(
        default=11,
        rule=at_least(1),
        importance=LOW,
        doc="How many samples of controller_mutation_rate a client that was quiet may use at once.",
    )
    controller_quota_window_size_seconds: int = config_key(
        default=1,
        rule=at_least(1),
        importance=LOW,
        doc="How long one of these samples lasts, in seconds.",
    )
    ottla_network_poller: str = config_key(
        default=AUTO,
        rule=one_of(AUTO, *POLLERS),
        importance=LOW,
        doc="How the broker asks the operating system which connections are ready: auto is the "
        "first of epoll, kqueue, poll and select that there is. Ottla's own setting.",
    )
    ottla_network_spin_us: int = config_key(
        default=0,
        rule=between(0, 1_000),
        importance=LOW,
        doc="For how many microseconds the broker asks again and again for requests before it "
        "sleeps, once it has answered one. Clients that wait for each answer have it in two thirds "
        "of the time, for a core that is busy as long as somebody sends: only where the broker has "
        "cores of its own. Ottla's own setting.",
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        super().complete(values, given)
        overrides = values["max_connections_per_ip_overrides"]
        values["max_connections_per_ip_overrides"] = _parse_connection_limits(overrides)
        if not values["max_connections_per_ip"] and not overrides:
            raise ConfigError(
                "max.connections.per.ip=0: must be above 0 where max.connections.per.ip.overrides "
                "names no address, as nobody could connect"
            )
        key = "listener.security.protocol.map"
        protocols = parse_protocol_map(key, values["listener_security_protocol_map"])
        values["listener_security_protocol_map"] = protocols
        if "listeners" not in given:
            host = values["host_name"] if OPENING.intersection(given) else LOOPBACK_NAME
            values["listeners"] = (f"PLAINTEXT://{host}:{values['port']}",)
        values["listeners"] = parse_listeners("listeners", values["listeners"], protocols)
        require_distinct_ports("listeners", values["listeners"])
        values["advertised_listeners"] = _advertised_listeners(values, protocols)
        values["inter_broker_listener_name"] = _inter_broker_listener_name(values, given)
        for name in values["ottla_inter_broker_listener_names"]:
            _require_listener("ottla.inter.broker.listener.names", name, values)


def _parse_connection_limits(entries: Collection[str]) -> dict[str, int]:
    key = "max.connections.per.ip.overrides"
    limits = {}
    for entry in entries:
        from ipaddress import ip_address  # most brokers have none of these limits

        host, _, limit = entry.rpartition(":")
        number = number_of(limit, 0, INT_MAX)
        if not host or number is None:
            raise ConfigError(f"{key}={entry}: each entry must be address:limit")
        try:
            limits[str(ip_address(host.strip("[]")))] = number
        except ValueError:
            raise ConfigError(
                f"{key}={entry}: {host} must be an address; names of hosts are not looked up"
            ) from None
    return limits


def _advertised_listeners(
    values: dict[str, Any], protocols: dict[str, str]
) -> tuple[EndPoint, ...]:
    """An empty host stays empty here: registering the broker puts the machine's name there."""
    key = "advertised.listeners"
    listeners: tuple[EndPoint, ...] = values["listeners"]
    if values["advertised_listeners"] is None:
        host, port = values["advertised_host_name"], values["advertised_port"]
        return tuple(_advertised(end_point, host, port) for end_point in listeners)
    advertised = parse_listeners(key, values["advertised_listeners"], protocols)
    names = {end_point.listener_name for end_point in listeners}
    for end_point in advertised:
        if end_point.host in WILDCARD_HOSTS:
            raise ConfigError(f"{key}={end_point}: must name a host that clients can connect to")
        if end_point.listener_name not in names:
            raise ConfigError(f"{key}={end_point}: must have its listener name in listeners")
    return advertised


def _advertised(end_point: EndPoint, host: str | None, port: int | None) -> EndPoint:
    reachable = "" if end_point.host in WILDCARD_HOSTS else end_point.host
    return end_point._replace(host=host or reachable, port=port or end_point.port)


def _require_listener(key: str, name: str, values: Mapping[str, Any]) -> None:
    names = [end_point.listener_name for end_point in values["advertised_listeners"]]
    if name.upper() not in names:
        raise ConfigError(
            f"{key}={name}: must be one of the advertised listeners, {', '.join(names)}"
        )


def _inter_broker_listener_name(values: dict[str, Any], given: Collection[str]) -> str:
    key, chosen = "inter.broker.listener.name", values["inter_broker_listener_name"]
    protocol = values["security_inter_broker_protocol"]
    if "security.inter.broker.protocol" in given:
        if chosen is not None:
            raise ConfigError(
                f"security.inter.broker.protocol={protocol}: cannot be set together with "
                f"{key}={chosen}"
            )
        key, chosen = "security.inter.broker.protocol", protocol
    if chosen is None:
        names = [end_point.listener_name for end_point in values["advertised_listeners"]]
        return "PLAINTEXT" if "PLAINTEXT" in names else names[0]
    _require_listener(key, chosen, values)
    return str(chosen.upper())
