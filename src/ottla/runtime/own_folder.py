"""Temporary folders that do not stay behind when their processes are killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

OWNER: Final = "owner"
"""The file that the owner of a folder has locked, with the number of its process."""


class OwnFolder:
    """A temporary folder of this process, until `close`.

    A folder whose owner was killed is removed when the next one with the same prefix is made. The
    lock on a file in it says whether the owner lives: the kernel drops it with the process.
    """

    def __init__(self, prefix: str) -> None:
        for each in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
            _remove_if_abandoned(each)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        try:
            self._lock = _claim(self.path)
        except BaseException:  # no later start would know whose it was
            shutil.rmtree(self.path, ignore_errors=True)
            raise

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


@contextmanager
def own_folder(prefix: str) -> Iterator[Path]:
    """An `OwnFolder` for the block."""
    with closing(OwnFolder(prefix)) as folder:
        yield folder.path


def _claim(folder: Path) -> int:
    """Lock the file of the owner, which has its name only when it is locked."""
    unnamed = folder / f"{OWNER}.new"
    lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.write(lock, b"%d\n" % os.getpid())
        unnamed.rename(folder / OWNER)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _remove_if_abandoned(folder: Path) -> None:
    """Remove a folder of this user whose owner has died; any other one is left alone."""
    try:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return
        lock = os.open(folder / OWNER, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        pass  # its owner lives
    finally:
        os.close(lock)
