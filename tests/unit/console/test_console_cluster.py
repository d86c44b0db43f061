"""The cluster as a console sees it: one snapshot, asked for rarely, and nothing created."""

from __future__ import annotations

import asyncio

import pytest
from visitor import Visitor, visit

from ottla import Producer
from ottla.console.asked import PageRequests, current
from ottla.console.console_cluster import SEARCHES_AT_ONCE, SEARCHES_OF_USER, SharedLimits
from ottla.console.refusals import NotFound, Refused
from ottla.errors import KafkaError, KafkaTimeoutError
from ottla.structs import TopicPartition


def test_snapshot_is_asked_for_once(ottla_fresh_broker):
    """However many pages want it at once; a change asks again."""
    ottla_fresh_broker.create_topic("orders", 1)

    async def walk(visitor: Visitor) -> None:
        cluster = visitor.app.cluster
        asked = PageRequests(cluster.network)
        current.set(asked)
        await asyncio.gather(*(cluster.snapshot() for _ in range(10)))
        await cluster.snapshot()
        assert [each.api for each in asked.requests] == ["Metadata"]
        ottla_fresh_broker.create_topic("users", 1)
        await cluster.changed()
        assert "users" in (await cluster.snapshot()).topics

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_searches_that_wait_are_bounded():
    """Those of one user leave room for others, who have their turn before long."""

    async def main() -> None:
        limits, end = SharedLimits(), asyncio.Event()
        begun: list[str] = []

        async def search(user: str) -> None:
            async with limits.searching(user):
                begun.append(user)
                await end.wait()

        async with asyncio.TaskGroup() as tasks:
            for _ in range(SEARCHES_OF_USER):
                tasks.create_task(search("ann"))
            await asyncio.sleep(0)
            with pytest.raises(Refused, match="8 searches and statements run or wait already"):
                await search("ann")
            tasks.create_task(search("bob"))
            await asyncio.sleep(0)
            assert begun == ["ann"] * SEARCHES_AT_ONCE
            end.set()
        assert begun.count("bob") == 1
        await search("ann")

    asyncio.run(main())


def test_pages_that_wait_share_an_error(ottla_fresh_broker, monkeypatch):
    """Each would ask again otherwise, one after the other; the next page does."""

    async def walk(visitor: Visitor) -> None:
        cluster, asked = visitor.app.cluster, 0

        async def hang(_topics: object) -> None:
            nonlocal asked
            asked += 1
            await asyncio.sleep(0)
            raise KafkaTimeoutError("no answer")

        monkeypatch.setattr(cluster.all_topics, "fetch", hang)
        found = await asyncio.gather(
            *(cluster.snapshot() for _ in range(6)), return_exceptions=True
        )
        assert ([type(each) for each in found], asked) == ([KafkaTimeoutError] * 6, 1)
        monkeypatch.undo()
        assert (await cluster.snapshot()).nodes

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_topic_that_is_new_is_found_and_a_misspelt_one_is_not_made(ottla_fresh_broker):
    """Names that are alike come with the error."""
    ottla_fresh_broker.create_topic("orders", 1)

    async def walk(visitor: Visitor) -> None:
        cluster = visitor.app.cluster
        await cluster.snapshot()
        ottla_fresh_broker.create_topic("users", 1)
        assert (await cluster.topic("users")).name == "users"
        with pytest.raises(NotFound) as raised:
            await cluster.topic("oders")
        assert next(iter(raised.value.near.items())) == ("/t/orders/records", "orders")
        assert "oders" not in cluster.all_topics.cluster.topics

    visit(ottla_fresh_broker.bootstrap_servers, walk)
    assert ottla_fresh_broker.topics() == ["orders", "users"]


def test_ends_and_starts_of_logs(ottla_fresh_broker):
    """Of a partition that is not there an error is the answer."""
    ottla_fresh_broker.create_topic("orders", 1)
    with Producer(ottla_fresh_broker.bootstrap_servers) as producer:
        producer.send("orders", b"x").result()
    there, missing = TopicPartition("orders", 0), TopicPartition("orders", 9)

    async def walk(visitor: Visitor) -> None:
        cluster = visitor.app.cluster
        await cluster.snapshot()
        ends = await cluster.ends([there, missing])
        assert ends[there].offset == 1
        assert isinstance(ends[missing], KafkaError)
        assert (await cluster.starts([there]))[there].offset == 0
        assert cluster.all_topics.age_ms >= 0

    visit(ottla_fresh_broker.bootstrap_servers, walk)
