"""Listeners: `NAME://host:port` as typed values, and the rules that tie their settings together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ottla.errors import ConfigError
from ottla.structs import EndPoint

SUPPORTED_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
WILDCARD_HOSTS: Final = ("0.0.0.0", "::")
_LISTENER = re.compile(r"([A-Za-z0-9_.-]+)://(\[[^\]]*\]|[^:\[\]]*):(-?[0-9]+)\Z")


def is_tls(protocol: str) -> bool:
    """Whether connections of a security protocol are encrypted."""
    return protocol in ("SSL", "SASL_SSL")


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
    match = _LISTENER.match(text)
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
