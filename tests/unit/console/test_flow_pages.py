"""The page of the flow of data: writers, topics and readers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from lag_world import LagWorld
from visitor import Visitor, visit

from ottla import OffsetAndMetadata, Producer
from ottla.console import flow_pages
from ottla.console.flow_pages import client_rates
from ottla.console.metrics_samples import samples_of
from ottla.errors import ErrorCode, KafkaError

HOSTILE = "<script>alert(1)</script>"
METRICS = """kafka_server_produce_byte_rate{user="ann",client_id="shop"} 100
kafka_server_produce_byte_rate{user="ann",client_id="shop"} 50
kafka_server_fetch_byterate{client_id="<b>"} 7
kafka_server_fetch_byterate{client_id="nan"} NaN
kafka_server_produce_byte_rate{user="all"} 9
kafka_server_request_request_time{client_id="shop"} 1
"""


def test_topic_is_between_its_writers_and_readers(world: LagWorld):
    """Two idempotent producers, one group with lag; a topic that nobody writes says so."""
    (orders,) = world.add_topic("flow-orders")
    world.add_topic("flow-quiet")
    for _ in range(2):
        with Producer(world.servers, enable_idempotence=True) as producer:
            producer.send("flow-orders", b"v").result(60)
    for group in ("flow-readers", HOSTILE):
        world.admin.alter_group_offsets(group, {orders: OffsetAndMetadata(1)})

    async def walk(visitor: Visitor) -> None:
        data = (await visitor.get("/flow.json?q=flow-&sort=name")).json
        first, second = data["rows"]
        assert (first["topic"], first["producers"], first["active"]) == ("flow-orders", 2, 2)
        assert [(each["group"], each["lag"]) for each in first["readers"]] == [
            *[(HOSTILE, 1), ("flow-readers", 1)],
        ]
        assert (second["producers"], second["readers"], second["written_ms"]) == (0, [], None)
        page = (await visitor.get("/flow?q=flow-")).text
        assert HOSTILE not in page
        assert "2, 2 of them now" in page
        assert "nobody reads" in page
        assert "A broker tells no names of writers" in page

    visit(world.servers, walk)


def test_writers_behind_the_bound_are_not_known(world: LagWorld, monkeypatch):
    """Rather than taken for none."""
    monkeypatch.setattr(flow_pages, "MOST_PARTITIONS", 1)
    world.add_topic("flow-bound", 2)

    async def walk(visitor: Visitor) -> None:
        (row,) = (await visitor.get("/flow.json?q=flow-bound")).json["rows"]
        assert (row["producers"], row["active"]) == (None, None)
        assert "not known" in (await visitor.get("/flow?q=flow-bound")).text

    visit(world.servers, walk)


def test_old_broker_has_the_rest_of_the_page(world: LagWorld, monkeypatch):
    """With a sentence about its writers."""
    world.add_topic("flow-old")

    async def describe_producers(*_arguments: object) -> None:
        raise KafkaError.of(ErrorCode.UNSUPPORTED_VERSION, "broker 0 has no DescribeProducers")

    async def walk(visitor: Visitor) -> None:
        transactions = visitor.app.cluster.transactions
        monkeypatch.setattr(transactions, "describe_producers", describe_producers)
        page = (await visitor.get("/flow?q=flow-old")).text
        assert "Not all writers are known: broker 0 has no DescribeProducers" in page

    visit(world.servers, walk)


def test_clients_are_those_that_brokers_measure():
    """Of all brokers together; what has no client, or no number, is none."""
    samples = samples_of(METRICS)
    keyed = {(f"http://{number}", each.series): each for number, each in enumerate(samples)}
    found = client_rates(SimpleNamespace(samples=keyed))

    assert [each._asdict() for each in found] == [
        {"client_id": "shop", "user": "ann", "way": "produce", "bytes_per_s": 150},
        {"client_id": "<b>", "user": "", "way": "fetch", "bytes_per_s": 7},
    ]


@pytest.mark.parametrize("query", ["sort=x", "from=-1", "q=" + "x" * 300])
def test_window_that_is_none_is_refused(ottla_broker, query):
    """As on all lists."""

    async def walk(visitor: Visitor) -> None:
        assert (await visitor.get(f"/flow?{query}")).status == 400

    visit(ottla_broker.bootstrap_servers, walk)
