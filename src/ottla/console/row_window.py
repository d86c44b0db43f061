"""Lists come in windows of 100 rows: nothing is asked for rows that are not shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.console.refusals import Refused

if TYPE_CHECKING:
    from collections.abc import Collection

    from ottla.console.page import Data, Visit

WINDOW: Final = 100
MOST: Final = 10_000_000
LONGEST_FILTER: Final = 250


class RowWindow:
    """The part of a list that an address names: `from`, `sort`, and `q`, a part of names."""

    def __init__(self, visit: Visit, sorts: Collection[str], sort: str) -> None:
        """Refused for a sort or a filter that there cannot be; `sort` is the one by default."""
        self.q = visit.query.get("q", "")
        self.sort = visit.query.get("sort", sort)
        self.first = visit.number("from", 0, 0, MOST)
        if self.sort not in sorts:
            raise Refused(f"sort={self.sort}: must be one of {', '.join(sorts)}")
        if len(self.q) > LONGEST_FILTER:
            raise Refused(f"q: has more than {LONGEST_FILTER} letters, as no name has")

    def has(self, name: str) -> bool:
        """Whether a name passes the filter, in any case."""
        return self.q.lower() in name.lower()

    def data(self, found: int, total: int) -> Data:
        """The parts of the page that lead to other windows."""
        first, end = self.first, self.first + WINDOW
        return {
            "first": first,
            "total": total,
            "found": found,
            "next": end if end < found else None,
            "previous": max(0, first - WINDOW) if first else None,
            "q": self.q,
            "sort": self.sort,
        }
