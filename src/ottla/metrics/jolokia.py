"""JSON in the manner of Jolokia, which Kafka's users read JMX with over HTTP."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from fnmatch import translate
from typing import Any

from ottla.metrics.exposition import number
from ottla.metrics.metrics_registry import Attributes, FamilyName, MetricsRegistry, Tags, attributes


class BeanPattern:
    """The name of an MBean, or of several: `*` and `?` stand for any text, `,*` for more tags."""

    def __init__(self, text: str) -> None:
        domain, _, properties = text.partition(":")
        self._domain = re.compile(translate(domain))
        found = [part.partition("=") for part in _properties(properties)]
        self._values = {
            key: re.compile(translate(_unquoted(value))) for key, equals, value in found if equals
        }
        self._has_more = ("*", "", "") in found
        self.is_exact = not re.search(r"(?<!\\)[*?]", text)

    def matches(self, name: FamilyName, tags: Tags) -> bool:
        """Whether an MBean has the domain and the tags; their order says nothing."""
        if self._domain.match(name.domain) is None:
            return False
        found = {"type": name.type, **({"name": name.name} if name.name else {}), **dict(tags)}
        if not self._has_more and found.keys() != self._values.keys():
            return False
        return all(key in found and value.match(found[key]) for key, value in self._values.items())


def _properties(text: str) -> Iterator[str]:
    """The parts between commas; a comma in quotes, where `\\` stands before any, is none."""
    part, is_quoted, is_escaped = "", False, False
    for letter in text:
        if letter == "," and not is_quoted:
            yield part
            part = ""
            continue
        part += letter
        if letter == '"' and not is_escaped:
            is_quoted = not is_quoted
        is_escaped = letter == "\\" and is_quoted and not is_escaped
    yield part


def _unquoted(value: str) -> str:
    """The value of a tag without its quotes; the text in them is meant as it is."""
    if not value.startswith('"'):
        return value
    plain = re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], value[1:-1])
    return re.sub(r"([*?[])", r"[\1]", plain)


def read_beans(
    registry: MetricsRegistry, pattern: BeanPattern, attribute: str | None = None
) -> Iterator[tuple[str, Attributes] | None]:
    """Name and attributes of each MBean that matches, or one attribute; None for another."""
    now_ms = registry.now_ms
    for reading in registry.read():
        if reading is None or not pattern.matches(reading.family.name, reading.tags):
            yield None
            continue
        family, tags, value = reading
        shown = attributes(value, now_ms)
        if attribute is None:
            yield family.name.bean(tags), shown
        elif attribute in shown:
            yield family.name.bean(tags), {attribute: shown[attribute]}
        else:
            yield None


def finite(value: Any) -> Any:
    """The same with NaN and infinities as text, as Jolokia has them: JSON has no such numbers."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else number(value)
    return value
