"""Exactly-once sources: one transaction for records and offsets, and zombies that are fenced."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from connect_kit import Growing, ask, distributed, state_of, wait_for_state

from ottla import Admin, Producer
from ottla.connect import distributed_herder
from ottla.errors import KafkaError
from ottla.testing import InProcessBroker, wait_until


@pytest.fixture
def broker():
    """A broker of the test's own."""
    with InProcessBroker(group_initial_rebalance_delay_ms=0) as running:
        yield running


@pytest.fixture
def workers(broker):
    """Starts workers of a group with exactly-once sources."""
    started = []

    def start(count=1, **more):
        settings = {"exactly_once_source_support": "enabled"} | more
        new = [distributed(broker, **settings) for _ in range(count)]
        started.extend(new)
        wait_until(lambda: all(ask(each, "GET", "/health")[0] == 200 for each in new), "the group")
        return new

    yield start
    for worker in started:
        worker.close()


def counting(topic, **more):
    config = {"connector.class": "connect_kit.Counting", "topic": topic}
    return config | {key.replace("_", "."): str(value) for key, value in more.items()}


def do(worker, method, path, body=None):
    """Ask until it is done: a group that rebalances refuses with 409."""
    wait_until(lambda: ask(worker, method, path, body)[0] < 300, f"{method} {path}")


def committed(broker, topic):
    """Keys and values of the records of committed transactions."""
    found = broker.records(topic, isolation_level="read_committed")
    return [(record.key, record.value) for record in found]


def values(broker, topic):
    return [int(value) for _, value in committed(broker, topic)]


def offsets(broker, topic="connect-offsets"):
    return {json.loads(key)[0]: json.loads(value) for key, value in committed(broker, topic)}


def test_each_batch_is_a_transaction_with_its_offset(broker, workers):
    """Records and offset are committed together; the fencing record says how many tasks."""
    (worker,) = workers()
    do(worker, "PUT", "/connectors/once/config", counting("t", count=7))
    broker.wait_for_records("t", 7)
    wait_until(lambda: offsets(broker) == {"once": {"n": 6}}, "the offset")

    assert values(broker, "t") == list(range(7))
    configs = dict(committed(broker, "connect-configs"))
    assert json.loads(configs[b"tasks-fencing-once"]) == {"task-count": 1}
    assert ask(worker, "GET", "/connectors/once/offsets")[1] == {
        "offsets": [{"partition": {}, "offset": {"n": 6}}]
    }


def test_restart_brings_nothing_twice(broker, workers):
    """Records and offset cannot be parted by any restart."""
    (worker,) = workers()
    do(worker, "PUT", "/connectors/again/config", counting("t", count=40, batch=3, pause=5))
    for _ in range(3):
        seen = len(values(broker, "t")) if "t" in broker.topics() else 0
        do(worker, "POST", "/connectors/again/restart?includeTasks=true")
        wait_until(lambda seen=seen: len(values(broker, "t")) > min(seen, 39), "progress")

    wait_until(lambda: len(values(broker, "t")) >= 40, "all records")
    assert values(broker, "t") == list(range(40))


def test_source_sets_its_boundaries(broker, workers):
    """What it aborts is not read, and does not come again; pause and stop end no transaction."""
    (worker,) = workers()
    config = counting("t", count=9, batch=3, transaction_boundary="connector", aborted=1)
    do(worker, "PUT", "/connectors/own/config", config)
    wait_until(lambda: values(broker, "t") == [0, 1, 2, 6, 7, 8], "what was committed")
    wait_until(lambda: offsets(broker) == {"own": {"n": 8}}, "the offset")


def test_interval_ends_transactions(broker, workers):
    """All batches of an interval are one transaction; a stop ends it early."""
    (worker,) = workers()
    config = counting("t", count=4, batch=1, transaction_boundary="interval")
    config["transaction.boundary.interval.ms"] = "3600000"
    do(worker, "PUT", "/connectors/slow/config", config)
    broker.wait_for_records("t", 4)
    assert values(broker, "t") == []
    do(worker, "PUT", "/connectors/slow/pause")
    wait_until(lambda: values(broker, "t") == [0, 1, 2, 3], "the transaction's end")


def test_interval_ends_the_transaction_of_a_source_that_brings_nothing_more(broker, workers):
    """The broker would abort it, and the task would fail."""
    (worker,) = workers()
    config = counting("t", count=4, batch=4, transaction_boundary="interval")
    config["transaction.boundary.interval.ms"] = "200"
    do(worker, "PUT", "/connectors/quiet/config", config)

    wait_until(lambda: values(broker, "t") == [0, 1, 2, 3], "the transaction's end")
    wait_until(lambda: offsets(broker) == {"quiet": {"n": 3}}, "the offset")


@pytest.mark.parametrize(
    ("settings", "timeout_ms"),
    [
        ({"transaction.boundary.interval.ms": "60000"}, 120_000),
        ({"transaction.boundary.interval.ms": "3600000"}, 900_000),
        ({"producer.override.transaction.timeout.ms": "70000"}, 70_000),
        ({"transaction.boundary": "poll"}, 60_000),
    ],
)
def test_transaction_may_be_open_until_its_end_is_due(broker, workers, settings, timeout_ms):
    """A broker would abort one that is as long as it may be, just before it is committed."""
    (worker,) = workers(connector_client_config_override_policy="All")
    config = counting("t", count=1, batch=1, transaction_boundary="interval") | settings
    do(worker, "PUT", "/connectors/long/config", config)
    broker.wait_for_records("t", 1)

    with Admin(broker.bootstrap_servers) as admin:
        found = admin.describe_transactions(["workers-long-0"])
    assert found["workers-long-0"].timeout_ms == timeout_ms


def test_task_of_before_is_fenced_when_tasks_are_planned_anew(broker, workers):
    """A zombie has a transaction open: it cannot commit, and its records are not read."""
    (worker,) = workers()
    many = counting("t", count=1, tasks_max=3)
    do(worker, "PUT", "/connectors/z/config", many)
    wait_until(lambda: values(broker, "t") == [0, 0, 0], "a record of each task")
    with Producer(broker.bootstrap_servers, {"transactional.id": "workers-z-2"}) as zombie:
        zombie.init_transactions()
        zombie.begin_transaction()
        zombie.send("t", b"99").result(120)
        do(worker, "PUT", "/connectors/z/config", many | {"tasks.max": "2"})
        wait_for_state(worker, "z", "RUNNING", "RUNNING", "RUNNING")
        wait_until(
            lambda: (
                json.loads(dict(committed(broker, "connect-configs"))[b"tasks-fencing-z"])
                == {"task-count": 2}
            ),
            "the fencing record",
        )
        with pytest.raises(KafkaError):
            zombie.commit_transaction()
    assert values(broker, "t") == [0, 0, 0]


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 3), (3, 2), (2, 1)])
def test_tasks_that_stay_the_same_outlive_the_next_planning(
    broker, workers, monkeypatch, before, after
):
    """It fences all producers of before, so that these tasks, too, have to begin again."""
    monkeypatch.setattr(Growing, "splits", before)
    (worker,) = workers()
    config = counting("t", count=60, batch=1, pause=5, tasks_max=3)
    do(worker, "PUT", "/connectors/g/config", config | {"connector.class": "connect_kit.Growing"})
    wait_until(lambda: "t" in broker.topics() and values(broker, "t"), "the first records")
    monkeypatch.setattr(Growing, "splits", after)

    wait_until(
        lambda: Counter(values(broker, "t"))[59] >= after,
        "the last record of each task",
        seen=lambda: ask(worker, "GET", "/connectors/g/status"),
    )
    wait_for_state(worker, "g", *["RUNNING"] * (after + 1))
    seen = Counter(values(broker, "t"))
    assert after <= min(seen[number] for number in range(60))
    assert max(seen.values()) <= max(before, after)


def test_fenced_task_fails_and_says_why(broker, workers):
    """Its state has the trace, with what a person can do."""
    (worker,) = workers()
    do(worker, "PUT", "/connectors/f/config", counting("t", count=10000, batch=1, pause=20))
    broker.wait_for_records("t", 1)
    with Producer(broker.bootstrap_servers, {"transactional.id": "workers-f-0"}) as other:
        other.init_transactions()
    wait_for_state(worker, "f", "RUNNING", "FAILED")
    trace = ask(worker, "GET", "/connectors/f/status")[1]["tasks"][0]["trace"]
    assert "transaction.timeout.ms" in trace


def test_offsets_in_a_topic_of_the_connectors_own(broker, workers):
    """They are written there in the transaction, and copied to the workers' topic."""
    (worker,) = workers()
    config = counting("t", count=5) | {"offsets.storage.topic": "mine"}
    do(worker, "PUT", "/connectors/o/config", config)
    wait_until(lambda: "mine" in broker.topics() and offsets(broker, "mine"), "the offset")
    wait_until(lambda: offsets(broker) == {"o": {"n": 4}}, "the copy")
    assert offsets(broker, "mine") == {"o": {"n": 4}}

    do(worker, "PUT", "/connectors/o/stop")
    wait_for_state(worker, "o", "STOPPED")
    body = {"offsets": [{"partition": {}, "offset": {"n": 2}}]}
    do(worker, "PATCH", "/connectors/o/offsets", body)
    assert offsets(broker, "mine") == {"o": {"n": 2}}
    do(worker, "PUT", "/connectors/o/resume")
    wait_until(lambda: values(broker, "t") == [0, 1, 2, 3, 4, 3, 4], "what was asked for again")


def test_leader_of_before_cannot_write(broker, workers):
    """The next one takes its transactional id over."""
    first, second = workers(2)
    leader, other = (first, second) if first.herder.group.is_leader else (second, first)
    do(leader, "PUT", "/connectors/l/config", counting("t", count=1))
    wait_for_state(leader, "l", "RUNNING", "RUNNING")
    with Producer(broker.bootstrap_servers, {"transactional.id": "connect-cluster-workers"}) as one:
        one.init_transactions()
    assert ask(leader, "PUT", "/connectors/l/pause")[0] == 409
    wait_until(lambda: ask(other, "PUT", "/connectors/l/pause")[0] == 202, "a leader that writes")
    wait_until(lambda: state_of(other, "l")[0] == "PAUSED", "a pause")


def test_leader_may_be_away_while_tasks_are_planned_and_fenced(broker, workers, monkeypatch):
    """A worker asks until the group has the next leader: its tasks wait, and do not fail."""
    monkeypatch.setattr(distributed_herder, "POST_PAUSE_S", 0)
    first, second = workers(2)
    leader, other = (first, second) if first.herder.group.is_leader else (second, first)
    post, refused = other.herder.post, Counter()

    async def nobody_answers_at_first(method, url, body, headers):
        refused[method] += 1
        return refused[method] > 100 and await post(method, url, body, headers)

    other.herder.post = nobody_answers_at_first
    for name in "ab":
        do(leader, "PUT", f"/connectors/{name}/config", counting(name, count=1, tasks_max=2))
    for name in "ab":
        wait_for_state(leader, name, *["RUNNING"] * 3)
    assert refused["POST"] > 100, "the tasks of a connector"
    assert refused["PUT"] > 100, "the fencing of tasks of before"


def test_worker_that_waits_for_the_config_topic_answers(workers):
    """A rebalance ends its right to write, once what is being written is; REST does not wait."""
    first, second = workers(2)
    leader, other = (first, second) if first.herder.group.is_leader else (second, first)
    table = other.herder._configs
    table._writing.acquire()  # as while a claim, or a write, takes its time
    try:
        before = other.herder.group.member.generation
        leader.herder.group.member.request_join()
        wait_until(lambda: other.herder.group.member.generation > before, "a rebalance")
        assert ask(other, "GET", "/health")[0] == 200
    finally:
        table._writing.release()


def test_what_cannot_be_exactly_once_is_refused(broker, workers):
    """By the connector's own word; with a worker that does not support it as well."""
    (worker,) = workers()
    path = "/connector-plugins/connect_kit.MoodySource/config/validate"
    config = {"connector.class": "connect_kit.MoodySource", "name": "m", "topic": "t"}
    for more, key in (
        ({"exactly.once.support": "required"}, "exactly.once.support"),
        ({"transaction.boundary": "connector"}, "transaction.boundary"),
    ):
        status, found = ask(worker, "PUT", path, config | more)
        wrong = [e["value"]["name"] for e in found["configs"] if e["value"]["errors"]]
        assert (status, wrong) == (200, [key])
    assert ask(worker, "PUT", "/connectors/m/fence")[0] == 400
