"""Addresses, and the check that somebody listens there."""

import socket

import pytest

from ottla.cli.command_error import CommandError
from ottla.cli.terminal import check_reachable, host_and_port, without_servers
from ottla.runtime.free_port import free_port


def test_refused_connection_is_one_clear_line():
    """Each address that was tried is named with the reason."""
    port = free_port("127.0.0.1")

    with pytest.raises(CommandError, match=f"127.0.0.1:{port} .*refused"):
        check_reachable(f"127.0.0.1:{port}")


def test_one_listening_server_is_enough():
    """The first address may be down."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        check_reachable(f"127.0.0.1:{free_port('127.0.0.1')},127.0.0.1:{listener.getsockname()[1]}")


@pytest.mark.parametrize("server", ["localhost", ":9092", "localhost:x", "localhost:70000"])
def test_address_without_host_or_port_is_refused(server):
    """An address is a host and a port."""
    with pytest.raises(CommandError, match="host:port"):
        host_and_port(server)


def test_ipv6_address_stands_in_brackets():
    """The port is behind the last colon."""
    assert host_and_port("[::1]:9092") == ("::1", 9092)


def test_servers_of_a_property_file_do_not_win():
    """Those of the command line do."""
    settings = {"bootstrap.servers": "x:1", "linger.ms": "5"}

    assert without_servers(settings) == {"linger.ms": "5"}
