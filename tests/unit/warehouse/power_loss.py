"""A folder as it is when the power fails: what was synced is there, and nothing else."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path


class PowerLoss:
    """Notes what each `fsync` makes durable: the content of a file, the names in a folder."""

    def __init__(self, root: Path, monkeypatch) -> None:
        self._root = root
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._folders: set[int] = set()
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self._note)

    def _note(self, fd: int) -> None:
        self._fsync(fd)
        status = os.fstat(fd)
        if stat.S_ISDIR(status.st_mode):
            entries = list(os.scandir(fd))
            self._names[status.st_ino] = {each.name: each.inode() for each in entries}
            self._folders |= {each.inode() for each in entries if each.is_dir()}
        else:
            self._contents[status.st_ino] = Path(f"/proc/self/fd/{fd}").read_bytes()

    def strike(self) -> None:
        """Leave of the folder what is durable; a file whose content is not is empty."""
        number = self._root.stat().st_ino
        shutil.rmtree(self._root)
        self._restore(self._root, number)

    def _restore(self, folder: Path, number: int) -> None:
        folder.mkdir()
        for name, each in self._names.get(number, {}).items():
            if each in self._folders:
                self._restore(folder / name, each)
            else:
                (folder / name).write_bytes(self._contents.get(each, b""))
