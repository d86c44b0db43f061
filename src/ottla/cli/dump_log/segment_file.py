"""A segment's file, mapped for reading, and what its name says."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ottla.cli.command_error import CommandError


@contextmanager
def mapped(path: Path) -> Iterator[memoryview]:
    """The bytes of the file without reading them all; an empty file cannot be mapped."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            yield memoryview(b"")
            return
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        with memoryview(pages) as view:
            yield view
        # Not after an error: what is on its way may hold parts of it, and goes with the last.
        pages.close()


def base_offset(path: Path) -> int:
    """The offset that a file of a segment is named after."""
    digits = path.name.partition(".")[0]
    if not digits.isdigit():
        raise CommandError(f"{path} is not named after an offset, as files of a segment are")
    return int(digits)
