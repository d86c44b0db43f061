"""Requests to one broker, past all proxies and client libraries: who answers, and with what."""

from __future__ import annotations

import socket
import struct
import time
from typing import TYPE_CHECKING, Any

from ottla.protocol.api_versions import ApiVersionsRequest
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.leader_and_isr import LeaderAndIsrRequest
from ottla.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.update_metadata import UpdateMetadataRequest
from ottla.record.batch_builder import build_batch_of_values

if TYPE_CHECKING:
    from ottla.protocol.message import Request

ANSWER_S = 5.0
LIMIT_S = 60.0
ALL = -1
PRODUCE_VERSION, LEADER_AND_ISR_VERSION, UPDATE_METADATA_VERSION = 9, 2, 5
STRANGER = -1
"""A number that no load sends."""


class BrokerConnection:
    """A connection to a broker's port."""

    def __init__(self, port: int, limit_s: float = LIMIT_S) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), limit_s)
        self._asked: tuple[type[Request], int] | None = None

    def __enter__(self) -> BrokerConnection:
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()

    def send(self, request: Request, version: int = PRODUCE_VERSION) -> None:
        """Ask, and do not wait for the answer."""
        self._asked = type(request), version
        self._socket.sendall(encode_request(version, 1, "chaos", request))

    def receive(self) -> Any:
        """The answer to what was asked last."""
        assert self._asked is not None, "nothing was asked"
        kind, version = self._asked
        (size,) = struct.unpack(">i", self._exactly(4))
        return decode_response(kind, version, self._exactly(size))[1]

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            chunk = self._socket.recv(count - len(data))
            assert chunk, "the broker closed the connection"
            data += chunk
        return data

    def ask(self, request: Request, version: int = PRODUCE_VERSION) -> Any:
        self.send(request, version)
        return self.receive()


def produce_request(topic: str, timeout_ms: int = 3000) -> ProduceRequest:
    """One record to partition 0 that all in-sync replicas must have, of no numbered producer."""
    batch = build_batch_of_values([b"%d" % STRANGER], int(time.time() * 1000))
    data = [
        TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    ]
    return ProduceRequest(transactional_id=None, acks=ALL, timeout_ms=timeout_ms, topic_data=data)


def partition_answer(response: Any) -> PartitionProduceResponse:
    """What was said of the only partition."""
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    return partition


def check_answers(port: int) -> None:
    """The broker says within five seconds which versions it has."""
    with BrokerConnection(port, ANSWER_S) as connection:
        assert connection.ask(ApiVersionsRequest(), 0).error_code == 0


def order_errors(
    port: int, controller_id: int, controller_epoch: int, broker_epoch: int
) -> list[int]:
    """What a broker says to a controller of this epoch whose orders ask for nothing."""
    orders = [
        (LEADER_AND_ISR_VERSION, LeaderAndIsrRequest),
        (UPDATE_METADATA_VERSION, UpdateMetadataRequest),
    ]
    with BrokerConnection(port) as connection:
        return [
            connection.ask(
                order(
                    controller_id=controller_id,
                    controller_epoch=controller_epoch,
                    broker_epoch=broker_epoch,
                ),
                version,
            ).error_code
            for version, order in orders
        ]
