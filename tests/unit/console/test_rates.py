"""Records a second, from the ends of logs."""

from __future__ import annotations

from visitor import Visitor, visit

from ottla import Producer
from ottla.console import rates as room


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
