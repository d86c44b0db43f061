"""The brokers' metrics: their text, their history, and endpoints that mean harm."""

from __future__ import annotations

import asyncio

import pytest

from ottla.console import metrics_samples
from ottla.console.console_settings import ConsoleSettings
from ottla.console.lag_history import LOOK_MS
from ottla.console.metrics_samples import LINE, MetricSamples, labels_of, rates_of, samples_of
from ottla.runtime.http_calls import CallError

PAGE = """# HELP kafka_in_total Bytes in.
# TYPE kafka_in_total counter
kafka_in_total{topic="a b",quote="\\"}"} 9007199254740993
kafka_state{} 3 1700000000000
kafka_p99{quantile="0.99"} NaN
kafka_free +Inf
<script>alert(1)</script> 1
kafka_no_value
kafka_text true
"""


class Clock:
    now = 1_000 * LOOK_MS

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


class Parts:
    """What the samples need of a cluster: the addresses, a clock, and work beside the loop."""

    def __init__(self, *urls: str) -> None:
        self.settings = ConsoleSettings("", metrics=urls)
        self.clock = Clock()
        self.runtime = self.limits = self.calls = self

    async def run(self, work):
        return work()


@pytest.fixture
def pages(monkeypatch):
    """The texts of endpoints by their addresses; an error is raised."""
    found: dict[str, str | CallError] = {}

    def read(_clock: object, url: str, *_limits: float) -> str:
        text = found[url]
        if isinstance(text, CallError):
            raise text
        return text

    monkeypatch.setattr(metrics_samples, "read_text", read)
    return found


def test_text_is_read_line_by_line():
    """Digits stay as they are; what is no series is left out."""
    samples = samples_of(PAGE.replace("\n", "\r\n"))

    assert [each.text for each in samples] == ["9007199254740993", "3", "NaN", "+Inf", "true"]
    assert [each.value for each in samples] == [9007199254740992.0, 3.0, None, None, None]
    assert labels_of(samples[0].series) == {"topic": "a b", "quote": '\\"}'}


@pytest.mark.parametrize("times", [100_000, 200_000])
@pytest.mark.parametrize("piece", [" ", "} ", "{} x", " 1", " {", "} 1 1"])
def test_line_is_read_in_the_time_of_its_length(times, piece):
    """No line of an endpoint makes the pattern try a number of ways that grows as the square."""
    assert LINE.fullmatch("a" + piece * times + "}\0 x y") is None
    assert LINE.fullmatch("a{" + piece * times + "\0 x y") is None
    assert labels_of("a{" + "b" * times) == {}


def test_too_much_text_is_cut(monkeypatch):
    """Long lines, and more series than are read."""
    monkeypatch.setattr(metrics_samples, "MOST_READ", 3)
    text = "x" * 5_000 + " 1\n" + "".join(f"m{number} 1\n" for number in range(9))
    assert [each.series for each in samples_of(text)] == ["m0", "m1", "m2", "m3"]


def test_counter_that_begins_anew_has_no_growth():
    """A gap is passed over, with the time that it took."""
    points = [(0, 10.0), (5_000, None), (10_000, 30.0), (15_000, 5.0)]
    assert rates_of(points) == [None, None, 2.0, 0.0]


def test_history_of_each_endpoint(pages):
    """One that fails has its reason; its series are not there, and come back with a gap."""
    parts = Parts("http://u:p@a/metrics", "http://b/metrics")
    samples = MetricSamples(parts)
    pages |= {"http://u:p@a/metrics": PAGE, "http://b/metrics": "kafka_state 7"}
    asyncio.run(samples.read())
    pages["http://u:p@a/metrics"] = CallError("timed out")
    parts.clock.now += LOOK_MS
    asyncio.run(samples.read())
    assert [(each.error, each.series) for each in samples.states] == [
        ("http://a/metrics: timed out", 0),
        ("", 1),
    ]
    assert list(samples.samples) == [("http://b/metrics", "kafka_state")]
    pages["http://u:p@a/metrics"] = "kafka_state{} 4"
    parts.clock.now += LOOK_MS
    asyncio.run(samples.read())

    assert [value for _, value in samples.points(("http://a/metrics", "kafka_state{}"))] == [
        *(3.0, None, 4.0)
    ]
    assert samples.is_counter('kafka_in_total{topic="a"}')
    assert not samples.is_counter("kafka_state")


def test_history_is_bounded(pages, monkeypatch):
    """Series beyond the limit are shown, without a history."""
    monkeypatch.setattr(metrics_samples, "MOST_SERIES", 2)
    parts = Parts("http://a/metrics")
    samples = MetricSamples(parts)
    pages["http://a/metrics"] = "".join(f"m{number} 1\n" for number in range(4))
    for _ in range(metrics_samples.SLOTS + 5):
        asyncio.run(samples.read())
        parts.clock.now += LOOK_MS

    assert len(samples.samples) == 4
    lengths = [len(samples.points(("http://a/metrics", f"m{number}"))) for number in range(4)]
    assert lengths == [metrics_samples.SLOTS] * 2 + [0, 0]


def test_endpoint_that_hangs_does_not_slow_the_others(monkeypatch):
    """The pause follows the slowest answer, not the slowest failure."""
    parts = Parts("http://slow/", "http://hangs/")

    def read(_clock: object, url: str, *_limits: float) -> str:
        parts.clock.now += 5_000 if "hangs" in url else 20
        if "hangs" in url:
            raise CallError("timed out")
        return "kafka_state 7"

    monkeypatch.setattr(metrics_samples, "read_text", read)
    assert asyncio.run(MetricSamples(parts).read()) == 20
    parts = Parts("http://hangs/")
    assert asyncio.run(MetricSamples(parts).read()) == 0
