"""`SimpleConsumer`: the low-level consumer of the 0.7 design, which keeps no state anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ottla.clients.client_settings import ClosedOnExit
from ottla.clients.legacy.broker_link import UNKNOWN_ID, BrokerLink, LinkSettings
from ottla.clients.legacy.message import MessageSet
from ottla.clients.network_client import response_error
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.fetch import PartitionData
from ottla.protocol.message import Request, Response
from ottla.runtime.io_thread import MARGIN_MS, IoThread
from ottla.structs import Node, TopicPartition


class FetchRequest(NamedTuple):
    """What to fetch: from which offset on, and how many bytes at most.

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

    Every request has its offset; the broker remembers nothing. Any thread may use it.
    """

    def __init__(
        self,
        host: str,
        port: int,
        so_timeout_ms: int = 30_000,
        buffer_size: int = 65_536,
        *,
        client_id: str = "ottla",
    ) -> None:
        self._timeout_ms = so_timeout_ms
        settings = LinkSettings(
            client_id, so_timeout_ms, so_timeout_ms, receive_buffer_bytes=buffer_size
        )
        self._io = IoThread(f"{client_id}-simple-consumer")
        self._link = BrokerLink(self._io.runtime, Node(UNKNOWN_ID, host, port), settings)

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
                sets[index] = message_set(pending.pop(index), answers.get(partition))
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
        return self._io.run(self._link.send_again(request))

    def close(self) -> None:
        """Close the connection. Closing twice does nothing."""
        self._io.close(self._link.close)


def message_set(request: FetchRequest, data: PartitionData | None) -> MessageSet:
    """The message set of a fetch response."""
    what = f"offset {request.offset} of {request.topic}-{request.partition}"
    if data is None:
        error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: the answer leaves it out")
        return MessageSet(b"", request.offset, error)
    return MessageSet(data.records or b"", request.offset, response_error(data.error_code, what))
