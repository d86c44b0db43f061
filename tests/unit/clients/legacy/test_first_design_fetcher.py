"""What fills the streams of a connector from brokers of Kafka 0.7, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ottla.clients.legacy import ConsumerTimeoutError, KafkaStream, Message, StringDecoder
from ottla.clients.legacy.assignment import ConsumerThreadId
from ottla.clients.legacy.cluster_nodes import PlacedPartition
from ottla.clients.legacy.first_design_fetcher import FirstDesignFetcher
from ottla.clients.legacy.first_design_link import encode_set
from ottla.config.legacy_config import ZooKeeperConsumerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.first_design import (
    RequestType,
    ToRead,
    decode_request,
    encode_answer_head,
    encode_offsets_answer,
)
from ottla.record.compression import CompressionType
from ottla.structs import Node, TopicPartition
from ottla.testing import MockRuntime

THREAD = ConsumerThreadId("g_one", 0)
P0, P1 = (TopicPartition("pages", PlacedPartition.of(0, number)) for number in (0, 1))
OTHER = TopicPartition("pages", PlacedPartition.of(1, 0))


def messages(*texts: str, codec: CompressionType = CompressionType.NONE) -> bytes:
    return encode_set([Message(text.encode()) for text in texts], codec)


class OldBroker:
    """The logs of a broker of 0.7, each with the id at which it begins, and its connections."""

    def __init__(self, world: FetcherWorld, port: int) -> None:
        self.logs: dict[int, tuple[int, bytes]] = {}
        self.requests: list[Any] = []
        self.connections: list[Connection] = []
        self.on_request: Callable[[], object] = lambda: None
        world.runtime.network.serve("kafka", port, lambda: Connection(self))

    def answer(self, frame: bytes) -> bytes:
        type_, parts = decode_request(frame)
        self.requests += parts
        self.on_request()
        if type_ is RequestType.OFFSETS:
            start, data = self.logs[parts[0].partition]
            return encode_offsets_answer([start if parts[0].time_ms == -2 else start + len(data)])
        answers = b"".join(map(self._read, parts))
        return answers if type_ is RequestType.FETCH else encode_answer_head(len(answers)) + answers

    def _read(self, part: Any) -> bytes:
        start, data = self.logs.get(part.partition, (0, b""))
        if not start <= part.position <= start + len(data):
            return encode_answer_head(0, ErrorCode.OFFSET_OUT_OF_RANGE)
        found = data[part.position - start :][: part.max_bytes]
        return encode_answer_head(len(found)) + found


class Connection(asyncio.Protocol):
    """Takes whole requests, and answers those that are answered."""

    def __init__(self, broker: OldBroker) -> None:
        self.broker = broker
        self.data = b""

    def connection_made(self, transport):
        self.transport = transport
        self.broker.connections.append(self)

    def data_received(self, data):
        self.data += data
        while len(self.data) >= 4 and len(self.data) >= (size := 4 + int.from_bytes(self.data[:4])):
            frame, self.data = self.data[4:size], self.data[size:]
            self.transport.write(self.broker.answer(frame))


class FetcherWorld:
    """Two brokers, and one stream that is read without a thread."""

    def __init__(self, runtime: MockRuntime, **settings: Any) -> None:
        self.runtime = runtime
        self.brokers = [OldBroker(self, port) for port in (9091, 9092)]
        given = {name.replace("_", "."): value for name, value in settings.items()}
        config = ZooKeeperConsumerConfig.parse({"zk.connect": "z:2181", "groupid": "g"} | given)
        chunks = config.queuedchunks_max
        self.stream = KafkaStream("pages-0", StringDecoder(), 0, chunks, self._on_room)
        nodes = {number: Node(number, "kafka", 9091 + number) for number in (0, 1)}

        async def make() -> FirstDesignFetcher:
            return FirstDesignFetcher(runtime, config, nodes, lambda topic, number: self.stream)

        self.fetcher = runtime.scheduler.run(make())

    def _on_room(self, stream: KafkaStream) -> None:
        self.fetcher.on_room(stream)

    def take(self, *partitions: TopicPartition, **offsets: int) -> None:
        async def take() -> None:
            known = {p: offsets["at"] for p in partitions if "at" in offsets}
            self.fetcher.take(dict.fromkeys(partitions, THREAD), known)

        self.runtime.scheduler.run(take())

    def read(self, ms: int = 200) -> list[str]:
        """All that has come after some time."""
        self.runtime.advance(ms)
        found = []
        while True:
            try:
                found.append(next(self.stream).message)
            except ConsumerTimeoutError:
                return found


@pytest.fixture
def world(runtime: MockRuntime) -> FetcherWorld:
    """With the defaults."""
    return FetcherWorld(runtime)


def test_partitions_of_several_brokers_are_followed(world):
    """Each broker is asked for all of its own at once, from their offsets on."""
    world.brokers[0].logs = {0: (0, messages("a")), 1: (100, messages("b"))}
    world.brokers[1].logs = {0: (0, messages("c"))}
    world.take(P0, P1, OTHER)
    assert sorted(world.read()) == ["a", "b", "c"]
    world.brokers[1].logs = {0: (0, messages("c", "d"))}

    assert world.read() == ["d"]
    assert world.fetcher.owned.consumed() == {P0: 11, P1: 111, OTHER: 22}
    assert world.fetcher.drop([P0]) == {P0: 11}
    world.brokers[0].logs[0] = (0, messages("a", "more"))
    assert world.read() == []


def test_committed_offset_is_where_reading_begins(world):
    """In the middle of a compressed set nothing is committed but its beginning."""
    first, second = messages("a"), messages("b", "c", codec=CompressionType.GZIP)
    world.brokers[0].logs = {0: (0, first + second)}
    world.take(P0, at=len(first))
    world.runtime.advance(200)
    assert next(world.stream).message == "b"
    assert world.fetcher.owned.consumed() == {P0: len(first)}
    assert next(world.stream).message == "c"

    assert world.fetcher.owned.consumed() == {P0: len(first + second)}


def test_message_larger_than_a_fetch_is_fetched_with_twice_as_many_bytes(runtime):
    """Until it fits; the next fetch is as small as before."""
    world = FetcherWorld(runtime, fetch_size=30)
    world.brokers[0].logs = {0: (0, messages("x" * 100, "y"))}
    world.take(P0)

    assert world.read() == ["x" * 100, "y"]
    sizes = [part.max_bytes for part in world.brokers[0].requests if hasattr(part, "max_bytes")]
    assert sizes[:4] == [30, 60, 120, 30]


@pytest.mark.parametrize(("reset", "found"), [("smallest", ["a", "b"]), ("largest", ["b"])])
def test_offset_out_of_range_is_reset_by_choice(runtime, reset, found):
    """To the oldest message, or to what comes from now on."""
    world = FetcherWorld(runtime, autooffset_reset=reset)
    world.brokers[0].logs = {0: (500, messages("a"))}
    world.take(P0, at=7)
    texts = world.read()
    world.brokers[0].logs = {0: (500, messages("a", "b"))}

    assert texts + world.read() == found


def test_offset_out_of_range_is_an_error_where_nothing_else_was_chosen(runtime):
    """autooffset.reset=none: the reader hears of it."""
    world = FetcherWorld(runtime, autooffset_reset="none")
    world.brokers[0].logs = {0: (500, messages("a"))}
    world.take(P0, at=7)
    world.runtime.advance(200)

    with pytest.raises(KafkaError) as refused:
        next(world.stream)
    assert refused.value.error is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("damage", [3, 4, 9, 10])
def test_damaged_message_is_an_error_of_the_stream(world, damage):
    """The reader hears of it, and reading continues when it is whole."""
    data = bytearray(messages("a"))
    data[damage] ^= 0x40
    world.brokers[0].logs = {0: (0, bytes(data))}
    world.take(P0)
    world.runtime.advance(200)
    with pytest.raises(KafkaError) as refused:
        next(world.stream)
    assert refused.value.error is ErrorCode.CORRUPT_MESSAGE
    world.brokers[0].logs = {0: (0, messages("a"))}

    assert world.read(2_000) == ["a"]


def test_stream_that_is_full_is_not_fetched_for_until_it_is_read(runtime):
    """queuedchunks.max bounds what waits."""
    world = FetcherWorld(runtime, queuedchunks_max=1, fetch_size=11)
    world.brokers[0].logs = {0: (0, messages(*"abcdef"))}
    world.take(P0)
    world.runtime.advance(1_000)
    count = len(world.brokers[0].requests)
    world.runtime.advance(1_000)
    assert len(world.brokers[0].requests) == count

    assert [world.read() for _ in range(6)] == [[text] for text in "abcdef"]


def test_broker_that_is_gone_is_asked_again_at_its_new_address(world):
    """As ZooKeeper has it; until then others are read."""
    world.brokers[1].logs = {0: (0, messages("c"))}
    world.runtime.network.stop_serving("kafka", 9091)
    world.take(P0, OTHER)
    assert world.read() == ["c"]
    moved = OldBroker(world, 9093)
    moved.logs = {0: (0, messages("a"))}
    world.fetcher.on_brokers({0: Node(0, "kafka", 9093), 1: Node(1, "kafka", 9092)})

    assert world.read(3_000) == ["a"]
    world.fetcher.close()
    moved.logs = {0: (0, messages("a", "b"))}
    assert world.read(3_000) == []


def test_broker_that_has_moved_is_read_at_its_new_address_only(world):
    """From where reading was; the connection to the former address is closed."""
    former, moved = world.brokers[0], OldBroker(world, 9093)
    former.logs = {0: (0, messages("a"))}
    moved.logs = {0: (0, messages("a", "b"))}
    world.take(P0)
    assert world.read() == ["a"]
    world.fetcher.on_brokers({0: Node(0, "kafka", 9093)})

    assert world.read(3_000) == ["b"]
    assert [each.transport.is_closing() for each in former.connections] == [True]
    assert [each.transport.is_closing() for each in moved.connections] == [False]
    world.fetcher.close()
    world.runtime.advance(100)
    assert [each.transport.is_closing() for each in moved.connections] == [True]


def test_partition_that_is_given_up_while_its_offset_is_looked_up_is_not_fetched(world):
    """Another consumer may have it by then; the others of the broker are read."""
    broker = world.brokers[0]
    broker.logs = {0: (0, messages("a")), 1: (0, messages("b"))}
    broker.on_request = lambda: world.fetcher.drop([P0])
    world.take(P0, P1)

    assert world.read() == ["b"]
    assert {each.partition for each in broker.requests if isinstance(each, ToRead)} == {1}


def test_partition_of_the_first_design_is_named_with_its_broker():
    """As text and as a number, in the order of the brokers; -1 is any of a broker's."""
    one = PlacedPartition.of(3, 7)

    assert (f"{one}", one.broker_id, one.number) == ("3-7", 3, 7)
    assert PlacedPartition.of(3, -1).number == -1
    assert PlacedPartition.of(2, 9) < one < PlacedPartition.of(3, 8)
