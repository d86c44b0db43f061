"""The regular expressions that members subscribe to, and the topics that they stand for.

Kafka's are those of RE2, which looks at each character once. Python's may look back without end,
so an expression that could is refused, beside those that RE2 does not have either: a client must
not be able to stop the broker.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod
from re import _constants as codes  # type: ignore[attr-defined]  # the only ones who know how
from re import _parser as parser  # type: ignore[attr-defined]  # Python reads an expression
from typing import Any, Final

from ottla.coordinator.group.consumer.topics import ClusterTopics
from ottla.errors import ErrorCode, KafkaError

MAX_NAME_LENGTH: Final = 249
MAX_WAYS: Final = 250**3
"""As many as `.*a.*b.*` has in the longest name."""
MAX_EXPONENT: Final = 32
MAX_LENGTH: Final = 4096


class _RefusedError(Exception):
    """The expression could take long, or is of a kind that RE2 does not have."""


@lru_cache(maxsize=256)
def compile_regex(text: str) -> re.Pattern[str]:
    """The expression; INVALID_REGULAR_EXPRESSION if it is none, or may not be used."""
    try:
        if len(text) > MAX_LENGTH:
            raise _RefusedError(f"it is longer than {MAX_LENGTH} characters")
        if _ways(parser.parse(text)) > MAX_WAYS:
            raise _RefusedError("it can fit a name in too many ways")
        return re.compile(text)
    except (re.error, _RefusedError, RecursionError, OverflowError) as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex {text[:100]!r} is not a valid regular expression: {error}",
        ) from error


def matching_topics(text: str, topics: ClusterTopics) -> frozenset[str]:
    """The names of the topics that the whole expression fits."""
    pattern = compile_regex(text)
    return frozenset(topic.name for topic in topics.topics() if pattern.fullmatch(topic.name))


def _ways(tree: Any) -> int:
    """In how many ways the expression could fit one name, at most: that many are tried."""
    return prod(_ways_of(code, argument) for code, argument in tree)


def _ways_of(code: Any, argument: Any) -> int:
    if code in (codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.IN, codes.AT):
        return 1
    if code is codes.BRANCH:
        return sum(_ways(branch) for branch in argument[1])
    if code is codes.SUBPATTERN:
        return _ways(argument[3])
    if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
        least, most, body = argument
        ways = _ways(body)
        times = min(most, MAX_NAME_LENGTH)
        if ways > 1 and times > MAX_EXPONENT:
            raise _RefusedError("a repeat of what can fit in several ways is not supported")
        return int(max(times - least + 1, 1) * ways**times)
    raise _RefusedError("look-around, references and atomic groups are not supported")
