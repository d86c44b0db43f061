"""The name under which other machines may find this one."""

from __future__ import annotations

import socket


def canonical_host_name() -> str:
    """The name of this machine if it resolves here, else `localhost`."""
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "localhost"
    return name
