"""The whole site: one stream of activity, eight readers, killed in the middle.

Real processes, as they are killed; Spark, as five of the readers run on it.
"""

from __future__ import annotations

import threading
import traceback
from collections import Counter

import pytest

from ottla.pipelines.access_log import AccessLog
from ottla.site import spark_readers, whole_site
from ottla.site.activity import FOLLOWS, TOPICS, generated
from ottla.site.ledger import read_topic
from ottla.site.log_replay import replayed
from ottla.site.readers import TOPIC_OF, reader_parser
from ottla.site.whole_site import SPARK, START_AGAIN_LIMIT, SiteOptions, WholeSite
from ottla.testing.processes import BrokerProcess

pytestmark = pytest.mark.spark

LOG_LINES = 400
AS_FAST_AS_IT_GOES = 1e9


@pytest.mark.wide
def test_u01_readers_are_independent_and_lose_nothing(java, fork_server, tmp_path):
    """Killed in the middle, all of them: each result has every record once, as computed here."""
    said: list[str] = []
    options = SiteOptions(tmp_path, seconds=10, rate=60, seed=5, with_incidents=True)
    site = WholeSite(options, said.append)
    entries = {entry.reader: entry for entry in site.run()}

    assert set(entries) == set(TOPIC_OF)
    assert [entry for entry in entries.values() if not entry.is_right] == []
    whats = " ".join(what for _, what in site.incidents)
    assert "search-index has died" in whats
    assert "spark has died" in whats
    text = site.page.read_text()
    assert "nothing lost, nothing" in text
    assert "http-equiv" not in text
    made = [each.event for each in generated(5, 601).happenings]
    for topic, values in published_in(tmp_path).items():
        of_topic = Counter(event.value for event in made if event.topic == topic)
        assert topic == FOLLOWS or Counter(values) <= of_topic
    assert all(entry.published for entry in entries.values())


class SparkHere:
    """The readers on Spark as a thread of this process, in the place of a process of theirs."""

    def __init__(self, command, log):
        self.name, self.log, self.running = SPARK, log, None
        self.starts = START_AGAIN_LIMIT + 1  # a thread that dies has failed
        self.over, self.is_stopped = threading.Event(), False
        given = reader_parser(()).parse_args(command[command.index("-m") + 2 :])
        self.arguments = (given.bootstrap_server, given.folder, given.master, self.over)

    def start(self):
        self.running = threading.Thread(target=self.run)
        self.running.start()

    def run(self):
        try:
            spark_readers.run(*self.arguments)
        except BaseException:
            self.log.write_text(traceback.format_exc())

    @property
    def has_died(self):
        return not (self.running.is_alive() or self.is_stopped)  # `over` is set by failures as well

    def stop(self):
        self.is_stopped = True
        self.over.set()
        self.running.join()


@pytest.mark.wide
def test_log_is_replayed_to_all_readers(lent_session, access_log, tmp_path, monkeypatch):
    """A real log: every line is read by each reader of page views, and figures are the log's."""
    process = whole_site._Process
    monkeypatch.setattr(
        whole_site,
        "_Process",
        lambda name, command, log: (
            SparkHere(command, log) if name == SPARK else process(name, command, log)
        ),
    )
    log = tmp_path / "access.log"
    lines = access_log.read_bytes().splitlines(keepends=True)[:LOG_LINES]
    log.write_bytes(b"".join(lines))
    options = SiteOptions(tmp_path / "site", log=log, speed=AS_FAST_AS_IT_GOES)
    entries = {entry.reader: entry for entry in WholeSite(options, lambda line: None).run()}

    assert [entry for entry in entries.values() if not entry.is_right] == []
    assert entries["late-joiner"].published == LOG_LINES
    assert entries["warehouse"].found == LOG_LINES
    published = published_in(tmp_path / "site")
    expected = replayed(AccessLog(log))
    events = [*expected.follows, *(each.event for each in expected.happenings)]
    for topic in TOPICS:
        assert sorted(published[topic]) == sorted(e.value for e in events if e.topic == topic)


def published_in(folder):
    """The values of each topic, from the broker's own data."""
    broker = BrokerProcess(folder / "brokers").start()
    try:
        servers = broker.bootstrap_servers
        return {t: [record.value for record in read_topic(servers, t)] for t in TOPICS}
    finally:
        broker.stop()
