"""In which loop a client is, and how it is closed."""

from __future__ import annotations

import asyncio
import threading

import pytest

import ottla
from ottla import aio

CLIENTS = {"producer": aio.Producer, "consumer": aio.Consumer, "admin client": aio.Admin}
FIRST_CALLS = {
    "producer": lambda client: client.partitions_for("pages"),
    "consumer": lambda client: client.list_topics(),
    "admin client": lambda client: client.list_topics(),
}


@pytest.fixture(params=CLIENTS)
def title(request) -> str:
    return request.param


@pytest.fixture
def client(title, broker):
    """A client that is made where no loop runs."""
    return CLIENTS[title](broker.bootstrap_servers)


def test_client_is_refused_in_another_loop_than_its_first(client, title):
    """Its connections belong to the first one; the sentence says to make another client."""
    call = FIRST_CALLS[title]
    with asyncio.Runner() as first:
        first.run(call(client))
        other = asyncio.new_event_loop()
        with pytest.raises(RuntimeError, match=f"the {title} belongs to another event loop"):
            other.run_until_complete(call(client))
        other.close()
        first.run(client.close())


def test_client_that_was_closed_refuses_calls(client, title):
    """Also one that was never opened; and closing it again does nothing."""

    async def use() -> None:
        await client.close()
        await client.close()
        with pytest.raises(RuntimeError, match=f"the {title} is closed"):
            await FIRST_CALLS[title](client)

    asyncio.run(use())


def test_clients_of_one_loop_share_its_thread(broker, unique):
    """Three clients work at the same time, and none of them starts a thread."""
    topic, threads = unique("aio"), threading.active_count()

    async def use() -> None:
        servers = broker.bootstrap_servers
        async with aio.Admin(servers) as admin, aio.Producer(servers) as producer:
            await admin.create_topics([topic])
            settings = {"group_id": topic, "auto_offset_reset": "earliest"}
            async with aio.Consumer(servers, topics=[topic], **settings) as consumer:
                sending = asyncio.create_task(producer.send_and_wait(topic, b"hello"))
                async for record in consumer:
                    assert record.value == b"hello"
                    break
                assert (await sending).offset == 0
                assert threading.active_count() == threads

    asyncio.run(use())


def test_close_that_is_cancelled_goes_on(broker, unique):
    """The record is sent, and a second call waits for the end of the first one."""
    topic = unique("aio")

    async def use() -> None:
        producer = aio.Producer(broker.bootstrap_servers, linger_ms=60_000)
        future = await producer.send(topic, b"late")
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert not future.done()
        await producer.close()
        assert (await future).offset == 0

    asyncio.run(use())


@pytest.mark.parametrize(
    ("client", "blocking"),
    [
        (aio.Producer, ottla.Producer),
        (aio.Consumer, ottla.Consumer),
        (aio.Admin, ottla.Admin),
    ],
)
def test_calls_are_those_of_the_blocking_client(client, blocking):
    """Each has the same name, parameters and documentation."""
    import inspect

    names = [each for each in dir(blocking) if not each.startswith("_")]
    assert len(names) > 10
    for name in names:
        method, ours = getattr(blocking, name), getattr(client, name)
        assert list(inspect.signature(ours).parameters) == list(
            inspect.signature(method).parameters
        ), name
        assert (ours.__doc__ is None) == (method.__doc__ is None), name
