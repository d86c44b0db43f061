"""Small requests a second: Produce of 100 B and Metadata, without a login and with one; Produce and
Fetch of 100 B where ACLs are asked as well.

The load is raw frames over blocking sockets, several in the air for each connection, so that the
client costs little. The peer is the same load against an echo of frames on plain asyncio.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import re
import socket
import statistics
import struct
import tempfile
import time
from pathlib import Path

import ottla
from ottla.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.header import encode_request
from ottla.protocol.message import Request
from ottla.protocol.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.record.batch_builder import BatchBuilder
from ottla.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePattern,
    ResourceType,
)
from ottla.testing.processes import BrokerProcess

CONNECTIONS = 8
DEPTH = 8
REQUESTS = 200_000
RUNS = 3
LOGIN_RUNS = 5


def produce_request(acks: int = 1) -> Request:
    builder = BatchBuilder()
    builder.append(int(time.time() * 1000), None, bytes(100))
    data = PartitionProduceData(index=0, records=builder.build())
    topic = TopicProduceData(name="requests", partition_data=[data])
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[topic])


def fetch_request() -> Request:
    """For the first batch of the topic."""
    partition = FetchPartition(partition=0, partition_max_bytes=100)
    topic = FetchTopic(topic="requests", partitions=[partition])
    return FetchRequest(max_bytes=100, session_epoch=-1, topics=[topic])


def frame(request: Request, version: int) -> bytes:
    return encode_request(version, 1, "bench", request)


LOGIN = (
    frame(SaslHandshakeRequest(mechanism="PLAIN"), 1),
    frame(SaslAuthenticateRequest(auth_bytes=b"\0bench\0secret"), 1),
)
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_bench="secret";'
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0,SESSIONS://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,"
    "SESSIONS:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": JAAS,
    "listener.name.sessions.plain.sasl.jaas.config": JAAS,
    "listener.name.sessions.connections.max.reauth.ms": "3600000",
}
"""SESSIONS looks at each request, as the sessions of its clients end."""


def receive(connection: socket.socket) -> bytes:
    """The next answer, without its size."""
    (length,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
    return connection.recv(length, socket.MSG_WAITALL)


def load(
    address: tuple[str, int], request: bytes, count: int, login: tuple[bytes, ...] = ()
) -> float:
    """Requests a second, `DEPTH` in the air on each of `CONNECTIONS` sockets."""
    sockets = [socket.create_connection(address) for _ in range(CONNECTIONS)]
    for connection in sockets:
        for step in login:
            connection.sendall(step)
            receive(connection)
    burst = request * DEPTH
    size = None
    for connection in sockets:
        connection.sendall(request)
        size = len(receive(connection)) + 4
    assert size is not None
    turns = count // (CONNECTIONS * DEPTH)
    start = time.perf_counter()
    for connection in sockets:
        connection.sendall(burst)
    for turn in range(turns):
        for connection in sockets:
            connection.recv(size * DEPTH, socket.MSG_WAITALL)
            if turn < turns - 1:
                connection.sendall(burst)
    elapsed = time.perf_counter() - start
    for connection in sockets:
        connection.close()
    return turns * CONNECTIONS * DEPTH / elapsed


class Echo(asyncio.Protocol):
    """Answers each frame with a frame of 40 bytes and does nothing else."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.buffer = bytearray()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while len(self.buffer) >= 4:
            (length,) = struct.unpack_from(">i", self.buffer)
            if len(self.buffer) < 4 + length:
                return
            del self.buffer[: 4 + length]
            self.transport.write(struct.pack(">i", 36) + bytes(36))


def serve_echo(port: multiprocessing.Queue[int]) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
        port.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


def echo_rate(request: bytes) -> float:
    queue: multiprocessing.Queue[int] = multiprocessing.Queue()
    process = multiprocessing.Process(target=serve_echo, args=(queue,), daemon=True)
    process.start()
    address = ("127.0.0.1", queue.get())
    rate = statistics.median(load(address, request, REQUESTS) for _ in range(RUNS))
    process.terminate()
    process.join()
    return rate


class SaslBroker(BrokerProcess):
    """One that has a listener without a login and two with one."""

    ports: dict[str, int]

    def take(self, ready: re.Match[str]) -> None:
        super().take(ready)
        found = re.findall(r"(\w+)://[^:]+:(\d+)", ready[1])
        self.ports = {name: int(port) for name, port in found}
        self.port = self.ports["PLAINTEXT"]


def compare_logins(broker: SaslBroker, request: bytes) -> None:
    """The same load on each listener in turn, so that all meet the same machine."""
    rates: dict[str, list[float]] = {name: [] for name in broker.ports}
    for _ in range(LOGIN_RUNS):
        for name, port in broker.ports.items():
            login = () if name == "PLAINTEXT" else LOGIN
            rates[name].append(load(("127.0.0.1", port), request, REQUESTS // 4, login))
    plain = statistics.median(rates["PLAINTEXT"])
    for name, measured in rates.items():
        rate = statistics.median(measured)
        print(f"Produce on {name:<32} {rate:10,.0f} requests/s   {rate / plain:.2f} of PLAINTEXT")


RIGHTS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""On the listener without a login is who gives the other its rights."""


def compare_rights(folder: Path) -> None:
    """Two brokers in turn: one serves everybody, one asks for a login and for a right."""
    open_broker = SaslBroker(folder / "open", **SETTINGS).start()
    guarded = SaslBroker(folder / "guarded", **SETTINGS | RIGHTS).start()
    try:
        for broker in (open_broker, guarded):
            with ottla.Admin(broker.bootstrap_servers) as admin:
                admin.create_topics([ottla.NewTopic("requests", 1, 1)])
        with ottla.Admin(guarded.bootstrap_servers) as rights:
            rights.create_acls(
                [
                    AclBinding(
                        ResourcePattern(ResourceType.TOPIC, "requests"),
                        AccessControlEntry("User:bench", "*", operation, AclPermissionType.ALLOW),
                    )
                    for operation in (AclOperation.WRITE, AclOperation.READ)
                ]
            )
        sides = (
            (("127.0.0.1", open_broker.ports["PLAINTEXT"]), ()),
            (("127.0.0.1", guarded.ports["SASL"]), LOGIN),
        )
        for name, request in (
            ("Produce", frame(produce_request(), 9)),
            ("Fetch", frame(fetch_request(), 11)),
        ):
            rates: list[list[float]] = [[], []]
            for _ in range(LOGIN_RUNS):
                for measured, (address, login) in zip(rates, sides, strict=True):
                    measured.append(load(address, request, REQUESTS // 4, login))
            plain, asked = map(statistics.median, rates)
            label = f"{name} with SASL_PLAINTEXT and ACLs"
            print(f"{label:<43} {asked:10,.0f} requests/s   {asked / plain:.2f} of those without")
    finally:
        open_broker.stop()
        guarded.stop()


def main() -> None:
    produce = frame(produce_request(), 9)
    metadata = frame(MetadataRequest(topics=[MetadataRequestTopic(name="requests")]), 9)
    peer = echo_rate(produce)
    print(f"{CONNECTIONS} connections, {DEPTH} requests in the air on each, medians of {RUNS}")
    print(f"echo of the produce frame on plain asyncio  {peer:10,.0f} requests/s")
    with tempfile.TemporaryDirectory() as folder:
        broker = SaslBroker(Path(folder) / "data", **SETTINGS).start()
        try:
            with ottla.Admin(broker.bootstrap_servers) as admin:
                admin.create_topics([ottla.NewTopic("requests", 1, 1)])
            address = ("127.0.0.1", broker.port)
            for name, request in (("Produce v9 of 100 B", produce), ("Metadata v9", metadata)):
                rate = statistics.median(load(address, request, REQUESTS) for _ in range(RUNS))
                print(f"{name:<43} {rate:10,.0f} requests/s   {rate / peer:.2f} of the echo")
            compare_logins(broker, produce)
        finally:
            broker.stop()
        compare_rights(Path(folder))


if __name__ == "__main__":
    main()
