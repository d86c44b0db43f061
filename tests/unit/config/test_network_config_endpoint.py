"""Listeners as text and as values."""

from __future__ import annotations

import pytest

from ottla.config.network_config import (
    EndPoint,
    parse_listeners,
    parse_protocol_map,
    require_distinct_ports,
)
from ottla.errors import ConfigError

PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "CLIENT": "PLAINTEXT", "KRAFT": "KERBEROS"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PLAINTEXT://:9092", EndPoint("PLAINTEXT", "PLAINTEXT", "", 9092)),
        ("client://0.0.0.0:0", EndPoint("CLIENT", "PLAINTEXT", "0.0.0.0", 0)),
        ("PLAINTEXT://[::1]:9092", EndPoint("PLAINTEXT", "PLAINTEXT", "::1", 9092)),
        ("PLAINTEXT://my.host:1", EndPoint("PLAINTEXT", "PLAINTEXT", "my.host", 1)),
    ],
)
def test_listener_is_read(text, expected):
    """Name, host and port; brackets belong to IPv6 only."""
    assert parse_listeners("listeners", [text], PROTOCOLS) == (expected,)


def test_end_point_is_written_as_it_is_read():
    """The text goes into the broker's registration."""
    texts = ["PLAINTEXT://:9092", "CLIENT://[::1]:9093"]

    assert [str(end) for end in parse_listeners("listeners", texts, PROTOCOLS)] == texts


@pytest.mark.parametrize(
    ("listeners", "reason"),
    [
        (["9092"], "NAME://host:port"),
        (["PLAINTEXT://host"], "NAME://host:port"),
        (["PLAINTEXT://host:65536"], "port"),
        (["OTHER://host:1"], "add OTHER:PLAINTEXT to listener.security.protocol.map"),
        (["KRAFT://:9091"], "KERBEROS is not supported"),
        (["PLAINTEXT://:1", "PLAINTEXT://:2"], "once"),
        ([], "at least one"),
    ],
)
def test_bad_listener_is_refused(listeners, reason):
    """The error says what to do about it."""
    with pytest.raises(ConfigError, match=reason):
        parse_listeners("listeners", listeners, PROTOCOLS)


def test_protocol_map_is_read():
    """Names and protocols in any case, with spaces."""
    assert parse_protocol_map("map", ["client: plaintext"]) == {"CLIENT": "PLAINTEXT"}


def test_entry_without_protocol_is_refused():
    """Each entry is a pair."""
    with pytest.raises(ConfigError, match="map=CLIENT"):
        parse_protocol_map("map", ["CLIENT"])


def test_same_port_twice_is_refused_but_for_port_zero():
    """Port 0 is a different one each time."""
    first = EndPoint("A", "PLAINTEXT", "", 0)
    require_distinct_ports("listeners", [first, first._replace(listener_name="B")])

    with pytest.raises(ConfigError, match="different ports"):
        require_distinct_ports("listeners", [first._replace(port=1), first._replace(port=1)])
