"""`SyncProducer`: sends messages to one broker and waits for its response."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.clients.client_settings import ClosedOnExit
from ottla.clients.legacy.broker_link import UNKNOWN_ID, BrokerLink, LinkSettings
from ottla.clients.legacy.message import Message
from ottla.clients.legacy.produce import (
    RANDOM_PARTITION,
    MessageSets,
    Packing,
    ProducerRequest,
    produce,
)
from ottla.errors import ErrorCode, InvalidMetadataError, KafkaError
from ottla.record.compression import CompressionType
from ottla.runtime.io_thread import IoThread
from ottla.structs import Node


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
