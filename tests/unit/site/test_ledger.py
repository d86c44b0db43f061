"""The ledger finds what is missing, and what is there twice."""

from __future__ import annotations

import json

import pytest

from ottla import Producer
from ottla.site.activity import TOPICS, generated
from ottla.site.ledger import Entry, Ledger, read_topic
from ottla.site.readers import LATE_JOINER, LOGIN_COUNTERS, READERS, SEARCH_INDEX, run

OUTPUTS = ("feed", "ranking-counts", "blocklist", "metrics-per-minute")


@pytest.fixture
def site(ottla_fresh_broker, tmp_path):
    """A site with 200 page views, read by the readers that need no Spark."""
    servers = ottla_fresh_broker.bootstrap_servers
    for topic in (*TOPICS, *OUTPUTS):
        ottla_fresh_broker.create_topic(topic, partitions=3)
    activity = generated(3, 200)
    with Producer(servers) as producer:
        for event in [*activity.follows, *(each.event for each in activity.happenings)]:
            producer.send(event.topic, event.value, key=event.key)
    ends = {topic: len(read_topic(servers, topic)) for topic in TOPICS}
    for name in READERS:
        folder = tmp_path / name

        def has_all(name: str = name, folder=folder) -> bool:
            from ottla.site.readers import TOPIC_OF, ReaderProgress

            return ReaderProgress.read(folder).records == ends[TOPIC_OF[name]]

        while not has_all():
            steps = iter([False] * 5)
            run(name, servers, folder, lambda steps=steps: next(steps, True))
    return Ledger(servers, tmp_path), servers, tmp_path


def entry_of(ledger: Ledger, check: str) -> tuple[int, int]:
    """Lost and doubled, by one check."""
    _, expected, found = getattr(ledger, check)()
    return (expected - found).total(), (found - expected).total()


def test_results_of_the_readers_balance(site):
    """Nothing is lost and nothing is doubled."""
    ledger, _, _ = site

    for check in ("_search_index", "_login_counters", "_late_joiner"):
        assert entry_of(ledger, check) == (0, 0)


def test_missing_segment_is_lost_and_a_copy_is_doubled(site):
    """Documents are told apart by the places of their records."""
    ledger, _, folder = site
    (segment, *_) = sorted((folder / SEARCH_INDEX / "segments").glob("*.json"))
    count = len(json.loads(segment.read_text())["documents"])
    copy = segment.with_name("segment-999999.json")
    copy.write_text(segment.read_text())
    assert entry_of(ledger, "_search_index") == (0, count)

    copy.unlink()
    segment.unlink()
    assert entry_of(ledger, "_search_index") == (count, 0)


def test_pipelines_that_wrote_nothing_have_lost_all(site):
    """What a pipeline should have written is computed from the topics."""
    ledger, _, _ = site

    for check in ("_news_feed", "_ranking", "_monitoring"):
        lost, doubled = entry_of(ledger, check)
        assert lost > 0
        assert doubled == 0


def test_feed_entry_that_comes_twice_is_doubled(site):
    """An entry that nobody follows for counts as doubled as well: it should not be there."""
    ledger, servers, _ = site
    entry = {"follower": "x", "actor": "y", "verb": "posted", "object": "photo-1"}
    with Producer(servers) as producer:
        producer.send("feed", json.dumps({**entry, "time": "2026-03-02T08:00:00.000Z"}))
    lost, doubled = entry_of(ledger, "_news_feed")

    assert lost > 0
    assert doubled == 1


def test_entry_is_right_only_if_all_agrees():
    """Lost and doubled, and the sums."""
    right = Entry("r", "t", 3, "records", 3, 3, 0, 0)

    assert right.is_right
    assert not Entry("r", "t", 3, "records", 3, 2, 1, 0).is_right
    assert not Entry("r", "t", 3, "records", 3, 4, 0, 1).is_right


def test_late_joiner_and_counters_have_a_check():
    """The readers without Spark, by name."""
    assert {LATE_JOINER, LOGIN_COUNTERS, SEARCH_INDEX} == set(READERS)
