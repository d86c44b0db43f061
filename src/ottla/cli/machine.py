"""The machine that a broker runs on, as `ottla doctor` reads it from the kernel."""

from __future__ import annotations

import os
import re
import socket
import time
from typing import TYPE_CHECKING, Final

from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

PROBE: Final = ".ottla-doctor"
FLUSHES: Final = 100
FLUSH_BYTES: Final = 4096
CONNECT_S: Final = 3.0


class Mount(NamedTuple):
    """A mounted file system."""

    point: str
    kind: str
    options: tuple[str, ...]


class Space(NamedTuple):
    """The free share of a file system: of its bytes, and of its inodes."""

    bytes_free: float
    inodes_free: float


class Machine:
    """The facts about a machine that the checks need; `root` is where its /proc and /sys are."""

    def __init__(self, root: Path | str = "/") -> None:
        self.root = root

    def text(self, path: str) -> str:
        """The content of a file of the system, "" where there is none."""
        try:
            with open(os.path.join(self.root, path.lstrip("/")), encoding="utf-8") as file:
                return file.read().strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def number(self, path: str) -> int | None:
        """The number that a file of the system starts with."""
        found = re.match(r"-?\d+", self.text(path))
        return int(found[0]) if found else None

    def mount_of(self, path: str) -> Mount | None:
        """The file system that a path is on, or would be."""
        best = None
        wanted = os.path.realpath(path)
        for line in self.text("/proc/self/mounts").splitlines():
            _, point, kind, options = line.split()[:4]
            point = point.replace("\\040", " ")
            inside = wanted == point or wanted.startswith(point.rstrip("/") + "/")
            if inside and (best is None or len(point) >= len(best.point)):
                best = Mount(point, kind, tuple(options.split(",")))
        return best

    def space(self, path: str) -> Space | None:
        """The free space where a path is, or would be."""
        try:
            found = os.statvfs(existing(path))
        except OSError:
            return None
        return Space(
            found.f_bavail / found.f_blocks if found.f_blocks else 1.0,
            found.f_favail / found.f_files if found.f_files else 1.0,
        )

    def flush_ms(self, folder: str) -> list[float]:
        """How long the disk takes to have small writes, each: a file is written and removed."""
        from pathlib import Path

        path = Path(folder) / PROBE
        taken = []
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                for _ in range(FLUSHES):
                    begun = time.perf_counter()
                    os.write(fd, b"\0" * FLUSH_BYTES)
                    os.fsync(fd)
                    taken.append((time.perf_counter() - begun) * 1000)
            finally:
                os.close(fd)
        finally:
            path.unlink(missing_ok=True)
        return taken

    def now_s(self) -> float:
        return time.time()

    def addresses(self, name: str) -> list[str]:
        """The addresses of a host; OSError where it has none."""
        return sorted({str(each[4][0]) for each in socket.getaddrinfo(name, None)})

    def refusal(self, host: str, port: int) -> str | None:
        """Why no connection can be made; None if one can."""
        try:
            socket.create_connection((host, port), CONNECT_S).close()
        except OSError as error:
            return error.strerror or str(error)
        return None


def existing(path: str) -> str:
    """The path, or the closest folder above it that exists."""
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path
