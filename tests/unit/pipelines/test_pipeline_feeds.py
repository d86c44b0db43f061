"""The feeds: the same events for the same seed, and what a log says."""

from __future__ import annotations

import json
from itertools import islice, pairwise
from random import Random

import pytest

from ottla.pipelines.logged_request import LoggedRequest, request_of
from ottla.pipelines.monitoring import this_host
from ottla.pipelines.pipeline import PIPELINES, FeedRequest, load_pipeline, moments
from ottla.pipelines.site_traffic import START, zipf_weights

LINE = b'192.0.2.1 - - [17/May/2015:12:05:03 +0200] "GET /a?b=1 HTTP/1.1" 200 7 "-" "x \\"y\\""'


@pytest.mark.parametrize("name", PIPELINES)
def test_seed_decides_the_sample_events(name):
    """Each is for a topic that the pipeline reads, and as its schema says."""
    pipeline = load_pipeline(name)
    feed = pipeline.feeds["sample"]
    events = list(feed(FeedRequest(200, 5)))

    assert events == list(feed(FeedRequest(200, 5)))
    assert events != list(feed(FeedRequest(200, 6)))
    assert {each.topic for each in events} == {each.topic for each in pipeline.fed_topics}
    schemas = {each.topic: each.schema for each in pipeline.inputs}
    for each in events:
        if schemas[each.topic]:
            names = {part.split()[0] for part in schemas[each.topic].split(", ")}
            assert set(json.loads(each.value)) == names


def test_request_is_what_a_line_says():
    """The query is no part of the path."""
    request = request_of(LINE)

    assert request == LoggedRequest(
        "192.0.2.1", request.time, "GET", "/a", 200, 7, "-", 'x \\"y\\"', "combined"
    )
    assert request.time.timestamp() == 1431857103
    assert request.is_page


@pytest.mark.parametrize(
    "line", [b"", b"rubbish", LINE.replace(b'"GET', b"GET"), LINE.replace(b"17/May", b"31/Feb")]
)
def test_line_that_is_no_request_is_none(line):
    """It is left out where requests are published, and not guessed at."""
    assert request_of(line) is None


@pytest.mark.parametrize(("path", "status"), [("/a.PNG", 200), ("/a", 404), ("/a.css", 304)])
def test_neither_assets_nor_failures_are_pages(path, status):
    """Nobody reads them."""
    assert not request_of(LINE)._replace(path=path, status=status).is_page


def test_this_machine_tells_how_it_is(monkeypatch):
    """Real figures of this machine, each under its name."""
    monkeypatch.setattr("ottla.pipelines.monitoring.HOST_PAUSE_S", 0)

    events = [json.loads(event.value) for event in islice(this_host(FeedRequest(1, 0)), 5)]

    assert {event["metric"] for event in events} == {
        "cpu_percent",
        "memory_percent",
        "disk_percent",
        "load",
        "network_bytes",
    }
    assert 0 < next(each["value"] for each in events if each["metric"] == "memory_percent") <= 100


def test_moments_follow_each_other_at_the_pace_that_is_asked_for():
    """The mean of the pauses is right, and none goes back in time."""
    found = list(moments(Random(1), 2000, 5.0))

    assert found[0] >= START
    assert all(one <= next_one for one, next_one in pairwise(found))
    assert (found[-1] - START).total_seconds() == pytest.approx(2000 * 5.0, rel=0.1)


def test_popularity_falls_with_the_rank():
    """As Zipf found it for words."""
    assert zipf_weights(4) == [1, 1 / 2, 1 / 3, 1 / 4]
