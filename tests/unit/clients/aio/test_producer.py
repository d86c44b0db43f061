"""`ottla.aio.Producer`: what its calls wait for, and what a cancelled one leaves behind."""

from __future__ import annotations

import asyncio
import gc
from itertools import count

import pytest
from cancelling import cancel_all_others, cancelled_at

from ottla import KafkaError, TopicPartition
from ottla.aio import Producer
from ottla.errors import ConfigError, ErrorCode, KafkaTimeoutError
from ottla.protocol.metadata import MetadataRequest
from ottla.protocol.produce import ProduceRequest
from ottla.protocol.transactions import EndTxnRequest
from ottla.record.record_batch import RecordBatch
from ottla.runtime.scheduler import pause

OFFSETS = {TopicPartition("pages", 0): 7}


def codecs(world) -> set[str]:
    """The codecs of all batches that were sent."""
    return {
        RecordBatch(data.records).compression.label
        for request in world.cluster[0].sent(ProduceRequest)
        for topic in request.topic_data
        for data in topic.partition_data
    }


def test_records_are_delivered_in_order(producer_of, world, virtual):
    """Futures can be awaited, and callbacks are called in between."""
    told = []

    async def use() -> None:
        async with producer_of() as producer:
            futures = [
                await producer.send(
                    "pages", b"%d" % n, partition=0, on_delivery=lambda m, e: told.append(m.offset)
                )
                for n in range(3)
            ]
            assert [(await future).offset for future in futures] == [0, 1, 2]
            assert (await producer.send_and_wait("pages", "text", partition=0)).offset == 3

    virtual.scheduler.run(use())
    assert world.log == [b"0", b"1", b"2", b"text"]
    assert told == [0, 1, 2]


def test_bad_name_of_a_topic_stops_no_other(producer_of, world, virtual):
    """It is refused by its own call."""

    async def use() -> None:
        async with producer_of() as producer:
            for name in (b"pages", None, "orders\ud800"):
                with pytest.raises(KafkaError, match="cannot be a topic's name"):
                    await producer.send(name, b"v")
            await producer.send_and_wait("pages", b"v", partition=0)

    virtual.scheduler.run(use())
    assert world.log == [b"v"]


def test_loop_has_its_turns_while_one_task_sends_on_and_on(producer_of, world, virtual):
    """The first batches are delivered before the last record is queued."""

    async def use() -> None:
        async with producer_of() as producer:
            first = await producer.send("pages", b"first", partition=0)
            queued = 0
            while not first.done():
                await producer.send("pages", b"next", partition=0)
                queued += 1
                assert queued < 100_000

    virtual.scheduler.run(use())


def test_send_waits_for_room_and_those_that_came_first_are_first(producer_of, world, virtual):
    """More tasks than fit into buffer.memory; all are delivered."""
    small = {"buffer_memory": 4000, "batch_size": 1000}

    async def use() -> None:
        async with producer_of(**small) as producer:
            sent = (producer.send("pages", b"%03d" % n * 100, partition=0) for n in range(40))
            for future in await asyncio.gather(*sent):
                await future

    virtual.scheduler.run(use())
    assert [int(value[:3]) for value in world.log] == list(range(40))


def test_send_without_room_in_time_is_an_error(producer_of, world, virtual):
    """After max.block.ms, with the setting's name; the next one that fits is sent."""
    world.cluster[0].on(ProduceRequest, "hold")
    small = {"buffer_memory": 2000, "max_block_ms": 500, "batch_size": 1000}

    async def use() -> None:
        async with producer_of(**small) as producer:
            first = await producer.send("pages", bytes(1500), partition=0)
            with pytest.raises(KafkaTimeoutError, match=r"buffer\.memory=2000"):
                await producer.send("pages", bytes(1500), partition=0)
            (held,) = world.cluster[0].held
            world.cluster[0].on(ProduceRequest, world.append)
            held.answer(world.append(held.request, 0))
            await first
            await producer.send_and_wait("pages", bytes(1500), partition=0)

    virtual.scheduler.run(use())
    assert len(world.log) == 2


@pytest.mark.parametrize("codec", ["gzip", "lz4", "snappy", "zstd"])
def test_large_batches_are_compressed_in_the_background(producer_of, world, virtual, codec):
    """Their records arrive in order, behind small ones that were compressed at once."""

    async def use() -> None:
        async with producer_of(compression_type=codec, linger_ms=10) as producer:
            await producer.send_and_wait("pages", b"small", partition=0)
            for n in range(100):
                await producer.send("pages", b"%03d" % n * 300, partition=0)

    virtual.scheduler.run(use())
    assert world.log == [b"small", *(b"%03d" % n * 300 for n in range(100))]
    assert codecs(world) == {codec}


def test_many_values_are_sent_with_one_future(producer_of, world, virtual):
    """The ranges of the result have all of them; keys have to be as many."""

    async def use() -> None:
        async with producer_of(buffer_memory=100_000) as producer:
            values = [b"%d" % n for n in range(25_000)]
            written = await (await producer.send_values("pages", values, partition=0))
            assert sum(each.record_count for each in written) == len(values)
            with pytest.raises(ValueError, match="1 keys for 2 values"):
                await producer.send_values("pages", [b"a", b"b"], keys=[b"k"])
            with pytest.raises(KafkaError, match="partition=7: topic pages has 2"):
                await producer.send_values("pages", [b"a"], partition=7)

    virtual.scheduler.run(use())
    assert world.log == [b"%d" % n for n in range(25_000)]


def table_of(values):
    """Arrow data of one batch."""
    return pytest.importorskip("pyarrow").record_batch({"value": values})


@pytest.mark.parametrize(
    ("call", "turns", "settings", "values"),
    [
        ("send_values", 20, {}, lambda: [b"v"] * 20_480),
        ("send_values", 160, {"value_serializer": lambda _: b"v"}, lambda: range(20_480)),
        ("send_values", 8, {}, lambda: [bytes(100_000)] * 84),
        ("send_arrow", 8, {}, lambda: table_of([bytes(100_000)] * 84)),
    ],
    ids=["small", "serialized", "large", "arrow"],
)
def test_loop_has_its_turns_while_many_are_encoded(
    producer_of, world, virtual, call, turns, settings, values
):
    """However many they are, however large, and whatever makes bytes of them."""
    seen = 0

    async def count() -> None:
        nonlocal seen
        while True:
            await asyncio.sleep(0)
            seen += 1

    async def use() -> None:
        async with producer_of(**settings) as producer:
            await producer.partitions_for("pages")
            counting = asyncio.create_task(count())
            sending = await getattr(producer, call)("pages", values())
            counting.cancel()
            await sending

    virtual.scheduler.run(use())
    assert seen >= turns


PLACES = [
    ({"topic": ["pages"]}, r"\['pages'\] cannot be a topic's name"),
    ({"topic": None}, "None cannot be a topic's name"),
    ({"partition": [1]}, r"partition=\[1\]: must be the number of a partition"),
    ({"partition": 1.5}, "partition=1.5: must be the number of a partition"),
]


@pytest.mark.parametrize("call", ["send", "send_values"])
@pytest.mark.parametrize(("wrong", "said"), PLACES)
def test_wrong_place_of_a_record_is_named(producer_of, world, virtual, call, wrong, said):
    """With the value and the rule, before anything is sent."""

    async def use() -> None:
        async with producer_of() as producer:
            await producer.partitions_for("pages")
            given = {"topic": "pages", "partition": None, **wrong}
            values = [b"v"] if call == "send_values" else b"v"
            with pytest.raises(KafkaError, match=said):
                await getattr(producer, call)(given["topic"], values, partition=given["partition"])

    virtual.scheduler.run(use())
    assert world.log == []


def test_interceptors_and_partitioner_see_each_record(producer_of, world, virtual):
    """An interceptor may change the topic, whose metadata are then waited for."""
    world.cluster.topics["other"] = 1
    chosen = []

    class Renaming:
        def on_send(self, record):
            return record._replace(topic="other")

    def first(topic, key, value, partitions, available):
        chosen.append(topic)
        return 0

    async def use() -> None:
        settings = {"interceptor_classes": [Renaming], "partitioner_class": first}
        async with producer_of(**settings) as producer:
            await (await producer.send_values("pages", [b"a", b"b"]))

    virtual.scheduler.run(use())
    assert chosen == ["other", "other"]
    assert world.log == [b"a", b"b"]


def test_transactions_commit_and_abort(producer_of, world, virtual):
    """A block commits at its end; one that raises, or is cancelled, is aborted."""

    async def use() -> None:
        async with producer_of(transactional_id="desk") as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send("pages", b"kept", partition=0)
                await producer.send_offsets_to_transaction(OFFSETS, "copiers")

            async def fail_in_transaction() -> None:
                async with producer.transaction():
                    await producer.send_and_wait("pages", b"dropped", partition=0)
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await fail_in_transaction()

            async def wait_in_transaction() -> None:
                async with producer.transaction():
                    await producer.send_and_wait("pages", b"dropped", partition=0)
                    await pause(virtual.scheduler, 3600000)

            waiting = asyncio.create_task(wait_in_transaction())
            await pause(virtual.scheduler, 1000)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            async with producer.transaction():
                await producer.send("pages", b"kept too", partition=0)

    virtual.scheduler.run(use())
    ends = [word for word in world.conversation() if word in ("commit", "abort")]
    assert ends == ["commit", "abort", "abort", "commit"]


def test_block_of_a_transaction_may_be_cancelled_at_each_wait(producer_of, world, virtual):
    """It is aborted, or its commit is done in the background; the next one begins after that."""

    async def use(number: int) -> bool:
        before = len(world.conversation())

        async with producer_of(transactional_id="desk") as producer:
            await producer.init_transactions()

            async def transfer() -> None:
                async with producer.transaction():
                    await producer.send("pages", b"first", partition=0)
                    await producer.send_offsets_to_transaction(OFFSETS, "copiers")

            was_cancelled = await cancelled_at(transfer(), number)
            async with producer.transaction():
                await producer.send("pages", b"second", partition=0)
        ends = [word for word in world.conversation()[before:] if word in ("commit", "abort")]
        assert ends in (["commit"], ["abort", "commit"], ["commit", "commit"])
        return was_cancelled

    for number in count():
        if not virtual.scheduler.run(use(number)):
            break
    assert number > 2


def test_transactional_calls_need_the_setting(producer_of, virtual):
    """They are refused before anything is waited for."""

    async def use() -> None:
        async with producer_of() as producer:
            with pytest.raises(ConfigError, match=r"transactional\.id"):
                await producer.begin_transaction()

    virtual.scheduler.run(use())


@pytest.mark.parametrize(
    "call", ["init_transactions", "commit_transaction", "abort_transaction", "offsets"]
)
def test_transactional_call_that_was_cancelled_can_be_made_again(producer_of, world, virtual, call):
    """At whichever of its waits; the coordinator may have had the request before."""

    async def use(number: int) -> bool:
        async with producer_of(transactional_id="desk") as producer:

            async def made() -> None:
                if call == "offsets":
                    await producer.send_offsets_to_transaction(OFFSETS, "copiers")
                else:
                    await getattr(producer, call)()

            if call != "init_transactions":
                await producer.init_transactions()
                await producer.begin_transaction()
                await producer.send("pages", b"first", partition=0)
            was_cancelled = await cancelled_at(made(), number)
            if was_cancelled:
                await made()
            if call == "offsets":
                await producer.commit_transaction()
            async with producer.transaction():
                await producer.send("pages", b"second", partition=0)
            return was_cancelled

    for number in count():
        if not virtual.scheduler.run(use(number)):
            break
    assert number > 0


def test_end_that_fails_when_nobody_waits_for_it_is_no_stray_error(producer_of, virtual, caplog):
    """The call after it meets the same; asyncio would log it as one that was never retrieved."""

    async def use() -> None:
        async with producer_of(transactional_id="desk") as producer:

            async def fail() -> None:
                await pause(virtual.scheduler, 10)
                raise KafkaError(ErrorCode.INVALID_TXN_STATE)

            waiting = asyncio.create_task(producer._end_with(fail()))
            await pause(virtual.scheduler, 1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await pause(virtual.scheduler, 100)
            producer._ending = None

    virtual.scheduler.run(use())
    gc.collect()

    assert "never retrieved" not in caplog.text


def test_send_that_was_cancelled_is_not_sent(producer_of, world, virtual):
    """While it waits for metadata, or for room; the others are, each once."""
    small = {"buffer_memory": 3000, "batch_size": 1000, "enable_idempotence": False}

    async def use(number: int) -> bool:
        del world.log[:]
        async with producer_of(**small) as producer:
            if number >= 10:  # later ones wait for room, in a topic that is known
                await producer.partitions_for("pages")
                for n in range(3):
                    await producer.send("pages", b"%d" % n * 900, partition=0)
            was_cancelled = await cancelled_at(
                producer.send("pages", b"x" * 900, partition=0), number % 10
            )
            await producer.send("pages", b"last", partition=0)
        assert (b"x" * 900 in world.log) != was_cancelled
        assert world.log[-1] == b"last"
        return was_cancelled

    for first in (0, 10):
        for number in count(first):
            if not virtual.scheduler.run(use(number)):
                break
        assert number > first


def test_flush_that_was_cancelled_leaves_the_records_to_be_sent(producer_of, world, virtual):
    """And a second flush waits for them."""

    async def use(number: int) -> bool:
        del world.log[:]
        async with producer_of(linger_ms=60_000, enable_idempotence=False) as producer:
            future = await producer.send("pages", b"a", partition=0)
            was_cancelled = await cancelled_at(producer.flush(), number)
            await producer.flush()
            assert future.done()
        assert world.log == [b"a"]
        return was_cancelled

    for number in count():
        if not virtual.scheduler.run(use(number)):
            break
    assert number > 0


def test_flush_that_takes_too_long_is_an_error(producer_of, world, virtual):
    """Its limit is the argument's; the records stay in the queue."""
    world.cluster[0].on(ProduceRequest, None)

    async def use() -> None:
        producer = producer_of()
        await producer.send("pages", b"a", partition=0)
        with pytest.raises(KafkaTimeoutError, match=r"within 0\.5 s"):
            await producer.flush(0.5)
        await producer.close(timeout=0.5)

    virtual.scheduler.run(use())


@pytest.mark.parametrize("waits_for", ["room", "metadata"])
def test_send_that_waits_ends_when_the_producer_is_closed(producer_of, world, virtual, waits_for):
    """With an error that says so, and not when its own time is over."""
    small = {"buffer_memory": 1000, "batch_size": 1000, "linger_ms": 60_000}

    async def use() -> None:
        producer = producer_of(**small)
        if waits_for == "metadata":
            world.cluster[0].on(MetadataRequest, None)
        else:
            await producer.send("pages", bytes(800), partition=0)
            world.cluster[0].on(ProduceRequest, None)
        waiting = [
            asyncio.ensure_future(producer.send("pages", bytes(800), partition=0)) for _ in range(9)
        ]
        await pause(virtual.scheduler, 10)
        began_ms = virtual.clock.monotonic_ms()
        await producer.close(timeout=1)
        await asyncio.wait(waiting)
        assert virtual.clock.monotonic_ms() - began_ms <= 1100
        assert {str(each.exception()) for each in waiting} <= {
            "the producer is closed",
            "the client is closed",
        }

    virtual.scheduler.run(use())


def test_open_transaction_is_aborted_when_the_producer_is_closed(producer_of, world, virtual):
    """So that readers need not wait for its timeout."""

    async def use() -> None:
        async with producer_of(transactional_id="desk") as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send_and_wait("pages", b"a", partition=0)

    virtual.scheduler.run(use())
    (end,) = world.cluster[0].sent(EndTxnRequest)
    assert not end.committed


def test_future_of_the_blocking_producer_can_be_awaited(broker, unique):
    """Its batch is answered in the producer's own thread."""
    import ottla

    topic = unique("aio")

    async def use() -> None:
        with ottla.Producer(broker.bootstrap_servers) as producer:
            assert (await producer.send(topic, b"a")).offset == 0
            assert (await producer.send_values(topic, [b"b", b"c"]))[0].record_count == 2

    asyncio.run(use())


def test_refused_record_makes_the_transaction_abortable(producer_of, world, virtual):
    """As it does for the blocking producer."""

    async def use() -> None:
        async with producer_of(transactional_id="desk", max_request_size=1000) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            with pytest.raises(KafkaError, match="is larger than"):
                await producer.send("pages", bytes(1000))
            with pytest.raises(KafkaError, match="must be aborted") as caught:
                await producer.commit_transaction()
            assert caught.value.error is ErrorCode.MESSAGE_TOO_LARGE
            await producer.abort_transaction()

    virtual.scheduler.run(use())


def test_wrong_settings_are_refused_when_it_is_made():
    """Before there is a loop."""
    with pytest.raises(ConfigError, match="acks"):
        Producer("localhost:9092", acks="some")


def test_arrow_tables_are_sent_row_by_row(producer_of, world, virtual):
    """With one future for all of them."""
    pyarrow = pytest.importorskip("pyarrow")

    async def use() -> None:
        async with producer_of() as producer:
            table = pyarrow.table({"value": [b"0", b"1"], "partition": pyarrow.array([0, 0])})
            await (await producer.send_arrow("pages", table))
            assert len(await producer.partitions_for("pages")) == 2

    virtual.scheduler.run(use())
    assert world.log == [b"0", b"1"]


@pytest.mark.parametrize(
    "call",
    [
        lambda producer: producer.send_arrow("pages", None),
        lambda producer: producer.send_encoded("pages", None),
        lambda producer: producer.partitions_for("pages"),
        lambda producer: producer.flush(),
        lambda producer: producer.metrics(),
    ],
    ids=["send_arrow", "send_encoded", "partitions_for", "flush", "metrics"],
)
def test_closed_producer_takes_no_calls(producer_of, virtual, call):
    """Each says so at once."""

    async def use() -> None:
        async with producer_of() as producer:
            pass
        with pytest.raises(RuntimeError, match="the producer is closed"):
            await call(producer)

    virtual.scheduler.run(use())


@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_tasks_that_the_application_cancels_are_begun_again(
    producer_of, world, virtual, transactional_id
):
    """Its own are not all that `asyncio.all_tasks` has; at whichever turn, a flush has an end."""

    async def use(turns: int) -> None:
        del world.log[:]
        async with producer_of(transactional_id=transactional_id) as producer:
            if transactional_id is not None:
                await producer.init_transactions()
                await producer.begin_transaction()
            sending = asyncio.create_task(producer.send("pages", b"first", partition=0))
            await cancel_all_others(turns)
            await asyncio.wait([sending])
            await producer.send("pages", b"last", partition=0)
            await producer.flush()
            if transactional_id is not None:
                await producer.commit_transaction()
        assert world.log[-1] == b"last"

    for turns in range(40):
        virtual.scheduler.run(use(turns))
