"""Ports for servers that start later."""

from __future__ import annotations

import socket

import pytest

from ottla.runtime import free_port as module
from ottla.runtime.free_port import PORTS, free_port


def test_port_is_not_given_again_before_its_server_listens() -> None:
    """Of servers that got ready together two had the same port now and then; one did not start."""
    given = [free_port("127.0.0.1") for _ in range(500)]

    assert len(set(given)) == 500
    assert all(port in PORTS for port in given)


def test_ports_that_are_all_in_use_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It tells where a free one was looked for."""
    port = free_port("127.0.0.1")
    monkeypatch.setattr(module, "PORTS", range(port, port + 1))
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(OSError, match=f"ports from {port} to {port} of 127.0.0.1 none is free"),
    ):
        free_port("127.0.0.1")
    assert free_port("127.0.0.1") == port
