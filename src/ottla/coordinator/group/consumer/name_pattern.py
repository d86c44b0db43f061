"""The regular expressions that members subscribe to, and the topics that they match.

Kafka uses RE2, which reads each character once. Python's matcher may backtrack almost without end,
and a client could stop the broker with that. So Python only parses an expression here; it is
matched by an automaton, whose sets of places are made when a name first leads to them. Syntax that
RE2 does not support is refused, and so is an expression that needs more places or more steps than
the limits below.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from re import _constants as codes  # type: ignore[attr-defined]  # no public module shows how
from re import _parser as parser  # type: ignore[attr-defined]  # Python parses an expression
from typing import Any, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.structs import NamedTuple

MAX_LENGTH: Final = 4096
MAX_REPEAT: Final = 1000
MAX_PLACES: Final = 5_000
"""The places of one automaton, whose repeats are written out."""
MAX_STEPS: Final = 50_000
"""The steps that make the sets of one search; a step is a place that is looked at."""
MAX_KEPT_NAMES: Final = 200_000
"""The names that all remembered expressions match, together."""
STEPS_OF_SEARCH: Final = 200
"""What the search for an expression among many topics is worth, at least."""
MAX_KEPT_STEPS: Final = 20_000
"""An automaton whose sets took more forgets them before the next search."""
WORD: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
CATEGORIES: Final = {
    codes.CATEGORY_DIGIT: frozenset("0123456789"),
    codes.CATEGORY_SPACE: frozenset(" \t\n\r\f\v"),
    codes.CATEGORY_WORD: WORD,
}
OTHER_CATEGORIES: Final = {
    codes.CATEGORY_NOT_DIGIT: CATEGORIES[codes.CATEGORY_DIGIT],
    codes.CATEGORY_NOT_SPACE: CATEGORIES[codes.CATEGORY_SPACE],
    codes.CATEGORY_NOT_WORD: CATEGORIES[codes.CATEGORY_WORD],
}


class NamePattern:
    """A regular expression that matches whole names, in time that grows with their length only."""

    def __init__(self, text: str) -> None:
        self.pattern = text
        self._automaton = Automaton(text)
        self._kept_steps = 0
        self._sets: dict[tuple[frozenset[int], str], PlaceSet] = {}

    def fullmatch(self, name: str) -> bool:
        """Whether the expression matches the name as a whole.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION where that takes more steps than a search may.
        """
        return self.matching([name]) == [name]

    def matching(self, names: Iterable[str]) -> list[str]:
        """The names that the expression matches, by one search; raises as `fullmatch`."""
        if self._kept_steps > MAX_KEPT_STEPS:
            self._sets.clear()
            self._kept_steps = 0
        self._steps_left = MAX_STEPS
        start = self._set(frozenset([self._automaton.start]), "")
        found = []
        for name in names:
            current = start
            for character in name:
                current = current[character]
            if self._ends(current):
                found.append(name)
        return found

    def following(self, current: PlaceSet, character: str) -> PlaceSet:
        """The places after one more character."""
        automaton = self._automaton
        reached = self._reached(current, character)
        places: set[int] = set()
        cost = len(reached)
        for place in reached:
            takes = automaton.takes[place]
            if isinstance(takes, CharacterSet):
                cost += len(takes.ranges)
                if takes.accepts(character):
                    places.add(automaton.next[place][0])
        self._spend(cost)
        return self._set(frozenset(places), before(character) if automaton.has_assertions else "")

    def _set(self, places: frozenset[int], before: str) -> PlaceSet:
        key = (places, before)
        found = self._sets.get(key)
        if found is None:
            found = self._sets[key] = PlaceSet(self, places, before)
        return found

    def _ends(self, current: PlaceSet) -> bool:
        if current.is_end is None:
            current.is_end = self._automaton.end in self._reached(current, "")
        return current.is_end

    def _reached(self, current: PlaceSet, after: str) -> list[int]:
        if current.reached is not None:
            return current.reached
        reached, steps = self._automaton.reachable(current.places, current.before, after)
        self._spend(steps + 1)
        if not self._automaton.has_assertions:
            current.reached = reached
        return reached

    def _spend(self, steps: int) -> None:
        self._kept_steps += steps
        self._steps_left -= steps
        if self._steps_left < 0:
            raise invalid_regex(self.pattern, "it takes too long to match")


class _RefusedError(Exception):
    """The expression could take long, or is of a kind that RE2 does not support."""


class CharacterSet(NamedTuple):
    """The characters that one place of an automaton takes."""

    characters: frozenset[str]
    ranges: tuple[tuple[str, str], ...] = ()
    complements: tuple[frozenset[str], ...] = ()
    is_negated: bool = False
    ignores_case: bool = False

    def accepts(self, character: str) -> bool:
        """Whether the character is one of them."""
        found = self._has(character)
        if self.ignores_case and not found:
            found = self._has(character.lower()) or self._has(character.upper())
        return found is not self.is_negated

    def _has(self, character: str) -> bool:
        return (
            character in self.characters
            or any(first <= character <= last for first, last in self.ranges)
            or any(character not in complement for complement in self.complements)
        )


class Assertion(NamedTuple):
    """The condition of a place of an automaton on the characters at its two sides; "" is an end."""

    code: Any
    is_multiline: bool

    def holds(self, before: str, after: str) -> bool:
        """Whether it is true between these two."""
        if self.code is codes.AT_BEGINNING or self.code is codes.AT_BEGINNING_STRING:
            is_line = self.is_multiline and self.code is codes.AT_BEGINNING
            return not before or (is_line and before == "\n")
        if self.code is codes.AT_END or self.code is codes.AT_END_STRING:
            is_line = self.is_multiline and self.code is codes.AT_END
            return not after or (is_line and after == "\n")
        is_boundary = (before in WORD) is not (after in WORD)
        return is_boundary is (self.code is codes.AT_BOUNDARY)


class Automaton:
    """The places of an expression: each takes a character, asserts something, or only leads on."""

    def __init__(self, text: str) -> None:
        tree = parser.parse(text)
        self.takes: list[CharacterSet | Assertion | None] = []
        self.next: list[tuple[int, ...]] = []
        self.end = self._place(None)
        self.start = self._sequence(tree, tree.state.flags, self.end)
        self.has_assertions = any(isinstance(each, Assertion) for each in self.takes)

    def reachable(self, places: Collection[int], before: str, after: str) -> tuple[list[int], int]:
        """The places that take a character, or are the end, and how many were looked at."""
        seen = set(places)
        waiting = list(seen)
        found = []
        while waiting:
            place = waiting.pop()
            takes = self.takes[place]
            if isinstance(takes, CharacterSet) or place == self.end:
                found.append(place)
            elif takes is None or takes.holds(before, after):
                new = [each for each in self.next[place] if each not in seen]
                seen.update(new)
                waiting += new
        return found, len(seen)

    def _place(self, takes: CharacterSet | Assertion | None, *following: int) -> int:
        if len(self.takes) >= MAX_PLACES:
            raise _RefusedError("it is too large with its repeats written out")
        self.takes.append(takes)
        self.next.append(following)
        return len(self.takes) - 1

    def _sequence(self, tree: Any, flags: int, end: int) -> int:
        """Add the places that lead to `end`, from the last item back; returns where it begins."""
        for code, argument in reversed(list(tree)):
            end = self._item(code, argument, flags, end)
        return end

    def _item(self, code: Any, argument: Any, flags: int, end: int) -> int:
        if code is codes.AT:
            return self._place(Assertion(argument, bool(flags & re.MULTILINE)), end)
        if code is codes.BRANCH:
            return self._place(None, *[self._sequence(each, flags, end) for each in argument[1]])
        if code is codes.SUBPATTERN:
            _, added, removed, body = argument
            return self._sequence(body, (flags | added) & ~removed, end)
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            return self._repeat(argument, flags, end)
        return self._place(character_set(code, argument, flags), end)

    def _repeat(self, argument: Any, flags: int, end: int) -> int:
        least, most, body = argument
        if least > MAX_REPEAT or MAX_REPEAT < most < codes.MAXREPEAT:
            raise _RefusedError(f"more than {MAX_REPEAT} repeats are not supported")
        start = end
        if most == codes.MAXREPEAT:
            start = self._place(None)
            self.next[start] = (self._sequence(body, flags, start), end)
        else:
            for _ in range(most - least):
                start = self._place(None, self._sequence(body, flags, start), end)
        for _ in range(least):  # a place of its own, as a body may have none
            start = self._place(None, self._sequence(body, flags, start))
        return start


def character_set(code: Any, argument: Any, flags: int) -> CharacterSet:
    """The characters that an item of an expression takes."""
    ignores_case = bool(flags & re.IGNORECASE)
    if code is codes.ANY:
        taken = () if flags & re.DOTALL else ("\n",)
        return CharacterSet(frozenset(taken), is_negated=True)
    if code in (codes.LITERAL, codes.NOT_LITERAL):
        is_negated = code is codes.NOT_LITERAL
        items = [(codes.LITERAL, argument)]
    elif code is codes.IN:
        is_negated = argument[0][0] is codes.NEGATE
        items = argument[is_negated:]
    else:
        raise _RefusedError("look-around, references and atomic groups are not supported")
    characters: set[str] = set()
    for kind, value in items:
        if kind is codes.LITERAL:
            characters.add(chr(value))
        elif kind is codes.CATEGORY:
            characters |= CATEGORIES.get(value, frozenset())
    ranges = [value for kind, value in items if kind is codes.RANGE]
    complements = [
        OTHER_CATEGORIES[value]
        for kind, value in items
        if kind is codes.CATEGORY and value in OTHER_CATEGORIES
    ]
    return CharacterSet(
        frozenset(characters),
        tuple((chr(first), chr(last)) for first, last in ranges),
        tuple(complements),
        is_negated,
        ignores_case,
    )


class PlaceSet(dict[str, "PlaceSet"]):
    """The places that a name may have led to, and by character the set that comes next.

    `before` stands for the character in front, where assertions ask for it.
    """

    __slots__ = ("before", "is_end", "pattern", "places", "reached")

    def __init__(self, pattern: NamePattern, places: frozenset[int], before: str) -> None:
        self.pattern = pattern
        self.places = places
        self.before = before
        self.is_end: bool | None = None
        self.reached: list[int] | None = None
        """The places without a character ahead, where no assertion asks for the next one."""

    def __missing__(self, character: str) -> PlaceSet:
        following = self[character] = self.pattern.following(self, character)
        return following


def before(character: str) -> str:
    """One that is the same to all assertions about the text after it."""
    if character == "\n":
        return character
    return "a" if character in WORD else "-"


def invalid_regex(text: str, why: object) -> KafkaError:
    """The error of an expression that is malformed or refused."""
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex {text[:100]!r} is not a valid regular expression: {why}",
    )


@lru_cache(maxsize=64)
def compile_regex(text: str) -> NamePattern:
    """The compiled expression; INVALID_REGULAR_EXPRESSION if it is malformed or refused."""
    try:
        if len(text) > MAX_LENGTH:
            raise _RefusedError(f"it is longer than {MAX_LENGTH} characters")
        return NamePattern(text)
    except (re.error, _RefusedError, RecursionError, OverflowError) as error:
        raise invalid_regex(text, error) from None
