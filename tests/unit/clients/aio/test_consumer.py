"""`ottla.aio.Consumer`: reading, groups, and what a cancelled call leaves behind."""

from __future__ import annotations

import asyncio
from itertools import count
from threading import Event

import pytest
from cancelling import cancel_all_others, cancelled_at

from ottla import KafkaError, Producer, RebalanceListener, TopicPartition
from ottla.aio import AsyncRebalanceListener, Consumer
from ottla.clients.consumer.consumer import WakeupError
from ottla.protocol.group import LeaveGroupRequest
from ottla.protocol.offsets import OffsetCommitRequest
from ottla.record.compression import CompressionType
from ottla.runtime.scheduler import pause
from ottla.testing import wait_until_async

FIRST, SECOND = TopicPartition("pages", 0), TopicPartition("pages", 1)


async def values_of(consumer: Consumer, number: int) -> list[str]:
    """The next values, as text."""
    found: list[str] = []
    async for record in consumer:
        found.append(record.value.decode())
        if len(found) == number:
            return found
    raise AssertionError("the iteration has ended")


def test_assigned_consumer_reads_seeks_and_pauses(consumer_of, logs, virtual):
    """As the blocking one does; what an iteration has not returned does not count as read."""
    logs.write("a", "b", "c")
    logs.write("d", partition=1)

    async def use() -> None:
        async with consumer_of() as consumer:
            consumer.assign([FIRST])
            assert await values_of(consumer, 2) == ["a", "b"]
            assert await consumer.position(FIRST) == 2
            assert consumer.current_lag(FIRST) == 1
            assert [each.value for each in await consumer.poll(1000)] == [b"c"]
            consumer.seek(FIRST, 1)
            assert await values_of(consumer, 1) == ["b"]
            consumer.pause([FIRST])
            assert consumer.paused() == {FIRST}
            assert await consumer.poll(1000) == []
            consumer.resume([FIRST])
            consumer.seek_to_beginning()
            assert await values_of(consumer, 3) == ["a", "b", "c"]
            assert await consumer.end_offsets([FIRST]) == {FIRST: 3}
            (found,) = (await consumer.offsets_for_times({FIRST: 1000})).values()
            assert found.offset == 3
            consumer.seek(FIRST, 1)
            consumer.seek_to_end()
            assert await consumer.position(FIRST) == 3
            assert [r.value async for r in consumer.records(idle_timeout_ms=100)] == []

    virtual.scheduler.run(use())


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.ZSTD])
def test_large_batches_are_decompressed_in_the_background(consumer_of, logs, virtual, codec):
    """Their records come in order, with those of small ones; a poll gives no more than it may."""
    large = [f"{n} {n * 7919:x}" * 1000 for n in range(200)]
    logs.write("small")
    logs.write(*large, compression=codec)
    logs.write("last")

    async def use() -> None:
        async with consumer_of(max_poll_records=50) as consumer:
            consumer.assign([FIRST])
            assert await values_of(consumer, 202) == ["small", *large, "last"]
            assert len(await consumer.poll()) <= 50

    virtual.scheduler.run(use())


def test_damaged_batch_is_an_error_where_it_stands(consumer_of, logs, virtual):
    """Records before it come first; a seek passes over it."""
    logs.write("a")
    logs.write(*(f"{n} {n * 7919:x}" * 1000 for n in range(200)), compression=CompressionType.GZIP)
    damaged = bytearray(logs.logs[0][1])
    damaged[1000:1100] = bytes(100)
    logs.logs[0][1] = bytes(damaged)
    logs.write("b")

    async def use() -> None:
        async with consumer_of() as consumer:
            consumer.assign([FIRST])
            assert await values_of(consumer, 1) == ["a"]
            for _ in range(2):
                with pytest.raises(KafkaError, match="CRC"):
                    await consumer.poll(1000)
            consumer.seek(FIRST, 201)
            assert await values_of(consumer, 1) == ["b"]

    virtual.scheduler.run(use())


@pytest.mark.parametrize("base", [AsyncRebalanceListener, RebalanceListener])
def test_listener_may_be_of_coroutines_or_not(consumer_of, logs, virtual, base):
    """It is told inside poll, and when the consumer is closed."""
    told: list[tuple[str, list[int]]] = []

    def note(kind: str, partitions) -> None:
        told.append((kind, [each.partition for each in partitions]))

    class Waiting(AsyncRebalanceListener):
        async def on_partitions_assigned(self, partitions):
            await pause(virtual.scheduler, 1000)
            note("assigned", partitions)

        async def on_partitions_revoked(self, partitions):
            note("revoked", partitions)

    class Plain(RebalanceListener):
        def on_partitions_assigned(self, partitions):
            note("assigned", partitions)

        def on_partitions_revoked(self, partitions):
            note("revoked", partitions)

    logs.write("a")

    async def use() -> None:
        async with consumer_of(group_id="g") as consumer:
            await consumer.subscribe(
                ["pages"], listener=Waiting() if base is AsyncRebalanceListener else Plain()
            )
            assert await values_of(consumer, 1) == ["a"]

    virtual.scheduler.run(use())
    assert told == [("assigned", [0, 1]), ("revoked", [0, 1])]


def test_one_task_polls_and_others_ask_and_commit(consumer_of, logs, virtual):
    """Two polls at once would tear records apart: the second one is refused."""

    async def use() -> None:
        async with consumer_of(group_id="g", topics="pages") as consumer:
            polling = asyncio.create_task(consumer.poll(10_000))
            await pause(virtual.scheduler, 1000)
            with pytest.raises(RuntimeError, match="polled by another task"):
                await consumer.poll()
            await consumer.commit({FIRST: 0})
            assert await consumer.position(FIRST) == 0
            logs.write("a")
            assert [each.value for each in await polling] == [b"a"]

    virtual.scheduler.run(use())
    assert logs.committed == {FIRST: 0}


def test_wakeup_ends_a_poll(consumer_of, logs, virtual):
    """As for the blocking consumer, from another task."""

    async def use() -> None:
        async with consumer_of() as consumer:
            consumer.assign([FIRST])
            polling = asyncio.create_task(consumer.poll(10_000))
            await pause(virtual.scheduler, 1000)
            consumer.wakeup()
            with pytest.raises(WakeupError):
                await polling

    virtual.scheduler.run(use())


def test_commit_in_the_background_tells_its_outcome(consumer_of, logs, virtual):
    """By a callback, with the offsets that were read."""
    logs.write("a", "b")
    told = []

    async def use() -> None:
        async with consumer_of(group_id="g", topics=["pages"]) as consumer:
            await values_of(consumer, 1)
            consumer.commit_async(on_commit=lambda offsets, error: told.append((offsets, error)))
            await pause(virtual.scheduler, 1000)

    virtual.scheduler.run(use())
    ((offsets, error),) = told
    assert error is None
    assert offsets[FIRST].offset == logs.committed[FIRST] == 1


def test_poll_that_was_cancelled_loses_no_record(consumer_of, logs, virtual):
    """At whichever of its waits, from the join of the group to a batch that is decompressed."""
    large = [f"{n} {n * 7919:x}" * 1000 for n in range(60)]
    logs.write(*large, compression=CompressionType.ZSTD)
    logs.write("last")

    async def use(number: int) -> bool:
        logs.committed.clear()
        async with consumer_of(group_id="g", topics=["pages"], max_poll_records=40) as consumer:
            was_cancelled = await cancelled_at(consumer.poll(5000), number)
            if not was_cancelled:
                consumer.seek(FIRST, 0)
            assert await values_of(consumer, 61) == [*large, "last"]
        return was_cancelled

    for number in count():
        if not virtual.scheduler.run(use(number)):
            break
    assert number > 1


def test_iteration_that_was_cancelled_goes_on_with_the_next_record(consumer_of, logs, virtual):
    """A new `async for` has the rest, also of the records that were polled already."""
    logs.write("a", "b", "c")

    async def use() -> None:
        async with consumer_of() as consumer:
            consumer.assign([FIRST])
            seen = []

            async def read() -> None:
                async for record in consumer:
                    seen.append(record.value)
                    await pause(virtual.scheduler, 1000 if len(seen) < 2 else 3_600_000)

            reading = asyncio.create_task(read())
            await pause(virtual.scheduler, 5000)
            reading.cancel()
            await asyncio.wait([reading])
            assert seen == [b"a", b"b"]
            assert await values_of(consumer, 1) == ["c"]

    virtual.scheduler.run(use())


def test_iterator_goes_on_after_a_time_limit(consumer_of, logs, virtual):
    """`wait_for` cancels the wait for the next record; the same iterator has it later."""

    async def use() -> None:
        async with consumer_of() as consumer:
            consumer.assign([FIRST])
            records = aiter(consumer)
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(records), 1)
            logs.write("a")
            assert (await anext(records)).value == b"a"

    virtual.scheduler.run(use())


@pytest.mark.parametrize("is_member", [True, False])
def test_poll_ends_when_another_task_closes_the_consumer(consumer_of, logs, virtual, is_member):
    """With an error that says so; the member leaves its group in order."""

    async def use() -> None:
        consumer = consumer_of(group_id="g")
        if is_member:
            await consumer.subscribe(["pages"])
        else:
            consumer.assign([FIRST])
        reading = asyncio.create_task(values_of(consumer, 1))
        await pause(virtual.scheduler, 1000)
        await consumer.close()
        with pytest.raises(RuntimeError, match="the consumer is closed"):
            await reading

    virtual.scheduler.run(use())
    assert len(logs.cluster[0].sent(LeaveGroupRequest)) == is_member


@pytest.mark.parametrize("call", ["commit", "committed", "unsubscribe", "end_offsets", "subscribe"])
def test_call_that_was_cancelled_can_be_made_again(consumer_of, logs, virtual, call):
    """And the consumer reads on."""
    logs.write("a")
    arguments = {
        "commit": ({FIRST: 1},),
        "committed": ([FIRST],),
        "end_offsets": ([FIRST],),
        "subscribe": (),
    }
    options = {"pattern": "pa.*"} if call == "subscribe" else {}

    async def use(number: int) -> bool:
        logs.committed.clear()
        async with consumer_of(group_id="g") as consumer:
            if call != "subscribe":
                await consumer.subscribe(["pages"])
                assert await values_of(consumer, 1) == ["a"]

            def made():
                return getattr(consumer, call)(*arguments.get(call, ()), **options)

            was_cancelled = await cancelled_at(made(), number)
            if was_cancelled:
                await made()
            if call == "unsubscribe":
                assert consumer.assignment() == set()
                await consumer.subscribe(["pages"])
            elif call != "subscribe":
                consumer.seek(FIRST, 0)
            assert await values_of(consumer, 1) == ["a"]
        return was_cancelled

    for number in count():
        if not virtual.scheduler.run(use(number)):
            break
    assert number > 0


def test_topics_need_a_group():
    """The error is that of `subscribe`, when the consumer is made."""
    with pytest.raises(KafkaError, match=r"group\.id: must be set"):
        Consumer("localhost:9092", topics=["pages"])


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_of_a_group_share_a_topic(broker, unique, protocol):
    """A second member takes over partitions, and the first one the rest when it leaves."""
    topic = unique("aio")
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number, key=b"%d" % number)
    settings = {"group_id": topic, "group_protocol": protocol, "auto_offset_reset": "earliest"}
    if protocol == "classic":
        settings["heartbeat_interval_ms"] = 50

    async def read(consumer: Consumer, seen: list[bytes]) -> None:
        async for record in consumer:
            seen.append(record.value)

    async def use() -> None:
        seen: list[bytes] = []
        async with Consumer(broker.bootstrap_servers, topics=[topic], **settings) as first:
            reading = [asyncio.create_task(read(first, seen))]
            async with Consumer(broker.bootstrap_servers, topics=[topic], **settings) as second:
                reading.append(asyncio.create_task(read(second, seen)))
                await wait_until_async(lambda: len(set(seen)) == 100, "all records are seen")
                reading.pop().cancel()
            partitions = await first.partitions_for(topic)
            await wait_until_async(
                lambda: len(first.assignment()) == len(partitions), "the first member has all"
            )
            reading.pop().cancel()

    asyncio.run(use())


def test_tables_are_made_in_the_background(broker, unique):
    """A poll that is cancelled meanwhile gives its records back."""
    pytest.importorskip("pyarrow")
    topic = unique("aio")
    with Producer(broker.bootstrap_servers) as producer:
        producer.send_values(topic, [f"{n}" for n in range(1000)]).result(10)

    async def use(number: int) -> bool:
        async with Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            was_cancelled = await cancelled_at(consumer.poll_arrow(10_000), number)
            if was_cancelled:
                assert (await consumer.poll_arrow(10_000)).num_rows == 1000
            return was_cancelled

    for number in count():
        if not asyncio.run(use(number)):
            break
    assert number > 1


def test_batches_are_for_partitions_that_were_assigned(consumer_of, logs, virtual):
    """They come as they were stored."""
    logs.write("a", "b")

    async def use() -> None:
        async with consumer_of(group_id="g", topics=["pages"]) as consumer:
            with pytest.raises(RuntimeError, match="were assigned"):
                await consumer.poll_batches()
        async with consumer_of() as consumer:
            consumer.assign([FIRST])
            (fetched,) = await consumer.poll_batches(1000)
            assert fetched.batches[0].record_count == 2

    virtual.scheduler.run(use())
    assert not logs.cluster[0].sent(OffsetCommitRequest)


@pytest.mark.parametrize("call", ["close", "unsubscribe"])
def test_listener_that_raises_holds_up_no_end(consumer_of, logs, virtual, cluster, call):
    """The group is left, and what was read is committed on close; then its error is raised."""

    class Raising(AsyncRebalanceListener):
        async def on_partitions_revoked(self, partitions):
            raise ValueError("the listener's own")

    logs.write("a", "b")

    async def use() -> None:
        async with consumer_of(group_id="g", enable_auto_commit=True) as consumer:
            await consumer.subscribe(["pages"], listener=Raising())
            assert await values_of(consumer, 2) == ["a", "b"]
            with pytest.raises(ValueError, match="the listener's own"):
                await getattr(consumer, call)()

    virtual.scheduler.run(use())

    assert len(cluster[0].sent(LeaveGroupRequest)) == 1
    assert logs.committed == ({FIRST: 2, SECOND: 0} if call == "close" else {})


@pytest.mark.parametrize("call", ["poll", "close", "unsubscribe"])
def test_listener_may_not_end_or_begin_what_it_is_told_in(consumer_of, logs, virtual, call):
    """It would wait for itself; another task may, and the consumer stays as it was."""
    logs.write("a", "b")
    told = []

    class Caller(AsyncRebalanceListener):
        async def on_partitions_assigned(self, partitions):
            try:
                await getattr(consumer, call)()
            except RuntimeError as error:
                told.append(str(error))

    async def use() -> None:
        nonlocal consumer
        async with consumer_of(group_id="g") as consumer:
            await consumer.subscribe(["pages"], listener=Caller())
            assert await values_of(consumer, 2) == ["a", "b"]

    consumer = None
    began_ms = virtual.clock.monotonic_ms()
    virtual.scheduler.run(use())

    (text,) = told
    assert "listener" in text
    assert virtual.clock.monotonic_ms() - began_ms < 10_000


@pytest.mark.parametrize("timeout_ms", [999.5, 2**63 - 1, float("inf")])
def test_time_limits_may_have_fractions_and_be_endless(consumer_of, logs, virtual, timeout_ms):
    """As a program computes them, and as Java writes them."""
    logs.write("a")

    async def use() -> None:
        async with consumer_of() as consumer:
            consumer.assign([FIRST])
            assert [each.value for each in await consumer.poll(timeout_ms)] == [b"a"]
            assert await consumer.end_offsets([FIRST], timeout_ms) == {FIRST: 1}
            await consumer.close(timeout_ms)

    virtual.scheduler.run(use())


def test_commit_counts_no_record_of_a_table_that_is_not_returned_yet(broker, unique, monkeypatch):
    """Where the process was killed then, they were lost; and a seek of meanwhile was forgotten."""
    arrow_tables = pytest.importorskip("ottla.clients.arrow_tables")
    topic = unique("aio")
    place = TopicPartition(topic, 0)
    with Producer(broker.bootstrap_servers, linger_ms=0) as producer:
        for number in range(10):
            producer.send(topic, f"{number}", partition=0).result(10)
    table_of, is_made, is_awaited = arrow_tables.table_of, Event(), Event()

    def slow_table(*arguments):
        is_awaited.set()
        assert is_made.wait(10)
        return table_of(*arguments)

    async def use() -> None:
        settings = {"group_id": topic, "auto_offset_reset": "earliest", "fetch_max_bytes": 1}
        async with Consumer(broker.bootstrap_servers, **settings) as consumer:
            consumer.assign([place])
            with monkeypatch.context() as now:
                now.setattr(arrow_tables, "table_of", slow_table)
                polling = asyncio.create_task(consumer.poll_arrow(10_000))
                await wait_until_async(is_awaited.is_set, "a table is made")
                await consumer.commit()
                assert (await consumer.committed([place]))[place].offset == 0
                assert await consumer.position(place) == 0
                consumer.seek(place, 7)
                assert await consumer.position(place) == 7
                is_made.set()
                assert (await polling)["offset"].to_pylist() == [0]
            assert (await consumer.poll_arrow(10_000))["offset"].to_pylist() == [7]
            assert await consumer.position(place) == 8

    asyncio.run(use())


@pytest.mark.parametrize("group", [{}, {"group_id": "g", "topics": ["pages"]}])
def test_tasks_that_the_application_cancels_are_begun_again(consumer_of, logs, virtual, group):
    """Its own are not all that `asyncio.all_tasks` has; at whichever turn, all is read."""
    logs.write("a", "b")

    async def use(turns: int) -> None:
        logs.committed.clear()
        async with consumer_of(**group) as consumer:
            if not group:
                consumer.assign([FIRST])
            polling = asyncio.create_task(consumer.poll(5000))
            await cancel_all_others(turns)
            await asyncio.wait([polling])
            if not polling.cancelled() and polling.result():
                consumer.seek(FIRST, 0)
            assert await values_of(consumer, 2) == ["a", "b"]

    for turns in range(60):
        virtual.scheduler.run(use(turns))
