"""The requests and bytes that a page costs."""

from __future__ import annotations

import asyncio

from visitor import Visitor, visit

from ottla.console.asked import CountingNetwork, PageRequests, current


def test_requests_of_a_page_are_its_own(ottla_fresh_broker):
    """Also those of tasks that it starts; work that is no page's is not counted."""
    ottla_fresh_broker.create_topic("orders", 1)

    async def walk(visitor: Visitor) -> None:
        cluster = visitor.app.cluster
        await cluster.snapshot()
        asked = PageRequests(cluster.network)
        current.set(asked)
        await asyncio.gather(*(cluster.all_topics.fresh(0) for _ in range(2)))
        current.set(None)
        await cluster.all_topics.fresh(0)
        assert {each.api for each in asked.requests} == {"Metadata"}
        assert len(asked.requests) == 2
        assert asked.requests[0].broker >= 0
        assert asked.received_bytes > 0
        assert asked.ms >= max(each.ms for each in asked.requests)

    visit(ottla_fresh_broker.bootstrap_servers, walk)


def test_network_is_otherwise_the_one_below():
    """Only what arrives is counted."""
    assert CountingNetwork("below").upper() == "BELOW"
