"""A file of a segment mapped for reading, and the offset in its name."""

from __future__ import annotations

import mmap
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ottla.cli.command_error import CommandError
from ottla.config.whole_number import number_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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
        # Not after an error, while the exception may still hold parts of the view.
        pages.close()


def base_offset(path: Path) -> int:
    """The offset that a file of a segment is named after."""
    digits = path.name.partition(".")[0]
    offset = number_of(digits, 0)
    if offset is None:
        raise CommandError(f"{path} is not named after an offset, as files of a segment are")
    return offset
