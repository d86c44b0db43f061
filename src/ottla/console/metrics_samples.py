"""The brokers' metrics, read again and again from their listeners, with a short history of each.

The text is that for Prometheus: of `metrics.listener` of Ottla's brokers, or of the JMX exporter in
Apache Kafka's. What is kept is bounded: 5,000 series with ten minutes each.
"""

from __future__ import annotations

import asyncio
import re
from functools import partial
from itertools import islice
from math import isfinite, nan
from typing import TYPE_CHECKING, Final

from ottla.console.lag_history import LOOK_MS, Recent, Ring
from ottla.runtime.http_calls import CALL_LIMIT_S, CallError, read_text, shown_url
from ottla.runtime.scheduler import pause
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ottla.console.console_cluster import ConsoleCluster
    from ottla.runtime import Clock

MOST_BYTES: Final = 16 * 1024 * 1024
MOST_SERIES: Final = 5_000
MOST_READ: Final = 50_000
SLOTS: Final = 120
LONGEST_LINE: Final = 4_096
LINE: Final = re.compile(
    r"(?P<name>[A-Za-z_:][\w:]*+)(?:[ \t]*+(?P<labels>\{.*\}))?"
    r"[ \t]++(?P<value>\S++)(?:[ \t]++-?\d++)?[ \t]*+"
)
"""Of a line that does not match, each letter is looked at a few times: no two repetitions that
stand side by side take the same letters."""
TEXT_LINE: Final = re.compile(r"[^\n]+")
LABEL: Final = re.compile(r'\b([A-Za-z_]\w*+)="((?:[^"\\]|\\.)*+)"')
PIECE: Final = 1_000
"""Lines and samples between two turns of other work."""
ABOUT: Final = re.compile(r"# (?P<kind>HELP|TYPE) (?P<name>[A-Za-z_:][\w:]*) (?P<text>.*)")


class MetricSample(NamedTuple):
    """A series in the text of one endpoint; the value as it is written there."""

    series: str
    """The name with its labels: `kafka_server_brokertopicmetrics_bytesin_total{topic="a"}`."""
    text: str

    @property
    def value(self) -> float | None:
        """The number; None for NaN and infinity, and for a text that is none."""
        try:
            found = float(self.text)
        except ValueError:
            return None
        return found if isfinite(found) else None


class MetricsText(NamedTuple):
    """A page of metrics in its parts; `error` is the reason why there is none."""

    samples: Sequence[MetricSample] = ()
    help: Mapping[str, str] = {}
    types: Mapping[str, str] = {}
    error: str = ""


class EndpointState(NamedTuple):
    """An endpoint as the last reading has found it; `error` is empty where it has answered."""

    url: str
    error: str
    series: int
    is_cut: bool
    """Whether it has more series than are read."""


class MetricSamples:
    """The newest samples of all endpoints and their history; a collector of the console."""

    def __init__(self, cluster: ConsoleCluster) -> None:
        self._cluster = cluster
        self._urls = cluster.settings.metrics
        self._rings: Recent[tuple[str, str], Ring] = Recent(MOST_SERIES)
        self.samples: dict[tuple[str, str], MetricSample] = {}
        """The newest samples, by the endpoint's address, without password, and the series."""
        self.help: dict[str, str] = {}
        self.types: dict[str, str] = {}
        self.states: list[EndpointState] = []

    async def run(self) -> None:
        """Read until it is cancelled."""
        runtime = self._cluster.runtime
        while self._urls:
            took_ms = await self.read()
            await pause(runtime.scheduler, self._cluster.pause_ms(took_ms, LOOK_MS))

    async def read(self) -> int:
        """Read all endpoints once, at the same time; one that does not answer has no samples.

        Returns the ms that the slowest answer took: an endpoint that hangs costs no broker time,
        and the others are read as often as without it.
        """
        found = await asyncio.gather(*(self._answer_of(each) for each in self._urls))
        now_ms = self._cluster.runtime.clock.now_ms()
        samples: dict[tuple[str, str], MetricSample] = {}
        states = []
        for url, (text, _) in zip(map(shown_url, self._urls), found, strict=True):
            kept = text.samples[:MOST_READ]
            states.append(EndpointState(url, text.error, len(kept), len(text.samples) > len(kept)))
            self._know(text)
            for index, each in enumerate(kept):
                samples[url, each.series] = each
                self._note(now_ms, (url, each.series), each.value)
                if not index % PIECE:
                    await asyncio.sleep(0)  # pages are not kept waiting for all of them
        self.samples, self.states = samples, states
        return max((took_ms for text, took_ms in found if not text.error), default=0)

    async def _answer_of(self, url: str) -> tuple[MetricsText, int]:
        """The answer of an endpoint, and the ms that it took."""
        runtime = self._cluster.runtime
        read = partial(metrics_text, runtime.clock, url)
        began_ms = runtime.clock.monotonic_ms()
        try:
            text = await self._cluster.limits.calls.run(read)
        except CallError as error:
            text = MetricsText(error=f"{shown_url(url)}: {error}")
        return text, runtime.clock.monotonic_ms() - began_ms

    def _know(self, text: MetricsText) -> None:
        """Keep the words of help and the types, the newest ones where they are too many."""
        for known, found in ((self.help, text.help), (self.types, text.types)):
            known.update(found)
            while len(known) > MOST_READ:
                del known[next(iter(known))]

    def _note(self, now_ms: int, key: tuple[str, str], value: float | None) -> None:
        ring = self._rings.touch(key, metric_ring, now_ms)
        if ring is not None:
            ring.put(ring.slot(now_ms), nan if value is None else value)

    def points(self, key: tuple[str, str]) -> list[tuple[int, float | None]]:
        """Times in ms and values of the last ten minutes, the oldest first; None for a gap."""
        ring = self._rings.get(key)
        if ring is None:
            return []
        values = ring.values(ring.slots().start, ring.slots().stop)
        slots = zip(ring.slots(), values, strict=True)
        return [(slot * ring.step_ms, None if v != v else v) for slot, v in slots]

    def is_counter(self, series: str) -> bool:
        """Whether a series only grows, so that its rate says more than its value."""
        name = series.partition("{")[0]
        return self.types.get(name) == "counter" or name.endswith(("_total", "_count"))


def metric_ring() -> Ring:
    """Ten minutes of a series."""
    return Ring(LOOK_MS, SLOTS, "d", nan)


def rates_of(points: Sequence[tuple[int, float | None]]) -> list[float | None]:
    """The growth a second to each point since the one before; one that has begun again has 0."""
    found: list[float | None] = [None] * len(points)
    before: tuple[int, float] | None = None
    for index, (time_ms, value) in enumerate(points):
        if value is None:
            continue
        if before is not None:
            rate = max(0.0, (value - before[1]) * 1000 / (time_ms - before[0]))
            found[index] = rate if isfinite(rate) else None
        before = (time_ms, value)
    return found


def metrics_text(clock: Clock, url: str) -> MetricsText:
    """The page of metrics at an address, for a thread that may wait; CallError for none."""
    text = read_text(clock, url, MOST_BYTES, CALL_LIMIT_S)
    abouts = list(abouts_of(text))
    return MetricsText(
        samples_of(text),
        {name: words for kind, name, words in abouts if kind == "HELP"},
        {name: words for kind, name, words in abouts if kind == "TYPE"},
    )


def samples_of(text: str) -> list[MetricSample]:
    """The series of a page of metrics; lines that are none are left out, as is what is too much."""
    found = []
    for line in lines_of(text):
        match = None if line.startswith("#") else LINE.fullmatch(line)
        if match is not None:
            found.append(MetricSample(match["name"] + (match["labels"] or ""), match["value"]))
            if len(found) > MOST_READ:
                break
    return found


def abouts_of(text: str) -> Iterator[tuple[str, str, str]]:
    """Kind, name and words of the lines of help and of types, as far as these are read."""
    lines = (line for line in lines_of(text) if line.startswith("# "))
    found = (match for match in map(ABOUT.match, lines) if match)
    for match in islice(found, 2 * MOST_READ):
        yield match["kind"], match["name"], match["text"]


def lines_of(text: str) -> Iterator[str]:
    """The lines of a page, without those that are too long."""
    for found in TEXT_LINE.finditer(text):
        if found.end() - found.start() <= LONGEST_LINE:
            yield found.group().rstrip("\r")


def labels_of(series: str) -> Mapping[str, str]:
    """The labels of a series, as they are written."""
    return dict(LABEL.findall(series.partition("{")[2]))
