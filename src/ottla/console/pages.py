"""The table of all pages, changes and streams of the console; see `page` for their interface."""

from __future__ import annotations

from typing import Final

from ottla.console.overview import overview, partitions_in_danger
from ottla.console.page import ConsoleChange, ConsolePage, ConsoleStream
from ottla.console.topics import TOPIC_PAGES

WATCHERS: Final = (partitions_in_danger,)
"""What may want attention on the overview."""

PAGES: Final[tuple[ConsolePage, ...]] = (overview(WATCHERS), *TOPIC_PAGES)
CHANGES: Final[tuple[ConsoleChange, ...]] = ()
STREAMS: Final[tuple[ConsoleStream, ...]] = ()
