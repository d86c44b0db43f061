"""The page of metrics: series by name, pinned ones as plots, and endpoints that fail."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from visitor import Visitor, visit

from ottla.console import metrics_samples
from ottla.runtime.http_calls import CallError

URL = "http://127.0.0.1:9404/metrics"
PAGE = """# HELP kafka_in_total Bytes <b>in</b>.
kafka_in_total{topic="<script>"} 9007199254740993
kafka_p99 NaN
kafka_free +Inf
"""
SERIES = 'kafka_in_total{topic="<script>"}'


@pytest.fixture
def texts(monkeypatch):
    """The answers of endpoints by their addresses."""
    found: dict[str, str] = {URL: PAGE}

    def read(_clock: object, url: str, *_limits: float) -> str:
        if url not in found:
            raise CallError("timed out")
        return found[url]

    monkeypatch.setattr(metrics_samples, "read_text", read)
    return found


def test_series_are_found_sorted_and_pinned(ottla_broker, texts):
    """Digits as the broker has written them; the twin is JSON, though a number is none."""
    pin = quote(f"{SERIES} {URL}")

    async def walk(visitor: Visitor) -> None:
        data = (await visitor.get("/metrics.json?sort=value")).json
        assert [each["text"] for each in data["rows"]] == ["9007199254740993", "+Inf", "NaN"]
        assert [each["value"] for each in data["rows"]] == [float(2**53), None, None]
        await visitor.app.cluster.part(metrics_samples.MetricSamples).read()
        page = (await visitor.get(f"/metrics?q=IN_TOTAL&pin={pin}")).text
        assert "1 of 3 series" in page
        assert "<b>in</b>" not in page
        assert "<script>" not in page.replace("<script src", "")
        assert "unpin" in page
        twin = (await visitor.get(f"/metrics.json?pin={pin}")).json
        assert [each["text"] for each in twin["pinned"]] == ["9007199254740993"]
        assert [each["is_pinned"] for each in twin["rows"]] == [False, True, False]
        del texts[URL]
        await visitor.app.cluster.part(metrics_samples.MetricSamples).read()
        page = (await visitor.get(f"/metrics?pin={pin}")).text
        assert "timed out" in page
        assert "is not there now" in page

    visit(ottla_broker.bootstrap_servers, walk, metrics=(URL,))


def test_page_without_an_endpoint_names_the_option(ottla_broker):
    """And pins are bounded."""

    async def walk(visitor: Visitor) -> None:
        assert "ottla console --metrics" in (await visitor.get("/metrics")).text
        many = quote("\n".join(map(str, range(9))))
        assert (await visitor.get(f"/metrics?pin={many}")).status == 400

    visit(ottla_broker.bootstrap_servers, walk)
