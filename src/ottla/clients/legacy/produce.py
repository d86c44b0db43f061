"""Sends messages to a broker: grouped into message sets, encoded as batches, with their outcome.

`MessageSets` are one request's messages by partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, cast

from ottla.clients.legacy.broker_link import BrokerLink
from ottla.clients.legacy.message import Message
from ottla.clients.network_client import response_error
from ottla.errors import ErrorCode, KafkaError
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
from ottla.structs import NO_TIMESTAMP, TopicPartition

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
