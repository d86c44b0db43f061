"""Malformed requests: an error or a closed connection, bounded memory, and the broker goes on.

All with each poller of this system that tells of clients that only wait: what clients that are gone
leave behind depends on it.
"""

from __future__ import annotations

import gzip
import os
import socket
import struct
import zlib
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from crc32c import crc32c

from ottla.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.group import (
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.message import encode
from ottla.protocol.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.topics import CreatableTopic, CreateTopicsRequest
from ottla.record.batch_builder import BatchBuilder
from ottla.record.compression import CompressionType
from ottla.runtime.poller import pollers
from ottla.testing import wait_until

LIMIT_SECONDS = 60
TOPIC = "hostile"
PRODUCE_VERSION = 9
ZEROS = bytes(1 << 20)


@pytest.fixture(scope="module", params=[each for each in pollers() if each != "select"])
def victim(tmp_path_factory, request):
    """A broker of its own, so that its memory can be watched."""
    from ottla.testing.processes import BrokerProcess

    data_dir = tmp_path_factory.mktemp("hostile") / "data"
    process = BrokerProcess(data_dir, ottla_network_poller=request.param).start()
    admin = AdminClient({"bootstrap.servers": process.bootstrap_servers})
    admin.create_topics(
        [NewTopic(TOPIC, 1, 1), NewTopic("compacted", 1, 1, config={"cleanup.policy": "compact"})]
    )[TOPIC].result(60)
    yield process
    assert process.stop() == 0


def connect(victim):
    """A raw connection with a time limit."""
    return socket.create_connection(("127.0.0.1", victim.port), LIMIT_SECONDS)


def answer_to(victim, data):
    """What comes back for these bytes: a frame without its size, or None if the broker closed."""
    with connect(victim) as connection:
        try:
            connection.sendall(data)
            return receive(connection)
        except ConnectionError:
            return None


def receive(connection):
    """One frame, or None at the end of the stream."""
    size = receive_exactly(connection, 4)
    return None if size is None else receive_exactly(connection, struct.unpack(">i", size)[0])


def receive_exactly(connection, count):
    data = b""
    while len(data) < count:
        chunk = connection.recv(count - len(data))
        if not chunk:
            return None
        data += chunk
    return data


def assert_alive(victim):
    """The broker still answers, and its memory has not grown out of bounds."""
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    frame = answer_to(victim, encode_request(3, 7, "alive", request))
    _, response = decode_response(ApiVersionsRequest, 3, frame)
    assert isinstance(response, ApiVersionsResponse)
    assert response.error_code == 0
    assert resident_megabytes(victim.pid) < 200


def resident_megabytes(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if "VmRSS" in line).split()[1]) / 1024


def framed(data):
    return struct.pack(">i", len(data)) + data


def header(api_key, api_version, correlation_id=1, client_id=b"hostile"):
    """A request header of the older form."""
    return struct.pack(">hhih", api_key, api_version, correlation_id, len(client_id)) + client_id


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">i", 2**31 - 1) + b"x" * 100, id="a length of two gigabytes"),
        pytest.param(struct.pack(">i", -1), id="a negative length"),
        pytest.param(struct.pack(">i", 0), id="an empty frame"),
        pytest.param(framed(b"\x00\x12"), id="a frame shorter than its header"),
        pytest.param(framed(header(999, 0)), id="an unknown API"),
        pytest.param(framed(header(-1, 0)), id="a negative API key"),
        pytest.param(
            framed(header(ApiKey.DESCRIBE_QUORUM, 0) + b"\0\1\0"),
            id="a question about the quorum of KRaft, which is not advertised",
        ),
        pytest.param(framed(header(ApiKey.PRODUCE, 99)), id="an unsupported version"),
        pytest.param(framed(header(ApiKey.METADATA, 1)[:-3]), id="a client id that is cut off"),
        pytest.param(framed(header(ApiKey.METADATA, 1) + b"\x00\x00"), id="a body cut off"),
        pytest.param(
            framed(header(ApiKey.METADATA, 1) + struct.pack(">i", 2**31 - 1)),
            id="an array length that lies",
        ),
        pytest.param(
            framed(header(ApiKey.METADATA, 1) + struct.pack(">i", -2)),
            id="a negative array length",
        ),
        pytest.param(
            framed(header(ApiKey.METADATA, 1) + struct.pack(">ih", 1, 30000) + b"abc"),
            id="a string length that lies",
        ),
        pytest.param(
            framed(header(ApiKey.METADATA, 1) + struct.pack(">ih", 1, 2) + b"\xff\xfe"),
            id="a string that is not UTF-8",
        ),
        pytest.param(
            framed(header(ApiKey.METADATA, 9) + b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
            id="a varint without end",
        ),
        pytest.param(
            framed(header(ApiKey.METADATA, 9) + b"\xff\xff\xff\xff\x0f"),
            id="four billion tagged fields",
        ),
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", id="HTTP"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), id="TLS"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", id="SSH"),
    ],
)
def test_malformed_frames_close_the_connection(victim, data):
    """Bytes that are no request close their connection; the broker serves the next one."""
    assert answer_to(victim, data) is None
    assert_alive(victim)


def test_bytes_after_the_last_field_are_passed_over(victim):
    """As Kafka does: librdkafka sends some with the alteration of SCRAM users."""
    whole = header(ApiKey.HEARTBEAT, 0) + b"\0\1g\0\0\0\1\0\1m"

    answer = answer_to(victim, framed(whole))
    assert answer is not None
    assert answer_to(victim, framed(whole + b" more")) == answer
    assert_alive(victim)


def test_an_unknown_version_of_api_versions_is_answered_in_the_oldest_form(victim):
    """Any client can read the refusal, which names the versions that would do (KIP-511)."""
    frame = answer_to(victim, framed(header(ApiKey.API_VERSIONS, 99) + b"\x00"))

    _, response = decode_response(ApiVersionsRequest, 0, frame)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [entry.api_key for entry in response.api_keys] == [ApiKey.API_VERSIONS]


def test_every_truncation_of_a_request_is_survived(victim):
    """A produce request cut at any byte, its length adjusted, never appends anything."""
    whole = produce_frame(batch())[4:]
    for length in range(0, len(whole), 3):
        answer_to(victim, framed(whole[:length]))

    assert_alive(victim)
    assert end_offset(victim) == 0


def test_random_bytes_are_survived(victim):
    """Frames of noise close their connections."""
    for size in (5, 50, 500, 5000):
        for _ in range(5):
            assert answer_to(victim, framed(os.urandom(size))) is None
    assert_alive(victim)


def batch(value=b"value"):
    builder = BatchBuilder()
    builder.append(1_000, None, value)
    return bytearray(builder.build())


def sealed(data):
    """The batch with the CRC and the length that its bytes ask for."""
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return data


def changed(position, form, value):
    """A batch with one header field changed and its CRC made right again."""
    data = batch()
    struct.pack_into(form, data, position, value)
    return sealed(data)


def two_billion_records():
    """One record, under a header that says 2,147,483,647 of them in both of its fields."""
    data = changed(57, ">i", 2**31 - 1)
    struct.pack_into(">i", data, 23, 2**31 - 2)
    return sealed(data)


def produce_frame(records, topic=TOPIC):
    data = PartitionProduceData(index=0, records=bytes(records))
    body = ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    return encode_request(PRODUCE_VERSION, 1, "hostile", body)


def produce_error(victim, records, topic=TOPIC):
    """The error that one batch gets."""
    frame = answer_to(victim, produce_frame(records, topic))
    assert frame is not None, "the broker closed the connection"
    _, response = decode_response(ProduceRequest, PRODUCE_VERSION, frame)
    assert isinstance(response, ProduceResponse)
    return ErrorCode.of(response.responses[0].partition_responses[0].error_code)


def end_offset(victim, topic=TOPIC):
    wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
    body = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
    frame = answer_to(victim, encode_request(5, 1, "test", body))
    _, response = decode_response(ListOffsetsRequest, 5, frame)
    return response.topics[0].partitions[0].offset


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(b"", id="no bytes"),
        pytest.param(b"\x00" * 30, id="less than a header"),
        pytest.param(batch()[:-1], id="a batch cut short"),
        pytest.param(batch() + b"\x00", id="bytes behind the batch"),
        pytest.param(batch() + batch(), id="two batches"),
        pytest.param(bytearray(batch()[:-1]) + b"\xff", id="a wrong CRC"),
        pytest.param(changed(16, ">b", 3), id="magic 3"),
        pytest.param(changed(16, ">b", 1), id="magic 1"),
        pytest.param(changed(21, ">h", 7), id="an unknown codec"),
        pytest.param(changed(21, ">h", 0x30), id="a control batch"),
        pytest.param(changed(23, ">i", 5), id="a last offset delta that lies"),
        pytest.param(changed(57, ">i", 0), id="no records"),
        pytest.param(changed(57, ">i", -1), id="a negative record count"),
        pytest.param(changed(57, ">i", 2**31 - 1), id="a record count that lies"),
        pytest.param(two_billion_records(), id="a record count and offsets that lie"),
        pytest.param(sealed(batch()[:61] + b"\xff" * 7), id="a varint that is none"),
    ],
)
def test_bad_batches_are_refused(victim, records):
    """A batch that lies is answered with an error, and the log's end does not move."""
    assert produce_error(victim, records) is not ErrorCode.NONE
    assert end_offset(victim) == 0
    assert_alive(victim)


def bomb(codec, payload):
    """A batch whose records are a compressed blob, with count and CRC in order."""
    data = batch()[:61] + payload
    struct.pack_into(">h", data, 21, int(codec))
    return sealed(data)


@pytest.fixture(scope="module")
def gzip_bomb():
    """Half a gigabyte of zeros, which takes seconds to fold."""
    folded = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(folded.compress(ZEROS) for _ in range(500)) + folded.flush()


@pytest.fixture(scope="module")
def zstd_bomb():
    zstandard = pytest.importorskip("zstandard", reason="zstandard is not installed")
    folded = zstandard.ZstdCompressor(level=3).compressobj()
    return b"".join(folded.compress(ZEROS) for _ in range(500)) + folded.flush()


def test_decompression_bombs_are_refused_within_bounds(victim, gzip_bomb, zstd_bomb):
    """Where the broker must look into a batch, a bomb is refused before it unfolds."""
    snappy_bomb = b"\xff\xff\xff\xff\x0f" + b"\x00" * 100

    for codec, payload in (
        (CompressionType.GZIP, gzip_bomb),
        (CompressionType.ZSTD, zstd_bomb),
        (CompressionType.SNAPPY, snappy_bomb),
        (CompressionType.GZIP, gzip.compress(b"no records here")),
    ):
        assert produce_error(victim, bomb(codec, payload), "compacted") is not ErrorCode.NONE
    assert end_offset(victim, "compacted") == 0
    assert_alive(victim)


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/", "a/b", "", ".", "..", "a\x00b", "x" * 250, "snow☃"]
)
def test_topic_names_cannot_leave_the_data_directory(victim, name):
    """A name that is no topic name is refused, and no folder appears on disk."""
    before = folders(victim)
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
    frame = answer_to(victim, encode_request(5, 1, "test", request))
    _, response = decode_response(CreateTopicsRequest, 5, frame)
    metadata = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    frame = answer_to(victim, encode_request(5, 1, "test", metadata))
    _, described = decode_response(MetadataRequest, 5, frame)

    assert response.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert described.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert produce_error(victim, batch(), name) is not ErrorCode.NONE
    assert folders(victim) == before


def folders(victim):
    """Those of the data directory; its checkpoints are files that come and go."""
    return sorted(path.name for path in Path(victim.data_dir).iterdir() if path.is_dir())


def waiting_fetch():
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    body = FetchRequest(
        max_wait_ms=600_000,
        min_bytes=1,
        max_bytes=1_000,
        session_epoch=-1,
        topics=[FetchTopic(topic="empty", partitions=[wanted])],
    )
    return encode_request(11, 1, "test", body)


def join(group, member_id=""):
    body = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=600_000,
        rebalance_timeout_ms=600_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    return encode_request(2, 1, "test", body)


def first_member(victim, group):
    """The id of a member that others wait for, until it joins once more."""
    find = encode_request(0, 1, "test", FindCoordinatorRequest(key=group))
    joined = JoinGroupResponse()

    def has_joined():
        nonlocal joined
        answer_to(victim, find)
        _, joined = decode_response(JoinGroupRequest, 2, answer_to(victim, join(group)))
        return not joined.error_code

    wait_until(has_joined, "the coordinator takes a member", seen=lambda: joined.error_code)
    return joined.member_id


def open_descriptors(victim):
    return len(os.listdir(f"/proc/{victim.pid}/fd"))


@pytest.mark.parametrize("ahead", [1, 2], ids=["one request", "one more sent ahead"])
@pytest.mark.parametrize("waiting", ["fetch", "join"])
def test_requests_whose_clients_are_gone_keep_no_descriptors(victim, waiting, ahead):
    """200 clients closed their connections while a request of ten minutes waited: all stayed."""
    if waiting == "fetch":
        create_empty_topic(victim)
        request = waiting_fetch()
    else:
        first_member(victim, f"gone-{ahead}")
        request = join(f"gone-{ahead}")
    clients = [connect(victim) for _ in range(200)]
    for client in clients:
        client.sendall(ahead * request)
    assert_alive(victim)
    wait_until(lambda: open_descriptors(victim) >= 200, "all are connected")
    for client in clients:
        client.close()

    wait_until(lambda: open_descriptors(victim) < 100, "all are closed")
    assert_alive(victim)


def test_half_closed_reader_gets_what_its_fetches_wait_for(victim):
    """A client that has closed its side may still read: a byte comes ahead, the rest in time."""
    create_empty_topic(victim)
    with connect(victim) as client:
        client.sendall(2 * waiting_fetch())
        client.shutdown(socket.SHUT_WR)
        first_byte = client.recv(1)
        assert produce_error(victim, batch(), "empty") is ErrorCode.NONE
        for _ in range(2):
            size = first_byte + receive_exactly(client, 4 - len(first_byte))
            frame = receive_exactly(client, struct.unpack(">i", size)[0])
            _, response = decode_response(FetchRequest, 11, frame)
            assert response.responses[0].partitions[0].records
            first_byte = b""
        assert receive(client) is None


def test_half_closed_member_gets_its_generation(victim):
    """Its join waits for another member, and is answered when that one has joined."""
    leader_id = first_member(victim, "half-closed")
    with connect(victim) as client:
        client.sendall(join("half-closed"))
        client.shutdown(socket.SHUT_WR)
        first_byte = client.recv(1)
        answer_to(victim, join("half-closed", leader_id))
        size = first_byte + receive_exactly(client, 3)
        frame = receive_exactly(client, struct.unpack(">i", size)[0])
        _, joined = decode_response(JoinGroupRequest, 2, frame)
        assert (joined.error_code, joined.generation_id) == (0, 2)
        assert receive(client) is None


def create_empty_topic(victim):
    topic = CreatableTopic(name="empty", num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
    answer_to(victim, encode_request(5, 1, "test", request))


@pytest.mark.parametrize(
    ("partitions", "factor"), [(2**31 - 1, 1), (0, 1), (-5, 1), (1, -5), (1, 3), (1, 0)]
)
def test_absurd_topics_are_refused(victim, partitions, factor):
    """Partition counts and replication factors that cannot be are refused at once."""
    topic = CreatableTopic(name="absurd", num_partitions=partitions, replication_factor=factor)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
    frame = answer_to(victim, encode_request(5, 1, "test", request))
    _, response = decode_response(CreateTopicsRequest, 5, frame)

    assert response.topics[0].error_code in (
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
    )
    assert_alive(victim)


def test_connections_that_send_nothing_or_never_read_harm_nobody(victim):
    """Three hundred silent or deaf connections leave the broker answering."""
    idle = [connect(victim) for _ in range(300)]
    for connection in idle[:100]:
        connection.sendall(struct.pack(">i", 50_000_000) + b"slow")
    metadata = encode_request(1, 1, "deaf", MetadataRequest(topics=None))
    for connection in idle[100:150]:
        connection.sendall(metadata * 50)
    assert_alive(victim)
    for connection in idle:
        connection.close()
    assert_alive(victim)


def test_encoding_agrees_with_the_frames_made_by_hand():
    """The hand-made header is what the encoder makes, so the cases above mean what they say."""
    by_hand = framed(header(ApiKey.METADATA, 1) + struct.pack(">i", -1))

    assert encode_request(1, 1, "hostile", MetadataRequest(topics=None)) == by_hand
    assert encode(MetadataRequest(topics=None), 1) == struct.pack(">i", -1)
