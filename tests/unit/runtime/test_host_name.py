"""The name that a broker advertises when it is given none."""

from __future__ import annotations

import socket

from ottla.runtime.host_name import canonical_host_name


def test_name_of_the_machine_is_used_if_it_resolves(monkeypatch):
    """Clients on other machines may know it."""
    monkeypatch.setattr(socket, "gethostname", lambda: "box")
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, port: [host])

    assert canonical_host_name() == "box"


def test_name_that_does_not_resolve_is_not_used(monkeypatch):
    """Then nobody could connect, not even from here."""

    def fail(host, port):
        raise socket.gaierror("unknown")

    monkeypatch.setattr(socket, "getaddrinfo", fail)

    assert canonical_host_name() == "localhost"
