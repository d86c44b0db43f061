"""The dashboards that others have published find what they look for, at a broker of its own."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from http_pages import get, samples

import ottla
from ottla.runtime.free_port import free_port
from ottla.testing import wait_until

NAMES = Path(__file__).parent / "dashboards"


def names_of(dashboard):
    """The names of a dashboard's metrics, and whether each moves when records do."""
    lines = (NAMES / f"{dashboard}.txt").read_text().splitlines()
    words = [line.split() for line in lines if line and not line.startswith("#")]
    return {name: "moves" in marks for name, *marks in words}


def load(bootstrap_servers):
    """Records that are written, read and committed."""
    with ottla.Producer(bootstrap_servers) as producer:
        for number in range(500):
            producer.send("load", b"%d" % number)
    with ottla.Consumer(
        bootstrap_servers, group_id="readers", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["load"])
        count = 0
        while count < 500:
            count += len(consumer.poll(1_000))


def page(url):
    """The samples of /metrics under the names that they have there.

    Prometheus's library for Python adds `_total` to the name of every counter.
    """
    status, text = get(f"{url}/metrics")
    assert status == 200, text
    return samples(text.replace(" counter\n", " untyped\n"))


def series(url):
    """By name, the sum over all labels."""
    found = {}
    for (name, _), value in page(url).items():
        found[name] = found.get(name, 0) + value
    return found


@pytest.mark.parametrize(
    ("naming", "published"),
    [
        ("jmx-exporter", ("strimzi-kafka", "jmx-exporter-kafka")),
        ("confluent", ("confluent-kafka",)),
    ],
)
def test_published_dashboards_are_served(start_broker, naming, published):
    """Strimzi's, the exporter's and Confluent's: every name is there, and moves."""
    url = f"http://127.0.0.1:{free_port('127.0.0.1')}"
    broker = start_broker(metrics_listener=url, metrics_names=naming)
    load(broker.bootstrap_servers)
    before = series(url)
    load(broker.bootstrap_servers)
    dashboards = {name: names_of(name) for name in published}
    wanted = {name: moves for names in dashboards.values() for name, moves in names.items()}
    moving = {name for name, moves in wanted.items() if moves}

    assert all(len(names) > 20 for names in dashboards.values())
    assert not [name for name in wanted if name not in before]

    def still():
        now = series(url)
        return {name for name in moving if now[name] == before[name]}

    # What a meter or a share of time shows follows within 5 seconds; a page takes its time, too.
    pause = threading.Event()
    wait_until(lambda: not still(), "all to move", seen=still, meanwhile=lambda: pause.wait(0.5))


def test_log_of_a_broker_is_json_where_that_is_set(start_broker):
    """Every line is an object with its time, level, logger and message."""
    broker = start_broker(ottla_log_format="json")
    load(broker.bootstrap_servers)
    lines = [line for line in broker.log.splitlines() if line.startswith("{")]
    events = [json.loads(line) for line in lines]

    assert any("Recover" in each["message"] or "listen" in each["message"] for each in events)
    assert all({"timestamp", "level", "logger", "message"} <= each.keys() for each in events)
