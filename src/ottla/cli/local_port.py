"""Ports of this machine: which are free, and one clear line where a wanted one is not."""

from __future__ import annotations

import contextlib
import socket

from ottla.cli.command_error import CommandError


def free_port(host: str) -> int:
    """A port on which nobody listens now."""
    with socket.socket(_family(host)) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def require_free(host: str, port: int) -> None:
    """CommandError where a server could not listen here."""
    with contextlib.closing(socket.socket(_family(host))) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise CommandError(f"cannot listen on {host}:{port}: {error.strerror}") from error


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
