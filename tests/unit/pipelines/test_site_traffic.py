"""The generator: the same log for the same seed, and traffic as a site has it."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime

import pytest

from ottla.pipelines.site_traffic import CRAWLERS, SiteActivity

LINE = re.compile(rb'(\S+) - - \[(.+?)\] "GET (\S+) HTTP/1.1" (\d{3}) (\d+|-) "(.*?)" "(.*?)"')
EVENTS = 20_000


@pytest.fixture(scope="module")
def found():
    """Client, time, path, status, size, referrer and user agent of every line."""
    matches = [LINE.fullmatch(line) for line in SiteActivity(seed=5, events=EVENTS).lines()]
    assert None not in matches
    return [match.groups() for match in matches]


def test_seed_decides_everything():
    """The same seed makes the same lines, another one others."""
    lines = list(SiteActivity(1, 500).lines())

    assert lines == list(SiteActivity(1, 500).lines())
    assert lines != list(SiteActivity(2, 500).lines())


@pytest.mark.parametrize("events", [1, 2, 1000])
def test_number_of_events_is_exact(events):
    """As many lines as were asked for."""
    assert len(list(SiteActivity(3, events).lines())) == events


def test_times_never_go_back(found):
    """A server writes its log in the order of time."""
    times = [datetime.strptime(row[1].decode(), "%d/%b/%Y:%H:%M:%S %z") for row in found]

    assert times == sorted(times)


def test_few_pages_get_most_of_the_requests(found):
    """Zipf: the tenth page is asked for about ten times less often than the first."""
    counts = [count for _, count in Counter(row[2] for row in found).most_common()]

    assert 5 < counts[0] / counts[9] < 25
    assert len(counts) > 200


def test_errors_bots_and_a_burst_are_there(found):
    """A few 404 and 500, crawlers that say so, one too fast, and minutes with far more traffic."""
    statuses = Counter(row[3] for row in found)
    agents = {row[6].decode() for row in found}
    per_minute = Counter(row[1][:17] for row in found)
    per_client = Counter((row[0], row[1][:17]) for row in found)
    typical = sorted(per_minute.values())[len(per_minute) // 2]

    assert 0.01 < statuses[b"404"] / EVENTS < 0.03
    assert 0 < statuses[b"500"] / EVENTS < 0.01
    assert set(CRAWLERS) <= agents
    assert max(per_client.values()) > 30
    assert max(per_minute.values()) > 1.8 * typical
