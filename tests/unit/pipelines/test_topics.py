"""Logs are published once, whatever ends a run, and whatever becomes of the file meanwhile."""

from __future__ import annotations

import errno
import gzip
import os
from contextlib import nullcontext

import pytest
from breadth import some

import ottla
from ottla.pipelines import topics
from ottla.pipelines.access_log import LogError
from ottla.pipelines.pipeline import OutputGoneError, load_pipeline
from ottla.pipelines.topics import (
    LOGS_TOPIC,
    OUTPUT_IDS,
    LogFeed,
    Pace,
    check_outputs,
    create_topics,
    delete_outputs,
)
from ottla.testing import InProcessBroker

NAMES = ("web_traffic", "ranking", "news_feed", "monitoring")


@pytest.fixture(scope="module")
def broker():
    """A broker of its own: the topics of pipelines have fixed names."""
    with InProcessBroker() as running:
        yield running


@pytest.fixture(params=NAMES)
def pipeline(request, broker):
    """A pipeline whose topics are empty, and of whose logs nothing is known."""
    found = load_pipeline(request.param)
    with ottla.Admin(broker.bootstrap_servers) as admin:
        names = {each.topic for each in found.inputs} & admin.list_topics()
        admin.delete_topics(sorted(names))
    create_topics(broker.bootstrap_servers, found)
    return found


def lines(start, end):
    """Requests of a few clients, some of pages and some from other pages of the site."""
    return b"".join(
        b'192.0.2.%d - - [26/Nov/2026:10:%02d:%02d +0000] "GET /page-%d HTTP/1.1" %d 7 '
        b'"http://site.example/page-%d" "x"\n'
        % (n % 7, n // 60 % 60, n % 60, n % 5, 404 if n % 11 == 0 else 200, n % 3)
        for n in range(start, end)
    )


def published(broker, pipeline):
    """What is in the topics of the feed for readers of what was committed, sorted."""
    found = []
    for source in pipeline.fed_topics:
        for record in broker.records(source.topic, isolation_level="read_committed"):
            found.append((source.topic, record.key, record.value))
    return sorted(found)


def publish(broker, pipeline, path, **options):
    feed = LogFeed(pipeline, pipeline.feeds["log"], path, **options)
    return feed.publish(broker.bootstrap_servers, Pace())


def said(pipeline, *paths):
    """What the feed makes of whole logs."""
    from ottla.pipelines.access_log import AccessLog
    from ottla.pipelines.pipeline import FeedRequest

    return sorted(
        tuple(event)
        for path in paths
        for event in pipeline.feeds["log"](FeedRequest(0, 0, AccessLog(path)))
    )


def test_log_is_published_once(broker, pipeline, tmp_path):
    """Given again, under another name, or compressed: it is the log that it was."""
    path = tmp_path / "access.log"
    path.write_bytes(lines(0, 200))

    first = publish(broker, pipeline, path)
    once = published(broker, pipeline)
    path = path.rename(tmp_path / "access.log.1")
    second = publish(broker, pipeline, path)
    packed = tmp_path / "access.log.2.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    third = publish(broker, pipeline, packed)

    assert once == published(broker, pipeline) == said(pipeline, path)
    assert first.counts.total() == len(once)
    assert (first.lines_before, second.lines_before, third.lines_before) == (0, 200, 200)
    assert second.counts.total() == third.counts.total() == 0
    assert first.ledger == second.ledger == third.ledger
    assert second.words().endswith("; 200 lines were published before")


def test_log_is_published_twice_where_that_is_asked_for(broker, pipeline, tmp_path):
    """`--again` is the way to have a log in the topics a second time."""
    path = tmp_path / "access.log"
    path.write_bytes(lines(0, 50))

    publish(broker, pipeline, path)
    publish(broker, pipeline, path, again=True)
    publish(broker, pipeline, path)

    assert published(broker, pipeline) == said(pipeline, path, path)


@pytest.mark.parametrize("garbage", [b"", b"no json", b"[]", b"{}", b"\xff", b'{"key": 1}'])
def test_what_somebody_else_writes_of_logs_is_named(broker, tmp_path, garbage):
    """Instead of a traceback; and a record without a value makes a log a new one."""
    pipeline = load_pipeline("ranking")
    create_topics(broker.bootstrap_servers, pipeline)
    path = tmp_path / "access.log"
    path.write_bytes(lines(0, 7) + garbage.hex().encode())
    publish(broker, pipeline, path)
    with ottla.Producer(broker.bootstrap_servers) as producer:
        producer.send(LOGS_TOPIC, garbage, key=b"stranger").result(10)
        with pytest.raises(LogError, match=f"{LOGS_TOPIC} has a record of the key b.stranger."):
            publish(broker, pipeline, path)
        producer.send(LOGS_TOPIC, None, key=b"stranger").result(10)
        assert publish(broker, pipeline, path).lines_before == 7
        for record in broker.records(LOGS_TOPIC):
            producer.send(LOGS_TOPIC, None, key=record.key)
    assert publish(broker, pipeline, path).lines_before == 0


def test_what_has_come_since_is_published(broker, pipeline, tmp_path):
    """A log that has grown adds its new lines; a line that was half written is read whole."""
    path = tmp_path / "access.log"
    path.write_bytes(lines(0, 60) + lines(60, 61)[:70])
    before = publish(broker, pipeline, path)
    path.write_bytes(lines(0, 60) + lines(60, 120))
    after = publish(broker, pipeline, path)

    assert (before.ledger.requests.total(), before.ledger.left_out.total()) == (60, 1)
    assert (after.ledger.requests.total(), after.ledger.left_out.total()) == (120, 0)
    found = published(broker, pipeline)
    if pipeline.name == "monitoring":
        # Its minutes are reported by parts: 10:00 to 10:01, and 10:01 to 10:02.
        assert len(found) == 3 * 2
    assert found == said(pipeline, path)


def test_other_logs_are_other_logs(broker, pipeline, tmp_path):
    """One that begins in another way is published whole."""
    one, other = tmp_path / "one.log", tmp_path / "other.log"
    one.write_bytes(lines(0, 50))
    other.write_bytes(lines(300, 350))

    publish(broker, pipeline, one)
    publish(broker, pipeline, other)
    publish(broker, pipeline, one)

    assert published(broker, pipeline) == said(pipeline, one, other)


def test_log_that_was_changed_is_refused(broker, pipeline, tmp_path):
    """Lines before the place that was reached are not those that were published."""
    path = tmp_path / "access.log"
    path.write_bytes(lines(0, 300))
    publish(broker, pipeline, path)
    path.write_bytes(lines(0, 100) + lines(101, 300))

    with pytest.raises(LogError, match=r"was published up to line 300, and has been changed"):
        publish(broker, pipeline, path)


def test_topic_that_was_made_again_has_nothing_of_the_log(broker, pipeline, tmp_path):
    """It is published anew; where one of several topics was, a person decides."""
    path = tmp_path / "access.log"
    path.write_bytes(lines(0, 50))
    publish(broker, pipeline, path)
    names = [each.topic for each in pipeline.fed_topics]
    for deleted in [names[:1], names] if len(names) > 1 else [names]:
        with ottla.Admin(broker.bootstrap_servers) as admin:
            admin.delete_topics(deleted)
        create_topics(broker.bootstrap_servers, pipeline)
        if deleted != names:
            with pytest.raises(LogError, match="was deleted and made again"):
                publish(broker, pipeline, path)

    publish(broker, pipeline, path)

    assert published(broker, pipeline) == said(pipeline, path)
    assert delete_outputs(broker.bootstrap_servers, pipeline)


class KilledError(BaseException):
    """Stands for the end of the process."""


class MortalProducer(ottla.Producer):
    """A producer whose process is killed before or behind one of its calls."""

    calls_left = 0

    def _count(self):
        MortalProducer.calls_left -= 1
        if MortalProducer.calls_left == 0:
            raise KilledError

    def send(self, *arguments, **keywords):
        self._count()
        return super().send(*arguments, **keywords)

    def commit_transaction(self, timeout=None):
        self._count()
        super().commit_transaction(timeout)
        self._count()


@pytest.mark.parametrize("pipeline", some(NAMES), indirect=True)
def test_killed_run_is_continued(broker, pipeline, tmp_path, monkeypatch):
    """Killed at any call: what it has committed counts once, and the next run adds the rest."""
    path = tmp_path / "access.log"
    path.write_bytes(lines(0, 40))
    expected = said(pipeline, path)
    monkeypatch.setattr(topics, "Producer", MortalProducer)
    monkeypatch.setattr(topics, "COMMIT_EVENTS", max(1, len(expected) // 4))
    monkeypatch.setattr(topics._LogPublisher, "_give_up", lambda self: None)
    kills = 0
    is_done = False
    while not is_done:
        # Killed at the first call, the second, ...: at ever later moments, and so at all of them.
        MortalProducer.calls_left = kills // 2 + 1
        try:
            publish(broker, pipeline, path)
            is_done = True
        except KilledError:
            kills += 1

    assert kills >= 3
    assert published(broker, pipeline) == expected
    MortalProducer.calls_left = 0
    final = publish(broker, pipeline, path)
    assert (final.counts.total(), final.ledger.lines) == (0, 40)


@pytest.mark.parametrize("is_known", [True, False], ids=["with ids", "of an older version"])
@pytest.mark.parametrize("is_made_again", [True, False])
@pytest.mark.parametrize("has_written", [True, False])
def test_output_that_was_deleted_is_not_written_on(
    broker, tmp_path, is_known, is_made_again, has_written
):
    """What was in it is gone, and a query would add only what is new: it is refused by its name."""
    pipeline, servers = load_pipeline("word_count"), broker.bootstrap_servers
    delete_outputs(servers, pipeline)
    (output,) = (each.topic for each in pipeline.outputs)
    create_topics(servers, pipeline, tmp_path)
    create_topics(servers, pipeline, tmp_path)
    check_outputs(servers, pipeline, tmp_path)
    if not is_known:
        (tmp_path / OUTPUT_IDS).unlink()
    if has_written:
        (tmp_path / output / "commits").mkdir(parents=True)
        (tmp_path / output / "commits" / "0").touch()
    delete_outputs(servers, pipeline)
    if is_made_again:
        create_topics(servers, pipeline)

    is_refused = has_written and (is_known or not is_made_again)
    for look in (check_outputs, create_topics):
        refused = pytest.raises(OutputGoneError, match=f"topic {output} was deleted")
        with refused if is_refused else nullcontext():
            look(servers, pipeline, tmp_path)


def test_ids_of_outputs_are_there_whole_or_as_they_were(broker, tmp_path, monkeypatch):
    """A disk that is full, or a run that is killed, leaves no half of them for the next run."""
    pipeline, servers = load_pipeline("word_count"), broker.bootstrap_servers
    create_topics(servers, pipeline, tmp_path)
    before = (tmp_path / OUTPUT_IDS).read_bytes()

    def full(fd):
        raise OSError(errno.ENOSPC, "no room")

    delete_outputs(servers, pipeline)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no room"):
        create_topics(servers, pipeline, tmp_path)

    assert (tmp_path / OUTPUT_IDS).read_bytes() == before
