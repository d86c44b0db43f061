"""The page of a site: its topics, how far each reader is, what happened, and in the end the ledger.

Wing: one HTML file that needs no network; it is rewritten while the site runs, and an open browser
shows each new one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ottla.site.ledger import Entry

TEMPLATE = Path(__file__).with_name("site.html")
WIDTH, HEIGHT = 640, 120


class TopicRow(NamedTuple):
    """A topic: its records, and how many a second came on average."""

    name: str
    records: int
    per_second: float


class ReaderRow(NamedTuple):
    """A reader: how much of its topic it has read, what waits, and what came too late for it."""

    name: str
    topic: str
    read: int
    lag: int
    late: int


@dataclass(frozen=True, slots=True)
class Flow:
    """All that the page shows, `at_s` seconds after the start.

    `history` has the number of all records at moments before; `entries` is empty until the end.
    """

    at_s: float
    topics: Sequence[TopicRow]
    readers: Sequence[ReaderRow]
    incidents: Sequence[tuple[float, str]]
    entries: Sequence[Entry]
    history: Sequence[tuple[float, int]]
    refresh_s: int

    @property
    def published(self) -> int:
        return sum(topic.records for topic in self.topics)

    @property
    def line(self) -> str:
        """The points of a line: records over time, in the picture's own coordinates."""
        last_s = max((at_s for at_s, _ in self.history), default=0) or 1
        most = max((count for _, count in self.history), default=0) or 1
        return " ".join(
            f"{at_s / last_s * WIDTH:.1f},{HEIGHT - count / most * HEIGHT:.1f}"
            for at_s, count in self.history
        )

    @property
    def is_right(self) -> bool:
        return all(entry.is_right for entry in self.entries)


def write_page(flow: Flow, path: Path) -> None:
    """Replace the page atomically: a browser sees the old one or the new one."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    fresh = path.with_suffix(".part")
    fresh.write_text(template.render(flow=flow, width=WIDTH, height=HEIGHT), encoding="utf-8")
    os.replace(fresh, path)
