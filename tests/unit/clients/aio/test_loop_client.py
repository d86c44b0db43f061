"""In which loop a client is, and how it is closed."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading

import pytest

import ottla
from ottla import aio
from ottla.testing import InProcessBroker
from ottla.testing.waiting import wait_until_async

CLIENTS = {"producer": aio.Producer, "consumer": aio.Consumer, "admin client": aio.Admin}
FIRST_CALLS = {
    "producer": lambda client: client.partitions_for("pages"),
    "consumer": lambda client: client.list_topics(),
    "admin client": lambda client: client.list_topics(),
}


@pytest.fixture(scope="module")
def strict_broker():
    """A broker that makes no topic unasked."""
    with InProcessBroker(auto_create_topics_enable="false") as broker:
        yield broker


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


WAITING_CALLS = {
    "send": lambda producer: producer.send("absent", b"v"),
    "send_values": lambda producer: producer.send_values("absent", [b"v"]),
    "partitions_for": lambda producer: producer.partitions_for("absent"),
}


@pytest.mark.parametrize("name", WAITING_CALLS)
def test_call_that_pauses_ends_when_its_client_is_closed(strict_broker, name):
    """What it waits for would not come any more; it says that the client is closed."""

    async def use() -> None:
        producer = aio.Producer(strict_broker.bootstrap_servers, retry_backoff_ms=300)
        waiting = asyncio.create_task(WAITING_CALLS[name](producer))
        await wait_until_async(lambda: innermost(waiting) == "pause", "it is to be tried again")
        await producer.close()
        with pytest.raises(RuntimeError, match="is closed"):
            await waiting

    asyncio.run(use())


def innermost(task: asyncio.Task) -> str:
    """The name of the function in which a task waits."""
    call = task.get_coro()
    while hasattr(getattr(call, "cr_await", None), "cr_code"):
        call = call.cr_await
    return call.cr_code.co_name


CALLS_AFTER_A_FORK = {
    "producer": [
        lambda client: client.send("pages", b"v"),
        lambda client: client.send_values("pages", [b"v"]),
        lambda client: client.flush(),
        FIRST_CALLS["producer"],
    ],
    "consumer": [lambda client: client.poll(0), lambda client: client.commit()],
    "admin client": [FIRST_CALLS["admin client"]],
}


@pytest.mark.parametrize("is_in_loop", [True, False])
def test_client_is_refused_in_a_child_process(broker, unique, client, title, is_in_loop):
    """Nobody would send its records there; that of the parent goes on."""
    told = multiprocessing.get_context("fork").SimpleQueue()

    def work() -> None:
        for call in CALLS_AFTER_A_FORK[title]:
            coroutine = call(client)
            try:
                asyncio.run(coroutine) if not is_in_loop else coroutine.send(None)
                told.put("nothing")
            except (RuntimeError, StopIteration) as error:
                told.put(str(error))
        asyncio.run(client.close())

    async def use() -> None:
        if title == "producer":
            await client.send_and_wait("pages", b"v")
        await FIRST_CALLS[title](client)
        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
        await asyncio.to_thread(child.join)
        assert child.exitcode == 0
        await FIRST_CALLS[title](client)
        await client.close()

    asyncio.run(use())
    for _ in CALLS_AFTER_A_FORK[title]:
        assert f"the {title} was started in another process" in told.get()


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
