"""A site's activity: the same for the same seed, in the order of time, and true to a log."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import pytest

from ottla.pipelines.access_log import AccessLog
from ottla.pipelines.logged_request import request_of
from ottla.site.activity import (
    CLICKS,
    FOLLOWS,
    HOST_METRICS,
    INPUTS,
    LOGINS,
    PAGE_VIEWS,
    POSTS,
    SEARCHES,
    TOPICS,
    generated,
    in_time,
)
from ottla.site.log_replay import replayed

LOG = (
    b'203.0.113.7 - - [02/Mar/2026:08:00:00 +0000] "GET / HTTP/1.1" 200 10 "-" "a browser"\n'
    b"no request\n"
    b'203.0.113.8 - - [02/Mar/2026:08:00:02 +0000] "GET /a HTTP/1.1" 404 10 "-" "a browser"\n'
)


def test_equal_seeds_make_equal_activity():
    """Repeated exactly; another seed makes something else."""
    first, second, other = (generated(seed, 300) for seed in (7, 7, 8))

    assert first.follows == second.follows
    events = list(first.happenings)
    assert events == list(second.happenings)
    assert events != list(other.happenings)


def test_u20_each_kind_of_activity_has_a_topic():
    """Page views, searches, clicks, posts, logins, host metrics; follows are known before."""
    activity = generated(1, 500)
    happenings = list(activity.happenings)
    counts = Counter(each.event.topic for each in happenings)

    assert {each.topic for each in activity.follows} == {FOLLOWS}
    assert set(counts) == set(TOPICS) - {FOLLOWS}
    assert counts[PAGE_VIEWS] == 500
    assert all(a.time <= b.time for a, b in pairwise(happenings))


def test_people_do_what_their_page_views_allow():
    """Each click is of a page that was served; each person has logged in before anything else."""
    logged_in = set()
    served = set()
    for _, event in generated(1, 500).happenings:
        if event.topic == PAGE_VIEWS:
            request = request_of(event.value)
            if request.is_page:
                served.add(request.path)
            continue
        fields = json.loads(event.value)
        if event.topic == LOGINS:
            logged_in.add(fields["person"])
        elif event.topic == CLICKS:
            assert fields["item"] in served
            assert fields["user"] in logged_in
        elif event.topic in (SEARCHES, POSTS):
            assert (fields.get("person") or fields.get("actor")) in logged_in
        else:
            assert event.topic == HOST_METRICS


def test_log_is_replayed_and_nothing_is_invented(tmp_path):
    """Every line is a page view as it stands; a log knows no searches and no logins."""
    path = tmp_path / "access.log"
    path.write_bytes(LOG)
    happenings = list(replayed(AccessLog(path)).happenings)
    lines = [each.event.value for each in happenings if each.event.topic == PAGE_VIEWS]

    assert lines == LOG.splitlines()
    assert not {SEARCHES, LOGINS} & {each.event.topic for each in happenings}
    assert {each.event.topic for each in happenings} == {PAGE_VIEWS, CLICKS, POSTS, HOST_METRICS}


def test_replay_ends_when_it_is_over(tmp_path):
    """At the end of a run nothing is waited for."""
    path = tmp_path / "access.log"
    path.write_bytes(LOG)

    assert list(in_time(replayed(AccessLog(path)).happenings, 0.001, lambda: True)) == []
    assert len(list(in_time(replayed(AccessLog(path)).happenings, 1e9, lambda: False))) >= 3


@pytest.mark.parametrize("wrong", ["02/Mar/2099", "31/Dec/9999", "01/Jan/1970", "01/Jan/0001"])
def test_line_of_a_wrong_clock_holds_the_replay_up_for_a_moment(tmp_path, monkeypatch, wrong):
    """Not for the years between it and the others."""
    path = tmp_path / "access.log"
    path.write_bytes(LOG + LOG.splitlines(keepends=True)[0].replace(b"02/Mar/2026", wrong.encode()))
    clock = [0.0]
    monkeypatch.setattr("ottla.site.activity.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(
        "ottla.site.activity.time.sleep", lambda s: clock.__setitem__(0, clock[0] + s)
    )
    events = list(in_time(replayed(AccessLog(path)).happenings, 1.0, lambda: clock[0] > 1000))

    assert len([each for each in events if each.topic == PAGE_VIEWS]) == 4
    assert 30 < clock[0] < 100


def test_inputs_name_topics_of_the_site():
    """What pipelines read is there."""
    assert {topic for inputs in INPUTS.values() for topic in inputs.values()} <= set(TOPICS)
