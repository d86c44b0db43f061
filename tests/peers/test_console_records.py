"""The console's pages of topics and records beside Apache Kafka's own broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from benchmarks.peers.downloads import kafka_jars
from benchmarks.peers.kafka_broker import KafkaBroker
from benchmarks.peers.kafka_tools import KafkaTools
from visitor import Visitor, visit

from ottla import Admin, NewTopic, Producer

START = 1_795_878_000_000
PAGES = (
    "/",
    "/topics",
    "/t/orders/records",
    "/t/orders/1/3",
    f"/t/orders/timeline?from={START}&to={START + 60_000}",
    "/t/orders/partitions",
    "/t/orders/settings",
    "/t/orders/produce?like=1:3",
)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory) -> Iterator[KafkaBroker]:
    """A broker of Apache Kafka 4.1 with a topic of three partitions."""
    folder = tmp_path_factory.mktemp("kafka")
    broker = KafkaBroker(KafkaTools("4.1", kafka_jars("4.1")), folder).format()
    broker.start()
    try:
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders", 3)])
        with Producer(broker.bootstrap_servers, compression_type="zstd") as producer:
            for number in range(60):
                value = b'{"id": 9007199254740993, "status": "%s"}' % (b"error", b"ok")[number % 2]
                producer.send(
                    "orders",
                    value,
                    key=b"k%d" % (number % 7),
                    partition=number % 3,
                    timestamp_ms=START + number * 100,
                )
        yield broker
    finally:
        broker.stop()


@pytest.mark.parametrize("path", PAGES)
def test_pages_are_shown(kafka, path):
    """With facts of that broker, as far as it has them."""

    async def walk(visitor: Visitor) -> None:
        answer = await visitor.get(path)
        assert answer.status == 200, answer.text

    visit(kafka.bootstrap_servers, walk)


def test_records_are_browsed_and_searched(kafka):
    """In the order of time, from compressed batches too."""

    async def walk(visitor: Visitor) -> None:
        data = (await visitor.get("/t/orders/records.json?count=60")).json
        times = [each["timestamp_ms"] for each in data["records"]]
        assert times == [START + n * 100 for n in range(59, -1, -1)]
        found = (await visitor.get("/t/orders/records.json?q=value.status+%3D+'error'")).json
        assert (len(found["records"]), found["read"]) == (30, 60)
        row = next(
            each
            for each in (await visitor.get("/topics.json")).json["rows"]
            if each["name"] == "orders"
        )
        assert row["records"] == 60
        assert row["bytes"] > 0
        assert row["retention"] == "7 days"

    visit(kafka.bootstrap_servers, walk)


def test_topics_are_changed_and_records_sent(kafka):
    """By the same forms."""

    async def walk(visitor: Visitor) -> None:
        assert (await visitor.post("/topics/new", name="new", partitions="2")).status == 303
        answer = await visitor.post("/t/new/produce", key="k", value="v", partition="1")
        assert answer.header("location") == "/t/new/1/0"
        setting = {"name": "retention.ms", "value": "5000"}
        assert (await visitor.post("/t/new/settings", **setting)).status == 303
        lines = (await visitor.get("/t/new/settings.json")).json["settings"]
        assert (lines[0]["name"], lines[0]["value"]) == ("retention.ms", "5000")
        assert (await visitor.post("/t/new/delete", name="new")).status == 303
        assert (await visitor.get("/t/nothing/records")).status == 404

    visit(kafka.bootstrap_servers, walk)
    with Admin(kafka.bootstrap_servers) as admin:
        assert "nothing" not in admin.list_topics()
