"""Rows as tables for people, and as JSON for programs: the option `--format`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ottla.cli.exact_json import json_line
from ottla.cli.output import one_line
from ottla.cli.terminal import harmless

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from ottla.cli.terminal import Terminal

TEXT, TABLE, JSON = FORMATS = ("text", "table", "json")
MISSING: Final = "-"
GAP: Final = "  "
COUNTS: Final = ("bytes", "offsets", "lag", "max_lag", "offset_lag", "to_read")
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
LEAST_TEXT_WIDTH: Final = 20
"""A column of text that has less room on the screen is not wrapped."""

Row = Mapping[str, object]
"""Values by the names of their columns; a list or mapping is in the JSON alone."""


def add_format(parser: ArgumentParser) -> None:
    """`--format`, which every command has that lists or describes."""
    parser.add_argument(
        "--format",
        metavar="FORMAT",
        choices=FORMATS,
        default=TEXT,
        help="How results are printed: text (default), which is Kafka's; table, for people; json, "
        "a list of objects for programs.",
    )


def show_rows(rows: Sequence[Row], format: str, terminal: Terminal) -> None:
    """Print the rows as a table, or as JSON: on one line, indented on a terminal."""
    if format == JSON:
        indent = 2 if terminal.shows_results else None
        terminal.print(json_line(list(rows), indent=indent, is_ascii=True))
    elif not rows:
        terminal.remark("nothing to show")
    else:
        _print_rows(rows, terminal)


def _print_rows(rows: Sequence[Row], terminal: Terminal) -> None:
    nested = {name for row in rows for name, value in row.items() if isinstance(value, list | dict)}
    names = [name for name in rows[0] if name not in nested]
    lines = [[cell(name, row[name]) for name in names] for row in rows]
    heads = [name.upper().replace("_PER_", "/").replace("_", " ") for name in names]
    widths = [max(map(len, column)) for column in zip(heads, *lines, strict=True)]
    is_number = [any(isinstance(row[name], int | float) for row in rows) for name in names]

    def aligned(cells: Sequence[str]) -> str:
        columns = zip(cells, widths, is_number, strict=True)
        return GAP.join(f"{c:>{w}}" if right else f"{c:<{w}}" for c, w, right in columns).rstrip()

    head = aligned(heads)
    if terminal.has_colour:
        terminal.print(f"{BOLD}{harmless(head)}{PLAIN}", is_styled=True)
    else:
        terminal.print(head)
    before = sum(widths[:-1]) + len(GAP) * (len(widths) - 1)
    room = 0 if is_number[-1] else terminal.width - before
    for line in lines:
        for part in wrapped(line, room):
            terminal.print(aligned(part))


def wrapped(cells: Sequence[str], room: int) -> list[Sequence[str]]:
    """A line as several, if its last cell is text that is wider than its room on the screen."""
    *others, last = cells
    if room < LEAST_TEXT_WIDTH or len(last) <= room:
        return [cells]
    first, *rest = textwrap.wrap(last, room)
    return [[*others, first], *([*[""] * len(others), part] for part in rest)]


def cell(name: str, value: object) -> str:
    """A value as a person reads it: counts with commas, a dash where there is none."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name in COUNTS:
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return one_line(str(value))


CAPITAL: Final = re.compile(r"(?<=.)(?=[A-Z])")


def show_columns(
    header: Sequence[str], rows: Sequence[Sequence[object]], format: str, terminal: Terminal
) -> None:
    """Kafka's columns, in which None stands as such, or the values under plain names."""
    if format == TEXT:
        print_table(header, rows, terminal)
        return
    names = [CAPITAL.sub("_", name).lower() for name in header]
    names = [name.replace("(", "_").removesuffix(")") for name in names]
    named = [dict(zip(names, row, strict=True)) for row in rows]
    show_rows(named, format, terminal)


def print_table(
    header: Sequence[str], rows: Iterable[Sequence[object]], terminal: Terminal
) -> None:
    """Columns as kafka-transactions.sh prints them: padded, with a tab behind each."""
    lines = [list(header), *([one_line(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        terminal.print(
            "".join(f"{cell:<{width}}\t" for cell, width in zip(line, widths, strict=True))
        )
