"""The clients of the 0.7 design that talk to exactly one broker: `SimpleConsumer`, `SyncProducer`.

Both have a link to their broker. `MessageSets` are the messages of one produce request by
partition, which are encoded as batches.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from ottla.clients.answers import only
from ottla.clients.client_settings import ClosedOnExit
from ottla.clients.legacy.first_design_link import FirstDesignLink, PositionalMessageSet
from ottla.clients.legacy.message import Message, MessageSet
from ottla.clients.network_client import check_code, response_error
from ottla.config.legacy_config import is_first_design
from ottla.errors import ErrorCode, InvalidMetadataError, KafkaError
from ottla.network.node_connection import HIGHEST_VERSION, NodeConnection
from ottla.protocol.fetch import (
    FIRST_VERSION_OF_CONSUMERS,
    LAST_VERSION_OF_LEADERS,
    FetchPartition,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.protocol.fetch import FetchRequest as ProtocolFetchRequest
from ottla.protocol.first_design import RANDOM_PARTITION
from ottla.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.produce import (
    FIRST_VERSION_WITH_BATCHES,
    FIRST_VERSION_WITH_IDS,
    FIRST_VERSION_WITH_ZSTD,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType
from ottla.runtime.io_thread import MARGIN_MS, IoThread
from ottla.structs import CONSUMER_REPLICA_ID, NO_TIMESTAMP, NamedTuple, Node, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ottla.protocol.message import Request, Response
    from ottla.runtime import Runtime

FIRST_METADATA_VERSION: Final = 4
UNKNOWN_ID: Final = -1
"""The id of a broker that is known by its address alone."""


class LinkSettings(NamedTuple):
    """Settings of the connection to a broker: client id, timeouts, socket buffers, backoff."""

    client_id: str = "ottla"
    request_timeout_ms: int = 30_000
    socket_connection_setup_timeout_ms: int = 10_000
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000


class BrokerLink:
    """A connection to one broker, opened when it is needed and reopened after it broke."""

    def __init__(self, runtime: Runtime, node: Node, settings: LinkSettings) -> None:
        self.node = node
        self.settings = settings
        self._connection = NodeConnection(runtime, settings, node)

    async def send(
        self, request: Request, *, low: int = 0, high: int = HIGHEST_VERSION, wait_ms: int = 0
    ) -> Response:
        """Send once; the broker may delay its response by up to `wait_ms`."""
        await self._connection.ready()
        version = self._connection.version_of(type(request), low, high)
        timeout_ms = self.settings.request_timeout_ms + wait_ms
        return await self._connection.send(request, version, timeout_ms)

    async def send_again(
        self, request: Request, *, low: int = 0, high: int = HIGHEST_VERSION, wait_ms: int = 0
    ) -> Response:
        """Like `send`, with one more try on a new connection if the old one is broken."""
        was_open = self._connection.is_ready
        try:
            return await self.send(request, low=low, high=high, wait_ms=wait_ms)
        except KafkaError as error:
            if not was_open or error.error is not ErrorCode.NETWORK_EXCEPTION:
                raise
            return await self.send(request, low=low, high=high, wait_ms=wait_ms)

    async def send_without_response(
        self, request: Request, *, low: int = 0, high: int = HIGHEST_VERSION
    ) -> None:
        """Send a request that has no response, Produce with acks=0, and see it written."""
        await self._connection.ready()
        version = self._connection.version_of(type(request), low, high)
        limit_ms = self.settings.request_timeout_ms
        written = self._connection.send_without_response(request, version, limit_ms)
        if written is not None:
            await asyncio.shield(written)

    async def metadata(self, topic: str, *, may_create: bool = True) -> MetadataResponse:
        """The metadata of a topic, as a broker has them."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=may_create
        )
        response = await self.send_again(request, low=FIRST_METADATA_VERSION)
        return cast("MetadataResponse", response)

    async def fetch(
        self, wanted: dict[TopicPartition, tuple[int, int]], max_wait_ms: int, min_bytes: int
    ) -> dict[TopicPartition, Any]:
        """Fetch partitions, given by offset and maximum bytes; returns Kafka's PartitionData.

        Only the leader of a partition answers, as it did in the design of 0.7.
        """
        request = ProtocolFetchRequest(
            replica_id=CONSUMER_REPLICA_ID,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=sum(max_size for _, max_size in wanted.values()),
        )
        topics: dict[str, FetchTopic] = {}
        for (topic, partition), (offset, max_size) in wanted.items():
            if topic not in topics:
                topics[topic] = FetchTopic(topic=topic)
                request.topics.append(topics[topic])
            topics[topic].partitions.append(
                FetchPartition(
                    partition=partition, fetch_offset=offset, partition_max_bytes=max_size
                )
            )
        answer = await self.send_again(
            request,
            low=FIRST_VERSION_OF_CONSUMERS,
            high=LAST_VERSION_OF_LEADERS,
            wait_ms=max_wait_ms,
        )
        response = cast("FetchResponse", answer)
        check_code(response.error_code, f"fetch from {self.node}")
        return {
            TopicPartition(topic.topic, data.partition_index): data
            for topic in response.responses
            for data in topic.partitions
        }

    async def offsets_before(
        self, partition: TopicPartition, time_ms: int, max_offsets: int
    ) -> list[int]:
        """The start offsets of the segments that were begun before a time, newest first."""
        entry = ListOffsetsPartition(
            partition_index=partition.partition, timestamp=time_ms, max_num_offsets=max_offsets
        )
        topic = ListOffsetsTopic(name=partition.topic, partitions=[entry])
        request = ListOffsetsRequest(replica_id=CONSUMER_REPLICA_ID, topics=[topic])
        response = cast("ListOffsetsResponse", await self.send_again(request, high=0))
        answer = only([p for topic in response.topics for p in topic.partitions], partition)
        check_code(answer.error_code, f"offsets of {partition}")
        return list(answer.old_style_offsets)

    def close(self) -> None:
        self._connection.close("the client is closed")


Link = BrokerLink | FirstDesignLink


def new_link(runtime: Runtime, node: Node, settings: LinkSettings, version: str) -> Link:
    """A link to a broker of this version; brokers of today have all versions but that of 0.7."""
    kind = FirstDesignLink if is_first_design(version) else BrokerLink
    return kind(runtime, node, settings)


class FetchRequest(NamedTuple):
    """The request for a partition: from which offset on, and how many bytes at most.

    A larger batch of messages is returned all the same, if it is the first one.
    """

    topic: str
    partition: int
    offset: int
    max_size: int = 1048576


class OffsetRequest:
    """The special times that stand for the two ends of a partition."""

    LATEST_TIME: Final = -1
    EARLIEST_TIME: Final = -2


class MultiFetchResponse(tuple[MessageSet, ...]):
    """The message sets of several fetches, in the order of the requests."""

    __slots__ = ()


class SimpleConsumer(ClosedOnExit):
    """Fetches messages from one broker, which must lead the partitions that it is asked for.

        with SimpleConsumer("localhost", 9092) as consumer:
            for message, offset in consumer.fetch(FetchRequest("pages", 0, 0)):
                ...

    Every request has its offset; the broker remembers nothing. Any thread may use it. With
    `broker_version="0.7"` the broker is one of the first design: offsets are positions of bytes.
    """

    def __init__(
        self,
        host: str,
        port: int,
        so_timeout_ms: int = 30_000,
        buffer_size: int = 65_536,
        *,
        client_id: str = "ottla",
        broker_version: str = "",
    ) -> None:
        self._timeout_ms = so_timeout_ms
        settings = LinkSettings(
            client_id, so_timeout_ms, so_timeout_ms, receive_buffer_bytes=buffer_size
        )
        self._new_message_set = (
            PositionalMessageSet if is_first_design(broker_version) else MessageSet
        )
        self._io = IoThread(f"{client_id}-simple-consumer")
        node = Node(UNKNOWN_ID, host, port)
        self._link = new_link(self._io.runtime, node, settings, broker_version)

    def fetch(
        self, request: FetchRequest, *, max_wait_ms: int = 0, min_bytes: int = 0
    ) -> MessageSet:
        """The messages from an offset on; none at the end of the partition.

        With `max_wait_ms` and `min_bytes` the broker waits for messages.
        """
        return self.multifetch([request], max_wait_ms=max_wait_ms, min_bytes=min_bytes)[0]

    def multifetch(
        self, requests: Sequence[FetchRequest], *, max_wait_ms: int = 0, min_bytes: int = 0
    ) -> MultiFetchResponse:
        """Several fetches at once. A set whose fetch was refused raises its error when read."""
        sets: dict[int, MessageSet] = {}
        pending = dict(enumerate(requests))
        while pending:
            # A request may have each partition only once; further fetches are sent after it.
            once: dict[TopicPartition, int] = {}
            for index, request in pending.items():
                once.setdefault(TopicPartition(request.topic, request.partition), index)
            wanted = {p: (pending[i].offset, pending[i].max_size) for p, i in once.items()}
            answers = self._io.run(
                self._link.fetch(wanted, max_wait_ms, min_bytes),
                2 * (self._timeout_ms + max_wait_ms) + MARGIN_MS,
            )
            for partition, index in once.items():
                sets[index] = message_set(
                    pending.pop(index), answers.get(partition), self._new_message_set
                )
        return MultiFetchResponse(sets[index] for index in range(len(requests)))

    def get_offsets_before(
        self, topic: str, partition: int, time: int, max_offsets: int
    ) -> list[int]:
        """Offsets at which reading may begin, in descending order.

        For OffsetRequest.LATEST_TIME (-1) the end of the partition and the starts of its segments,
        for EARLIEST_TIME (-2) its first offset, for milliseconds since 1970 the starts of those
        segments that are not younger.
        """
        wanted = TopicPartition(topic, partition)
        return self._io.run(self._link.offsets_before(wanted, time, max_offsets))

    def send(self, request: Request) -> Response:
        """Send any request of the protocol, such as Metadata to find a partition's leader."""
        if isinstance(self._link, FirstDesignLink):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"0.7 has no {type(request).__name__}")
        return self._io.run(self._link.send_again(request))

    def close(self) -> None:
        """Close the connection. Closing twice does nothing."""
        self._io.close(self._link.close)


def message_set(
    request: FetchRequest, data: PartitionData | None, new: type[MessageSet] = MessageSet
) -> MessageSet:
    """The message set of a fetch response."""
    what = f"offset {request.offset} of {request.topic}-{request.partition}"
    if data is None:
        error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: the answer leaves it out")
        return new(b"", request.offset, error)
    return new(data.records or b"", request.offset, response_error(data.error_code, what))


RECORD_OVERHEAD: Final = 36


class ProducerRequest(NamedTuple):
    """Messages for one partition; -1 stands for any partition that the broker leads."""

    topic: str
    partition: int
    messages: Sequence[Message]


class Packing(NamedTuple):
    """How messages are packed into batches, and the acks that they need."""

    acks: int = 1
    timeout_ms: int = 30_000
    max_message_size: int = 1_000_000
    codec: CompressionType = CompressionType.NONE
    compressed_topics: frozenset[str] = frozenset()

    def codec_of(self, topic: str) -> CompressionType:
        """The codec for a topic; if no topics are named it applies to all."""
        if not self.compressed_topics or topic in self.compressed_topics:
            return self.codec
        return CompressionType.NONE

    def check(self, topic: str, messages: Iterable[Message]) -> None:
        """Refuse a message that is too large, before anything is sent."""
        for message in messages:
            if message.size > self.max_message_size:
                raise KafkaError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"a message of {message.size} bytes for topic {topic} is larger than "
                    f"max.message.size={self.max_message_size}",
                )

    def message_sets(
        self, requests: Iterable[ProducerRequest], any_partition: Callable[[str], int]
    ) -> Iterator[MessageSets]:
        """Check the messages, choose missing partitions, and pack the messages into requests."""
        placed = []
        for request in requests:
            self.check(request.topic, request.messages)
            if request.partition == RANDOM_PARTITION:
                request = request._replace(partition=any_partition(request.topic))
            placed.append(request)
        return message_sets(placed, self.max_message_size)


MessageSets = dict[TopicPartition, list[Message]]
Outcome = dict[TopicPartition, KafkaError | None]


def message_sets(requests: Iterable[ProducerRequest], max_bytes: int) -> Iterator[MessageSets]:
    """Pack the messages into requests with at most one batch, of `max_bytes`, per partition.

    A partition's messages stay in order, from one request to the next.
    """
    queues: MessageSets = {}
    for topic, partition, messages in requests:
        queues.setdefault(TopicPartition(topic, partition), []).extend(messages)
    while queues:
        sets: MessageSets = {}
        for partition_, queue in queues.items():
            count = max(1, _fitting(queue, max_bytes))
            sets[partition_] = queue[:count]
            del queue[:count]
        queues = {p: queue for p, queue in queues.items() if queue}
        yield sets


def _fitting(messages: Sequence[Message], max_bytes: int) -> int:
    """How many of the first messages together have at most `max_bytes`."""
    size = 0
    for count, message in enumerate(messages):
        size += message.size + RECORD_OVERHEAD
        if size > max_bytes:
            return count
    return len(messages)


async def produce(
    link: Link, sets: MessageSets, packing: Packing, now_ms: Callable[[], int]
) -> Outcome:
    """Send one request; the result has None or an error for each partition."""
    if isinstance(link, FirstDesignLink):
        await link.produce(sets, packing.codec_of, packing.acks)
        return dict.fromkeys(sets)
    request = ProduceRequest(acks=packing.acks, timeout_ms=packing.timeout_ms)
    topics: dict[str, TopicProduceData] = {}
    low = FIRST_VERSION_WITH_BATCHES
    for (topic, partition), messages in sets.items():
        if topic not in topics:
            topics[topic] = TopicProduceData(name=topic)
            request.topic_data.append(topics[topic])
        codec = packing.codec_of(topic)
        if codec is CompressionType.ZSTD:
            low = FIRST_VERSION_WITH_ZSTD
        data = PartitionProduceData(index=partition, records=_batch(messages, codec, now_ms()))
        topics[topic].partition_data.append(data)
    high = FIRST_VERSION_WITH_IDS - 1
    if not packing.acks:
        await link.send_without_response(request, low=low, high=high)
        return dict.fromkeys(sets)
    response = cast(
        "ProduceResponse", await link.send(request, low=low, high=high, wait_ms=packing.timeout_ms)
    )
    return {
        TopicPartition(topic.name, data.index): response_error(
            data.error_code, f"{topic.name}-{data.index} at {link.node}", data.error_message
        )
        for topic in response.responses
        for data in topic.partition_responses
    }


def _batch(messages: Sequence[Message], codec: CompressionType, now_ms: int) -> bytes:
    records = [
        (now_ms if m.timestamp_ms == NO_TIMESTAMP else m.timestamp_ms, m.key, m.payload, ())
        for m in messages
    ]
    return build_batch(records, codec)


class SyncProducer(ClosedOnExit):
    """A producer for one broker, which must lead the partitions that it is given messages for.

        with SyncProducer("localhost", 9092) as producer:
            producer.send("pages", [Message(b"/index.html")], partition=0)

    Errors of the broker are raised; nothing is sent twice. Any thread may use it. With
    `broker_version="0.7"` the broker is one of the first design, which chooses missing partitions.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        socket_timeout_ms: int = 30_000,
        acks: int = 1,
        compression: str = "none",
        client_id: str = "ottla",
        broker_version: str = "",
    ) -> None:
        self._packing = Packing(acks, socket_timeout_ms, codec=CompressionType.of(compression))
        settings = LinkSettings(client_id, socket_timeout_ms, socket_timeout_ms)
        self._io = IoThread(f"{client_id}-sync-producer")
        node = Node(UNKNOWN_ID, host, port)
        self._link = new_link(self._io.runtime, node, settings, broker_version)

    def send(
        self, topic: str, messages: Sequence[Message], partition: int = RANDOM_PARTITION
    ) -> None:
        """Send messages to a partition; to any that the broker leads if none is named."""
        self.multi_send([ProducerRequest(topic, partition, messages)])

    def multi_send(self, requests: Sequence[ProducerRequest]) -> None:
        """Send messages to several partitions in one request; the first error is raised."""

        def any_partition(topic: str) -> int:
            if isinstance(self._link, FirstDesignLink):
                return RANDOM_PARTITION
            return self._io.run(self._any_partition(self._link, topic))

        for sets in self._packing.message_sets(requests, any_partition):
            self._io.run(self._send(sets))

    def close(self) -> None:
        """Close the connection. Closing twice does nothing."""
        self._io.close(self._link.close)

    async def _send(self, sets: MessageSets) -> None:
        link, now_ms = self._link, self._io.runtime.clock.now_ms
        outcome = await produce(link, sets, self._packing, now_ms)
        unknown = [p for p, error in outcome.items() if error is not None and _is_unknown(error)]
        if unknown and isinstance(link, BrokerLink):
            # Nothing was appended there; a metadata request creates the topic, as sends did in 0.7.
            for topic in {partition.topic for partition in unknown}:
                await link.metadata(topic)
            again = {partition: sets[partition] for partition in unknown}
            outcome |= await produce(link, again, self._packing, now_ms)
        for error in outcome.values():
            if error is not None:
                raise error

    async def _any_partition(self, link: BrokerLink, topic: str) -> int:
        """One of the partitions that this broker leads, by its own metadata."""
        response = await link.metadata(topic)
        answer = only(response.topics, f"topic {topic}")
        check_code(answer.error_code, f"topic {topic}")
        here = {n.node_id for n in response.brokers if (n.host, n.port) == link.node[1:3]}
        if not here and len(response.brokers) == 1:
            here = {response.brokers[0].node_id}
        led = [p.partition_index for p in answer.partitions if p.leader_id in here]
        if not led:
            raise InvalidMetadataError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"{link.node} leads no partition of {topic}"
            )
        return self._io.runtime.random.choice(led)


def _is_unknown(error: KafkaError) -> bool:
    return error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
