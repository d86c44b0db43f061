"""Small result tables: read back from Parquet, and shown as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

MAX_CELL_WIDTH = 60
LONG_NUMBER = 1e15
"""From here on a fraction is shown by its magnitude: it may have three hundred digits."""


@dataclass(frozen=True, slots=True)
class ResultTable:
    """A result: names of the columns, and rows in their order."""

    columns: Sequence[str]
    rows: Sequence[Mapping[str, Any]]

    @classmethod
    def read(cls, path: Path) -> ResultTable:
        """A table that Spark wrote, as one file or several."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        files = sorted(path.glob("*.parquet"))
        table = pa.concat_tables([pq.read_table(file) for file in files])
        return cls(table.column_names, table.to_pylist())

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.rows]

    def as_text(self, max_rows: int) -> str:
        """The first rows below a header, numbers to the right."""
        shown = self.rows[:max_rows]
        cells = [[text_of(row[name]) for name in self.columns] for row in shown]
        widths = [
            max([len(name), *(len(row[index]) for row in cells)])
            for index, name in enumerate(self.columns)
        ]
        numeric = [bool(shown) and is_number(shown[0][name]) for name in self.columns]
        lines = [
            "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(row, widths, numeric, strict=True)
            ).rstrip()
            for row in [list(self.columns), *cells]
        ]
        if len(self.rows) > max_rows:
            lines.append(f"... and {len(self.rows) - max_rows:,} more")
        return "\n".join(lines)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def text_of(value: Any, width: int = MAX_CELL_WIDTH) -> str:
    """A value for people: no control characters, and no longer than a cell."""
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return f"{value.year:04}{value:-%m-%d %H:%M}"  # %Y has no zeros before it everywhere
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        is_short = abs(value) < LONG_NUMBER
        return f"{value:,.3f}".rstrip("0").rstrip(".") if is_short else f"{value:g}"
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return text if len(text) <= width else text[: width - 1] + "…"
