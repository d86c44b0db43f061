"""What `ottla metrics` prints of a broker's metrics, and how it fails."""

from __future__ import annotations

import json

import pytest
from http_pages import metrics_of
from odd_worker import OddWorker

import ottla as clients
from ottla.runtime.free_port import free_port
from ottla.testing import InProcessBroker


@pytest.fixture(scope="module")
def broker():
    """With a topic of ten records."""
    with InProcessBroker(metrics_listener="http://127.0.0.1:0") as running:
        running.create_topic("t")
        with clients.Producer(running.bootstrap_servers) as producer:
            for _ in range(10):
                producer.send("t", b"x")
        yield running


@pytest.fixture
def url(broker):
    return str(metrics_of(broker.broker).end_point)


def test_part_of_a_name_finds_beans(ottla, url):
    """In any case, one line for each attribute."""
    done = ottla("metrics", "messagesinpersec", "--url", url, "--attributes", "Count")

    assert {
        "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec Count=10",
        "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=t Count=10",
    } <= set(done.lines)
    assert all("MessagesInPerSec" in line for line in done.lines)


@pytest.mark.parametrize(
    "name",
    [
        "kafka.log:type=Log,name=LogEndOffset,partition=0,topic=t",
        "kafka.log:type=Log,name=LogEndOffset,topic=t,*",
    ],
)
def test_whole_name_finds_a_bean(ottla, url, name):
    """Exactly, or with a star."""
    done = ottla("metrics", name, "--url", url, "--format", "json")

    assert json.loads(done.out)[0]["value"] == 10


def test_watch_shows_what_changes(ottla, url):
    """Each value with its change a second, below the time of the report."""
    done = ottla("metrics", "nothing", "--url", url, "--watch", "0.01", "--reports", "1")
    assert done.lines[0].startswith("-- ")

    done = ottla(
        "metrics",
        "MessagesInPerSec",
        "--url",
        url,
        "--attributes",
        "MeanRate,EventType",
        "--watch",
        "0.05",
        "--reports",
        "1",
        "--format",
        "json",
    )
    rows = json.loads(done.out)
    assert {row["attribute"] for row in rows} == {"MeanRate"}
    assert all(row["per_second"] < 0 for row in rows), "nothing comes: the mean falls"


def test_nothing_that_matches_is_said(ottla, url):
    """A name that is not there is an error, a part of a name is not."""
    assert ottla("metrics", "nothing-like-this", "--url", url).status == 0
    done = ottla("metrics", "kafka.log:type=Nothing", "--url", url)
    assert done.status == 1
    assert "there is no MBean kafka.log:type=Nothing" in done.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--url", "ftp://x"), "must be http://host:port"),
        (("--watch", "0"), "--watch takes a number above 0"),
        (("--reports", "2"), "needs --watch"),
    ],
)
def test_wrong_option_is_refused(ottla, options, said):
    """Before anything is asked."""
    done = ottla("metrics", *options)

    assert done.status == 1
    assert said in done.err


def test_broker_without_metrics_is_told(ottla):
    """The error says which setting serves them."""
    done = ottla("metrics", "--url", f"http://127.0.0.1:{free_port('127.0.0.1')}")

    assert done.status == 1
    assert "metrics.listener" in done.err


def test_password_comes_from_the_environment(ottla, monkeypatch):
    """A password on the command line could be seen by others."""
    settings = {"metrics_listener_username": "ann", "metrics_listener_password": "s3cret"}
    with InProcessBroker(metrics_listener="http://127.0.0.1:0", **settings) as broker:
        url = str(metrics_of(broker.broker).end_point)
        refused = ottla("metrics", "LeaderCount", "--url", url)
        monkeypatch.setenv("OTTLA_METRICS_PASSWORD", "s3cret")
        served = ottla("metrics", "LeaderCount", "--url", url, "--user", "ann")

    assert refused.status == 1
    assert "401" in refused.err
    assert served.lines[0].startswith("kafka.server:type=ReplicaManager,name=LeaderCount Value=")


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ("<html>", "is no broker of Ottla: the answer is no JSON"),
        ("[]", "the answer is a list, not an object"),
        ('{"status": 200, "value": []}', "value is a list, not an object"),
        ('{"status": 200, "value": {"a:b=c": 7}}', "a:b=c is a number, not an object"),
        ('{"status": 500, "error": "it broke"}', "it broke"),
    ],
)
def test_odd_answer_is_named(ottla, answer, fault):
    """Of a server that is no broker, with the part that is odd."""
    with OddWorker() as odd:
        odd.body(answer.encode())
        done = ottla("metrics", "--url", odd.url)

    assert (done.status, fault in done.err, odd.url in done.err) == (1, True, True)
