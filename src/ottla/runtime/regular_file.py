"""Files that settings name and that are read as a whole: those that have an end, and are there."""

from __future__ import annotations

import errno
import os
from stat import S_ISDIR, S_ISREG
from typing import Final

MOST_BYTES: Final = 64 * 1024 * 1024


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """The content of a file.

    A pipe would keep its reader waiting, a device may never end, and a loop reads for many: so
    neither is a file here.

    Raises:
        OSError: it cannot be read, is no regular file, or has more than `MOST_BYTES`.
    """
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    fd = os.open(path, flags)
    try:
        mode = os.fstat(fd).st_mode
        if S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not S_ISREG(mode):
            raise OSError(errno.EINVAL, "is no regular file")
        with open(fd, "rb", closefd=False) as file:
            data = file.read(MOST_BYTES + 1)
    finally:
        os.close(fd)
    if len(data) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"has more than {MOST_BYTES} bytes")
    return data
