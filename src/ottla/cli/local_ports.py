"""Ports of this machine, and the error for one that is taken."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
from pathlib import Path
from typing import Final

from ottla.cli.command_error import CommandError

PORT: Final = r":(\d+):"
LISTENING = "0A"  # the state in /proc/net/tcp


def require_free(host: str, port: int) -> None:
    """Raise CommandError unless a server could listen here."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.closing(socket.socket(family)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise CommandError(f"cannot listen on {host}:{port}: {error.strerror}") from error


def in_use(error: OSError) -> CommandError:
    """The error for a port that is taken; it names the process that listens there."""
    text = error.strerror or str(error)
    port = re.search(PORT, text)
    owner = listener(int(port[1])) if port and error.errno == errno.EADDRINUSE else None
    return CommandError(f"{text} by {owner}" if owner else text)


def listener(port: int) -> str | None:
    """The process that listens on a port, as `ottla broker (process 71)`.

    None where that cannot be found out: another user's process, or no /proc.
    """
    wanted = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    for process in Path("/proc").glob("[0-9]*") if wanted else ():
        with contextlib.suppress(OSError):
            if any(os.readlink(fd) in wanted for fd in (process / "fd").iterdir()):
                words = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                name = " ".join(filter(None, words))[:80]
                return f"{name} (process {process.name})"
    return None


def _listening_inodes(port: int) -> set[str]:
    found = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(fields[9])
    return found
