"""The overview: numbers, and what wants attention."""

from __future__ import annotations

import asyncio

from visitor import Visitor, visit

from ottla.clients.metadata import PartitionInfo, TopicInfo
from ottla.console.overview import in_danger
from ottla.structs import NO_UUID


def test_overview_counts(ottla_fresh_broker):
    """And says that nothing is wrong; its twin has a name of its own."""
    for name in ("orders", "users", "clicks"):
        ottla_fresh_broker.create_topic(name, 3 if name == "orders" else 1)

    async def walk(visitor: Visitor) -> None:
        await visitor.app.cluster.rates.sample()
        data = (await visitor.get("/overview.json")).json
        assert (data["brokers"], data["topics"], data["partitions"]) == (1, 3, 5)
        assert data["attention"] == []
        page = (await visitor.get("/")).text
        assert "All partitions have a leader" in page
        assert "/overview.json" in page

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_overview_of_metadata_that_are_known_needs_no_broker(ottla_fresh_broker):
    """One that has gone away is not waited for before half a minute is over."""

    async def walk(visitor: Visitor) -> None:
        assert (await visitor.get("/")).status == 200
        await asyncio.to_thread(ottla_fresh_broker.kill)
        answer = await visitor.get("/")
        assert (answer.status, answer.text.count("controller 0")) == (200, 1)

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def topic(*partitions: tuple[int, tuple[int, ...]]) -> TopicInfo:
    """A topic whose partitions have a leader, and replicas in sync, of brokers 1, 2 and 3."""
    found = {
        number: PartitionInfo("orders", number, leader, 0, (1, 2, 3), isr, ())
        for number, (leader, isr) in enumerate(partitions)
    }
    return TopicInfo("orders", NO_UUID, False, found)


def test_partitions_in_danger_are_named():
    """Those without a leader, and those of which one copy is left, are worse than others."""
    assert in_danger(topic((1, (1, 2, 3)))) == []
    (leaderless,) = in_danger(topic((-1, ()), (1, (1, 2, 3)), (-1, (2,))))
    assert "no leader for partition 0, 2" in leaderless.text
    (behind,) = in_danger(topic((1, (1, 2))))
    assert (behind.text, behind.is_bad) == ("orders: 1 replica out of sync", False)
    (alone,) = in_danger(topic((1, (1,))))
    assert (alone.text, alone.is_bad) == ("orders: 2 replicas out of sync", True)
    assert alone.path == "/t/orders/partitions"
