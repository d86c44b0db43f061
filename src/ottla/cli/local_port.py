"""Ports of this machine: one clear line where a wanted one is not free."""

from __future__ import annotations

import contextlib
import socket

from ottla.cli.command_error import CommandError


def require_free(host: str, port: int) -> None:
    """CommandError where a server could not listen here."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.closing(socket.socket(family)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise CommandError(f"cannot listen on {host}:{port}: {error.strerror}") from error
