"""A free port of this machine that a server finds free again when it is started anew."""

from __future__ import annotations

import random
import socket

PORTS = range(10_000, 32_000)
"""Below those that systems give to outgoing connections: a server that is started again must find
its port free, whatever has been connected to whom in the meantime."""
TRIES = 100


def free_port(host: str) -> int:
    """A port on which nobody listens now; OSError if none is found."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for _ in range(TRIES):
        port = random.choice(PORTS)
        try:
            with socket.create_server((host, port), family=family):
                return port
        except OSError:
            continue
    raise OSError(f"of {TRIES} ports from {PORTS.start} to {PORTS.stop - 1} of {host} none is free")
