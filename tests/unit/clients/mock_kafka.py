"""A cluster of brokers in memory, whose every answer a test decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from ottla.protocol.api_keys import MESSAGES, ApiKey
from ottla.protocol.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from ottla.protocol.group import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.header import decode_request, decode_request_header, encode_response
from ottla.protocol.message import REQUESTS, Request, Response, join, request_class
from ottla.protocol.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.structs import NO_UUID
from ottla.testing import MockRuntime

Answer = Callable[[Any, int], Response | None]
HOST = "mock"
FIRST_PORT = 9000
HANG_UP = object()


class Later(NamedTuple):
    """An answer that takes its time."""

    ms: int
    response: Response


class Held:
    """A request that waits until the test answers it."""

    def __init__(self, request: Any, answer: Callable[[Response], None]) -> None:
        self.request = request
        self.answer = answer


class MockConnection(asyncio.Protocol):
    """One client connection; requests are answered one after the other, as by a real broker."""

    def __init__(self, broker: MockBroker) -> None:
        self.broker = broker
        self.buffer = b""
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.broker.connections.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self.broker.connections:
            self.broker.connections.remove(self)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while len(self.buffer) >= 4:
            size = int.from_bytes(self.buffer[:4], "big")
            if len(self.buffer) < 4 + size:
                return
            frame, self.buffer = self.buffer[4 : 4 + size], self.buffer[4 + size :]
            self.broker.handle(self, frame)


class MockBroker:
    """Answers with what `on` was told for the API, else with the defaults of the cluster."""

    def __init__(self, cluster: MockCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.port = FIRST_PORT + node_id
        self.connections: list[MockConnection] = []
        self.requests: list[tuple[Request, int]] = []
        self.held: list[Held] = []
        self.answers: dict[type[Request], Any] = {
            ApiVersionsRequest: self._api_versions,
            MetadataRequest: self._metadata,
            FindCoordinatorRequest: self._find_coordinator,
        }
        self.versions: dict[int, tuple[int, int]] = {}
        self.start()

    def start(self) -> None:
        self.cluster.runtime.network.serve(HOST, self.port, lambda: MockConnection(self))

    def stop(self) -> None:
        """Refuse connections, and cut those that there are."""
        self.cluster.runtime.network.stop_serving(HOST, self.port)
        for connection in list(self.connections):
            connection.transport.close()

    def on(self, kind: type[Request], *answers: Any) -> None:
        """Answer in turn; the last one stays. An answer is a response, or makes one of
        `(request, version)`; HANG_UP cuts the connection, None does not answer, "hold" waits."""
        script = list(answers)

        def next_answer(request: Any, version: int) -> Any:
            answer = script.pop(0) if len(script) > 1 else script[0]
            return answer(request, version) if callable(answer) else answer

        self.answers[kind] = next_answer

    def sent(self, kind: type[Request]) -> list[Any]:
        """The requests of one kind that came so far."""
        return [request for request, _ in self.requests if isinstance(request, kind)]

    def handle(self, connection: MockConnection, frame: bytes) -> None:
        header, position = decode_request_header(frame)
        request = decode_request(header, frame, position)
        self.requests.append((request, header.api_version))

        def send(response: Response) -> None:
            if isinstance(response, ApiVersionsResponse) and response.error_code:
                header.api_version = 0  # the form that every client can read (KIP-511)
            connection.transport.write(join(encode_response(header, response)))

        answer = self.answers[type(request)](request, header.api_version)
        if answer is HANG_UP:
            connection.transport.close()
        elif answer == "hold":
            self.held.append(Held(request, send))
        elif isinstance(answer, Later):
            self.cluster.runtime.scheduler.call_later(answer.ms, lambda: send(answer.response))
        elif answer is not None:
            send(answer)

    def _api_versions(self, request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
        keys = []
        for api_key in MESSAGES:
            kind = request_class(api_key)
            first, last = self.versions.get(api_key, (kind.min_version, kind.max_version))
            keys.append(ApiVersion(api_key=api_key, min_version=first, max_version=last))
        features = [
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in self.cluster.features.items()
        ]
        return ApiVersionsResponse(api_keys=keys, finalized_features=features)

    def _metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        return self.cluster.metadata(request)

    def _find_coordinator(
        self, request: FindCoordinatorRequest, version: int
    ) -> FindCoordinatorResponse:
        coordinator = self.cluster.brokers[self.cluster.coordinator]
        found = {"node_id": coordinator.node_id, "host": HOST, "port": coordinator.port}
        if version < 4:
            return FindCoordinatorResponse(**found)
        keys = [Coordinator(key=key, **found) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=keys)


class MockCluster:
    """Brokers 0, 1, ... and topics with partitions, led by the brokers in turn unless set."""

    def __init__(self, runtime: MockRuntime, broker_count: int = 1) -> None:
        self.runtime = runtime
        self.brokers = {node_id: MockBroker(self, node_id) for node_id in range(broker_count)}
        self.topics: dict[str, int] = {}
        self.features: dict[str, int] = {}
        self.errors: dict[str, int] = {}
        self.leaders: dict[tuple[str, int], int] = {}
        self.epochs: dict[tuple[str, int], int] = {}
        self.topic_ids: dict[str, UUID] = {}
        self.controller = 0
        self.coordinator = 0

    def __getitem__(self, node_id: int) -> MockBroker:
        return self.brokers[node_id]

    @property
    def bootstrap_servers(self) -> list[str]:
        return [f"{HOST}:{broker.port}" for broker in self.brokers.values()]

    def leader(self, topic: str, partition: int) -> int:
        return self.leaders.get((topic, partition), partition % len(self.brokers))

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        if request.topics is None:
            names = list(self.topics)
        else:
            names = [topic.name or "" for topic in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=b.node_id, host=HOST, port=b.port)
                for b in self.brokers.values()
            ],
            cluster_id="mock-cluster",
            controller_id=self.controller,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.topics:
            return MetadataResponseTopic(name=name, error_code=self.errors.get(name, 3))
        return MetadataResponseTopic(
            name=name,
            topic_id=self.topic_ids.get(name, NO_UUID),
            partitions=[
                MetadataResponsePartition(
                    partition_index=p,
                    leader_id=self.leader(name, p),
                    leader_epoch=self.epochs.get((name, p), 0),
                    replica_nodes=[self.leader(name, p)],
                    isr_nodes=[self.leader(name, p)],
                )
                for p in range(self.topics[name])
            ],
        )


__all__ = ["HANG_UP", "REQUESTS", "ApiKey", "Held", "Later", "MockBroker", "MockCluster"]
