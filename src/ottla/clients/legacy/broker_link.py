"""A link to exactly one broker, for the low-level clients of the 0.7 design."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, cast

from ottla.clients.network_client import response_error
from ottla.errors import ErrorCode, KafkaError
from ottla.network.node_connection import HIGHEST_VERSION, NodeConnection
from ottla.protocol.fetch import (
    FIRST_VERSION_OF_CONSUMERS,
    LAST_VERSION_OF_LEADERS,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from ottla.protocol.message import Request, Response
from ottla.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.runtime import Runtime
from ottla.structs import CONSUMER_REPLICA_ID, Node, TopicPartition

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

    async def send_without_response(self, request: Request, *, low: int = 0) -> None:
        """Send a request that has no response: Produce with acks=0."""
        await self._connection.ready()
        version = self._connection.version_of(type(request), low)
        self._connection.send_without_response(request, version)

    async def metadata(self, topic: str, *, may_create: bool = True) -> MetadataResponse:
        """What the broker knows about a topic."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=may_create
        )
        response = await self.send_again(request, low=FIRST_METADATA_VERSION)
        return cast(MetadataResponse, response)

    async def fetch(
        self, wanted: dict[TopicPartition, tuple[int, int]], max_wait_ms: int, min_bytes: int
    ) -> dict[TopicPartition, Any]:
        """Fetch partitions, given by offset and maximum bytes; returns Kafka's PartitionData.

        Only the leader of a partition answers, as it did in the design of 0.7.
        """
        request = FetchRequest(
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
        response = cast(FetchResponse, answer)
        error = response_error(response.error_code, f"fetch from {self.node}")
        if error is not None:
            raise error
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
        response = cast(ListOffsetsResponse, await self.send_again(request, high=0))
        ((answer,),) = (topic.partitions for topic in response.topics)
        error = response_error(answer.error_code, f"offsets of {partition}")
        if error is not None:
            raise error
        return list(answer.old_style_offsets)

    def close(self) -> None:
        self._connection.close("the client is closed")
