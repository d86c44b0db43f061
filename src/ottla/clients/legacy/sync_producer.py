"""`SyncProducer`: sends messages to one broker and waits for its response.

`MessageSets` are one request's messages by partition, which are encoded as batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, cast

from ottla.clients.client_settings import ClosedOnExit
from ottla.clients.legacy.broker_link import UNKNOWN_ID, BrokerLink, LinkSettings
from ottla.clients.legacy.message import Message
from ottla.clients.network_client import response_error
from ottla.errors import ErrorCode, InvalidMetadataError, KafkaError
from ottla.protocol.produce import (
    FIRST_VERSION_WITH_BATCHES,
    FIRST_VERSION_WITH_ZSTD,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType
from ottla.runtime.io_thread import IoThread
from ottla.structs import NO_TIMESTAMP, Node, TopicPartition

RANDOM_PARTITION: Final = -1
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
    link: BrokerLink, sets: MessageSets, packing: Packing, now_ms: Callable[[], int]
) -> Outcome:
    """Send one request; the result has None or an error for each partition."""
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
    if not packing.acks:
        await link.send_without_response(request, low=low)
        return dict.fromkeys(sets)
    response = cast(ProduceResponse, await link.send(request, low=low, wait_ms=packing.timeout_ms))
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

    Errors of the broker are raised; nothing is sent twice. Any thread may use it.
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
    ) -> None:
        self._packing = Packing(acks, socket_timeout_ms, codec=CompressionType.of(compression))
        settings = LinkSettings(client_id, socket_timeout_ms, socket_timeout_ms)
        self._io = IoThread(f"{client_id}-sync-producer")
        self._link = BrokerLink(self._io.runtime, Node(UNKNOWN_ID, host, port), settings)

    def send(
        self, topic: str, messages: Sequence[Message], partition: int = RANDOM_PARTITION
    ) -> None:
        """Send messages to a partition; to any that the broker leads if none is named."""
        self.multi_send([ProducerRequest(topic, partition, messages)])

    def multi_send(self, requests: Sequence[ProducerRequest]) -> None:
        """Send messages to several partitions in one request; the first error is raised."""

        def any_partition(topic: str) -> int:
            return self._io.run(self._any_partition(topic))

        for sets in self._packing.message_sets(requests, any_partition):
            self._io.run(self._send(sets))

    def close(self) -> None:
        """Close the connection. Closing twice does nothing."""
        self._io.close(self._link.close)

    async def _send(self, sets: MessageSets) -> None:
        now_ms = self._io.runtime.clock.now_ms
        outcome = await produce(self._link, sets, self._packing, now_ms)
        unknown = [p for p, error in outcome.items() if error is not None and _is_unknown(error)]
        if unknown:
            # Nothing was appended there; a metadata request creates the topic, as sends did in 0.7.
            for topic in {partition.topic for partition in unknown}:
                await self._link.metadata(topic)
            again = {partition: sets[partition] for partition in unknown}
            outcome |= await produce(self._link, again, self._packing, now_ms)
        for error in outcome.values():
            if error is not None:
                raise error

    async def _any_partition(self, topic: str) -> int:
        """One of the partitions that this broker leads, by its own metadata."""
        response = await self._link.metadata(topic)
        (answer,) = response.topics
        error = ErrorCode.of(answer.error_code)
        if error is not ErrorCode.NONE:
            raise KafkaError.of(error, f"topic {topic}: {error.sentence}")
        here = {n.node_id for n in response.brokers if (n.host, n.port) == self._link.node[1:3]}
        if not here and len(response.brokers) == 1:
            here = {response.brokers[0].node_id}
        led = [p.partition_index for p in answer.partitions if p.leader_id in here]
        if not led:
            raise InvalidMetadataError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"{self._link.node} leads no partition of {topic}"
            )
        return self._io.runtime.random.choice(led)


def _is_unknown(error: KafkaError) -> bool:
    return error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
