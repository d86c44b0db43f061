"""`ottla demo` before it starts anything: its options, and what it needs."""

from __future__ import annotations

import io

import pytest

from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.demo import DemoCommand
from ottla.cli.demo_run import conclude, event_source
from ottla.cli.options import option_parser
from ottla.cli.terminal import Terminal
from ottla.pipelines.access_log import AccessLog
from ottla.pipelines.pipeline import FeedRequest
from ottla.pipelines.site_traffic import SiteActivity


def source(*words):
    return event_source(option_parser(DemoCommand()).parse_args(words))


def test_events_are_generated_where_no_log_is_given():
    """It says that they are made up, and from which seed."""
    made = source("--events", "3", "--seed", "4")

    assert made.words == "3 generated events (no log was given; seed 4)"
    assert [event.value for event in made.events] == list(SiteActivity(4, 3).lines())
    assert "100,000 generated events" in source().words


def test_log_is_replayed(tmp_path):
    """Each line of the file is an event."""
    path = tmp_path / "my.log"
    path.write_bytes(b"a 1\nb 2\n")

    feed = source("--log", str(path)).files[0]
    events = feed.feed(FeedRequest(0, 0, AccessLog(feed.path)))

    assert [event.key for event in events] == [b"a", b"b"]
    assert source("--log", str(path)).words == "The access log my.log"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--log", "/no/such.log"), "--log /no/such.log: there is no such file"),
        (("--log", "x", "--seed", "1"), "--events and --seed go with generated events"),
        (("--events", "0"), "--events takes a number from 1 on, not '0'"),
    ],
)
def test_wrong_options_are_told(words, said):
    """Before a broker is started for nothing."""
    with pytest.raises((CommandError, UsageError), match=said):
        source(*words)


@pytest.mark.parametrize(
    ("published", "changes", "status", "said"),
    [
        (10, {}, 0, "demo: 10 events in, 10 read by the pipeline, 0 lost, 0 duplicated"),
        (12, {}, 1, "demo: 12 events in, 10 read by the pipeline, 2 lost, 0 duplicated"),
        (10, {"lost": 1, "rows": 9}, 1, "demo: 10 events in, 9 read by the pipeline, 1 lost"),
        (10, {"duplicated": 3, "rows": 13}, 1, "13 read by the pipeline, 0 lost, 3 duplicated"),
        (10, {"unreported": 1, "dead_letters": 0}, 1, "0 in web-traffic.dead-letter"),
    ],
)
def test_status_says_whether_every_event_arrived_once(published, changes, status, said):
    """Lost before the topic or behind it, there twice, or dropped silently: all are failures."""
    counts = {
        "in_topic": 10,
        "rows": 10,
        "malformed": 1,
        "dead_letters": 1,
        "lost": 0,
        "duplicated": 0,
        "unreported": 0,
    }
    out = io.StringIO()

    assert conclude(Terminal(out=out), published, {**counts, **changes}) == status
    assert said in out.getvalue()
