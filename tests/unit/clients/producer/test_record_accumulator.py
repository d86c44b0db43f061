"""Queues of batches: when they fill, when they are ready, and what memory they may take."""

from __future__ import annotations

import contextlib
import threading
import weakref

import pytest

from ottla.clients.producer.producer_batch import BatchFormat, record_size
from ottla.clients.producer.record_accumulator import (
    MEMORY_STEP,
    AccumulatorLimits,
    RecordAccumulator,
)
from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError
from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType
from ottla.record.record_batch import BATCH_OVERHEAD, RecordBatch
from ottla.record.rows import EncodedRecords
from ottla.testing import wait_until

RECORD = (0, None, b"x" * 79, ())
SIZE = record_size(RECORD)


class World:
    """An accumulator on mock time that counts how often the sender was woken."""

    def __init__(self, runtime, **limits) -> None:
        self.clock = runtime.clock
        self.wakes = 0
        defaults = {"batch_size": 1000, "buffer_memory": 5000, "linger_ms": 10, "max_block_ms": 50}
        defaults["grown_batch_size"] = limits.get("batch_size", 1000)  # unless it is given
        self.accumulator = RecordAccumulator(
            runtime.clock, AccumulatorLimits(**defaults | limits), lambda n: 0, self.wake
        )
        self.topic = self.accumulator.topic("t")
        self.topic.update([0, 1], [0, 1])

    def wake(self) -> None:
        self.wakes += 1

    def add(self, count=1, partition=0):
        queue = None if partition is None else self.topic.queues[partition]
        return [self.accumulator.append(self.topic, queue, RECORD, SIZE) for _ in range(count)]

    def ready(self) -> list[int]:
        queues, _ = self.accumulator.ready(self.clock.monotonic_ms())
        return [queue.topic_partition.partition for queue in queues]

    def drain(self, partition=0):
        return self.accumulator.drain(self.topic.queues[partition])


@pytest.fixture
def world(runtime) -> World:
    """Batches of ten records, memory for five of them, a linger of 10 ms."""
    return World(runtime)


def test_full_batch_is_ready_at_once(world):
    """The ninth record fits, the tenth fills it, the eleventh begins another batch."""
    world.add(9)
    assert world.ready() == []
    world.add(1)
    assert world.ready() == [0]
    world.add(1)
    assert world.ready() == [0]
    assert world.drain().record_count == 10


def test_batch_that_may_be_sent_grows_until_the_sender_takes_it(runtime):
    """The sender is woken when it may be sent; a batch of its own begins behind what it took."""
    world = World(runtime, grown_batch_size=2500, buffer_memory=100_000)
    world.add(10)
    assert (world.wakes, world.ready()) == (1, [0])
    world.add(1)
    assert (world.wakes, world.ready()) == (2, [0])
    world.add(13)
    assert world.drain().record_count == 24
    assert world.ready() == []
    world.add(26)
    assert [world.drain().record_count, world.drain().record_count] == [25, 1]


def test_batch_takes_memory_step_by_step(runtime):
    """As much as its records need, and one step more: many partitions share the memory."""
    memory = 10 * MEMORY_STEP
    world = World(runtime, batch_size=memory, buffer_memory=memory, max_block_ms=0)
    world.add(1, partition=0)
    world.add(1, partition=1)
    assert world.accumulator.available_bytes == memory - 2 * MEMORY_STEP
    world.add(MEMORY_STEP // SIZE, partition=0)
    assert world.accumulator.available_bytes == memory - 3 * MEMORY_STEP
    with pytest.raises(KafkaTimeoutError):
        world.add(memory // SIZE, partition=0)
    for partition in (0, 1):
        batch = world.drain(partition)
        assert batch.size <= batch.reserved
        batch.complete(0)
        world.accumulator.finished(batch)
    assert world.accumulator.available_bytes == memory


def test_batch_lingers(world):
    """A batch that is not full is ready after linger.ms, and the sender is told when."""
    world.add(1)
    assert world.accumulator.ready(0) == ([], 10)
    world.clock.advance(10)
    assert world.ready() == [0]


def test_sender_is_woken_once_until_it_looks(world):
    """Many records cost one wake-up."""
    world.add(35)
    assert world.wakes == 1
    world.ready()
    world.add(10)
    assert world.wakes == 2


def test_flush_makes_everything_ready(world):
    """While somebody flushes, nothing lingers."""
    world.add(1, partition=1)
    assert len(world.accumulator.begin_flush()) == 1
    assert world.ready() == [1]
    world.accumulator.end_flush()
    assert world.ready() == []


def test_send_blocks_while_memory_is_used_up(runtime):
    """After max.block.ms it gives up; with room again it goes on."""
    world = World(runtime, max_block_ms=0)
    world.add(50)
    with pytest.raises(KafkaTimeoutError, match=r"buffer\.memory=5000"):
        world.add(1)
    batch = world.drain()
    batch.complete(0)
    world.accumulator.finished(batch)
    world.add(1)


def test_sender_is_woken_for_all_that_makes_batches_ready(runtime):
    """It has looked since the last record came, and would otherwise not look again."""
    world = World(runtime, max_block_ms=0)
    runtime.advance(1000)
    world.add(50)
    accumulator = world.accumulator
    for cause in (world.add, accumulator.begin_flush, lambda: accumulator.close(RuntimeError())):
        world.ready()
        before = world.wakes
        with contextlib.suppress(KafkaTimeoutError):
            cause()
        assert world.wakes == before + 1


class WaitingThreads:
    """Threads that wait for room in the memory, until it comes or they are refused."""

    def __init__(self, runtime, *sizes: int, **limits: int) -> None:
        self.world = World(runtime, max_block_ms=600_000, **limits)
        self.filled = self.world.accumulator.append_encoded(
            self.world.topic.queues[1], encoded_of(self.world.accumulator.limits.buffer_memory)
        )
        self.outcomes: list[Exception | None] = []
        self.threads = [threading.Thread(target=self.send, args=[size]) for size in sizes]
        for thread in self.threads:
            thread.start()
        waiting = self.world.accumulator
        wait_until(lambda: waiting._waiting == len(sizes), "the threads wait for room")

    def send(self, size: int) -> None:
        try:
            queue = self.world.topic.queues[0]
            self.world.accumulator.append(self.world.topic, queue, RECORD, size)
        except Exception as error:
            self.outcomes.append(error)
        else:
            self.outcomes.append(None)

    def release(self) -> None:
        self.filled.complete(0)
        self.world.accumulator.finished(self.filled)

    def end(self) -> list[Exception | None]:
        for thread in self.threads:
            thread.join(20)
            assert not thread.is_alive()
        return self.outcomes


def encoded_of(size: int) -> EncodedRecords:
    """Records that take up so many bytes."""
    return EncodedRecords(0, 1, bytes(size), 0, 0, None)


@pytest.mark.parametrize(("sizes", "counts"), [((400, 600), [2]), ((400, 700), [1, 1])])
def test_threads_that_wait_for_memory_go_on_when_there_is_room(runtime, sizes, counts):
    """The second one uses the batch that the first has begun, if its record fits into it."""
    threads = WaitingThreads(runtime, *sizes)
    threads.release()

    assert threads.end() == [None, None]
    assert [threads.world.drain().record_count for _ in counts] == counts
    assert threads.world.accumulator.available_bytes == 5000 - 1000 * len(counts)


def test_record_that_finds_the_room_taken_again_waits_no_longer_than_once(runtime, monkeypatch):
    """There is room for its step; then the sender takes the batch, and a whole one is needed."""
    world = World(runtime, grown_batch_size=1000 + SIZE, max_block_ms=50)
    queue = world.topic.queues[1]
    small = world.accumulator.append_encoded(queue, encoded_of(SIZE))
    world.accumulator.append_encoded(queue, encoded_of(4000 - SIZE))
    world.add(10)
    room = world.accumulator._room
    waits = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        runtime.clock.advance(30)
        if len(waits) == 1:
            room.release()
            world.drain()
            world.accumulator.finished(small)
            room.acquire()

    monkeypatch.setattr(room, "wait", wait)
    with pytest.raises(KafkaTimeoutError, match=r"max\.block\.ms=50"):
        world.add(1)
    assert waits == [0.05, 0.02]


@pytest.mark.parametrize("way", ["refuse", "close"])
def test_threads_that_wait_for_memory_are_refused_at_once(runtime, way):
    """No room has come, and the time is not over."""
    threads = WaitingThreads(runtime, 100, 100)
    error = KafkaError(ErrorCode.INVALID_TXN_STATE)
    getattr(threads.world.accumulator, way)(error)

    assert threads.end() == [error, error]


def test_waiting_for_memory_hurries_the_sender(runtime):
    """The open batch is sent although it is neither full nor old enough."""
    world = World(runtime, max_block_ms=600_000)
    world.add(40, partition=1)
    on_wire = [world.drain(1) for _ in range(4)]
    world.add(1)
    assert world.ready() == []
    thread = threading.Thread(target=world.add, args=[1, 1])
    thread.start()
    wait_until(lambda: world.ready() == [0], "the open batch is ready")
    world.accumulator.finished(on_wire[0])
    thread.join(20)
    assert not thread.is_alive()


def test_next_batch_is_ready_when_the_first_of_those_that_linger_is(world):
    """Its time is what the sender is told, in whichever order they were begun."""
    world.add(1, partition=1)
    world.clock.advance(4)
    world.add(1, partition=0)
    assert world.accumulator.ready(4) == ([], 10)
    world.drain(1)
    assert world.accumulator.ready(4) == ([], 14)
    world.clock.advance(2)
    world.add(1, partition=1)
    assert world.accumulator.ready(6) == ([], 14)


def test_batch_that_was_begun_stays_open_when_another_one_is_taken(world):
    """Taken in its turn or because it is too old: later records join the one that is open."""
    world.add(11)
    assert world.drain().record_count == 10
    world.add(9)
    world.clock.advance(50)
    world.add(1)
    assert [batch.record_count for _, batch in world.accumulator.take_expired(50)] == [10]
    world.add(1)
    assert world.drain().record_count == 2


def test_batch_of_the_last_moment_is_not_too_old(world):
    """Only what was created before that."""
    world.clock.advance(7)
    world.add(1)

    assert world.accumulator.take_expired(7) == []
    assert len(world.accumulator.take_expired(8)) == 1
    assert world.ready() == []
    world.add(1)
    assert world.drain().record_count == 1


def test_queues_are_empty_after_an_abort_and_take_records_again(world):
    """What was on the wire is returned as well."""
    world.add(15)
    on_wire = world.drain()
    batches = world.accumulator.abort_all()
    assert [batch.record_count for batch in batches] == [10, 5]
    assert batches[0] is on_wire
    for batch in batches:
        world.accumulator.finished(batch)
    assert not world.accumulator.has_unfinished
    assert world.accumulator.oldest_ms() is None
    assert world.ready() == []
    world.add(1)
    assert world.drain().record_count == 1


def test_memory_of_a_batch_is_released_once(world):
    """A batch may be reported as finished by two ways out."""
    world.add(11)
    batch = world.drain()
    for _ in range(2):
        world.accumulator.finished(batch)

    assert world.accumulator.available_bytes == 5000 - 1000


@pytest.mark.parametrize(
    ("partitions", "available", "expected"),
    [([0, 1], [1], [1]), ([0, 1], [], [0, 1]), ([0], [0], [0])],
)
def test_sticky_records_go_where_there_is_a_leader(world, partitions, available, expected):
    """Records wait at all partitions where none has a leader; a single partition is never left."""
    topic = world.accumulator.topic("u")
    topic.update(partitions, available)
    for _ in range(25):
        world.accumulator.append(topic, None, RECORD, SIZE)

    queues, _ = world.accumulator.ready(1_000_000)
    assert [queue.topic_partition.partition for queue in queues] == expected


@pytest.mark.parametrize(
    ("partitions", "available", "expected"),
    [
        ([0], [0], {0}),
        ([0, 1], [0, 1], {0, 1}),
        ([0, 1, 2], [0, 1], {0, 1}),
        ([0, 1, 2], [], {2}),
        ([0, 1, 2], [0, 1, 2], {2}),
    ],
    ids=["made again with one", "with two", "no leader", "no leaders at all", "as before"],
)
def test_sticky_partition_that_is_gone_or_has_no_leader_is_left(
    world, partitions, available, expected
):
    """A few small records fill no batch: they went to a partition that was no more, and failed."""
    topic = world.accumulator.topic("u")
    topic.update([2], [2])
    world.accumulator.append(topic, None, RECORD, SIZE)
    topic.update(partitions, available)
    found = {
        world.accumulator.append(topic, None, RECORD, SIZE)._batch.topic_partition.partition
        for _ in range(3)
    }

    assert len(found) == 1
    assert found <= expected


def test_sticky_records_go_elsewhere_after_a_batch(world):
    """One batch's worth of records without a key goes to each partition in turn."""
    partitions = [future._batch.topic_partition.partition for future in world.add(30, None)]

    assert partitions == [0] * 10 + [1] * 10 + [0] * 10


def test_batches_that_return_go_to_the_front(world):
    """In the order in which they were sent first, before those that never were."""
    world.add(30)
    first, second = world.drain(), world.drain()
    queue = world.topic.queues[0]
    world.accumulator.reenqueue(queue, [second])
    world.accumulator.reenqueue(queue, [first])

    assert [world.drain() for _ in range(2)] == [first, second]
    assert world.drain().record_count == 10


def test_parts_of_a_batch_take_its_place(world):
    """What was sent after it, and has returned already, stays behind its parts."""
    world.add(30)
    first, second = world.drain(), world.drain()
    queue = world.topic.queues[0]
    world.accumulator.reenqueue(queue, [second])
    parts = first.split(500, 0)
    world.accumulator.reenqueue(queue, parts)

    assert [world.drain() for _ in range(3)] == [*parts, second]


def test_old_batches_are_taken_out(world):
    """What was begun too long ago is given to the sender to fail."""
    world.add(1)
    world.clock.advance(100)
    world.add(10)

    assert [batch.record_count for _, batch in world.accumulator.take_expired(50)] == [10]
    assert world.accumulator.oldest_ms() == 100


def test_split_batch_keeps_its_futures(world):
    """The futures follow their records into the parts, and so do callbacks."""
    futures = world.add(10)
    seen = []
    futures[9].add_done_callback(lambda future: seen.append(future.result().offset))
    batch = world.drain()
    batch.set_sequence(7, 0, 100)
    parts = batch.split(300, 77)

    assert [part.record_count for part in parts] == [3, 3, 3, 1]
    assert [part.size for part in parts] == [3 * SIZE, 3 * SIZE, 3 * SIZE, SIZE]
    assert [part.sequence for part in parts] == [100, 103, 106, 109]
    assert {part.retry_at_ms for part in parts} == {77}
    for number, part in enumerate(parts):
        part.complete(1000 * number)
    assert all(future.done() for future in futures)
    assert [future.result(0).offset for future in futures[2:5]] == [2, 1000, 1001]
    assert seen == [3000]


def test_single_record_above_the_size_is_a_part_of_its_own(world):
    """Splitting ends at one record."""
    world.add(3)

    assert [part.record_count for part in world.drain().split(1, 0)] == [1, 1, 1]


def test_future_times_out_like_a_standard_one(world):
    """TimeoutError, and the record is still on its way."""
    (future,) = world.add()
    with pytest.raises(TimeoutError):
        future.result(0)

    assert not future.done()
    assert future.running()
    assert not future.cancel()


def test_closed_accumulator_refuses(world):
    """Records after close are not taken."""
    world.accumulator.close(RuntimeError("the producer is closed"))
    with pytest.raises(RuntimeError, match="closed"):
        world.add()


def encoded(count: int = 3, codec: CompressionType | None = None) -> EncodedRecords:
    """Records that are in the bytes of a batch already."""
    batch = RecordBatch(
        build_batch(
            [(1000 + n, b"k", b"%d" % n, ()) for n in range(count)], codec or CompressionType.NONE
        )
    )
    section = bytes(batch.view[BATCH_OVERHEAD:])
    return EncodedRecords(0, count, section, 1000, 1000 + count - 1, codec)


@pytest.mark.parametrize("codec", [None, CompressionType.GZIP])
def test_encoded_batch_keeps_its_codec_or_gets_that_of_the_producer(world, codec):
    """All else is as it was given."""
    world.accumulator.append_encoded(world.topic.queues[0], encoded(codec=codec))
    assert world.ready() == [0]
    batch = world.drain()
    batch.encode(BatchFormat(CompressionType.LZ4, None, is_transactional=False, most_bytes=1 << 20))

    found = RecordBatch(batch.encoded)
    assert found.compression is (codec or CompressionType.LZ4)
    assert batch.record_count == found.record_count == 3
    assert [(r.timestamp_ms, r.key, r.value) for r in found.records()] == [
        (1000 + n, b"k", b"%d" % n) for n in range(3)
    ]


def test_encoded_batch_comes_behind_what_is_queued_and_before_what_follows(world):
    """Records that are added later are in a batch of their own."""
    world.add(1)
    world.accumulator.append_encoded(world.topic.queues[0], encoded())
    world.add(2)
    world.clock.advance(10)

    counts = []
    while world.ready():
        counts.append(world.drain().record_count)
    assert counts == [1, 3, 2]


@pytest.mark.parametrize("codec", [None, CompressionType.GZIP])
def test_encoded_batch_that_is_too_large_is_split_into_its_records(world, codec):
    """The parts are batches as all others."""
    batch = world.accumulator.append_encoded(world.topic.queues[0], encoded(codec=codec))
    parts = world.drain().split(1, 0)

    assert [part.record_count for part in parts] == [1, 1, 1]
    for number, part in enumerate(parts):
        part.encode(
            BatchFormat(CompressionType.NONE, None, is_transactional=False, most_bytes=1 << 20)
        )
        (record,) = RecordBatch(part.encoded).records()
        assert (record.timestamp_ms, record.key, record.value) == (
            1000 + number,
            b"k",
            b"%d" % number,
        )
        part.complete(number)
    assert batch.failure() is None
    assert batch.wait(0)


def test_encoded_batch_waits_for_memory(runtime):
    """One that is larger than all of it is taken where nothing else is."""
    size = len(encoded().payload)
    world = World(runtime, buffer_memory=2 * size, max_block_ms=0)
    queue = world.topic.queues[0]
    for _ in range(2):
        assert world.accumulator.append_encoded(queue, encoded()).size == size
    assert world.accumulator.available_bytes == 0
    with pytest.raises(KafkaTimeoutError, match=r"buffer\.memory"):
        world.accumulator.append_encoded(queue, encoded())

    world = World(runtime, buffer_memory=size - 1)
    world.accumulator.append_encoded(world.topic.queues[0], encoded())
    assert world.ready() == [0]


def test_encoded_batch_that_is_done_lets_go_of_its_bytes(world):
    """The application may keep the batch to learn of its outcome."""
    content = encoded()
    content = content._replace(payload=memoryview(content.payload))
    held = weakref.ref(content.payload)
    batch = world.accumulator.append_encoded(world.topic.queues[0], content)
    del content
    assert held() is not None
    batch.complete(0)

    assert held() is None
    assert batch.record_count == 3
