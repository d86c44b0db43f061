"""Forcing files to disk without making the loop wait for it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import closing

from ottla.runtime import Disk, File
from ottla.structs import Value


class FsyncError(Exception):
    """The kernel could not bring data to disk; it may have dropped them."""


class FlushJob(Value):
    """The files to force to disk, as values for a background thread.

    The call raises FsyncError if that failed, OSError if it could not be tried.
    """

    disk: Disk
    replacements: list[tuple[str, bytes]]
    files: list[File]
    paths: list[str]
    directories: list[str]

    def __call__(self) -> None:
        for path, data in self.replacements:
            _unless_gone(self.disk.replace, path, data)
        for file in self.files:
            _unless_gone(_fsync, file)
        for path in self.paths:
            _unless_gone(self._sync_path, path)
        for directory in self.directories:
            _unless_gone(_fsync_dir, self.disk, directory)

    def _sync_path(self, path: str) -> None:
        with closing(self.disk.open(path)) as file:
            _fsync(file)


def _fsync(file: File) -> None:
    try:
        file.fsync()
    except OSError as error:
        if error.errno == errno.EBADF:
            raise
        raise FsyncError(f"fsync of {file.path}: {error}") from error


def _fsync_dir(disk: Disk, directory: str) -> None:
    try:
        disk.fsync_dir(directory)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.EMFILE, errno.ENFILE):  # it could not be opened
            raise
        raise FsyncError(f"fsync of {directory}: {error}") from error


def _unless_gone(action: Callable[..., object], *arguments: object) -> None:
    """A file that was deleted while the job waited needs no flush: it is closed or not there."""
    try:
        action(*arguments)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno != errno.EBADF:
            raise
