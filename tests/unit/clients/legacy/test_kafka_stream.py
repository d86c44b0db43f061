"""Streams: what the reader gets, and what the connector does meanwhile."""

from __future__ import annotations

import contextlib
import threading

import pytest

from ottla.clients.legacy import ConsumerTimeoutError, KafkaStream, StringDecoder
from ottla.clients.legacy.assignment import ConsumerThreadId
from ottla.clients.legacy.kafka_stream import OwnedPartition
from ottla.clients.legacy.stream_fetcher import StreamFetcher
from ottla.config.legacy_config import ZooKeeperConsumerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.fetch import FetchRequest
from ottla.protocol.list_offsets import ListOffsetsRequest
from ottla.record.consumer_record import ConsumerRecord, TimestampType
from ottla.runtime.io_thread import stack_of
from ottla.runtime.scheduler import pause
from ottla.structs import Node, TopicPartition
from ottla.testing import wait_until


def records(*offsets: int) -> list[ConsumerRecord]:
    return [
        ConsumerRecord("pages", 0, o, 1, TimestampType.CREATE_TIME, None, f"v{o}".encode())
        for o in offsets
    ]


def stream_and_partition(timeout_ms: int = 0, max_chunks: int = 2):
    """A stream, a partition of it, and the list of the calls for more."""
    calls: list[KafkaStream] = []
    stream = KafkaStream("pages-0", StringDecoder(), timeout_ms, max_chunks, calls.append)
    return stream, OwnedPartition(stream, 4), calls


def test_messages_come_decoded_and_count_as_consumed():
    """The offset to be committed is the one after what was handed out."""
    stream, partition, _ = stream_and_partition()
    stream.put(partition, records(4, 5, 9))

    first = next(stream)

    assert (first.message, first.topic, first.partition, first.offset) == ("v4", "pages", 0, 4)
    assert partition.consumed_offset == 5
    assert [m.offset for _, m in zip(range(2), stream, strict=False)] == [5, 9]
    assert partition.consumed_offset == 10


def test_waiting_ends_with_an_error_and_can_begin_again():
    """consumer.timeout.ms; the stream goes on when there is something."""
    stream, partition, _ = stream_and_partition(timeout_ms=1)
    with pytest.raises(ConsumerTimeoutError, match=r"consumer\.timeout\.ms=1"):
        next(stream)
    stream.put(partition, records(4))

    assert next(stream).offset == 4


def test_a_partition_that_is_lost_is_not_read_on():
    """Not even what has arrived of it; others are."""
    stream, partition, _ = stream_and_partition()
    other = OwnedPartition(stream, 0)
    stream.put(partition, records(4, 5))
    stream.put(other, records(0))
    next(stream)

    stream.lose(partition)
    stream.put(partition, records(6))

    assert next(stream).offset == 0
    assert partition.consumed_offset == 5
    with pytest.raises(ConsumerTimeoutError):
        next(stream)


def test_a_full_stream_asks_for_more_once_it_has_room():
    """It is full at queuedchunks.max, and says once that it is not any more."""
    stream, partition, calls = stream_and_partition(max_chunks=2)
    stream.put(partition, records(4))
    assert not stream.is_full
    stream.put(partition, records(5))
    stream.put(partition, records(6))
    assert stream.is_full

    next(stream)
    assert calls == []
    next(stream)
    assert (calls, stream.is_full) == ([stream], False)
    next(stream)
    assert calls == [stream]


def test_a_stream_has_room_again_when_a_partition_is_lost():
    """Unless what is left fills it."""
    stream, partition, _ = stream_and_partition(max_chunks=1)
    assert not stream.is_full
    other = OwnedPartition(stream, 0)
    stream.put(partition, records(4))
    assert stream.is_full
    stream.lose(other)
    assert stream.is_full
    stream.lose(partition)
    assert not stream.is_full


NEWS = {
    "messages": (lambda stream, partition: stream.put(partition, records(4)), [4]),
    "error": (lambda stream, partition: stream.fail(KafkaError(ErrorCode.CORRUPT_MESSAGE)), []),
    "end": (lambda stream, partition: stream.close(), []),
}


@pytest.mark.parametrize(("tell", "expected"), NEWS.values(), ids=NEWS)
def test_reader_that_waits_hears_of_what_comes(tell, expected):
    """Messages, an error or the end wake it, although it may wait without a limit."""
    stream, partition, _ = stream_and_partition(timeout_ms=-1)
    found = []

    def read() -> None:
        with contextlib.suppress(KafkaError):
            found.extend(message.offset for message in stream)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    wait_until(lambda: "wait_for" in stack_of(thread.ident or 0), "the reader waits")
    tell(stream, partition)
    if expected:
        wait_until(lambda: found == expected, "the messages")
        stream.close()
    thread.join(20)

    assert not thread.is_alive()
    assert found == expected


def test_what_goes_wrong_is_raised_after_what_has_arrived():
    """Once; then the stream goes on."""
    stream, partition, _ = stream_and_partition()
    stream.put(partition, records(4))
    stream.fail(KafkaError(ErrorCode.CORRUPT_MESSAGE, "damaged"))

    assert next(stream).offset == 4
    with pytest.raises(KafkaError, match="damaged"):
        next(stream)
    with pytest.raises(ConsumerTimeoutError):
        next(stream)


def test_a_stream_ends_when_its_connector_does():
    """The loop over it ends without an error."""
    stream, partition, _ = stream_and_partition(timeout_ms=-1)
    stream.close()
    stream.put(partition, records(4))

    assert list(stream) == []


@pytest.mark.parametrize("state", ["reading", "refused", "searching"])
def test_closed_fetcher_leaves_nothing_to_do(old_world, runtime, caplog, state):
    """Whatever it was about to do with its partitions, nothing fails for the end of it."""
    for broker in old_world.cluster.brokers.values():
        if state == "reading":
            broker.on(FetchRequest, None)
        elif state == "refused":
            broker.on(FetchRequest, old_world.world.refuse_fetch(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        elif state == "searching":
            broker.on(ListOffsetsRequest, None)
    stream = KafkaStream("pages-0", StringDecoder(), 0, 2, lambda stream: None)
    config = ZooKeeperConsumerConfig.parse({"zk.connect": "zookeeper:2181", "groupid": "g"})
    brokers = {n: Node(n, "mock", broker.port) for n, broker in old_world.cluster.brokers.items()}
    owner = {TopicPartition("pages", 0): ConsumerThreadId("g_one", 0)}

    async def play() -> None:
        fetcher = StreamFetcher(runtime, config, brokers, lambda topic, number: stream)
        fetcher.take(owner, {})
        await pause(runtime.scheduler, 1050)
        fetcher.close()
        await pause(runtime.scheduler, 1)
        fetcher.on_room(stream)  # its reader goes on

    old_world.run(play())
    old_world.advance(0)
    assert runtime.scheduler.loop.next_due_ms() is None
    old_world.advance(100_000)

    assert caplog.messages == []
    with pytest.raises(ConsumerTimeoutError):
        next(stream)
