"""Metrics as text for Prometheus.

The names are those that the JMX exporter makes with its rules for Kafka (`kafka-2_0_0.yml`), and
Strimzi's rules where they differ: dashboards made for either find their metrics.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from enum import Enum
from fnmatch import translate
from typing import Any, Final
from zlib import crc32

from ottla.metrics.metrics_registry import (
    NOT_IN_NAMES,
    Family,
    FamilyName,
    Kind,
    MetricsRegistry,
    Number,
    Reading,
    Tags,
    label,
)
from ottla.metrics.sensors import PERCENTILES, RATE_NAMES, Histogram, Meter, Timer
from ottla.structs import NamedTuple

QUANTILES: Final = {name: f"0.{name.removesuffix('thPercentile')}" for name in PERCENTILES}
"""The label of a quantile (0.50, 0.999), by the attribute of the histogram."""

CONNECT: Final = "kafka.connect"
STATUS: Final = "status"
"""An attribute that is a word: in the exporter's rules a label of a series that is 1."""
_PER_SECOND: Final = "PerSec"
_PERCENT: Final = "Percent"


class Naming(Enum):
    """The rules by which metrics get their names in Prometheus."""

    JMX_EXPORTER = "jmx-exporter"
    """The names of the exporter's rules, and Strimzi's where these differ."""
    CONFLUENT = "confluent"
    """The names of the dashboards of Confluent's monitoring stacks."""


class PrometheusName(NamedTuple):
    """A name in Prometheus and its type; a family of MBeans may have several."""

    name: str
    type: str
    attribute: str
    """The attribute of the MBean that it shows."""


def prometheus_base(name: FamilyName) -> str:
    """`kafka.server`, `BrokerTopicMetrics`, `BytesInPerSec` under the rules of the exporter."""
    domain = name.domain.replace(".", "_")
    parts = [domain, name.type, name.name] if name.name else [domain, name.type]
    base = NOT_IN_NAMES.sub("_", "_".join(parts)).lower()
    return f"_{base}" if base[:1].isdigit() else base


def prometheus_names(family: Family, naming: Naming) -> list[PrometheusName]:
    """The names under which a family is shown, but for beans of Kafka's own library.

    A share of time (`...Percent`) is `..._percent` in Strimzi's rules, and in both where it is a
    meter; the exporter's rules keep the name of one that is a gauge.
    """
    name, base = family.name, prometheus_base(family.name)
    if naming is Naming.CONFLUENT:
        return _confluent_names(family.kind, base)
    if family.kind is Kind.METER:
        if name.name.endswith(_PERCENT):
            return [PrometheusName(_with_percent(base), "gauge", "MeanRate")]
        total = base.removesuffix(_PER_SECOND.lower()) + "_total"
        return [PrometheusName(total, "counter", "Count")]
    if family.kind in (Kind.HISTOGRAM, Kind.TIMER):
        counted = PrometheusName(f"{base}_count", "counter", "Count")
        return [counted, PrometheusName(base, "gauge", "")]
    if name.name.endswith(_PERCENT):
        names = (base, _with_percent(base))
        return [PrometheusName(each, "gauge", "Value") for each in names]
    return [PrometheusName(base, "gauge", "Value")]


def _confluent_names(kind: Kind, base: str) -> list[PrometheusName]:
    """Names are kept whole; a meter has its rates as well, a histogram its count without suffix."""
    if kind is Kind.METER:
        rates = [PrometheusName(f"{base}_{name.lower()}", "gauge", name) for name in RATE_NAMES]
        return [PrometheusName(base, "counter", "Count"), *rates]
    if kind in (Kind.HISTOGRAM, Kind.TIMER):
        return [PrometheusName(base, "gauge", attribute) for attribute in ("Count", "")]
    return [PrometheusName(base, "gauge", "Value")]


def _kafka_base(name: FamilyName, naming: Naming) -> str:
    """The prefixes of the names of attributes.

    Confluent writes `socketservermetrics`; the exporter's rules for Connect leave `-metrics` out.
    """
    if naming is Naming.CONFLUENT and name.type == "socket-server-metrics":
        name = name._replace(type="socketservermetrics")
    if naming is Naming.JMX_EXPORTER and name.domain == CONNECT:
        short = name.type.removeprefix("connect-").removesuffix("-metrics")
        name = name._replace(type=short)
    return prometheus_base(name)


def _with_percent(base: str) -> str:
    return f"{base.removesuffix('percent')}_percent"


KEPT_LABELS: Final = 20_000
"""The labels that are kept while a text is written; more would take long to free."""
MAX_LABEL: Final = 500


class Labels:
    """The text of labels by tags, kept while one text is written: many families share them."""

    def __init__(self, naming: Naming) -> None:
        self._known: dict[Tags, str] = {}
        self._label = _lower_label if naming is Naming.CONFLUENT else label

    def text(self, tags: Tags) -> str:
        """`topic="a",partition="0"`: the text within the braces."""
        known = self._known.get(tags)
        if known is None:
            named: dict[str, str] = {}
            for key, value in tags:  # clients name some: of one name the first counts
                named.setdefault(self._label(key), value)
            named.pop("", None)
            known = ",".join(f'{name}="{escaped(short(value))}"' for name, value in named.items())
            if len(self._known) < KEPT_LABELS:
                self._known[tags] = known
        return known


def _lower_label(key: str) -> str:
    return "network_processor" if key == "networkProcessor" else label(key).lower()


def short(value: str) -> str:
    """A value of a label that stands beside each of very many numbers.

    Groups and clients may have names of 32 KB; what tells two of them apart stays behind the cut.
    """
    if len(value) <= MAX_LABEL:
        return value
    return f"{value[:MAX_LABEL]}~{crc32(value.encode('utf-8', 'surrogatepass')):08x}"


def escaped(value: str) -> str:
    """The value of a label as the text format wants it."""
    if '"' in value or "\\" in value or "\n" in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


def number(value: Number) -> str:
    """A number as the text format wants it."""
    if isinstance(value, float):
        if math.isinf(value):
            return "+Inf" if value > 0 else "-Inf"
        return "NaN" if math.isnan(value) else repr(value)
    return str(int(value))


def prometheus_text(
    registry: MetricsRegistry,
    pattern: str | None = None,
    naming: Naming = Naming.JMX_EXPORTER,
) -> Iterator[str]:
    """The whole page, a family or some hundred series at a time; "" where others may run.

    `pattern`, with `*` and `?`, chooses families by their names in Prometheus.
    """
    matches = re.compile(translate(pattern)).match if pattern else None
    names: dict[FamilyName, list[PrometheusName]] = {}

    def is_wanted(family: Family) -> bool:
        names[family.name] = _wanted_names(family, matches, naming)
        return bool(names[family.name])

    labels, now_ms = Labels(naming), registry.now_ms
    page = _Page()
    for reading in registry.read(is_wanted):
        if reading is None:
            yield ""
            continue
        if page.is_done_with(reading.family):
            yield page.take()
        if reading.family.kind is Kind.KAFKA:
            base = _kafka_base(reading.family.name, naming)
            page.add_attributes(reading, base, labels.text(reading.tags), matches)
        else:
            page.add(reading, names[reading.family.name], labels.text(reading.tags), now_ms)
        if page.is_long:
            yield page.take_some()
    yield page.take()


def _wanted_names(family: Family, matches: Any, naming: Naming) -> list[PrometheusName]:
    if family.kind is Kind.KAFKA:
        return [PrometheusName(_kafka_base(family.name, naming), "gauge", "")]
    names = prometheus_names(family, naming)
    return [name for name in names if matches is None or matches(name.name)]


class _Page:
    """The lines of one family, by name: all series of a name stand together in the text."""

    SERIES_AT_ONCE: Final = 200

    def __init__(self) -> None:
        self._family: Family | None = None
        self._lines: dict[str, list[str]] = {}
        self._done: set[str] = set()
        self._count = 0

    def is_done_with(self, family: Family) -> bool:
        """Whether the lines are those of another family, and complete."""
        before, self._family = self._family, family
        return before is not None and before is not family

    @property
    def is_long(self) -> bool:
        """Whether so many series were added that a reader should let others run."""
        self._count += 1
        return self._count % self.SERIES_AT_ONCE == 0

    def take(self) -> str:
        lines, self._lines = self._lines, {}
        self._done |= lines.keys()
        return "".join("".join(each) for each in lines.values())

    def take_some(self) -> str:
        """The lines so far, where all have one name: those of several follow one another."""
        if len(self._lines) != 1:
            return ""
        (lines,) = self._lines.values()
        text = "".join(lines)
        lines.clear()
        return text

    def _begin(self, name: str, type: str, doc: str) -> list[str]:
        doc = doc.replace("\\", r"\\").replace("\n", r"\n")
        return [f"# HELP {name} {doc}\n# TYPE {name} {type}\n"]

    def _put(self, name: PrometheusName, family: Family, labels: str, value: Number | str) -> None:
        if isinstance(value, str) or name.name in self._done:
            return  # Prometheus has numbers only, and all series of a name stand together
        lines = self._lines.get(name.name)
        if lines is None:
            lines = self._lines[name.name] = self._begin(name.name, name.type, family.doc)
        if labels:
            lines.append(f"{name.name}{{{labels}}} {number(value)}\n")
        else:
            lines.append(f"{name.name} {number(value)}\n")

    def add(self, reading: Reading, names: list[PrometheusName], labels: str, now_ms: int) -> None:
        """One series of a gauge, a meter, a histogram or a timer."""
        family, value = reading.family, reading.value
        if isinstance(value, Timer):
            value = value.histogram
        for name in names:
            if isinstance(value, Histogram):
                self._add_histogram(name, family, labels, value, now_ms)
            elif isinstance(value, Meter):
                shown = value.shown(name.attribute, now_ms)
                self._put(name, family, labels, shown)
            elif isinstance(value, int | float):
                self._put(name, family, labels, value)

    def _add_histogram(
        self,
        name: PrometheusName,
        family: Family,
        labels: str,
        value: Histogram,
        now_ms: int,
    ) -> None:
        if name.attribute == "Count":
            self._put(name, family, labels, value.shown_count)
            return
        comma = "," if labels else ""
        for percentile, found in value.snapshot(now_ms).percentiles.items():
            quantile = f'{labels}{comma}quantile="{QUANTILES[percentile]}"'
            self._put(name, family, quantile, found)

    def add_attributes(self, reading: Reading, base: str, labels: str, matches: Any) -> None:
        """One bean of Kafka's own library: each attribute is a metric."""
        assert isinstance(reading.value, dict), "a bean of attributes"
        named: dict[str, str] = {}
        for attribute in reading.value:  # plug-ins name some: of one name the first counts
            named.setdefault(f"{base}_{label(attribute)}".lower(), attribute)
        for name, attribute in named.items():
            value = reading.value[attribute]
            if matches is None or matches(name):
                type = "counter" if attribute.endswith("-total") else "gauge"
                shown = PrometheusName(name, type, attribute)
                if attribute == STATUS:
                    word = f'{labels},{STATUS}="{escaped(str(value))}"'
                    self._put(shown, reading.family, word, 1)
                else:
                    self._put(shown, reading.family, labels, value)
