"""A small file system of its own in memory, which can be filled and emptied while it is in use."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from pathlib import Path

MEGABYTE = 1 << 20


class SmallDisk:
    """A tmpfs that is mounted at a folder; a file beside the others takes its room away."""

    def __init__(self, folder: Path, size_mb: int) -> None:
        self.folder = folder
        self.is_full = False
        folder.mkdir(parents=True, exist_ok=True)
        options = f"size={size_mb}m,mode=0700"
        command = ["mount", "-t", "tmpfs", "-o", options, "ottla-chaos", str(folder)]
        subprocess.run(command, check=True, capture_output=True, text=True)

    @property
    def _filler(self) -> Path:
        return self.folder / "filler"

    def fill(self, left_bytes: int) -> None:
        """Leave no more room than this, in whole pages; what is used meanwhile may be less."""
        self.is_full = True
        with self._filler.open("ab") as file, contextlib.suppress(FullError):
            while room := self._room() - left_bytes:
                if room <= 0:
                    return
                allocate(file.fileno(), os.fstat(file.fileno()).st_size, room)

    def empty(self) -> None:
        """Give the room back."""
        self._filler.unlink(missing_ok=True)
        self.is_full = False

    def close(self) -> None:
        """The disk is gone, also where a process still has a file of it."""
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)

    def _room(self) -> int:
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize


class FullError(Exception):
    """There was less room than the disk had said."""


def allocate(descriptor: int, position: int, count: int) -> None:
    """Give a file so many bytes more; FullError where somebody else was quicker."""
    try:
        os.posix_fallocate(descriptor, position, count)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise FullError from error


def reason_for_no_disks(folder: Path) -> str:
    """What is missing for small disks on this machine; empty if nothing is."""
    try:
        SmallDisk(folder, 1).close()
    except FileNotFoundError:
        return "there is no `mount` command"
    except subprocess.CalledProcessError as error:
        return f"`mount -t tmpfs` takes the right to mount (root): {error.stderr.strip()}"
    return ""
