"""Readers as processes see them: what they tell, and what a late one finds."""

from __future__ import annotations

import json

from ottla import Producer
from ottla.site.activity import LOGINS, PAGE_VIEWS, TOPICS
from ottla.site.readers import LATE_JOINER, LOGIN_COUNTERS, READERS, TOPIC_OF, ReaderProgress, run
from ottla.testing import wait_until

LINE = '203.0.113.7 - - [02/Mar/2026:08:00:00 +0000] "GET /a HTTP/1.1" 200 10 "-" "a browser"'


def test_status_is_what_was_told_last(tmp_path):
    """Written whole, read back; a reader that has told nothing is at the beginning."""
    assert ReaderProgress.read(tmp_path) == ReaderProgress()
    ReaderProgress({0: 5, 1: 7}, 12, 1).write(tmp_path)

    assert ReaderProgress.read(tmp_path) == ReaderProgress({0: 5, 1: 7}, 12, 1)


def test_reader_tells_where_it_is_when_it_ends(ottla_fresh_broker, tmp_path):
    """The last status has all that was read."""
    servers = ottla_fresh_broker.bootstrap_servers
    ottla_fresh_broker.create_topic(LOGINS)
    with Producer(servers) as producer:
        producer.send(LOGINS, json.dumps({"person": "ann"})).result()
    calls = iter([False, False, True])
    run(LOGIN_COUNTERS, servers, tmp_path, lambda: next(calls, True))

    assert ReaderProgress.read(tmp_path) == ReaderProgress({0: 1}, 1)


def test_late_joiner_reads_from_the_beginning_each_time(ottla_fresh_broker, tmp_path):
    """It keeps nothing; a line that is no request counts as well."""
    servers = ottla_fresh_broker.bootstrap_servers
    ottla_fresh_broker.create_topic(PAGE_VIEWS)
    with Producer(servers) as producer:
        for line in (LINE, LINE, "no request"):
            producer.send(PAGE_VIEWS, line)
    for _ in range(2):
        joiner = READERS[LATE_JOINER](servers, tmp_path)
        wait_until(lambda each=joiner: each.record_count == 3, "all lines", meanwhile=joiner.step)
        assert joiner.views == {"/a": 2, "": 1}
        joiner.close()


def test_every_reader_reads_a_topic_of_the_site():
    """At least seven readers, none of which another one needs."""
    assert set(TOPIC_OF.values()) <= set(TOPICS)
    assert len(TOPIC_OF) >= 7
    assert set(READERS) <= set(TOPIC_OF)
