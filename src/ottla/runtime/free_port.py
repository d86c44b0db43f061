"""A free port of this machine that a server finds free again when it is restarted."""

from __future__ import annotations

import itertools
import random
import socket

PORTS = range(10_000, 32_000)
"""Below those that systems give to outgoing connections: a server that is started again must find
its port free, whatever has been connected to whom in the meantime."""
TRIES = 100

# One after the other from a place of this process's own: a port that was given is free until its
# server has started, or while it is down, and must not be given to another one meanwhile.
_offsets = itertools.count(random.randrange(len(PORTS)))


def free_port(host: str) -> int:
    """A port on which no process listens now, never the one before; OSError if none is found."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for offset in itertools.islice(_offsets, TRIES):
        port = PORTS[offset % len(PORTS)]
        try:
            with socket.create_server((host, port), family=family):
                return port
        except OSError:
            continue
    raise OSError(f"of {TRIES} ports from {PORTS.start} to {PORTS.stop - 1} of {host} none is free")
