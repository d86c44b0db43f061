"""Queues of batches: when they fill, when they are ready, and what memory they may take."""

from __future__ import annotations

import pytest

from ottla.clients.producer.producer_batch import BatchFormat, record_size
from ottla.clients.producer.record_accumulator import AccumulatorLimits, RecordAccumulator
from ottla.errors import KafkaTimeoutError
from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType
from ottla.record.record_batch import BATCH_OVERHEAD, RecordBatch
from ottla.record.rows import EncodedRecords

RECORD = (0, None, b"x" * 79, ())
SIZE = record_size(RECORD)


class World:
    """An accumulator on mock time that counts how often the sender was woken."""

    def __init__(self, runtime, **limits) -> None:
        self.clock = runtime.clock
        self.wakes = 0
        defaults = {"batch_size": 1000, "buffer_memory": 5000, "linger_ms": 10, "max_block_ms": 50}
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


def test_waiting_for_memory_hurries_the_sender(world):
    """The open batch is sent although it is neither full nor old enough."""
    world.add(41)
    world.accumulator._waiting = 1

    assert world.ready() == [0]


def test_sticky_records_go_elsewhere_after_a_batch(world):
    """Without a key, one batch's worth of records goes to each partition in turn."""
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
    parts = batch.split(300, 0)

    assert [part.record_count for part in parts] == [3, 3, 3, 1]
    assert [part.sequence for part in parts] == [100, 103, 106, 109]
    for number, part in enumerate(parts):
        part.complete(1000 * number)
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
        world.accumulator.append_encoded(queue, encoded())
    assert world.accumulator.available_bytes == 0
    with pytest.raises(KafkaTimeoutError, match=r"buffer\.memory"):
        world.accumulator.append_encoded(queue, encoded())

    world = World(runtime, buffer_memory=size - 1)
    world.accumulator.append_encoded(world.topic.queues[0], encoded())
    assert world.ready() == [0]
