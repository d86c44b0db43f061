"""Hostile requests: how long another client waits meanwhile, and the memory that they take.

The promise beside which the numbers stand: no request holds the loop for more than 50 ms, or memory
of more than four times its bytes and 16 MB. What another client sees is the longest of its small
requests, one after the other, while the hostile one is served; the first row is of one alone.
Memory is what the broker's peak rises by (VmHWM, which begins anew with each row).
"""

from __future__ import annotations

import socket
import struct
import tempfile
import threading
import time
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crc32c import crc32c

from ottla.protocol.api_versions import ApiVersionsRequest
from ottla.protocol.configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.consumer_group import ConsumerGroupHeartbeatRequest
from ottla.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.group import DescribeGroupsRequest, FindCoordinatorRequest
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from ottla.protocol.transactions import (
    ListTransactionsRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType
from ottla.testing.processes import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ottla.protocol.message import Request

PROMISE_MS, PROMISE_FACTOR, PROMISE_MB = 50, 4, 16
NAMES = 20_000
PARTITIONS = 300
BIG = 2_000
TIMEOUT_S = 60
QUIET_S = 0.3


class Client:
    """One connection; requests are answered, or the connection is closed."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)

    def ask(self, frames: bytes) -> bytes:
        """Send requests at once, and receive their answers; returns the last of these."""
        self.socket.sendall(frames)
        position, answer = 0, b""
        while position < len(frames):
            (size,) = struct.unpack(">i", self._receive(4))
            answer = self._receive(size)
            position += 4 + int.from_bytes(frames[position : position + 4])
        return answer

    def _receive(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            data = self.socket.recv(min(1 << 20, count - len(found)))
            if not data:
                raise ConnectionError("closed")
            found += data
        return bytes(found)


@contextmanager
def others_wait(port: int) -> Iterator[list[float]]:
    """The seconds that each small request of another client takes meanwhile."""
    frame = encode_request(0, 1, "other", ApiVersionsRequest())
    client, waits, is_over = Client(port), [], threading.Event()

    def run() -> None:
        while not is_over.is_set():
            began = time.perf_counter()
            client.ask(frame)
            waits.append(time.perf_counter() - began)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield waits
    finally:
        is_over.set()
        thread.join()
        client.socket.close()


def peak_mb(pid: int) -> float:
    """The most memory since `begin_peak`."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise LookupError("VmHWM")


def begin_peak(pid: int) -> None:
    """The peak is what is used now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def bomb() -> bytes:
    """A batch of 66 kB that unpacks to 65 MB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = packer.compress(bytes(65 << 20)) + packer.flush()
    now_ms, count = int(time.time() * 1000), 1_000_000
    tail = struct.pack(">hiqqqhii", 1, count - 1, now_ms, now_ms, -1, -1, -1, count) + packed
    return struct.pack(">qiibI", 0, 9 + len(tail), -1, 2, crc32c(tail)) + tail


def produce(count: int, records: bytes) -> ProduceRequest:
    rows = [PartitionProduceData(index=n, records=records) for n in range(count)]
    topics = [TopicProduceData(name="t", partition_data=rows)]
    return ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics)


def nested_pattern(depth: int) -> str:
    text = "a?"
    for _ in range(depth):
        text = f"(?:{text}){{32}}"
    return text


def tiny_elements(count: int) -> bytes:
    """An OffsetFetch v8 of one group with so many topics of three bytes."""
    number, varint = count + 1, bytearray()
    while number > 127:
        varint.append(number & 127 | 128)
        number >>= 7
    varint.append(number)
    topics = bytes(varint) + b"\1\1\0" * count
    frame = struct.pack(">hhih", 9, 8, 1, -1) + b"\0\2\2g" + topics + b"\0\0\0"
    return struct.pack(">i", len(frame)) + frame


def joining(**subscription: object) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="c",
        member_id="m",
        rebalance_timeout_ms=30_000,
        topic_partitions=[],
        **subscription,
    )


def cases() -> Iterator[tuple[str, Callable[[], bytes]]]:
    """The hostile requests by their names; each is made when it is its turn."""

    def of(request: Request, version: int) -> Callable[[], bytes]:
        return lambda: encode_request(version, 1, "hostile", request)

    names = [f"n{number}" for number in range(NAMES)]
    partitions = range(NAMES)
    wanted = [FetchPartition(partition=n, partition_max_bytes=1) for n in range(5000)]
    offsets = [ListOffsetsPartition(partition_index=n, timestamp=-1) for n in partitions]
    commits = [OffsetCommitRequestPartition(partition_index=n) for n in range(10_000)]
    markers = [WritableTxnMarkerTopic(name="t", partition_indexes=list(range(NAMES)))]
    now_ms = int(time.time() * 1000)
    yield "1 MB of tiny elements", lambda: tiny_elements(333_000)
    yield "100 MB of tiny elements", lambda: tiny_elements(33_000_000)
    yield (
        f"Metadata, {NAMES} names",
        of(MetadataRequest(topics=[MetadataRequestTopic(name=n) for n in names]), 9),
    )
    repeated = [MetadataRequestTopic(name="t")] * NAMES
    yield f"Metadata, one name {NAMES} times", of(MetadataRequest(topics=repeated), 9)
    yield f"DescribeGroups, {NAMES} names", of(DescribeGroupsRequest(groups=names), 5)
    yield f"FindCoordinator, {NAMES} names", of(FindCoordinatorRequest(coordinator_keys=names), 4)
    everything = MetadataRequest(topics=None)
    yield "Metadata of all, 1000 at once", lambda: of(everything, 9)() * 1000
    yield "ConsumerGroupHeartbeat, 9000 names", of(joining(subscribed_topic_names=names[:9000]), 1)
    wide = joining(subscribed_topic_regex="|".join(names[:700]))
    yield "ConsumerGroupHeartbeat, 700 alternatives", of(wide, 1)
    configs = [DescribeConfigsResource(resource_type=2, resource_name="t")] * 5000
    yield "DescribeConfigs, one topic 5000 times", of(DescribeConfigsRequest(resources=configs), 4)
    fetch = FetchRequest(max_wait_ms=0, session_epoch=0)
    fetch.topics = [FetchTopic(topic="none", partitions=wanted)]
    yield "Fetch, 5000 unknown partitions", of(fetch, 11)
    many = [FetchPartition(partition=n % 20, partition_max_bytes=1) for n in range(20_000)]
    for replica in (-1, 1):
        fetch = FetchRequest(replica_id=replica, topics=[FetchTopic(topic="t", partitions=many)])
        yield f"Fetch, 20000 partitions, replica {replica}", of(fetch, 4)
    same = AlterReplicaLogDirTopic(name="t", partitions=[0])
    moves = [AlterReplicaLogDir(path="/d", topics=[same]) for _ in range(8000)]
    yield "AlterReplicaLogDirs, one 8000 times", of(AlterReplicaLogDirsRequest(dirs=moves), 2)
    topic = ListOffsetsTopic(name="t", partitions=offsets)
    yield f"ListOffsets, {NAMES} partitions", of(ListOffsetsRequest(topics=[topic]), 7)
    committed = OffsetCommitRequestTopic(name="t", partitions=commits)
    request = OffsetCommitRequest(
        group_id="g", generation_id_or_member_epoch=-1, topics=[committed]
    )
    yield "OffsetCommit, 10000 partitions", of(request, 8)
    marked = WriteTxnMarkersRequest(markers=[WritableTxnMarker(producer_id=1, topics=markers)])
    yield f"WriteTxnMarkers, {NAMES} partitions", of(marked, 1)
    for depth in (7, 400):
        pattern = ListTransactionsRequest(transactional_id_pattern=nested_pattern(depth))
        yield f"ListTransactions, {depth} nested repeats", of(pattern, 2)
    small = bytes(build_batch([(now_ms, b"k", b"v", ())]))
    yield "Produce, 8000 partitions", of(produce(8000, small), 9)
    yield "Produce, a batch that unpacks to 65 MB", of(produce(1, bomb()), 9)
    yield "Produce, 40 of these", of(produce(40, bomb()), 9)
    many = bytes(build_batch([(now_ms, None, b"", ())] * 400_000, CompressionType.GZIP))
    yield "Produce, a batch of 400000 records", of(produce(1, many), 9)
    old = FetchPartition(partition=0, partition_max_bytes=1 << 20)
    old_fetch = FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic="t", partitions=[old])])
    yield "Fetch of an old reader, who gets them", of(old_fetch, 2)
    for timestamp in (now_ms, -3):
        late = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        by_time = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[late])])
        yield f"ListOffsets, the time {timestamp} in it", of(by_time, 7)
    big = CreatableTopic(name="big", num_partitions=BIG, replication_factor=1)
    yield (
        f"CreateTopics, {BIG} partitions",
        of(CreateTopicsRequest(topics=[big], timeout_ms=30_000), 5),
    )
    gone = DeleteTopicsRequest(topic_names=["big"], timeout_ms=30_000)
    yield f"DeleteTopics, {BIG} partitions", of(gone, 5)


def show(name: str, size: float, waits: list[float], rise_mb: float, end: str) -> None:
    allowed_mb = PROMISE_FACTOR * size / 1e6 + PROMISE_MB
    print(
        f"{name:42} {size / 1e6:8.2f} MB  others wait {max(waits, default=0) * 1000:6.1f} ms "
        f"(promise {PROMISE_MS})  memory +{rise_mb:6.1f} MB (promise {allowed_mb:.0f})  {end}",
        flush=True,
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        broker = BrokerProcess(Path(directory))
        broker.start()
        try:
            measure(broker)
        finally:
            broker.stop()


def await_coordinator(port: int) -> None:
    """Have the topic of offsets made, and wait until groups are served."""
    client = Client(port)
    client.ask(encode_request(1, 1, "admin", FindCoordinatorRequest(key="c")))
    joins = encode_request(1, 1, "admin", joining(subscribed_topic_names=["t"]))
    answer: Any = None
    while answer is None or answer.error_code:
        _, answer = decode_response(ConsumerGroupHeartbeatRequest, 1, client.ask(joins))
        time.sleep(0.1)
    client.socket.close()


def measure(broker: BrokerProcess) -> None:
    """Send the requests one after the other, and print a row for each."""
    topic = CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)
    create = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    answer = Client(broker.port).ask(encode_request(5, 1, "admin", create))
    decode_response(CreateTopicsRequest, 5, answer)
    await_coordinator(broker.port)
    with others_wait(broker.port) as waits:
        time.sleep(QUIET_S)
    show("nothing", 0, waits, 0, "")
    for name, make in cases():
        frame = make()
        begin_peak(broker.pid)
        before = peak_mb(broker.pid)
        end = "answered"
        with others_wait(broker.port) as waits:
            client = Client(broker.port)
            try:
                client.ask(frame)
            except OSError:
                end = "closed"
            client.socket.close()
        show(name, len(frame), waits, peak_mb(broker.pid) - before, end)


if __name__ == "__main__":
    main()
