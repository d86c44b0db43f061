"""The topics that a connector of the 0.7 design reads by pattern."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ottla.errors import ConfigError
from ottla.registry.znodes import BLACK_LIST, WHITE_LIST
from ottla.structs import INTERNAL_TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterable


class TopicFilter:
    """A list of topics or patterns: commas mean 'or', surrounding blanks and quotes are dropped.

    The patterns are Python's, which agree with Java's as far as topic names need it.
    """

    pattern: str
    """Its name in the registration of a consumer."""
    accepts_matches: bool

    def __init__(self, raw_regex: str) -> None:
        self.regex = raw_regex.strip().replace(",", "|").replace(" ", "").strip("\"'")
        try:
            self._compiled = re.compile(self.regex)
        except re.error as error:
            raise ConfigError(
                f"topic filter {raw_regex!r}: must be a regular expression: {error}"
            ) from None

    def is_topic_allowed(self, topic: str, exclude_internal_topics: bool = True) -> bool:
        if exclude_internal_topics and topic in INTERNAL_TOPICS:
            return False
        return (self._compiled.fullmatch(topic) is not None) is self.accepts_matches

    def matching(self, topics: Iterable[str], exclude_internal_topics: bool = True) -> list[str]:
        """Those of the topics that are allowed, sorted."""
        return sorted(t for t in topics if self.is_topic_allowed(t, exclude_internal_topics))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.regex!r})"


class Whitelist(TopicFilter):
    """The topics that match."""

    pattern = WHITE_LIST
    accepts_matches = True


class Blacklist(TopicFilter):
    """The topics that do not match."""

    pattern = BLACK_LIST
    accepts_matches = False


FILTERS = {kind.pattern: kind for kind in (Whitelist, Blacklist)}
