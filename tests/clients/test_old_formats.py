"""Clients and logs from before Kafka 0.11: message sets of magic 0 and 1."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from old_protocol import OldClient, produce_request, without_headers

from ottla import Admin
from ottla import Consumer as OttlaConsumer
from ottla.clients.admin.descriptions import NewTopic
from ottla.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.api_versions import ApiVersionsRequest
from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType
from ottla.record.conversion import build_message_set
from ottla.record.memory_records import batches
from ottla.record.record import Record
from ottla.structs import TopicPartition as OttlaPartition
from ottla.testing import wait_until

NOW = 1_700_000_000_000
LIMIT_SECONDS = 100
OLD_CODECS = [codec for codec in CompressionType if codec is not CompressionType.ZSTD]
FETCH_VERSIONS = [0, 1, 2, 3, 4, 6, 9, 10, 11, 12]


def new_records(first: int, count: int) -> list[Record]:
    return [
        Record(n, NOW + n, b"key-%d" % (n % 7), b"value %d" % n, (("h", b"x"),))
        for n in range(first, first + count)
    ]


def rows(records: list[Record]) -> list[tuple]:
    return [(r.timestamp_ms, r.key, r.value, r.headers) for r in records]


def magic_of(version: int) -> int:
    """The newest format that a reader of this version of Fetch knows."""
    return 2 if version >= 4 else version // 2


@pytest.fixture
def client(broker) -> Iterator[OldClient]:
    """A connection to the shared broker."""
    with OldClient(broker) as connection:
        yield connection


@pytest.fixture
def new_topic(broker, unique):
    """Makes a topic of one partition with settings of its own."""

    def make(**settings: str) -> str:
        name = unique("old-formats")
        configs = {key.replace("_", "."): value for key, value in settings.items()}
        with Admin(broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(name, num_partitions=1, configs=configs)])
        return name

    return make


def test_old_versions_are_advertised(client):
    """Clients look for the low versions before they believe that they are there (KIP-896)."""
    response = client.ask(ApiVersionsRequest(), 0)
    ranges = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}

    assert ranges[ApiKey.PRODUCE][0] == 0
    assert ranges[ApiKey.FETCH][0] == 0
    assert ranges[ApiKey.LIST_OFFSETS][0] == 0


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("produce_version", [0, 1, 2])
def test_what_old_producers_send_every_consumer_reads(client, new_topic, produce_version, codec):
    """Offsets are given one by one, and timestamps kept where the format has them."""
    topic, sent = new_topic(), new_records(0, 50)
    magic = produce_version // 2
    first = client.produce(topic, produce_version, build_message_set(sent[:30], magic, codec))
    second = client.produce(topic, produce_version, build_message_set(sent[:20], magic, codec))

    assert (first.error_code, first.base_offset) == (0, 0)
    assert (second.error_code, second.base_offset) == (0, 30)
    stored = without_headers(sent[:30], magic)
    stored += [r._replace(offset=r.offset + 30) for r in without_headers(sent[:20], magic)]
    for version in FETCH_VERSIONS:
        found = client.fetch(topic, version)
        expected = without_headers(stored, magic_of(version))
        assert client.read(topic, version) == expected
        assert {b.magic for b in batches(bytes(found.records))} == {magic_of(version)}
        assert {b.compression for b in batches(bytes(found.records))} == {codec}


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_what_new_producers_send_old_consumers_read(client, new_topic, version, codec):
    """Batch by batch, from any offset; headers have no place in their formats."""
    topic, sent = new_topic(), new_records(0, 60)
    for first in (0, 20, 40):
        batch = build_batch(rows(sent[first : first + 20]), codec)
        assert client.produce(topic, 3, batch).error_code == 0

    expected = without_headers(sent, magic_of(version))
    for offset in (0, 1, 19, 20, 33, 59):
        assert client.read(topic, version, offset) == expected[offset:]
    end = client.fetch(topic, version, 60)
    assert (end.error_code, end.high_watermark, bytes(end.records)) == (0, 60, b"")
    assert client.fetch(topic, version, 61).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("version", [0, 2, 3])
def test_answers_hold_to_the_limit(client, new_topic, version):
    """Messages come one by one; v3 gives a whole one at least, before that it is cut (KIP-74)."""
    topic, sent = new_topic(), new_records(0, 20)
    client.produce(topic, 3, build_batch(rows(sent)))
    expected = without_headers(sent, magic_of(version))
    size = len(build_message_set(expected[:1], magic_of(version)))

    small = bytes(client.fetch(topic, version, 0, 10).records)
    assert len(small) == (10 if version < 3 else size)
    assert len(bytes(client.fetch(topic, version, 0, 3 * size).records)) == 3 * size
    assert client.read(topic, version, max_bytes=3 * size) == expected


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP])
def test_append_time_is_the_brokers(client, new_topic, codec):
    """For sets without timestamps as well, and readers of magic 1 see whose time it is."""
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    for version in (0, 2):
        messages = build_message_set(new_records(0, 3), version // 2, codec)
        answer = client.produce(topic, version, messages)
        assert answer.error_code == 0
        assert version == 0 or answer.log_append_time_ms >= before

    assert [r.offset for r in client.read(topic, 2)] == list(range(6))
    assert all(r.timestamp_ms >= before for r in client.read(topic, 2))
    assert all(b.is_log_append_time for b in batches(bytes(client.fetch(topic, 2).records)))
    assert all(r.timestamp_ms == -1 for r in client.read(topic, 0))


def spoilt(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (b"", ErrorCode.NONE),
        (spoilt(build_message_set(new_records(0, 1), 1)), ErrorCode.CORRUPT_MESSAGE),
        (build_message_set(new_records(0, 2), 1)[:-3], ErrorCode.CORRUPT_MESSAGE),
        (
            build_message_set(new_records(0, 1), 1, is_log_append_time=True),
            ErrorCode.INVALID_TIMESTAMP,
        ),
        (
            build_message_set([Record(0, NOW, b"k", bytes(2 << 20), ())], 1),
            ErrorCode.MESSAGE_TOO_LARGE,
        ),
    ],
)
def test_bad_message_sets_are_refused(client, new_topic, records, error):
    """With the code that old clients know, and nothing of them is stored."""
    topic = new_topic()
    answer = client.produce(topic, 2, records)

    assert (answer.error_code, answer.base_offset) == (error, -1)
    assert client.read(topic, 2) == []


def test_messages_need_keys_on_compacted_topics(client, new_topic):
    """In whatever format they came."""
    topic = new_topic(cleanup_policy="compact")
    keyless = build_message_set([Record(0, NOW, None, b"v", ())], 1)

    assert client.produce(topic, 2, keyless).error_code == ErrorCode.INVALID_RECORD


def test_failed_produce_without_acks_closes_the_connection(client, new_topic):
    """There is no answer that could say so."""
    bad = spoilt(build_message_set(new_records(0, 1), 1))
    client.send(produce_request(new_topic(), bad, acks=0), 2)

    assert client.socket.recv(1) == b""


def test_unknown_partition_is_named_in_any_version(client):
    """An unknown partition is named also for a set without messages."""
    for version in (0, 2):
        for records in (b"", build_message_set(new_records(0, 1), version // 2)):
            answer = client.produce("no-such-topic", version, records)
            assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_zstd_is_an_error_for_old_readers(client, new_topic):
    """What cannot be converted, and what the version does not know (KIP-110)."""
    by_producer, by_topic = new_topic(), new_topic(compression_type="zstd")
    batch = build_batch(rows(new_records(0, 3)), CompressionType.ZSTD)
    for topic in (by_producer, by_topic):
        assert client.produce(topic, 7, batch).error_code == 0

    for version in (0, 3):
        for topic in (by_producer, by_topic):
            error = client.fetch(topic, version).error_code
            assert error == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert client.fetch(by_topic, 9).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert len(client.read(by_topic, 10)) == 3


def test_down_conversion_can_be_forbidden(client, new_topic):
    """A topic's owner may spare the broker the work (KIP-283)."""
    topic = new_topic(message_downconversion_enable="false")
    client.produce(topic, 2, build_message_set(new_records(0, 3), 1))

    assert client.fetch(topic, 3).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert len(client.read(topic, 4)) == 3


def test_segment_offsets_are_listed_newest_first(client, new_topic):
    """The offsets before a time, as they were before logs had timestamps."""
    topic = new_topic(segment_bytes="200")
    assert client.list_offsets(topic, -1).old_style_offsets == [0]
    for number in range(4):
        record = Record(0, NOW + 1000 * number, b"k", bytes(100), ())
        assert client.produce(topic, 2, build_message_set([record], 1)).error_code == 0

    assert client.list_offsets(topic, -1).old_style_offsets == [4, 3, 2, 1, 0]
    assert client.list_offsets(topic, -1, max_count=2).old_style_offsets == [4, 3]
    assert client.list_offsets(topic, -2).old_style_offsets == [0]
    assert client.list_offsets(topic, NOW + 1500).old_style_offsets == [1, 0]
    assert client.list_offsets(topic, NOW - 1).old_style_offsets == []
    unknown = client.list_offsets("no-such-topic", -1)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def mixed_log() -> tuple[bytes, list[Record]]:
    """A segment that lived through upgrades: magic 0, magic 1, batches, and a marker."""
    records = [r._replace(headers=()) for r in new_records(0, 60)]
    records[:20] = without_headers(records[:20], 0)
    marker = build_batch(
        [(NOW, struct.pack(">hh", 0, 1), bytes(6), ())],
        base_offset=50,
        is_control=True,
        is_transactional=True,
        producer_id=7,
        producer_epoch=0,
    )
    parts = [
        build_message_set(records[:10], 0),
        build_message_set(records[10:20], 0, CompressionType.LZ4),
        build_message_set(records[20:30], 1),
        build_message_set(records[30:40], 1, CompressionType.SNAPPY),
        build_batch(rows(records[40:50]), CompressionType.GZIP, base_offset=40),
        marker,
        build_batch(rows(records[51:60]), base_offset=51),
    ]
    return b"".join(parts), records[:50] + records[51:]


@pytest.mark.parametrize("clean", [True, False])
def test_mixed_log_reads_right_for_every_version(start_broker, tmp_path, clean):
    """What is stored in an older format is served as it is, what is too new is converted."""
    data_dir = tmp_path / "mixed"
    broker = start_broker(data_dir)
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("mixed", num_partitions=1)])
    if clean:
        broker.stop()
    else:
        broker.kill()
    segment, records = mixed_log()
    (data_dir / "mixed-0" / f"{0:020d}.log").write_bytes(segment)
    for index in (data_dir / "mixed-0").glob("*index"):
        index.unlink()
    broker.start()

    with OldClient(broker) as client:
        for version in FETCH_VERSIONS:
            expected = without_headers(records, 0) if version < 2 else records
            for offset in (0, 15, 25, 35, 45, 50, 55):
                for limit in (100, 1 << 20):
                    if version < 3 and limit == 100:
                        continue  # a compressed set is cut there, and its reader asks for more
                    found = client.read("mixed", version, offset, max_bytes=limit)
                    assert found == [r for r in expected if r.offset >= offset]
        whole = client.fetch("mixed", 4)
        assert bytes(whole.records) == segment
        assert client.produce("mixed", 2, build_message_set(records[20:22], 1)).base_offset == 60
    values = [r.value for r in [*records, *records[20:22]]]
    assert [value for _, value in read_with_confluent(broker, "mixed", 61)] == values
    assert read_with_ottla(broker, "mixed", 61) == values


# -- clients that are told to talk to an old broker


def until_found(found, count, poll):
    """Poll until so many records have been found."""
    wait_until(
        lambda: len(found) >= count,
        f"{count} records",
        LIMIT_SECONDS,
        seen=lambda: len(found),
        meanwhile=poll,
    )


def read_with_confluent(broker, topic, count, **config):
    """Timestamp and value of every record, as librdkafka reads them."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "old-formats", **config}
    )
    consumer.assign([ConfluentPartition(topic, 0, 0)])
    found = []

    def poll():
        for message in consumer.consume(count, 0.2):
            assert message.error() is None, message.error()
            found.append((message.timestamp()[1], message.value()))

    until_found(found, count, poll)
    consumer.close()
    return found


def read_with_ottla(broker, topic, count):
    """The value of every record, as our own consumer reads them."""
    settings = {"bootstrap.servers": broker.bootstrap_servers, "auto.offset.reset": "earliest"}
    found = []
    with OttlaConsumer(settings) as consumer:
        consumer.assign([OttlaPartition(topic, 0)])
        until_found(found, count, lambda: found.extend(r.value for r in consumer.poll(200)))
    return found


def produce_with_confluent(broker, topic, values, **config):
    failures = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **config})
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value,
            timestamp=0 if config["broker.version.fallback"] < "0.10" else NOW + number,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(LIMIT_SECONDS) == 0
    assert not failures


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("version", ["0.9.0", "0.10.0"])
def test_librdkafka_of_old_brokers(broker, new_topic, version, codec):
    """It asks for no versions and takes the protocol of that time."""
    topic = new_topic()
    values = [b"value %d" % n for n in range(500)]
    old = {"api.version.request": "false", "broker.version.fallback": version}
    produce_with_confluent(broker, topic, values, **old, **{"compression.codec": codec})

    by_old_reader = read_with_confluent(broker, topic, 500, **old)
    assert [value for _, value in by_old_reader] == values
    has_times = version != "0.9.0"
    assert read_with_confluent(broker, topic, 500) == [
        (NOW + n if has_times else -1, value) for n, value in enumerate(values)
    ]


@pytest.mark.usefixtures("sockets_left_open")
@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("version", [(0, 8, 2), (0, 9), (0, 10, 0), (0, 10, 1)])
def test_kafka_python_of_old_brokers(broker, new_topic, version, codec):
    """Message sets of its own making, and those that the broker makes for it."""
    if codec == "lz4" and version < (0, 10):
        codec = "gzip"  # it needs one more library for the wrong checksum
    topic = new_topic()
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        api_version=version,
        compression_type=codec,
        acks="all",
    )
    futures = [
        producer.send(topic, b"value %d" % n, key=b"k", timestamp_ms=NOW + n) for n in range(300)
    ]
    offsets = [future.get(LIMIT_SECONDS).offset for future in futures]
    producer.close()
    assert offsets == list(range(300))

    for reader_version in (version, None):
        consumer = KafkaConsumer(
            bootstrap_servers=broker.bootstrap_servers, api_version=reader_version, group_id=None
        )
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 0)
        found = []

        def poll(consumer=consumer, found=found):
            for batch in consumer.poll(200).values():
                found.extend(batch)

        until_found(found, 300, poll)
        consumer.close()
        assert [r.value for r in found] == [b"value %d" % n for n in range(300)]
        if version >= (0, 10):
            assert [r.timestamp for r in found] == [NOW + n for n in range(300)]
