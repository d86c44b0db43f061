"""Requests of the versions before 0.11, sent as they are: no client of today would."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

from ottla.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ottla.record.memory_records import batches
from ottla.record.record_batch import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.protocol.message import Request, Response

LIMIT_SECONDS = 100


class OldClient:
    """One connection that asks partition 0 of topics."""

    def __init__(self, broker) -> None:
        self.socket = socket.create_connection(("127.0.0.1", broker.port), LIMIT_SECONDS)

    def __enter__(self) -> OldClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, request: Request, version: int) -> Response:
        """Send a request and wait for its answer."""
        self.send(request, version)
        (size,) = struct.unpack(">i", self._receive(4))
        _, response = decode_response(type(request), version, memoryview(self._receive(size)))
        return response

    def send(self, request: Request, version: int) -> None:
        self.socket.sendall(encode_request(version, 1, "old", request))

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            assert piece, "the broker has hung up"
            data += piece
        return data

    def produce(
        self, topic: str, version: int, records: bytes, acks: int = -1
    ) -> PartitionProduceResponse:
        response = self.ask(produce_request(topic, records, acks), version)
        return response.responses[0].partition_responses[0]

    def fetch(
        self, topic: str, version: int, offset: int = 0, max_bytes: int = 1 << 20
    ) -> PartitionData:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=100,
            min_bytes=1,
            topics=[FetchTopic(topic=topic, partitions=[partition])],
        )
        return self.ask(request, version).responses[0].partitions[0]

    def read(self, topic: str, version: int, offset: int = 0, **limits: int) -> list[Record]:
        """Every record from an offset on, fetch by fetch."""
        found: list[Record] = []
        while True:
            data = self.fetch(topic, version, offset, **limits)
            assert data.error_code == 0
            whole = list(batches(bytes(data.records)))
            if not whole:
                return found
            for batch in whole:
                records = [] if batch.is_control else batch.records()
                found += [record for record in records if record.offset >= offset]
            offset = whole[-1].next_offset

    def list_offsets(
        self, topic: str, timestamp: int, max_count: int = 100
    ) -> ListOffsetsPartitionResponse:
        partition = ListOffsetsPartition(
            partition_index=0, timestamp=timestamp, max_num_offsets=max_count
        )
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])]
        )
        return self.ask(request, 0).topics[0].partitions[0]


def produce_request(topic: str, records: bytes, acks: int = -1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=acks,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def without_headers(records: Sequence[Record], magic: int) -> list[Record]:
    """What is left of records in a format."""
    return [
        record._replace(headers=(), timestamp_ms=record.timestamp_ms if magic else -1)
        for record in records
    ]
