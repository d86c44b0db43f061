"""The page of metrics: each series of the brokers by its name, and pinned ones as plots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.console.metrics_samples import MetricSample, MetricSamples, rates_of
from ottla.console.page import ConsolePage, Data, Visit
from ottla.console.refusals import Refused
from ottla.console.row_window import WINDOW, RowWindow
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_PINS: Final = 8
LONGEST_PINS: Final = 8_192
BETWEEN: Final = "\n"
"""Between pins in an address: no name of a series has it."""


class MetricLine(NamedTuple):
    """A series; None for a number that is not known, the text is as the broker has written it."""

    name: str
    labels: str
    url: str
    text: str
    value: float | None
    per_second: float | None
    """How fast a counter grows; None for other types."""
    values: list[float | None]
    """The last ten minutes: of a counter its growth a second."""
    help: str
    pin: str
    is_pinned: bool
    points: list[dict[str, float | None]]
    """The points of a pinned series: time in ms, value, and growth a second."""


class NamedSample(NamedTuple):
    """A sample with its endpoint."""

    url: str
    sample: MetricSample


SORTS: Final[dict[str, Callable[[NamedSample], tuple[Any, ...]]]] = {
    "name": lambda each: (each.sample.series, each.url),
    "value": lambda each: (-(each.sample.value or 0.0), each.sample.series, each.url),
}


async def metrics(visit: Visit) -> Data:
    """A window of the series whose names or labels have `q` in them, and the pinned ones."""
    window = RowWindow(visit, SORTS, "name")
    pins = pins_of(visit)
    samples = visit.cluster.part(MetricSamples)
    if not samples.states and visit.settings.metrics:
        await samples.read()
    every = [NamedSample(url, each) for (url, _), each in samples.samples.items()]
    found = [each for each in every if window.has(each.sample.series)]
    found.sort(key=SORTS[window.sort])
    shown = found[window.first : window.first + WINDOW]
    by_pin = {pin_of(each): each for each in every} if pins else {}
    return {
        **window.data(len(found), len(every)),
        "rows": [metric_line(samples, each, pins) for each in shown],
        "pinned": [metric_line(samples, by_pin[pin], pins) for pin in pins if pin in by_pin],
        "gone": [pin for pin in pins if pin not in by_pin],
        "pins": pins,
        "endpoints": samples.states,
        "is_asked": bool(visit.settings.metrics),
        "between": BETWEEN,
    }


def pins_of(visit: Visit) -> list[str]:
    """The pins of the address; Refused for too many."""
    text = visit.query.get("pin", "").replace("\r\n", BETWEEN)
    pins = list(dict.fromkeys(filter(None, text.split(BETWEEN))))
    if len(pins) > MOST_PINS or len(text) > LONGEST_PINS:
        raise Refused(
            f"pin: an address has at most {MOST_PINS} series and {LONGEST_PINS:,} letters"
        )
    return pins


def pin_of(each: NamedSample) -> str:
    """A series of an endpoint in an address."""
    return f"{each.sample.series} {each.url}"


def metric_line(samples: MetricSamples, each: NamedSample, pins: list[str]) -> MetricLine:
    """A line of the table, or of the pinned ones."""
    series, pin = each.sample.series, pin_of(each)
    name, brace, labels = series.partition("{")
    points = samples.points((each.url, series))
    rates = rates_of(points) if samples.is_counter(series) else []
    values = [value for _, value in points]
    of_plot = zip(points, rates or [None] * len(points), strict=True) if pin in pins else ()
    return MetricLine(
        name,
        brace + labels,
        each.url,
        each.sample.text,
        each.sample.value,
        next((rate for rate in reversed(rates) if rate is not None), None),
        rates or values,
        samples.help.get(name, ""),
        pin,
        pin in pins,
        [{"time_ms": at_ms, "value": value, "rate": rate} for (at_ms, value), rate in of_plot],
    )


METRICS_PAGES: Final = (
    ConsolePage(
        "/metrics",
        metrics,
        "metrics.html",
        "Metrics",
        rail="Metrics",
        command="ottla metrics",
        refresh_s=5,
        home=True,
    ),
)
