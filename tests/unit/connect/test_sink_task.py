"""A task of a sink whose system fails, while partitions come, go and are made again."""

from __future__ import annotations

import pytest
from connect_kit import Failing, ask, standalone, wait_for_state

from ottla import Admin, Consumer, NewTopic, Producer
from ottla.testing import InProcessBroker, wait_until

BEFORE = 5
"""Records of each topic before the failure; the topic that is made again gets more than these."""
COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"


@pytest.fixture
def broker():
    """A broker of the test's own: topics are deleted."""
    with InProcessBroker(group_initial_rebalance_delay_ms=0) as running:
        yield running


@pytest.fixture
def flush_ms():
    """How often offsets are committed."""
    return 50


@pytest.fixture
def sink(broker, tmp_path, flush_ms):
    """A worker whose one sink reads the topics a and b, with the calls that fail."""
    Failing.begin()
    config = {
        "connector.class": "connect_kit.Failing",
        "topics": "a,b",
        "consumer.override.metadata.max.age.ms": "100",
        "consumer.override.partition.assignment.strategy": COOPERATIVE,
    }
    settings = {
        "connector_client_config_override_policy": "All",
        "offset_flush_interval_ms": flush_ms,
    }
    with standalone(broker, tmp_path, **settings) as worker:
        produce(broker, "old", range(BEFORE))
        ask(worker, "PUT", "/connectors/sink/config", config)
        wait_until(lambda: len(Failing.kept) == 2 * BEFORE, "what was there before")
        wait_until(lambda: committed(broker) == {"a": BEFORE, "b": BEFORE}, "their offsets")
        yield worker
        Failing.failing.clear()


def produce(broker, word, numbers, topics="ab"):
    with Producer(broker.bootstrap_servers) as producer:
        for number in numbers:
            for topic in topics:
                producer.send(topic, f"{topic}-{word}-{number}".encode())


def committed(broker):
    with Admin(broker.bootstrap_servers) as admin:
        found = admin.list_group_offsets("connect-sink")
    return {place.topic: offset.offset for place, offset in found.items()}


def nothing(broker, worker):
    """The failure alone."""


def pause_and_resume(broker, worker):
    for verb, state in (("pause", "PAUSED"), ("resume", "RUNNING")):
        ask(worker, "PUT", f"/connectors/sink/{verb}")
        wait_until(lambda state=state: worker.status("sink")["tasks"][0]["state"] == state, state)


def make_again(broker, worker):
    """Another topic of the name a, whose records are there before the sink's task sees it."""
    with Failing.standing, Admin(broker.bootstrap_servers) as admin:
        admin.delete_topics(["a"])
        wait_until(lambda: not broker.records("a"), "the end of the former topic")
        produce(broker, "new", range(BEFORE), "a")
    wait_until(lambda: "a" in Failing.closed, "the sink to close the former topic")


def revoke(broker, worker):
    """Another member of the group takes one of the partitions, and gives it back unread."""
    settings = {
        "group.id": "connect-sink",
        "partition.assignment.strategy": COOPERATIVE,
        "enable.auto.commit": "false",
    }
    with Consumer(broker.bootstrap_servers, settings) as other:
        other.subscribe(["a", "b"])
        wait_until(other.assignment, "its part", meanwhile=lambda: other.poll(100))


EVENTS = {
    "nothing": nothing,
    "pause": pause_and_resume,
    "topic made again": make_again,
    "revoked": revoke,
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("failing", ["put", "pre_commit", "put pre_commit"])
def test_records_come_however_the_sink_fails(broker, sink, failing, event):
    """Each record is kept, and no partition stands still, once the system is there again."""
    Failing.failing |= set(failing.split())
    produce(broker, "down", [0])
    wait_until(lambda: all(Failing.failed[method] > 1 for method in failing.split()), "failures")
    EVENTS[event](broker, sink)
    Failing.failing.clear()
    produce(broker, "up", range(2))

    is_new = event == "topic made again"
    check_all_kept(broker, is_new, {"b-down-0"} if is_new else {"a-down-0", "b-down-0"})


def check_all_kept(broker, is_new, others):
    """All records, and the offsets behind them; `is_new`: the topic a was made again."""
    expected = {f"{topic}-up-{number}" for topic in "ab" for number in range(2)} | others
    if is_new:
        expected |= {f"a-new-{number}" for number in range(BEFORE)}
    wait_until(lambda: expected <= set(Failing.kept), "all records", seen=lambda: Failing.kept)
    ends = {"a": BEFORE + (2 if is_new else 3), "b": BEFORE + 3}
    wait_until(lambda: committed(broker) == ends, "offsets", seen=lambda: committed(broker))


@pytest.mark.parametrize("flush_ms", [3_600_000])
@pytest.mark.parametrize("event", ["topic made again", "revoked"])
def test_what_is_put_again_stays_when_other_partitions_go(broker, sink, event):
    """Their commit fails, the first for long; records of the partitions that stay wait on."""
    Failing.failing |= {"put", "pre_commit"}
    produce(broker, "down", [0])
    wait_until(lambda: Failing.failed["put"] > 1, "failures")
    EVENTS[event](broker, sink)
    assert Failing.failed["pre_commit"] > 0
    Failing.failing.clear()
    produce(broker, "up", range(2))

    is_new = event == "topic made again"
    check_all_kept(broker, is_new, {"b-down-0"} if is_new else {"a-down-0", "b-down-0"})


@pytest.mark.parametrize("step", ["a put", "a conversion"])
def test_record_whose_letter_is_refused_is_not_passed_over(broker, tmp_path, step):
    """The task ends, and does not commit as it closes what is neither kept nor a dead letter."""
    config = {
        "connector.class": "connect_kit.Reporting",
        "topics": "a",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "letters",
        "errors.deadletterqueue.topic.replication.factor": "1",
    }
    if step == "a conversion":
        config["value.converter"] = "org.apache.kafka.connect.json.JsonConverter"
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("letters", 1, configs={"max.message.bytes": "200"})])
    with Producer(broker.bootstrap_servers) as producer:
        producer.send("a", b"x" * 1000)
    with standalone(broker, tmp_path) as worker:
        for _ in range(2):
            ask(worker, "PUT", "/connectors/sink/config", config)
            wait_for_state(worker, "sink", "RUNNING", "FAILED")
            ask(worker, "POST", "/connectors/sink/tasks/0/restart")
        wait_for_state(worker, "sink", "RUNNING", "FAILED")
        trace = worker.status("sink")["tasks"][0]["trace"]

    assert committed(broker).get("a", 0) == 0
    assert "the dead letter of a-0 at offset 0 was not written to letters" in trace
