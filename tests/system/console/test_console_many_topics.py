"""A journey through ten thousand topics in a real browser: a hundred rows at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla import Admin, NewTopic
from ottla.testing.in_process_broker import InProcessBroker

# Ten thousand topics take a busy machine long to make.
pytestmark = [pytest.mark.wide, pytest.mark.timeout(1200)]

TOPICS, AT_ONCE = 10_000, 1_000
PATIENT = {"request.timeout.ms": "300000", "default.api.timeout.ms": "300000"}


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    """A broker whose topics have one partition each."""
    with InProcessBroker() as broker, Admin(broker.bootstrap_servers, PATIENT) as admin:
        for first in range(0, TOPICS, AT_ONCE):
            names = (f"topic-{number:05}" for number in range(first, first + AT_ONCE))
            admin.create_topics([NewTopic(name, 1, 1) for name in names])
        yield broker


def test_journey_through_ten_thousand_topics(visit):
    """From window to window, to the one that is looked for, and to its records."""
    page = visit("/topics")
    names = page.locator("tbody td.name")
    assert "10,000 topics" in page.inner_text("[role=status]")
    assert names.count() == 100
    page.click("a[rel=next]")
    page.wait_for_url("**from=100*")
    assert names.first.inner_text() == "topic-00100"
    page.locator("[data-filter] input[name=q]").press_sequentially("07777")
    page.locator("[role=status]", has_text="1 of 10,000 topics").wait_for()
    names.first.locator("a").click()
    page.wait_for_url("**/t/topic-07777/records")
    page = visit("/t/topic-0777/records", status=404)
    near = page.locator("main a", has_text="topic-0")
    assert 0 < near.count() <= 5
    page = visit("/")
    assert "10,000" in page.inner_text("main .stats")
