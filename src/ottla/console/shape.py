"""The shape of a topic's values: the fields of JSON in a sample of the newest records."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from ottla.console.decoding import RawNumber, harmless, parse_exactly
from ottla.console.newest_first import Limits, NewestFirst
from ottla.console.page import ConsolePage, Data, Visit
from ottla.console.record_query import record_query
from ottla.console.records import Shower, record_source
from ottla.structs import NamedTuple, Value, field

SAMPLE: Final = 500
LIMITS: Final = Limits(records=5_000, bytes=8 * 1024 * 1024, ms=3_000)
MOST_FIELDS: Final = 300
MOST_DISTINCT: Final = 200
MOST_DEPTH: Final = 12
EXAMPLES: Final = 3
EXAMPLE_LETTERS: Final = 60
PLAIN_PATH: Final = re.compile(r"[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)*")
KINDS: Final = {bool: "true or false", str: "text", dict: "object", list: "list"}


class FieldOfShape(Value):
    """What a sample has at one path."""

    present: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    values: dict[str, int] = field(default_factory=dict)
    """Texts of values, with how often each was seen; no more than 200 of them."""
    low: Decimal | None = None
    high: Decimal | None = None

    def add(self, value: Any) -> None:
        """Count a value."""
        self.kinds[kind_of(value)] += 1
        if isinstance(value, dict | list):
            return
        text = "null" if value is None else str(value)
        if text in self.values or len(self.values) < MOST_DISTINCT:
            self.values[text] = self.values.get(text, 0) + 1
        if isinstance(value, RawNumber):
            self._add_number(value)

    def _add_number(self, text: str) -> None:
        try:
            number = Decimal(text)
        except InvalidOperation:
            return
        if number.is_finite():
            self.low = number if self.low is None else min(self.low, number)
            self.high = number if self.high is None else max(self.high, number)


class FieldLine(NamedTuple):
    """A field as the page shows it; `share` is the part of the sample that has it."""

    path: str
    kinds: list[str]
    share: float
    distinct: int
    is_more: bool
    """Whether there are more values than were counted."""
    low: str
    high: str
    examples: list[str]
    condition: str
    """One that finds the records with the first example; empty where the path has lists."""


def kind_of(value: Any) -> str:
    """The kind of a JSON value, in a word."""
    if value is None:
        return "null"
    if isinstance(value, RawNumber):
        return "integer" if re.fullmatch(r"-?\d+", value) else "decimal"
    return KINDS[type(value)]


def fields_in(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """The paths of a JSON value and the values there; the items of a list share one path."""
    if path:
        yield path, value
    if depth >= MOST_DEPTH:
        return
    if isinstance(value, dict):
        for name, each in value.items():
            yield from fields_in(each, f"{path}.{name}" if path else name, depth + 1)
    elif isinstance(value, list):
        for each in value:
            yield from fields_in(each, f"{path}[]", depth + 1)


def shape_of(values: list[bytes | None]) -> tuple[int, dict[str, FieldOfShape]]:
    """How many of the values are JSON objects or lists, and their fields."""
    parsed_count, found = 0, dict[str, FieldOfShape]()
    for data in values:
        try:
            parsed = None if data is None else parse_exactly(data)
        except (ValueError, RecursionError):
            continue
        if not isinstance(parsed, dict | list):
            continue
        parsed_count += 1
        seen = set()
        for path, value in fields_in(parsed):
            if path not in found and len(found) >= MOST_FIELDS:
                continue
            of_path = found.setdefault(path, FieldOfShape())
            of_path.add(value)
            seen.add(path)
        for path in seen:
            found[path].present += 1
    return parsed_count, found


def line_of_field(path: str, found: FieldOfShape, count: int) -> FieldLine:
    """The line of a field; a sample of so many values."""
    often = sorted(found.values, key=lambda text: -found.values[text])
    kinds = [kind for kind, _ in found.kinds.most_common()]
    return FieldLine(
        harmless(path)[:EXAMPLE_LETTERS],
        kinds,
        found.present / count,
        len(found.values),
        len(found.values) >= MOST_DISTINCT,
        "" if found.low is None else str(found.low),
        "" if found.high is None else str(found.high),
        [harmless(each)[:EXAMPLE_LETTERS] for each in often[:EXAMPLES]],
        condition_for(path, kinds[0], often[0] if often else ""),
    )


def condition_for(path: str, kind: str, example: str) -> str:
    """The condition that a field has the value of an example."""
    if not PLAIN_PATH.fullmatch(path) or kind not in ("text", "integer", "decimal"):
        return ""
    if kind == "text":
        example = "'" + example.replace("'", "''") + "'"
    return f"value.{path} = {example}" if len(example) <= EXAMPLE_LETTERS else ""


async def shape(visit: Visit) -> Data:
    """Take a sample of the newest records, and look at the fields of their values."""
    shower = Shower(visit, str(visit.place["topic"]))
    query = await record_query(visit)
    step = max(1, SAMPLE // max(1, len(query.spans)))
    source, clock = record_source(visit, query), visit.cluster.runtime.clock
    taken = await NewestFirst(source, clock, query.spans, LIMITS, step=step).take(SAMPLE)
    values = [shower.hide(each).value for each in taken]
    count, found = shape_of(values)
    return {
        "topic": query.topic.name,
        "sample": len(values),
        "json": count,
        "null": values.count(None),
        "fields": [line_of_field(path, each, count) for path, each in found.items()],
        "is_whole": len(found) < MOST_FIELDS,
    }


SHAPE_PAGES: Final = (
    ConsolePage(
        "/t/{topic}/shape",
        shape,
        "shape.html",
        "{topic}",
        "Topics",
        f"ottla tail {{topic}} -n {SAMPLE} --format json",
        tab="Shape",
        table="fields",
    ),
)
