"""Ottla starts on the data directory of an Apache Kafka 3.x broker and serves what is there."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from benchmarks.peers.downloads import kafka_jars
from benchmarks.peers.kafka_broker import NODE_ID, KafkaBroker
from benchmarks.peers.kafka_tools import KafkaTools
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COUNT = 1000
PARTITIONS = 2
FIRST_MS = 1_700_000_000_000
GROUP = "readers"


class Facts(NamedTuple):
    """What Kafka itself answered before it stopped."""

    ends: dict[tuple[str, int], int]
    at_time: dict[tuple[str, int], int]
    records: dict[tuple[str, int], list[tuple[int, bytes, bytes, int]]]
    committed: dict[int, int]
    topic_ids: dict[str, str]
    cluster_id: str


def everywhere() -> list[TopicPartition]:
    return [TopicPartition(f"k-{codec}", index) for codec in CODECS for index in range(PARTITIONS)]


def consumer(servers: str, **settings: object) -> Consumer:
    base = {"bootstrap.servers": servers, "group.id": GROUP, "auto.offset.reset": "earliest"}
    return Consumer({**base, "enable.auto.commit": False, **settings})


def ask(servers: str) -> Facts:
    """Everything that a client can see of the topics, and the group's commits."""
    admin, reader = AdminClient({"bootstrap.servers": servers}), consumer(servers)
    latest = admin.list_offsets({tp: OffsetSpec.latest() for tp in everywhere()})
    ends = {(tp.topic, tp.partition): done.result(60).offset for tp, done in latest.items()}
    moments = [TopicPartition(tp.topic, tp.partition, FIRST_MS + 500) for tp in everywhere()]
    found = reader.offsets_for_times(moments, 30)
    first = [TopicPartition("k-none", index) for index in range(PARTITIONS)]
    committed = {tp.partition: tp.offset for tp in reader.committed(first, 30)}
    records = read_everything(reader, sum(ends.values()))
    reader.close()
    metadata = admin.list_topics(timeout=60)
    shown = admin.describe_topics(TopicCollection([f"k-{codec}" for codec in CODECS]))
    return Facts(
        ends,
        {(tp.topic, tp.partition): tp.offset for tp in found},
        records,
        committed,
        {name: str(done.result(60).topic_id) for name, done in shown.items()},
        metadata.cluster_id,
    )


def read_everything(reader: Consumer, count: int):
    """Offset, key, value and timestamp of every record, by partition."""
    reader.assign([TopicPartition(tp.topic, tp.partition, 0) for tp in everywhere()])
    records: dict[tuple[str, int], list[tuple[int, bytes, bytes, int]]] = {}
    for _ in range(600):
        for message in reader.consume(1000, 0.1):
            assert message.error() is None, message.error()
            entry = (message.offset(), message.key(), message.value(), message.timestamp()[1])
            records.setdefault((message.topic(), message.partition()), []).append(entry)
        if sum(map(len, records.values())) >= count:
            return records
    raise AssertionError(f"{sum(map(len, records.values()))} of {count} records came")


def fill(servers: str) -> None:
    """Topics in each codec by idempotent producers, one with settings, and a group's commits."""
    admin = AdminClient({"bootstrap.servers": servers})
    settings = {"retention.ms": "-1", "segment.bytes": "65536", "max.message.bytes": "900000"}
    topics = [NewTopic(f"k-{codec}", PARTITIONS, 1, config=settings) for codec in CODECS]
    for done in admin.create_topics(topics).values():
        done.result(60)
    for codec in CODECS:
        base = {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 1}
        producer = Producer({**base, "compression.type": codec})
        for number in range(COUNT):
            key, value = f"key-{number % 17}", f"{codec} {number:06d} " + "x" * (number % 50)
            producer.produce(f"k-{codec}", value, key, timestamp=FIRST_MS + number)
            if number % 100 == 99:
                assert producer.flush(60) == 0
    reader = consumer(servers)
    marks = [TopicPartition("k-none", index, 11 + index) for index in range(PARTITIONS)]
    reader.commit(offsets=marks, asynchronous=False)
    reader.close()


@pytest.fixture(scope="module", params=["clean", "killed"])
def kafka_data(request, tmp_path_factory) -> tuple[Path, Facts]:
    """The directory that Kafka left behind, by a clean stop or not, and what it said before."""
    tools = KafkaTools("3.9", kafka_jars("3.9"))
    folder = tmp_path_factory.mktemp("kafka") / "data"
    kafka = KafkaBroker(tools, folder, offsets_topic_num_partitions=3).format()
    try:
        kafka.start()
        fill(kafka.bootstrap_servers)
        facts = ask(kafka.bootstrap_servers)
        if request.param == "clean":
            kafka.stop()
    finally:
        kafka.kill()
    return folder, facts


@pytest.fixture
def ottla(kafka_data, tmp_path, start_broker) -> Callable[[], object]:
    """Ottla on a copy of the directory."""
    copy = tmp_path / "copy"
    shutil.copytree(kafka_data[0], copy)
    return start_broker(copy, "--adopt-log-dirs", broker_id=NODE_ID)


def test_everything_is_served_as_kafka_did(kafka_data, ottla):
    """Records, offsets, timestamps, look-ups by time, commits, topic ids and the cluster's id."""
    facts = kafka_data[1]

    found = ask(ottla.bootstrap_servers)

    assert found.ends == facts.ends
    assert found == facts
    assert re.search(r"adopted from .*k-zstd \(2\)", ottla.log)


def test_directory_is_not_touched_unless_adoption_is_wanted(kafka_data, tmp_path, start_broker):
    """Without the option the start is refused, and Kafka could go on with the directory."""
    copy = tmp_path / "copy"
    shutil.copytree(kafka_data[0], copy)
    with pytest.raises(RuntimeError, match="--adopt-log-dirs"):
        start_broker(copy, broker_id=NODE_ID)

    assert content(copy) == content(kafka_data[0])


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a directory."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_settings_of_topics_are_kept(ottla):
    """They come from the metadata log; the offsets topic is compacted."""
    admin = AdminClient({"bootstrap.servers": ottla.bootstrap_servers})
    topics = [ConfigResource(ResourceType.TOPIC, name) for name in ("k-lz4", "__consumer_offsets")]
    lz4, offsets = [done.result(60) for done in admin.describe_configs(topics).values()]

    assert lz4["retention.ms"].value == "-1"
    assert lz4["max.message.bytes"].value == "900000"
    assert offsets["cleanup.policy"].value == "compact"


def test_producers_go_on_where_the_logs_end(kafka_data, ottla):
    """A new idempotent producer gets an id of its own, and its records the next offsets."""
    ends = kafka_data[1].ends
    assert ottla.stop() == 0
    before = {key for key, _ in producers(ottla, "k-none")}
    ottla.start()
    offsets: dict[int, list[int]] = {}
    servers = {"bootstrap.servers": ottla.bootstrap_servers, "enable.idempotence": True}
    producer = Producer(servers)
    for index in range(PARTITIONS):
        for _ in range(10):
            producer.produce(
                "k-none",
                b"more",
                partition=index,
                on_delivery=lambda error, message: offsets.setdefault(
                    message.partition(), []
                ).append(-1 if error else message.offset()),
            )
    assert producer.flush(60) == 0

    for index in range(PARTITIONS):
        end = ends["k-none", index]
        assert offsets[index] == list(range(end, end + 10))
    assert ottla.stop() == 0
    after = {key for key, _ in producers(ottla, "k-none")}
    assert before < after
    assert len(after - before) == 1


def producers(ottla, topic):
    """Ids and last sequence numbers in the newest snapshot of each partition of a topic."""
    tools, found = KafkaTools("3.9", kafka_jars("3.9")), set()
    for index in range(PARTITIONS):
        snapshots = sorted((ottla.data_dir / f"{topic}-{index}").glob("*.snapshot"))
        shown = tools.run("dump-log", "--files", str(snapshots[-1]))
        found |= set(re.findall(r"producerId: (\d+) .*lastSequence: (\d+)", shown))
    return found


def test_the_metadata_of_kafka_is_left_alone(kafka_data, ottla):
    """Nothing in __cluster_metadata-0 or meta.properties changes, over two starts."""
    assert ottla.stop() == 0
    ottla.start()
    assert ottla.stop() == 0

    folder, copy = kafka_data[0], ottla.data_dir
    names = ["meta.properties"]
    names += [
        f"__cluster_metadata-0/{path.name}" for path in (folder / "__cluster_metadata-0").iterdir()
    ]
    for name in names:
        assert (copy / name).read_bytes() == (folder / name).read_bytes()
    assert sorted(p.name for p in (copy / "__cluster_metadata-0").iterdir()) == sorted(
        p.name for p in (folder / "__cluster_metadata-0").iterdir()
    )
