"""`process`: many records at once, in order per key, committed up to the first unfinished one."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from itertools import pairwise

import pytest

import ottla
from ottla import KafkaError, TopicPartition
from ottla.aio import AsyncRebalanceListener
from ottla.clients.processing.processing import HandlerFailedError
from ottla.clients.serialization import JsonDeserializer
from ottla.connect.redrive import DeadLetter
from ottla.errors import ConfigError, ErrorCode
from ottla.protocol.group import HeartbeatRequest, HeartbeatResponse, SyncGroupRequest
from ottla.protocol.offsets import OffsetCommitRequest
from ottla.record.batch_builder import build_batch
from ottla.record.record_batch import assign_offset
from ottla.runtime.scheduler import pause

FIRST = TopicPartition("pages", 0)
REBALANCE = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)


def fill(logs, *keys: str, partition: int = 0) -> None:
    """A record for each key, whose value is its offset, in batches of one."""
    for key in keys:
        offset = logs.end(partition)
        batch = bytearray(build_batch([(1000, key.encode() or None, b"%d" % offset, ())]))
        assign_offset(batch, 0, offset, 0)
        logs.logs[partition].append(bytes(batch))


class Handler:
    """Notes what begins and ends; `times` has how many ms a record takes, by its offset."""

    def __init__(self, virtual, times: dict[int, int] | None = None, ms: int = 100) -> None:
        self.virtual = virtual
        self.times = times or {}
        self.ms = ms
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.most = 0
        self.errors: dict[int, list[Exception]] = {}

    async def __call__(self, record) -> None:
        number = int(record.value)
        self.begun.append(number)
        self.most = max(self.most, len(self.begun) - len(self.ended))
        try:
            await pause(self.virtual.scheduler, self.times.get(number, self.ms))
            if self.errors.get(number):
                raise self.errors[number].pop()
        finally:
            self.ended.append(number)


def started(consumer, handler, **options) -> asyncio.Task[None]:
    return asyncio.create_task(consumer.process(handler, **options))


def test_records_are_handled_at_once_and_in_order_per_key(consumer_of, logs, virtual):
    """As many as there are workers; records without a key in no order."""
    fill(logs, "a", "a", "b", "c", "a", "", "", "b")
    handler = Handler(virtual, {0: 1000})

    async def use() -> None:
        async with consumer_of() as consumer:
            work = started(consumer, handler, workers=3)
            await pause(virtual.scheduler, 5000)
            consumer.stop()
            await work

    virtual.scheduler.run(use())
    assert handler.most == 3
    assert sorted(handler.ended) == list(range(8))
    assert [n for n in handler.begun if n in (0, 1, 4)] == [0, 1, 4]
    assert handler.begun.index(5) < handler.begun.index(1)
    assert logs.committed[FIRST] == 8


def test_commits_stop_before_the_first_unfinished_record(consumer_of, logs, virtual):
    """While others behind it are finished, polls go on, and the lag is that of the commit."""
    fill(logs, *"abcd")
    handler = Handler(virtual, {1: 20_000})
    settings = {"auto_commit_interval_ms": 1000, "enable_auto_commit": False}

    async def use() -> None:
        async with consumer_of(max_poll_interval_ms=2000, **settings) as consumer:
            work = started(consumer, handler)
            await pause(virtual.scheduler, 10_000)
            assert sorted(handler.ended) == [0, 2, 3]
            assert logs.committed[FIRST] == 1
            assert consumer.current_lag(FIRST) == 3
            fill(logs, "e")
            await pause(virtual.scheduler, 15_000)
            assert logs.committed[FIRST] == 5
            consumer.stop()
            await work

    virtual.scheduler.run(use())


@pytest.mark.parametrize("by", ["partition", lambda record: int(record.value) % 2])
def test_order_may_be_that_of_partitions_or_of_a_function(consumer_of, logs, virtual, by):
    """Records of one lane are handled one after the other."""
    fill(logs, *"abcdef")
    handler = Handler(virtual)

    async def use() -> None:
        async with consumer_of() as consumer:
            work = started(consumer, handler, by=by)
            await pause(virtual.scheduler, 5000)
            consumer.stop()
            await work

    virtual.scheduler.run(use())
    if by == "partition":
        assert (handler.most, handler.ended) == (1, list(range(6)))
    else:
        assert handler.most == 2
        assert [n for n in handler.ended if n % 2] == [1, 3, 5]


def test_function_for_the_order_that_fails_ends_the_work(consumer_of, logs, virtual):
    """Its error is raised; a value that cannot be hashed is one as well."""
    fill(logs, "a")

    async def use() -> None:
        async with consumer_of() as consumer:
            with pytest.raises(ZeroDivisionError):
                await consumer.process(Handler(virtual), by=lambda record: 1 / 0)

    virtual.scheduler.run(use())


async def lane() -> int:
    return 1


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (list, r"by: it has returned \[\] for .* offset 0, which must be hashable"),
        (bytearray, r"bytearray\(b''\) .* must be hashable"),
        (lambda: (1, [2]), r"\(1, \[2\]\) .* must be hashable"),
        (lane, "which would have to be awaited"),
    ],
)
def test_function_for_the_order_returns_what_can_be_compared(
    consumer_of, logs, virtual, returned, said
):
    """In place of records in no order: nothing is equal to a coroutine."""
    fill(logs, "a")

    async def use() -> None:
        async with consumer_of() as consumer:
            with pytest.raises(TypeError, match=said):
                await consumer.process(Handler(virtual), by=lambda record: returned())
            assert [record.offset for record in await consumer.poll(1000)] == [0]

    virtual.scheduler.run(use())


def test_handler_is_called_again_after_pauses_that_grow(consumer_of, logs, virtual):
    """Other keys go on meanwhile, and the key's next record waits."""
    fill(logs, "a", "a", *"b" * 20)
    handler = Handler(virtual, ms=0)
    handler.errors = {0: [ValueError(n) for n in range(3)]}
    times = []

    async def handle(record) -> None:
        if record.key == b"a":
            times.append((int(record.value), virtual.clock.monotonic_ms()))
        await handler(record)

    async def use() -> None:
        async with consumer_of() as consumer:
            work = started(consumer, handle, retries=3, retry_pause=1)
            await pause(virtual.scheduler, 2500)
            assert set(range(2, 22)) <= set(handler.ended)
            assert 1 not in handler.begun
            await pause(virtual.scheduler, 20_000)
            consumer.stop()
            await work

    virtual.scheduler.run(use())
    assert [number for number, _ in times] == [0, 0, 0, 0, 1]
    pauses = [later - before for (_, before), (_, later) in pairwise(times)]
    assert [round(each / 1000) for each in pauses[:3]] in ([1, 2, 4], [1, 2, 5], [1, 2, 3])
    assert logs.committed[FIRST] == 22


def test_record_that_fails_too_often_ends_the_work(consumer_of, logs, virtual):
    """What is before it is committed, and the consumer can begin with it again."""
    fill(logs, *"abcd")
    handler = Handler(virtual, {0: 300})
    handler.errors = {1: [ValueError("bad")] * 3}

    async def use() -> None:
        async with consumer_of() as consumer:
            with pytest.raises(HandlerFailedError, match="3 times for pages-0 offset 1") as e:
                await consumer.process(handler, retries=2, retry_pause=0.05)
            assert isinstance(e.value.__cause__, ValueError)
            assert logs.committed[FIRST] == 1
            handler.errors.clear()
            assert [each.offset for each in await consumer.poll(1000)] == [1, 2, 3]

    virtual.scheduler.run(use())


def test_stop_finishes_what_has_begun_and_nothing_else(consumer_of, logs, virtual):
    """From a handler, or before the work has begun; then it can begin again."""
    fill(logs, *"abcdefgh")
    handler = Handler(virtual, {1: 3000})

    async def use() -> None:
        async with consumer_of() as consumer:

            async def handle(record) -> None:
                await handler(record)
                if record.offset == 0:
                    consumer.stop()

            await consumer.process(handle, workers=2)
            assert sorted(handler.ended) == [0, 1]
            assert logs.committed[FIRST] == 2
            consumer.stop()
            await consumer.process(handle)
            assert sorted(handler.ended) == [0, 1]
            assert (await consumer.poll(1000))[0].offset == 2

    virtual.scheduler.run(use())


def test_consumer_polls_and_commits_after_its_work_as_it_was_configured(consumer_of, logs, virtual):
    """Records in the hands of an iteration do not count as read, and only `commit` commits."""
    fill(logs, *"abcd")

    async def handle(record) -> None:
        consumer.stop()

    async def use() -> None:
        async with consumer:
            await consumer.process(handle, workers=1)
            records = aiter(consumer)
            assert [(await anext(records)).offset for _ in range(2)] == [1, 2]
            assert await consumer.position(FIRST) == 3
            await pause(virtual.scheduler, 3000)
            await consumer.poll(0)
        assert logs.committed[FIRST] == 1

    consumer = consumer_of(enable_auto_commit=False, auto_commit_interval_ms=1000)
    virtual.scheduler.run(use())


def test_stop_does_not_wait_long_for_a_coordinator(consumer_of, logs, virtual, caplog):
    """A supervisor would not either; the records are handled again."""
    fill(logs, *"ab")
    handler = Handler(virtual)

    async def use() -> None:
        async with consumer_of() as consumer:
            work = started(consumer, handler)
            await pause(virtual.scheduler, 1000)
            logs.cluster[0].on(OffsetCommitRequest, None)
            began_ms = virtual.clock.monotonic_ms()
            consumer.stop()
            await work
            assert virtual.clock.monotonic_ms() - began_ms <= 10_000
            logs.cluster[0].on(OffsetCommitRequest, logs.commit)

    virtual.scheduler.run(use())
    assert "it may not have been made" in caplog.text


def test_stop_leaves_no_gap_before_what_has_begun(consumer_of, logs, virtual):
    """A record that waits for its key is finished too, as others behind it are."""
    fill(logs, *"aabcd")
    handler = Handler(virtual, {0: 3000, 3: 5000})

    async def use() -> None:
        async with consumer_of() as consumer:
            work = started(consumer, handler, workers=2)
            await pause(virtual.scheduler, 1000)
            assert handler.begun == [0, 2, 3]
            consumer.stop()
            await work

    virtual.scheduler.run(use())
    assert handler.ended == [2, 0, 1, 3]
    assert logs.committed[FIRST] == 4


@pytest.mark.parametrize("retry_pause", [0.5, 5])
def test_stop_waits_for_a_retry_that_is_near(consumer_of, logs, virtual, retry_pause):
    """Another is given up, with the records of its key, and those behind are handled again."""
    fill(logs, *"aab")
    handler = Handler(virtual)
    handler.errors = {0: [ValueError("busy")]}

    async def use() -> None:
        async with consumer_of() as consumer:
            work = started(consumer, handler, retry_pause=retry_pause)
            await pause(virtual.scheduler, 300)
            began_ms = virtual.clock.monotonic_ms()
            consumer.stop()
            await work
            assert virtual.clock.monotonic_ms() - began_ms < 1000

    virtual.scheduler.run(use())
    is_near = retry_pause < 1
    assert logs.committed.get(FIRST, 0) == (3 if is_near else 0)
    assert handler.begun == ([0, 2, 0, 1] if is_near else [0, 2])


def test_work_that_is_cancelled_ends_at_once(consumer_of, logs, virtual):
    """Its tasks are cancelled too; what is finished is committed, and the rest is read again."""
    fill(logs, *"abc")
    handler = Handler(virtual, {1: 3_600_000})

    async def use() -> None:
        async with consumer_of() as consumer:
            work = started(consumer, handler)
            await pause(virtual.scheduler, 1000)
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            assert sorted(handler.ended) == [0, 1, 2]
            assert logs.committed[FIRST] == 1
            assert [each.offset for each in await consumer.poll(1000)] == [1, 2]

    virtual.scheduler.run(use())


def test_work_may_be_cancelled_while_a_dead_letter_is_written(consumer_of, logs, virtual):
    """The letter is not there: the record is not committed, and the cancellation is no failure."""
    fill(logs, *"ab")
    handler = Handler(virtual)
    handler.errors = {1: [ValueError("bad")]}

    async def use() -> None:
        async with consumer_of() as consumer:
            work = started(consumer, handler, retries=0, dead_letters="nowhere")
            await pause(virtual.scheduler, 1000)
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            assert logs.committed[FIRST] == 1

    virtual.scheduler.run(use())


def test_consumer_that_is_closed_ends_its_work(consumer_of, logs, virtual):
    """With an error that says so; what was finished is committed."""
    fill(logs, *"ab")
    handler = Handler(virtual)

    async def use() -> None:
        consumer = consumer_of()
        work = started(consumer, handler)
        await pause(virtual.scheduler, 1000)
        await consumer.close()
        with pytest.raises(RuntimeError, match="the consumer is closed"):
            await work

    virtual.scheduler.run(use())
    assert logs.committed[FIRST] == 2


@pytest.mark.parametrize("takes_long", [False, True])
def test_work_on_partitions_that_go_is_finished_first(consumer_of, logs, virtual, takes_long):
    """For half of max.poll.interval.ms; no other record of theirs is begun, nor committed."""
    fill(logs, "a", "b", "c", "d")
    handler = Handler(virtual, {0: 100, 1: 60_000 if takes_long else 3000})
    told = []

    class Listener(AsyncRebalanceListener):
        async def on_partitions_revoked(self, partitions):
            told.append((sorted(handler.ended), dict(logs.committed)))

    async def use() -> None:
        async with consumer_of(topics=(), max_poll_interval_ms=20_000) as consumer:
            await consumer.subscribe(["pages"], listener=Listener())
            work = started(consumer, handler, workers=1)
            await pause(virtual.scheduler, 1000)
            logs.cluster[0].on(SyncGroupRequest, logs.give(1))
            logs.cluster[0].on(HeartbeatRequest, REBALANCE, HeartbeatResponse())
            began_ms = virtual.clock.monotonic_ms()
            while consumer.assignment() != {TopicPartition("pages", 1)}:
                await pause(virtual.scheduler, 100)
            assert (virtual.clock.monotonic_ms() - began_ms > 9_000) == takes_long
            begun = list(handler.begun)
            await pause(virtual.scheduler, 100_000)
            assert handler.begun == begun
            consumer.stop()
            await work

    virtual.scheduler.run(use())
    ended, committed = told[0]
    assert ended == ([0] if takes_long else [0, 1])
    assert committed[FIRST] == (1 if takes_long else 2)


def test_work_that_is_cancelled_does_not_hold_up_a_rebalance(consumer_of, logs, virtual):
    """The rebalance had waited for a handler, which does not go on."""
    fill(logs, "a")

    async def use() -> None:
        async with consumer_of(max_poll_interval_ms=20_000) as consumer:
            work = started(consumer, Handler(virtual, ms=3_600_000))
            await pause(virtual.scheduler, 1000)
            logs.cluster[0].on(SyncGroupRequest, logs.give(1))
            logs.cluster[0].on(HeartbeatRequest, REBALANCE, HeartbeatResponse())
            await pause(virtual.scheduler, 4000)
            assert FIRST in consumer.assignment()
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            cancelled_ms = virtual.clock.monotonic_ms()
            while consumer.assignment() != {TopicPartition("pages", 1)}:
                await consumer.poll(100)
            assert virtual.clock.monotonic_ms() - cancelled_ms < 1000

    virtual.scheduler.run(use())


def test_lost_membership_makes_work_not_count(consumer_of, logs, virtual):
    """It is handled again by the member that has the partition then: here the same one."""
    fill(logs, "a")
    handler = Handler(virtual, {0: 10_000})

    async def use() -> None:
        async with consumer_of() as consumer:
            work = started(consumer, handler)
            await pause(virtual.scheduler, 1000)
            lost = HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
            logs.cluster[0].on(HeartbeatRequest, lost, HeartbeatResponse())
            await pause(virtual.scheduler, 12_000)
            assert handler.ended == [0]
            assert handler.begun == [0, 0]
            assert logs.committed.get(FIRST, 0) == 0
            await pause(virtual.scheduler, 12_000)
            consumer.stop()
            await work

    virtual.scheduler.run(use())
    assert logs.committed[FIRST] == 1


def test_work_of_before_a_loss_fails_without_harm(consumer_of, logs, virtual):
    """The records of its key were read again meanwhile: they are handled, in order."""
    fill(logs, *"aab")
    handler = Handler(virtual, {0: 10_000})
    handler.errors = {0: [ValueError("late")]}

    async def use() -> None:
        async with consumer_of(auto_commit_interval_ms=500) as consumer:
            work = started(consumer, handler)
            await pause(virtual.scheduler, 1000)
            lost = HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
            logs.cluster[0].on(HeartbeatRequest, lost, HeartbeatResponse())
            await pause(virtual.scheduler, 60_000)
            consumer.stop()
            await work

    virtual.scheduler.run(use())
    assert [n for n in handler.begun if n != 2] == [0, 0, 1]
    assert logs.committed[FIRST] == 3


def test_position_that_jumps_leaves_nothing_out(consumer_of, logs, virtual):
    """As after an election, when a new leader's log is said to differ from there on."""
    fill(logs, *"abc")
    handler = Handler(virtual, {0: 5000})

    async def use() -> None:
        async with consumer_of(auto_commit_interval_ms=500) as consumer:
            work = started(consumer, handler)
            await pause(virtual.scheduler, 1000)
            consumer._core.seek(FIRST, 3)
            await pause(virtual.scheduler, 2000)
            assert logs.committed.get(FIRST, 0) == 0
            await pause(virtual.scheduler, 20_000)
            consumer.stop()
            await work

    virtual.scheduler.run(use())
    assert handler.begun.count(0) == 2
    assert logs.committed[FIRST] == 3


def test_few_records_are_in_memory(consumer_of, logs, virtual, monkeypatch):
    """At most max_in_flight that are unfinished; a slow one stops the others much later."""
    module = "ottla.clients.processing.processing"
    monkeypatch.setattr(f"{module}.HELD_FOR_EACH_UNFINISHED", 10)
    fill(logs, "a", *"bcdefghij" * 11)
    handler = Handler(virtual, {0: 60_000}, ms=10)

    async def use() -> None:
        async with consumer_of() as consumer:
            work = started(consumer, handler, workers=2, max_in_flight=4)
            ahead = []
            for _ in range(5):
                await pause(virtual.scheduler, 50)
                position = consumer._core.subscriptions.state(FIRST).position
                ahead.append(position - len(handler.ended))
            assert max(ahead) <= 4
            await pause(virtual.scheduler, 20_000)
            assert 36 <= len(handler.ended) <= 44
            await pause(virtual.scheduler, 60_000)
            assert len(handler.ended) == 100
            consumer.stop()
            await work

    virtual.scheduler.run(use())
    assert logs.committed[FIRST] == 100


def test_value_that_cannot_be_read_is_not_tried_again(consumer_of, logs, virtual):
    """The records before it are handled with their values."""
    logs.write('{"n": 1}', "no JSON")
    seen = []

    async def handle(record) -> None:
        seen.append(record.value)

    async def use() -> None:
        async with consumer_of(value_deserializer=JsonDeserializer) as consumer:
            with pytest.raises(HandlerFailedError, match="failed once for pages-0 offset 1") as e:
                await consumer.process(handle, retries=None)
            assert isinstance(e.value.__cause__, KafkaError)
            consumer.seek(FIRST, 0)
            logs.logs[0].pop()
            logs.write('{"n": 2}')
            assert [each.value for each in await consumer.poll(1000)] == [{"n": 2}]

    virtual.scheduler.run(use())
    assert seen == [{"n": 1}]


def test_function_for_the_order_gets_no_record_that_cannot_be_deserialized(
    consumer_of, logs, virtual
):
    """Such a record is handled in no order: it fails like any that the handler would get."""
    for value in ('{"n": 1}', "{", '{"n": 2}'):
        logs.write(value)
    seen = []

    async def use() -> None:
        async with consumer_of(value_deserializer=JsonDeserializer) as consumer:
            with pytest.raises(HandlerFailedError, match="failed once for pages-0 offset 1"):
                await consumer.process(seen.append, by=lambda record: record.value["n"])

    virtual.scheduler.run(use())
    assert logs.committed[FIRST] == 1


def test_interceptors_see_each_record(consumer_of, logs, virtual):
    """And may keep it back, which finishes it."""
    fill(logs, *"abc")

    class Odd:
        def on_consume(self, records):
            return [each for each in records if int(each.value) % 2]

    handler = Handler(virtual)

    async def use() -> None:
        async with consumer_of(interceptor_classes=[Odd]) as consumer:
            work = started(consumer, handler)
            await pause(virtual.scheduler, 1000)
            consumer.stop()
            await work

    virtual.scheduler.run(use())
    assert handler.ended == [1]
    assert logs.committed[FIRST] == 3


# In threads, with a broker


@pytest.fixture
def topic(broker, unique) -> str:
    """A topic of two partitions with 400 records of 20 keys."""
    name = unique("process")
    with ottla.Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([ottla.NewTopic(name, 2)])
    with ottla.Producer(broker.bootstrap_servers) as producer:
        keys = [b"%d" % (number % 20) for number in range(400)]
        producer.send_values(name, [b"%d" % n for n in range(400)], keys=keys).result(10)
    return name


def member_of(broker, topic: str, **settings) -> ottla.Consumer:
    given = {"group_id": topic, "auto_offset_reset": "earliest", **settings}
    return ottla.Consumer(broker.bootstrap_servers, topics=[topic], **given)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_threads_handle_records_of_each_key_in_order(broker, topic, protocol):
    """Several at once; the handler of the last one stops the work, from its thread."""
    seen: dict[bytes, list[int]] = defaultdict(list)
    threads = set()

    with member_of(broker, topic, group_protocol=protocol) as consumer:

        def handle(record) -> None:
            threads.add(threading.get_ident())
            seen[record.key].append(int(record.value))
            if sum(map(len, seen.values())) == 400:
                consumer.stop()

        consumer.process(handle, workers=4)
        committed = consumer.committed([TopicPartition(topic, n) for n in range(2)])
        assert sum(each.offset for each in committed.values()) == 400

    assert all(numbers == sorted(numbers) for numbers in seen.values())
    assert sum(map(len, seen.values())) == 400
    assert threading.get_ident() not in threads


def test_stop_leaves_no_gap_before_what_threads_work_on(broker, unique):
    """The second record of a key has not begun when the third one of the partition is worked on."""
    name, handled = unique("process"), []
    both_work = threading.Barrier(2, timeout=60)
    with ottla.Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([ottla.NewTopic(name, 1)])
    with ottla.Producer(broker.bootstrap_servers) as producer:
        producer.send_values(name, [b"0", b"1", b"2"], keys=[b"a", b"a", b"b"]).result(10)

    with member_of(broker, name) as consumer:

        def handle(record) -> None:
            if record.offset != 1:
                both_work.wait()
                consumer.stop()
                consumer.health()  # answered on the loop, which has heard of the end before
                both_work.wait()
            handled.append(record.offset)

        consumer.process(handle, workers=2)
        committed = consumer.committed([TopicPartition(name, 0)])

    assert sorted(handled) == [0, 1, 2]
    assert [each.offset for each in committed.values()] == [3]


def test_coroutine_function_is_awaited_for_the_blocking_consumer(broker, topic):
    """On the loop of its I/O thread."""
    seen = []

    with member_of(broker, topic) as consumer:

        async def handle(record) -> None:
            await asyncio.sleep(0)
            seen.append(int(record.value))
            if len(seen) == 400:
                consumer.stop()

        consumer.process(handle)

    assert sorted(seen) == list(range(400))


def test_listener_of_the_blocking_consumer_is_called_before_its_records_are_handled(broker, topic):
    """In the thread that has called `process`."""
    seen = []

    class Listener(ottla.RebalanceListener):
        def on_partitions_assigned(self, partitions):
            seen.append((threading.get_ident(), len(partitions)))

    with member_of(broker, topic) as consumer:
        consumer.subscribe([topic], listener=Listener())

        def handle(record) -> None:
            seen.append(record.offset)
            consumer.stop()

        consumer.process(handle)

    assert seen[0] == (threading.get_ident(), 2)
    assert len(seen) > 1


def test_wrong_argument_ends_the_call_before_anything_is_polled(broker, topic):
    """Of the blocking consumer and of the other one, which can be used all the same."""
    from ottla import aio

    with member_of(broker, topic) as consumer:
        with pytest.raises(ConfigError, match="workers=0"):
            consumer.process(print, workers=0)
        assert consumer.poll(10_000)

    async def use() -> None:
        async with aio.Consumer(
            broker.bootstrap_servers, topics=[topic], group_id=f"{topic}-aio"
        ) as consumer:
            with pytest.raises(ConfigError, match="workers=0"):
                await consumer.process(print, workers=0)

    asyncio.run(use())


def test_function_is_called_in_threads_by_the_asyncio_consumer(broker, topic):
    """Its loop is free meanwhile."""
    from ottla import aio

    seen = []

    async def use() -> None:
        settings = {"group_id": topic, "auto_offset_reset": "earliest"}
        async with aio.Consumer(broker.bootstrap_servers, topics=[topic], **settings) as consumer:
            loop = asyncio.get_running_loop()

            def handle(record) -> None:
                seen.append(int(record.value))
                if len(seen) == 400:
                    loop.call_soon_threadsafe(consumer.stop)

            await consumer.process(handle)

    asyncio.run(use())
    assert sorted(seen) == list(range(400))


def test_records_that_fail_are_dead_letters(broker, topic):
    """Bytes, headers and time as they were; `ottla connect redrive` knows where they are from."""
    dead = f"{topic}-dead"
    seen = []

    with member_of(broker, topic) as consumer:

        def handle(record) -> None:
            number = int(record.value)
            seen.append(number)
            if len(set(seen)) == 400:
                consumer.stop()
            if number % 100 == 7:
                raise ValueError(f"{number} is bad")

        consumer.process(handle, retries=1, retry_pause=0, dead_letters=dead)
        committed = consumer.committed([TopicPartition(topic, n) for n in range(2)])
        assert sum(each.offset for each in committed.values()) == 400

    with ottla.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as reader:
        reader.assign([TopicPartition(dead, 0)])
        letters = []
        while len(letters) < 4:
            letters += reader.poll(1000)
    assert sorted(int(each.value) for each in letters) == [7, 107, 207, 307]
    assert sorted(seen.count(n) for n in (7, 107, 207, 307, 8)) == [1, 2, 2, 2, 2]
    headers = dict(letters[0].headers)
    assert headers["__connect.errors.connector.name"] == topic.encode()
    assert headers["__connect.errors.exception.class.name"] == b"builtins.ValueError"
    assert b"is bad" in headers["__connect.errors.exception.stacktrace"]
    assert DeadLetter(letters[0]).topic == topic


def test_letter_that_is_too_large_is_written_without_its_trace(broker, topic):
    """Its message is shortened, too."""
    dead = f"{topic}-small"
    with ottla.Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([ottla.NewTopic(dead, configs={"max.message.bytes": "4000"})])

    seen = []

    def handle(record) -> None:
        seen.append(record)
        if len(seen) == 1:
            raise ValueError("x" * 10_000)
        consumer.stop()

    with member_of(broker, topic) as consumer:
        consumer.process(handle, workers=1, retries=0, dead_letters=dead)
    with ottla.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as reader:
        reader.assign([TopicPartition(dead, 0)])
        letter = next(iter(reader))
    assert "__connect.errors.exception.stacktrace" not in dict(letter.headers)
    assert DeadLetter(letter).topic == topic


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_function_for_the_order_may_end_the_program(broker, topic, error):
    """The error is raised where `process` was called, and the consumer goes on."""

    def by(record):
        raise error

    with member_of(broker, topic) as consumer:
        with pytest.raises(type(error)):
            consumer.process(print, by=by)
        assert consumer.poll(60_000)[0].offset == 0


def test_interrupt_ends_the_work(broker, topic):
    """An error in the waiting thread, as Ctrl-C is, gives up what is not finished."""
    import signal

    began = threading.Event()

    def handle(record) -> None:
        if not began.is_set():
            began.set()
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    with member_of(broker, topic) as consumer:
        with pytest.raises(KeyboardInterrupt):
            consumer.process(handle)
        assert consumer.assignment()


def test_consumer_is_taken_until_the_work_has_ended_though_it_is_cancelled_twice(
    consumer_of, logs, virtual
):
    """The next poll gets the unfinished records, as the consumer deserializes them."""
    fill(logs, *"abcdef")
    handler = Handler(virtual, {0: 10}, ms=10_000)

    async def use() -> None:
        async with consumer_of(value_deserializer=JsonDeserializer()) as consumer:
            work = started(consumer, handler, workers=2)
            await pause(virtual.scheduler, 1000)
            logs.cluster[0].on(OffsetCommitRequest, None)
            for _ in range(3):
                work.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await work
            seen.extend(record.value for record in await consumer.poll(1000))

    seen: list[object] = []
    virtual.scheduler.run(use())
    assert handler.begun == [0, 1, 2]
    assert seen == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_handler_that_ends_its_program_ends_the_work(consumer_of, logs, virtual, error):
    """Such an error out of a task would end the loop, and nothing would be committed."""
    fill(logs, "a", "b")

    async def handler(record: object) -> None:
        await pause(virtual.scheduler, 10)
        raise error

    async def use() -> None:
        async with consumer_of() as consumer:
            with pytest.raises(type(error)):
                await consumer.process(handler, workers=1)

    virtual.scheduler.run(use())


def test_cancellation_that_a_handler_lets_out_is_a_failure_as_others(consumer_of, logs, virtual):
    """A task that it awaits was cancelled by somebody else: the record is tried again."""
    fill(logs, "a")
    seen: list[bytes] = []

    async def handler(record) -> None:
        seen.append(record.value)
        if len(seen) == 1:
            other = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(other.cancel)
            await other
        consumers[0].stop()

    consumers = []

    async def use() -> None:
        async with consumer_of() as consumer:
            consumers.append(consumer)
            await consumer.process(handler, workers=1)

    virtual.scheduler.run(use())
    assert seen == [b"0", b"0"]


async def _never(record) -> None:
    raise AssertionError("nobody awaits it")


def _returns_a_coroutine(record) -> object:
    return _never(record)


def _returns_a_generator(record) -> object:
    return (each for each in [record])


@pytest.mark.parametrize("handler", [_returns_a_coroutine, _returns_a_generator])
def test_handler_that_returns_what_is_not_run_ends_the_work(consumer_of, logs, virtual, handler):
    """Nothing was done for the record, so that it is not committed either."""
    fill(logs, "a")

    async def use() -> None:
        async with consumer_of() as consumer:
            with pytest.raises(TypeError, match="which is not run"):
                await consumer.process(handler, workers=1)
            assert await consumer.position(FIRST) == 0

    virtual.scheduler.run(use())


@pytest.mark.parametrize("own", [RuntimeError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_errors_that_cannot_say_what_they_are_become_letters(broker, topic, own):
    """They were no letters, nor called again: their records were held up, in silence."""

    class SpeechlessError(Exception):
        """Raises in place of a text."""

        def __str__(self) -> str:
            raise own("no text")

        __repr__ = __str__

    dead = f"{topic}-speechless"
    seen = []

    def handle(record) -> None:
        seen.append(record.value)
        if len(seen) == 350:
            consumer.stop()
        if record.value in (b"7", b"107"):
            raise SpeechlessError

    with member_of(broker, topic, max_poll_interval_ms=10_000) as consumer:
        consumer.process(handle, retries=1, retry_pause=0, dead_letters=dead)
    letters = broker.records(dead)
    assert sorted(each.value for each in letters) == [b"107", b"7"]
    headers = dict(letters[0].headers)
    assert headers["__connect.errors.exception.message"] == b"SpeechlessError"
