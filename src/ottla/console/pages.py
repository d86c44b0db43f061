"""The table of all pages, changes and streams of the console; see `page` for their interface."""

from __future__ import annotations

from typing import Final

from ottla.console.group_pages import GROUP_CHANGES, GROUP_PAGES, groups_behind
from ottla.console.group_reset import RESET_CHANGES, RESET_PAGES
from ottla.console.lag_collector import LagCollector
from ottla.console.overview import overview, partitions_in_danger
from ottla.console.page import ConsoleChange, ConsolePage, ConsoleStream
from ottla.console.topics import TOPIC_PAGES

COLLECTORS: Final = (LagCollector,)
"""What looks at the cluster as long as the console runs; `ConsoleCluster.part` has each."""

WATCHERS: Final = (partitions_in_danger, groups_behind)
"""What may want attention on the overview."""

PAGES: Final[tuple[ConsolePage, ...]] = (
    overview(WATCHERS),
    *TOPIC_PAGES,
    *GROUP_PAGES,
    *RESET_PAGES,
)
CHANGES: Final[tuple[ConsoleChange, ...]] = (*GROUP_CHANGES, *RESET_CHANGES)
STREAMS: Final[tuple[ConsoleStream, ...]] = ()
