"""The files that there are: those of a pattern, and those of a folder by the names of logs.

A folder may have thousands of logs: it is listed once for all of them, and each finds its own
without a look at the others.
"""

from __future__ import annotations

import glob
import os
import re
from bisect import bisect_left
from collections.abc import Collection, Iterator
from typing import Final

COMPRESSED: Final = (".gz", ".bz2", ".xz", ".zst", ".zip", ".lz4")
DATE: Final = r"[.\-_](?:\d{4}-\d\d-\d\d|\d{6,})(?:[.\-_T]\d+)*"
ROTATED: Final = re.compile(rf"(?:\.\d+|{DATE}|\.old|\.bak|\.prev|~)$")
DATED: Final = re.compile(rf"{DATE}(?=\.[A-Za-z]+$)")
BEHIND_NAMES: Final = (".", "-", "_", "~")
ANY_FOLDERS: Final = "**"


class LogListing:
    """One folder; empty if it is gone."""

    def __init__(self, folder: str) -> None:
        self._by_number: dict[int, list[str]] = {}
        self._by_log: dict[str, list[str]] = {}
        self._names: list[str] = []
        try:
            with os.scandir(folder or ".") as entries:
                found = sorted((each.name, each.inode()) for each in entries)
        except OSError:
            found = []
        for name, number in found:
            self._by_number.setdefault(number, []).append(name)
            if not name.endswith(COMPRESSED):
                self._names.append(name)
                self._by_log.setdefault(os.path.basename(log_name(name)), []).append(name)

    def of(self, logs: Collection[str], numbers: Collection[int | None]) -> dict[str, bool]:
        """The files that have the name of a log with more to it, or one of these numbers; and
        whether a file has such a name, and is still text."""
        by_number = (self._by_number.get(each, ()) for each in numbers if each is not None)
        found = {name: False for names in by_number for name in names}
        found |= {name: True for log in logs for name in self._by_log.get(log, ())}
        return found | {name: True for log in logs for name in self._beginning_with(log)}

    def _beginning_with(self, log: str) -> Iterator[str]:
        for place in range(bisect_left(self._names, log), len(self._names)):
            name = self._names[place]
            if not name.startswith(log):
                return
            if name == log or name[len(log) :].startswith(BEHIND_NAMES):
                yield name


def paths_of(pattern: str) -> Iterator[str]:
    """The paths of a pattern, as those of `glob`; but `**` enters each folder once.

    Links may lead up to their own folder: two of them are more ways than can ever be gone.
    """
    parts = pattern.split("/")
    if ANY_FOLDERS not in parts:
        yield from glob.glob(pattern)
        return
    place = parts.index(ANY_FOLDERS)
    rest = "/".join(parts[place + 1 :] or ["*"])
    waiting = sorted(glob.glob("/".join([*parts[:place], ""])), reverse=True) if place else [""]
    entered = set()
    while waiting:
        folder = waiting.pop()
        try:
            state = os.stat(folder or ".")
            names = os.listdir(folder or ".")
        except OSError:
            continue  # it is no folder, or gone, or cannot be read
        if (state.st_dev, state.st_ino) not in entered:
            entered.add((state.st_dev, state.st_ino))
            yield from paths_of(os.path.join(glob.escape(folder), rest))
            inner = (os.path.join(folder, name) for name in names if not name.startswith("."))
            waiting += sorted(filter(os.path.isdir, inner), reverse=True)


def readable(path: str) -> str:
    """A path as text that JSON and UTF-8 can hold: names on a disk are bytes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def log_name(path: str) -> str:
    """The path of the log that a file is of: without the suffix that a rotation has added."""
    folder, name = os.path.split(readable(path))
    while (base := DATED.sub("", ROTATED.sub("", name))) not in ("", name):
        name = base
    return os.path.join(folder, name)
