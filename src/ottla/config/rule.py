"""Rules that values of settings keep: a sentence for people and a predicate for the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.config.whole_number import number_of
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Rule(NamedTuple):
    """`text` completes "the value must ..."; `holds` decides."""

    text: str
    holds: Callable[[Any], bool]


def at_least(minimum: float) -> Rule:
    return Rule(f"be at least {minimum}", lambda value: value >= minimum)


def between(minimum: float, maximum: float) -> Rule:
    return Rule(f"be from {minimum} to {maximum}", lambda value: minimum <= value <= maximum)


def one_of(*choices: str) -> Rule:
    return Rule(f"be one of {', '.join(choices)}", lambda value: value in choices)


def each_one_of(*choices: str, may_be_empty: bool = False) -> Rule:
    """A rule for lists: each item is one of `choices`, none is there twice, one is at least."""

    def holds(value: Any) -> bool:
        is_long_enough = may_be_empty or bool(value)
        return is_long_enough and set(value) <= set(choices) and len(set(value)) == len(value)

    return Rule(f"be a list of {', '.join(choices)}{', or empty' if may_be_empty else ''}", holds)


def throttled_replicas() -> Rule:
    """A rule for lists: replicas as partition:broker, or * alone, or nothing."""

    def is_replica(item: str) -> bool:
        partition, colon, broker = item.partition(":")
        return bool(colon) and None not in (number_of(partition, 0), number_of(broker, 0))

    return Rule(
        "be a list of partition:broker, or *",
        lambda value: tuple(value) == ("*",) or all(map(is_replica, value)),
    )


def not_empty() -> Rule:
    return Rule("not be empty", bool)


LONGEST_NAME: Final = 32_767
"""The bytes of a text that the heads of requests, and older requests as a whole, have room for."""


def name_in_requests() -> Rule:
    """A rule for names that go to brokers as they are."""

    def holds(value: Any) -> bool:
        try:
            return len(str(value).encode()) <= LONGEST_NAME
        except UnicodeEncodeError:
            return False

    return Rule(f"be text of at most {LONGEST_NAME} bytes in UTF-8", holds)


def any_of(*rules: Rule) -> Rule:
    """The rule that at least one of `rules` holds."""
    text = ", or ".join(rule.text for rule in rules)
    return Rule(text, lambda value: any(rule.holds(value) for rule in rules))
