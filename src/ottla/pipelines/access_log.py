"""Lines of an access log as records: the bytes as they stand in the file, keyed by client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple


class LogLine(NamedTuple):
    """One record to publish: `value` is the line without its end, `key` its client's address."""

    key: bytes
    value: bytes


def read_lines(path: Path) -> Iterator[LogLine]:
    """Every line of a file; bytes that are no text are kept. The last line may lack its end."""
    with path.open("rb") as file:
        yield from log_lines(file)


def log_lines(lines: Iterable[bytes]) -> Iterator[LogLine]:
    """Lines as records; the requests of one client share a key, so they stay in order."""
    for line in lines:
        value = line.rstrip(b"\r\n")
        yield LogLine(value.partition(b" ")[0], value)
