"""The topic in which runs tell of their batches, on a broker in this process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla import Admin, ConfigResource, Consumer, Producer, TopicPartition
from ottla.errors import KafkaTimeoutError
from ottla.pipelines.execution import Batch
from ottla.pipelines.progress_topic import PROGRESS_TOPIC, ProgressTopic
from ottla.testing import InProcessBroker, wait_until


def batch(number: int, query: str = "retail") -> Batch:
    observed = {"interactions": {"rows": 12, "malformed": 2}, "users": {"rows": 1}}
    return Batch(query, number, 100, 0.5, 7, 1, 30, observed)


def reports(servers: str, count: int) -> list[dict]:
    """The first records of the topic, each with its key."""
    found: list[dict] = []
    with Consumer(servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(PROGRESS_TOPIC, 0)])
        consumer.seek(TopicPartition(PROGRESS_TOPIC, 0), 0)
        wait_until(
            lambda: len(found) >= count,
            "the reports",
            meanwhile=lambda: found.extend(
                {"key": each.key.decode(), **json.loads(each.value)} for each in consumer.poll(100)
            ),
        )
    return found


def test_batches_and_the_end_are_written():
    """With the key of run and query; the topic keeps the newest of each."""
    with InProcessBroker() as broker:
        servers = broker.bootstrap_servers
        with ProgressTopic(servers, "retail", Path("/out/report.html")) as topic:
            topic.batch(batch(0))
            topic.batch(batch(1))
        first, second, end = reports(servers, 3)
        with Admin(servers) as admin:
            resource = ConfigResource.topic(PROGRESS_TOPIC)
            policy = admin.describe_configs([resource])[resource]["cleanup.policy"].value

    assert policy == "compact"
    assert (first["state"], first["batch"], second["batch"]) == ("running", 0, 1)
    assert (end["state"], end["batch"]) == ("ended", 1)
    assert first["key"] == f"{first['run']}/retail" == end["key"]
    numbers = ("rows", "seconds", "lag", "late", "state_rows", "malformed")
    assert [first[name] for name in numbers] == [100, 0.5, 7, 1, 30, 2]
    assert first["report"] == "/out/report.html"


def run_that_ends_by(servers: str, error: type[BaseException]) -> None:
    with ProgressTopic(servers, "p", Path("r")) as topic:
        topic.batch(batch(0))
        raise error


def test_failed_run_is_told_to_have_failed():
    """The error goes on; one that is stopped by a person has ended."""
    with InProcessBroker() as broker:
        servers = broker.bootstrap_servers
        for error in (ValueError, KeyboardInterrupt):
            with pytest.raises(error):
                run_that_ends_by(servers, error)
        states = [each["state"] for each in reports(servers, 4)]

    assert states == ["running", "failed", "running", "ended"]


def test_run_goes_on_where_its_progress_cannot_be_written(monkeypatch, caplog):
    """The batch is left out, which the log says."""

    def refuse(*_: object, **__: object) -> None:
        raise KafkaTimeoutError("no room")

    monkeypatch.setattr(Producer, "send", refuse)
    with (
        InProcessBroker() as broker,
        ProgressTopic(broker.bootstrap_servers, "p", Path("r")) as topic,
    ):
        topic.batch(batch(0))

    assert "a batch of retail is not in __ottla_pipelines" in caplog.text
    assert "no room" in caplog.text


def test_runs_that_begin_at_once_make_the_topic_once(monkeypatch):
    """None of them sees it before another one has made it."""
    monkeypatch.setattr(Admin, "list_topics", lambda admin: [])
    with InProcessBroker() as broker:
        for name in ("one", "other"):
            with ProgressTopic(broker.bootstrap_servers, name, Path("r")) as topic:
                topic.batch(batch(0))
        found = reports(broker.bootstrap_servers, 4)

    assert {each["pipeline"] for each in found} == {"one", "other"}
