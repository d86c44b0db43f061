"""`ottla.aio.Admin`: the calls of the blocking client, in one loop."""

from __future__ import annotations

import asyncio

import pytest

from ottla import KafkaError, NewTopic
from ottla.aio import Admin


def test_several_calls_may_be_under_way(broker, unique):
    """Each has its own outcome."""
    names = [unique("aio") for _ in range(3)]

    async def use() -> None:
        async with Admin(broker.bootstrap_servers) as admin:
            await asyncio.gather(*(admin.create_topics([NewTopic(name, 2)]) for name in names))
            described = await admin.describe_topics(names)
            assert {len(each.partitions) for each in described.values()} == {2}
            with pytest.raises(KafkaError) as caught:
                await admin.create_topics(names)
            assert caught.value.results.keys() == set(names)
            assert (await admin.describe_cluster()).controller_id == 0
            assert await admin.api_versions(0)

    asyncio.run(use())


def test_call_that_was_cancelled_leaves_it_usable(broker):
    """The answer that comes later is not waited for."""

    async def use() -> None:
        async with Admin(broker.bootstrap_servers) as admin:
            listing = asyncio.create_task(admin.list_topics())
            await asyncio.sleep(0)
            listing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await listing
            assert isinstance(await admin.list_topics(), set)

    asyncio.run(use())
