"""Records a second, from the ends of logs."""

from __future__ import annotations

import pytest
from visitor import Visitor, visit

from ottla import Producer
from ottla.console import rates as room
from ottla.runtime import SystemClock


def test_rates_are_those_between_samples(ottla_fresh_broker):
    """Two samples are needed."""
    ottla_fresh_broker.create_topic("orders", 3)
    ottla_fresh_broker.create_topic("users", 1)

    async def walk(visitor: Visitor) -> None:
        rates = visitor.app.cluster.rates
        await rates.sample()
        assert rates.now("orders") is None
        with Producer(ottla_fresh_broker.bootstrap_servers) as producer:
            producer.send("orders", b"x").result()
        await rates.sample()
        assert rates.now("orders") > 0
        assert rates.now("users") == 0
        assert rates.is_whole
        assert len(rates.total()) == 1
        assert (await visitor.get("/overview.json")).json["busiest"][0]["name"] == "orders"

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_topics_of_a_large_cluster_are_watched_while_somebody_looks(
    ottla_fresh_broker, monkeypatch
):
    """No more partitions than the limit, and the newest first."""
    monkeypatch.setattr(room, "MOST_PARTITIONS", 2)
    for name in ("a", "b", "c"):
        ottla_fresh_broker.create_topic(name, 1)

    async def walk(visitor: Visitor) -> None:
        rates = visitor.app.cluster.rates
        await rates.sample()
        assert not rates.is_whole
        rates.watch(["a", "missing"])
        for _ in range(2):
            await rates.sample()
        assert (rates.now("a"), rates.now("b")) == (0, None)
        monkeypatch.setattr(room, "WATCHED_MS", -1)
        await rates.sample()
        assert rates.now("a") is None

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_minutes_before_the_start_are_looked_up(ottla_fresh_broker):
    """By the timestamps of records: a console shows rates at first sight."""
    ottla_fresh_broker.create_topic("orders", 2)
    now_ms = SystemClock().now_ms()
    with Producer(ottla_fresh_broker.bootstrap_servers) as producer:
        for minute in range(9, 0, -1):
            for number in range(60):
                producer.send(
                    "orders", b"x", partition=number % 2, timestamp_ms=now_ms - minute * 60_000
                )

    async def walk(visitor: Visitor) -> None:
        rates = visitor.app.cluster.rates
        await rates.look_back()
        await rates.sample()
        series = rates.series("orders")
        assert len(series) == room.POINTS
        assert sum(series) * room.SAMPLE_EVERY_MS / 1000 == pytest.approx(9 * 60, rel=0.01)
        assert rates.now("orders") == 0

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_large_cluster_is_not_looked_up(ottla_fresh_broker, monkeypatch):
    """It would be a look-up for each partition and moment."""
    monkeypatch.setattr(room, "MOST_LOOKED_UP", 1)
    ottla_fresh_broker.create_topic("orders", 2)

    async def walk(visitor: Visitor) -> None:
        await visitor.app.cluster.rates.look_back()
        assert visitor.app.cluster.rates.watched == []

    visit(ottla_fresh_broker.bootstrap_servers, walk)
