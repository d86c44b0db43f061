"""What a worker measures, as it is read over HTTP while it runs."""

from __future__ import annotations

import json
import math
import re
import urllib.request
from pathlib import Path

import pytest
from connect_kit import (
    GATE,
    MoodySink,
    ask,
    distributed,
    standalone,
    wait_for_state,
)
from prometheus_client.parser import text_string_to_metric_families

from ottla import Producer
from ottla.connect.plugin_thread import State
from ottla.connect.worker_task import TaskMeasures
from ottla.testing import InProcessBroker, wait_until
from ottla.testing.runtime import mock_runtime

PAGE = Path(__file__).parents[3] / "docs" / "use" / "connect.md"
ROW = re.compile(r"^\| `([a-z-]+-metrics)` \| (.+) \|$", re.MULTILINE)
DEAD_LETTERS = {
    "errors.tolerance": "all",
    "errors.log.enable": "true",
    "errors.deadletterqueue.topic.replication.factor": "1",
}


@pytest.fixture(scope="module")
def broker():
    """One broker for all tests of this file; each has topics of its own."""
    with InProcessBroker(group_initial_rebalance_delay_ms=0) as running:
        yield running


@pytest.fixture
def worker(broker, tmp_path):
    """A worker of its own; what hangs at the end of a test is let go."""
    GATE.clear()
    with standalone(broker, tmp_path) as running:
        yield running
        GATE.set()


def source(name, topic, **settings):
    return {
        "name": name,
        "connector.class": "connect_kit.MoodySource",
        "topic": topic,
        **settings,
    }


def sink(name, topics, **settings):
    return {"name": name, "connector.class": "connect_kit.MoodySink", "topics": topics, **settings}


def beans(worker, kind):
    """The attributes of all beans of a type, by what the bean is about."""
    _, answer = ask(worker, "GET", f"/jolokia/read/kafka.connect:type={kind},*")
    tags = re.compile(r"(?:connector|task)=([^,]+)")
    return {"-".join(tags.findall(name)): found for name, found in answer["value"].items()}


def wait_for(worker, kind, about, **wanted):
    """The attributes of one bean, once these have these values."""
    wanted = {name.replace("_", "-"): value for name, value in wanted.items()}

    def found():
        shown = ask(worker, "GET", f"/jolokia/search/kafka.connect:type={kind},*")[1]["value"]
        return beans(worker, kind).get(about, {}) if shown else {}

    wait_until(lambda: wanted.items() <= found().items(), f"{wanted} of {about}", seen=found)
    return found()


def test_source_is_counted_in_batches(broker, worker):
    """Records from the source to the topic, their batches, and the offsets that are stored."""
    worker.create(source("counted", "counted", count="5"))
    broker.wait_for_records("counted", 5)
    found = wait_for(
        worker,
        "source-task-metrics",
        "counted-0",
        source_record_poll_total=5,
        source_record_write_total=5,
        source_record_active_count=0,
    )

    assert found["source-record-poll-rate"] > 0
    assert found["poll-batch-max-time-ms"] >= found["poll-batch-avg-time-ms"] >= 0
    task = wait_for(
        worker, "connector-task-metrics", "counted-0", offset_commit_success_percentage=1
    )
    assert (task["status"], task["offset-commit-failure-percentage"]) == ("running", 0)
    assert task["batch-size-max"] == found["source-record-active-count-max"] == 5
    assert 0 < task["running-ratio"] <= 1
    assert task["pause-ratio"] == 0


def test_whole_batches_count_by_their_records(broker, worker, tmp_path):
    """A batch that passes as it is has as many records as it says."""
    (tmp_path / "lines.txt").write_text("".join(f"{number}\n" for number in range(1000)))
    worker.create(
        {
            "name": "lines",
            "connector.class": "FileStreamSource",
            "file": str(tmp_path / "lines.txt"),
            "topic": "lines",
        }
    )
    broker.wait_for_records("lines", 1000)

    wait_for(
        worker,
        "source-task-metrics",
        "lines-0",
        source_record_poll_total=1000,
        source_record_write_total=1000,
        source_record_active_count=0,
    )
    assert beans(worker, "connector-task-metrics")["lines-0"]["batch-size-max"] > 1


def test_what_arrives_while_it_is_paused_counts(broker, worker):
    """The task does nothing then; who asks sees the topic as it is."""
    worker.create(source("resting", "resting"))
    broker.wait_for_records("resting", 3)
    ask(worker, "PUT", "/connectors/resting/pause")
    wait_for_state(worker, "resting", "PAUSED", "PAUSED")

    wait_for(worker, "source-task-metrics", "resting-0", source_record_write_total=3)


def test_what_a_transform_drops_is_not_written(broker, worker):
    """It was polled, and nobody waits for it any longer."""
    dropped = {
        "transforms": "none",
        "transforms.none.type": "Filter",
        "transforms.none.predicate": "all",
        "predicates": "all",
        "predicates.all.type": "TopicNameMatches",
        "predicates.all.pattern": ".*",
    }
    worker.create(source("dropped", "dropped", **dropped))

    wait_for(
        worker,
        "source-task-metrics",
        "dropped-0",
        source_record_poll_total=3,
        source_record_write_total=0,
        source_record_active_count=0,
        source_record_active_count_max=3,
    )


def test_sink_and_what_failed_in_it(broker, worker):
    """Records read and put, offsets committed; a poison record is skipped, logged, and kept."""
    with Producer(broker.bootstrap_servers) as producer:
        for value in (b"good", b"poison", b"fine"):
            producer.send("mixed", value)
    letters = DEAD_LETTERS | {"errors.deadletterqueue.topic.name": "dead"}
    worker.create(sink("measured", "mixed", raises="poison", **letters))
    found = wait_for(
        worker,
        "sink-task-metrics",
        "measured-0",
        sink_record_read_total=3,
        sink_record_send_total=3,
        partition_count=1,
        sink_record_active_count=0,
    )

    assert MoodySink.got["measured"] == ["good", "fine"]
    assert found["offset-commit-completion-total"] >= 1
    assert found["offset-commit-seq-no"] >= 1
    assert found["put-batch-max-time-ms"] >= 0
    errors = beans(worker, "task-error-metrics")["measured-0"]
    assert errors.pop("last-error-timestamp") > 0
    assert errors == {
        "total-record-failures": 1,
        "total-record-errors": 1,
        "total-records-skipped": 1,
        "total-retries": 0,
        "total-errors-logged": 1,
        "deadletterqueue-produce-requests": 1,
        "deadletterqueue-produce-failures": 0,
    }


def test_states_and_starts_of_a_worker(broker, worker):
    """Connectors and tasks that run, that failed, and that are paused."""
    worker.create(source("fine", "fine"))
    worker.create(source("broken", "broken", raises="start"))
    wait_for_state(worker, "broken", "RUNNING", "FAILED")
    wait_for_state(worker, "fine", "RUNNING", "RUNNING")
    ask(worker, "PUT", "/connectors/fine/pause")
    wait_for_state(worker, "fine", "PAUSED", "PAUSED")

    found = beans(worker, "connect-worker-metrics")
    assert found["broken"] == {
        "connector-total-task-count": 1,
        "connector-running-task-count": 0,
        "connector-paused-task-count": 0,
        "connector-failed-task-count": 1,
        "connector-unassigned-task-count": 0,
        "connector-restarting-task-count": 0,
    }
    assert found["fine"]["connector-paused-task-count"] == 1
    assert found[""] == {
        "connector-count": 2,
        "task-count": 2,
        "connector-startup-attempts-total": 2,
        "connector-startup-success-total": 2,
        "connector-startup-success-percentage": 1,
        "connector-startup-failure-total": 0,
        "connector-startup-failure-percentage": 0,
        "task-startup-attempts-total": 2,
        "task-startup-success-total": 1,
        "task-startup-success-percentage": 0.5,
        "task-startup-failure-total": 1,
        "task-startup-failure-percentage": 0.5,
    }
    connector = beans(worker, "connector-metrics")["fine"]
    assert (connector["status"], connector["connector-type"]) == ("paused", "source")
    assert connector["connector-class"] == "connect_kit.MoodySource"


def test_prometheus_has_the_names_of_the_exporters_rules(broker, worker):
    """Without `-metrics`; a state is a label of a series that is 1."""
    worker.create(source("scraped", "scraped"))
    wait_for(worker, "source-task-metrics", "scraped-0", source_record_write_total=3)
    with urllib.request.urlopen(f"{worker.url}metrics") as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    found = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }

    task = (("connector", "scraped"), ("task", "0"))
    status = (("connector", "scraped"), ("status", "running"))
    assert found["kafka_connect_worker_connector_count", ()] == 1
    assert found["kafka_connect_source_task_source_record_write_total", task] == 3
    assert found["kafka_connect_connector_task_status", (*status, task[1])] == 1
    assert found["kafka_connect_connector_status", status] == 1


def test_rebalances_of_a_group(broker):
    """Who leads, which generation, and how often the worker has joined."""
    with distributed(broker) as worker:
        wait_until(lambda: ask(worker, "GET", "/health")[0] == 200, "the group")
        found = wait_for(worker, "connect-worker-rebalance-metrics", "", rebalancing=0)

    assert found["leader-name"] == worker.url
    assert found["connect-protocol"] == "sessioned"
    assert found["epoch"] >= 1
    assert found["completed-rebalances-total"] >= 1
    assert found["rebalance-max-time-ms"] >= found["rebalance-avg-time-ms"] >= 0
    assert found["time-since-last-rebalance-ms"] >= 0


def test_page_has_every_metric(broker):
    """The table of docs/use/connect.md and a worker with everything say the same."""
    settings = {"group_id": "all-metrics", "exactly_once_source_support": "enabled"}
    topics = {f"{each}_storage_topic": f"all-{each}" for each in ("config", "offset", "status")}
    with distributed(broker, **settings, **topics) as worker:
        wait_until(lambda: ask(worker, "GET", "/health")[0] == 200, "the group")
        counting = {"connector.class": "connect_kit.Counting", "topic": "once"}
        letters = DEAD_LETTERS | {"errors.deadletterqueue.topic.name": "all-dead"}
        into = {"connector.class": "connect_kit.MoodySink", "topics": "once", **letters}
        for name, config in (("once", counting), ("into", into)):
            path = f"/connectors/{name}/config"
            wait_until(lambda p=path, c=config: ask(worker, "PUT", p, c)[0] == 201, "connectors")
        for name in ("once", "into"):
            wait_for_state(worker, name, "RUNNING", "RUNNING")
        wait_for(
            worker,
            "source-task-metrics",
            "once-0",
            source_record_write_total=3,
            transaction_size_max=3,
        )
        _, answer = ask(worker, "GET", "/jolokia/read/kafka.connect:*")
    there: dict[str, set[str]] = {}
    for bean, values in answer["value"].items():
        kind = re.match(r"kafka\.connect:type=([^,]+)", bean)[1]
        there.setdefault(kind, set()).update(values)
    written: dict[str, set[str]] = {}
    for kind, names in ROW.findall(PAGE.read_text(encoding="utf-8")):
        written.setdefault(kind, set()).update(re.findall(r"`([a-z-]+)`", names))

    assert written == there


def test_metrics_are_where_the_levels_of_the_log_are(broker, tmp_path):
    """admin.listeners moves both away from the paths that change connectors."""
    with standalone(broker, tmp_path, admin_listeners="http://127.0.0.1:0") as worker:
        (url,) = worker.rest.admin_urls
        with urllib.request.urlopen(f"{url}jolokia/list") as answer:
            assert "kafka.connect" in json.load(answer)["value"]
        assert ask(worker, "GET", "/metrics")[0] == 404


def test_connector_shows_what_it_measures_itself(broker, tmp_path):
    """The mirror's partitions, by Kafka's names, as long as the connector is there."""
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(50):
            producer.send("mirrored", str(number))
    with InProcessBroker() as target, standalone(broker, tmp_path) as worker:
        ends = {"source": broker, "target": target}
        clusters = {f"{end}.cluster.alias": end for end in ends}
        clusters |= {
            f"{end}.cluster.bootstrap.servers": each.bootstrap_servers for end, each in ends.items()
        }
        factors = ("replication.factor", "offset-syncs.topic.replication.factor")
        factors += ("offset.storage.replication.factor",)
        worker.create(
            {
                "name": "mirror",
                "connector.class": "MirrorSourceConnector",
                "topics": "mirrored",
                **clusters,
                **dict.fromkeys(factors, "1"),
            }
        )
        bean = "kafka.connect.mirror:type=MirrorSourceConnector,source=source,target=target,"
        bean += "topic=source.mirrored,partition=0"

        def found():
            return ask(worker, "GET", f"/jolokia/read/{bean}")[1].get("value", {})

        wait_until(lambda: found().get("record-count") == 50, "the records", seen=found)
        assert found()["byte-count"] > 0
        assert ask(worker, "DELETE", "/connectors/mirror")[0] == 204
        assert found() == {}


def test_shares_of_time_and_values_of_a_task():
    """A state counts while it lasts; averages are NaN before the first value."""
    runtime = mock_runtime()
    measures = TaskMeasures(runtime.clock, "source-record-poll")
    runtime.clock.advance(10)
    measures.enter(State.RUNNING)
    runtime.clock.advance(60)
    measures.enter(State.PAUSED)
    runtime.clock.advance(30)

    assert measures.share_of(State.RUNNING) == 0.6
    assert measures.share_of(State.PAUSED) == 0.3
    assert math.isnan(measures.average("batch-size"))
    with pytest.raises(OSError, match="full"), measures.commit():
        raise OSError("full")
    assert measures.average("offset-commit-success") == 0
    assert math.isnan(measures.maximum("offset-commit"))
