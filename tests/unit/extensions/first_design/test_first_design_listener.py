"""The requests of Kafka 0.7 at their port, from bytes made by hand, and their answers' bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from byte_logs_world import entry
from first_design_client import SETTINGS, RawClient, feature, part, place

import ottla
from ottla.record.compression import CompressionType, compress
from ottla.runtime.scheduler import at_once
from ottla.testing import InProcessBroker

A, B = entry(b"a"), entry(b"bb", 1)


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    """A broker with today's listener, and that of the first design."""
    with InProcessBroker(**SETTINGS, message_max_bytes=1000, log_segment_bytes=2000) as broker:
        yield broker


@pytest.fixture
def client(broker: InProcessBroker) -> Iterator[RawClient]:
    """One connection."""
    with RawClient(broker) as client:
        yield client


def test_listener_is_another_port_since_requests_have_no_version_and_no_correlation_id(
    broker, client
):
    """Bytes of today's protocol end the connection there, and those of 0.7 here; each serves on."""
    api_versions = bytes.fromhex("0012 0000 00000001 ffff")
    client.send(api_versions)
    assert client.is_closed()
    with RawClient(broker, ("127.0.0.1", broker.port)) as other:
        other.produce(b"a")
        assert other.is_closed()
    with ottla.Admin(broker.bootstrap_servers) as admin:
        assert not admin.list_topics()


def test_produce_has_no_answer_and_its_bytes_are_in_the_file_as_they_came(broker, client):
    """Then a fetch has the layout: total length 4, error code 2, messages."""
    client.send(b"\0\0" + part(b"produced", 0) + struct.pack(">i", len(A + B)) + A + B)
    client.wait_for_end(len(A + B), b"produced")
    answer = client.ask(b"\0\1" + place(b"produced", 0, 0, 1000))

    assert answer == struct.pack(">ih", 2 + len(A + B), 0) + A + B
    path = "/data.first-design/produced_0/00000000000.kafka"
    assert broker.disk.contents(path) == A + B


def test_multi_produce_and_multi_fetch(client):
    """The answer to a multi-fetch is a head, and in it each answer of a fetch with its own head."""
    sets = part(b"m", 0) + struct.pack(">i", len(A)) + A
    sets += part(b"m", 1) + struct.pack(">i", len(B)) + B
    client.send(b"\0\3\0\2" + sets)
    client.wait_for_end(len(B), b"m", 1)
    places = [place(b"m", 0, 0, 1000), place(b"m", 1, 99, 1000), place(b"m", 1, 0, 1000)]
    answer = client.ask(b"\0\2\0\3" + b"".join(places))

    inner = struct.pack(">ih", 2 + len(A), 0) + A
    inner += struct.pack(">ih", 2, 1)
    inner += struct.pack(">ih", 2 + len(B), 0) + B
    assert answer == struct.pack(">ih", 2 + len(inner), 0) + inner
    assert client.ask(b"\0\2\0\0") == struct.pack(">ih", 2, 0)


def test_offsets_are_the_end_and_the_starts_of_files_newest_first(client):
    """-1 is the latest, -2 the earliest; of a topic without messages both are 0."""
    for _ in range(4):
        client.produce(b"x" * 800, topic=b"o")
    client.wait_for_end(3236, b"o")

    assert client.offsets(b"o") == [3236, 2427, 0]
    assert client.offsets(b"o", most=1) == [3236]
    assert client.offsets(b"o", time=-2) == [0]
    assert client.offsets(b"o", time=2**62) == [3236, 2427, 0]
    assert client.offsets(b"o", time=1) == []
    assert client.offsets(b"new") == client.offsets(b"new", time=-2) == [0]
    assert client.offsets(b"new", time=2**62) == []
    raw = client.ask(b"\0\4" + part(b"o", 0) + struct.pack(">qi", -1, 1))
    assert raw == bytes.fromhex("0000000e 0000 00000001 0000000000000ca4")


def test_errors_of_a_fetch_have_the_codes_of_the_first_design(client):
    """1 is out of range, 3 the wrong partition, 4 a wrong size; -1 what 0.7 has no code for."""
    client.produce(b"a", topic=b"pages")
    client.wait_for_end(10)

    def code(answer: bytes) -> int:
        assert answer[:4] == b"\0\0\0\2"
        return struct.unpack(">h", answer[4:])[0]

    assert code(client.fetch(10)) == 0
    assert code(client.fetch(11)) == code(client.fetch(-1)) == 1
    assert code(client.fetch(0, partition=2)) == code(client.fetch(0, partition=-1)) == 3
    assert code(client.fetch(0, size=-1)) == 4
    assert code(client.ask(b"\0\1" + place(b"..", 0, 0, 1))) == -1
    wrong = client.ask(b"\0\4" + part(b"pages", 9) + struct.pack(">qi", -1, 1))
    assert wrong == bytes.fromhex("00000006 0003 00000000")


def test_produce_for_any_partition_goes_to_one_of_the_topic(broker, client):
    """-1 has the broker choose."""
    for _ in range(20):
        client.produce(b"a", topic=b"any", partition=-1)
    client.offsets()  # answers come in the order of the requests
    logs = feature(broker).logs.logs
    ends = {
        log.topic_partition.partition: log.end for log in logs.values() if "any" in log.directory
    }

    assert set(ends) == {0, 1}
    assert sum(ends.values()) == 200


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.SNAPPY])
def test_compressed_set_stays_compressed_in_the_file_and_on_the_wire(client, codec):
    """It is a message whose payload only the consumer looks into."""
    topic = codec.label.encode()
    wrapper = entry(compress(codec, A + B), 1, codec)
    client.send(b"\0\0" + part(topic, 0) + struct.pack(">i", len(wrapper)) + wrapper)
    client.wait_for_end(len(wrapper), topic)

    assert client.ask(b"\0\1" + place(topic, 0, 0, 1000))[6:] == wrapper


DAMAGED = bytearray(A)
DAMAGED[-1] ^= 1


@pytest.mark.parametrize(
    "messages",
    [
        bytes(DAMAGED),
        A + B[:-1],
        A + b"\0\0\0",
        b"\xff\xff\xff\xff" + A,
        b"\0\0\0\4" + A,
        entry(b"a", 2),
        entry(b"a", 1, 3),
        entry(b"x" * 873),
    ],
    ids=["crc", "cut", "cut length", "negative", "short", "magic", "codec", "too large"],
)
def test_message_set_with_an_invalid_message_is_not_appended_and_ends_the_connection(
    broker, messages
):
    """Nothing of the request is: not the valid messages before, not the sets for others."""
    with RawClient(broker) as client:
        good = part(b"good", 0) + struct.pack(">i", len(A)) + A
        bad = part(b"bad", 0) + struct.pack(">i", len(messages)) + messages
        client.send(b"\0\3\0\2" + good + bad)
        assert client.is_closed()
    with RawClient(broker) as client:
        assert client.offsets(b"good") == client.offsets(b"bad") == [0]


@pytest.mark.parametrize("partition", [-2, 2, 2**31 - 1])
def test_produce_for_the_wrong_partition_ends_the_connection(broker, partition):
    """A topic has as many as num.partitions says."""
    with RawClient(broker) as client:
        client.produce(b"a", topic=b"wrong", partition=partition)
        assert client.is_closed()
    with RawClient(broker) as client:
        assert client.offsets(b"wrong") == [0]


@pytest.mark.parametrize(
    "frame",
    ["7fffffff 0000", "00000000", "ffffffff", "01000001 0000", "00000002 0009", "00000003 000000"],
)
def test_hostile_sizes_and_unknown_types_end_the_connection(broker, frame):
    """A request has 1 byte at least and 16 MiB at most; nothing waits for what will not come."""
    with RawClient(broker) as client:
        client.socket.sendall(bytes.fromhex(frame) + bytes(40_000))
        assert client.is_closed()
    with RawClient(broker) as client:
        assert client.offsets(b"new") == [0]


def test_large_message_set_is_checked_in_slices_and_kept_in_order(client):
    """Others are served in between; the next request of the same client waits."""
    messages = [entry(b"%d" % number) for number in range(6_000)]
    data = b"".join(messages)
    client.send(b"\0\0" + part(b"large", 0) + struct.pack(">i", len(data)) + data)
    client.produce(b"next", topic=b"large")
    client.wait_for_end(len(data) + 13, b"large")

    assert client.ask(b"\0\1" + place(b"large", 0, 0, len(data)))[6:] == data
    last = client.ask(b"\0\1" + place(b"large", 0, len(data), 100))
    assert last[6:] == entry(b"next")


def test_producer_that_hangs_up_at_once_loses_nothing(broker):
    """It has no answer to wait for."""
    with RawClient(broker) as client:
        client.produce(*[b"%d" % number for number in range(5_000)], topic=b"hung")
    end = sum(len(entry(b"%d" % number)) for number in range(5_000))
    with RawClient(broker) as client:
        client.wait_for_end(end, b"hung")


def test_messages_are_there_after_a_restart_and_after_a_kill(tmp_path):
    """On a directory of the machine, beside the broker's own."""
    broker = InProcessBroker(tmp_path / "logs", **SETTINGS)
    for end in (broker.stop, broker.kill, broker.stop):
        with broker.start() and RawClient(broker) as client:
            before = client.offsets()[0]
            client.produce(b"a")
            client.wait_for_end(before + 10)
        end()

    file = tmp_path / "logs.first-design" / "pages_0" / "00000000000.kafka"
    assert file.read_bytes() == A * 3


def test_reader_that_follows_while_segments_are_deleted_goes_on_at_the_smallest_id():
    """Its position is out of range; then it asks for offsets, and chooses."""
    settings = SETTINGS | {"log_segment_bytes": 20, "log_retention_bytes": 40}
    with InProcessBroker(**settings) as broker, RawClient(broker) as client:
        logs = feature(broker).logs

        async def retain() -> None:
            at_once(logs.retain())

        position = seen = lost = 0
        for number in range(12):
            client.produce(b"%02d" % number * 8)
            client.wait_for_end((number + 1) * 25)
            broker.run(retain())
            while number % 6 == 5 and position < (number + 1) * 25:
                answer = client.fetch(position)
                if answer[4:6] == b"\0\1":
                    smallest = client.offsets(time=-2)[0]
                    assert smallest > position
                    lost, position = lost + smallest - position, smallest
                else:
                    assert answer[6:] == entry(b"%02d" % (position // 25) * 8)
                    seen, position = seen + 25, position + 25
    assert (seen, lost) == (100, 200)
