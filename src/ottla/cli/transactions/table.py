"""Rows in columns as kafka-transactions.sh prints them: padded, a tab behind each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.cli.terminal import Terminal


def print_table(
    header: Sequence[str], rows: Iterable[Sequence[object]], terminal: Terminal
) -> None:
    """The header and the rows, each column as wide as its widest cell."""
    lines = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        terminal.print(
            "".join(f"{cell:<{width}}\t" for cell, width in zip(line, widths, strict=True))
        )
