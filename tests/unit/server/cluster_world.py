"""Brokers as peers of the one under test: they answer requests on a network in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ottla.config.broker_config import BrokerConfig
from ottla.protocol.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.header import decode_request, decode_request_header, encode_response
from ottla.protocol.message import Request, Response, join, request_class
from ottla.server.broker_connections import BrokerConnections
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import BrokerEndPoints, EndPoint
from ottla.testing import MockRuntime, mock_runtime

PORT = 9092
SELF = 1


class Peer(asyncio.Protocol):
    """One connection to a broker that answers as the test says; None is no answer at all."""

    def __init__(self, world: ClusterWorld, broker_id: int) -> None:
        self.world = world
        self.broker_id = broker_id
        self.buffer = b""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.buffer += data
        while len(self.buffer) >= 4:
            size = int.from_bytes(self.buffer[:4], "big")
            if len(self.buffer) < 4 + size:
                return
            frame = memoryview(self.buffer[4 : 4 + size])
            self.buffer = self.buffer[4 + size :]
            self.handle(frame)

    def handle(self, frame):
        header, position = decode_request_header(frame)
        body = decode_request(header, frame, position)
        answer = self.world.answer_of(self.broker_id, body)
        if answer is None:
            self.transport.close()
        elif isinstance(body, ApiVersionsRequest):
            self.send(header, answer)
        else:
            delay_ms = self.world.delays_ms.get(self.broker_id, 0)
            scheduler = self.world.runtime.scheduler
            scheduler.call_later(delay_ms, lambda: self.send(header, answer))

    def send(self, header, answer):
        self.transport.write(join(encode_response(header, answer)))


class ClusterWorld:
    """Broker 1 is under test; others live as soon as they are served."""

    def __init__(self) -> None:
        self.runtime: MockRuntime = mock_runtime()
        self.config = BrokerConfig.parse({"zookeeper.connect": "here:2181"})
        self.cache = MetadataCache("cluster")
        self.connections = BrokerConnections(self.runtime, self.config, self.cache, SELF)
        self.asked: list[tuple[int, Request]] = []
        self.answers: dict[type[Request], Callable[[int, Request], Response | None]] = {}
        self.delays_ms: dict[int, int] = {}

    def broker(self, broker_id: int, epoch: int = 1) -> BrokerEndPoints:
        end_point = EndPoint("PLAINTEXT", "PLAINTEXT", f"host-{broker_id}", PORT)
        return BrokerEndPoints(broker_id, epoch, (end_point,))

    def serve(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.runtime.network.serve(
                f"host-{broker_id}", PORT, lambda broker_id=broker_id: Peer(self, broker_id)
            )

    def answer_of(self, broker_id: int, body: Request) -> Response | None:
        if isinstance(body, ApiVersionsRequest):
            keys = [
                ApiVersion(api_key=key, min_version=cls.min_version, max_version=cls.max_version)
                for key in (4, 5, 6, 7, 10, 19, 24, 27, 56)
                for cls in (request_class(key),)
            ]
            return ApiVersionsResponse(api_keys=keys)
        self.asked.append((broker_id, body))
        return self.answers[type(body)](broker_id, body)

    def advance(self, ms: int = 0) -> None:
        self.runtime.advance(ms)
