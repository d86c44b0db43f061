"""Apache Kafka's MirrorMaker 2 beside `ottla mirror`, from a Kafka cluster to Ottla and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest
from benchmarks.peers.downloads import kafka_jars
from benchmarks.peers.kafka_broker import KafkaBroker
from benchmarks.peers.kafka_tools import KafkaTools
from benchmarks.peers.mirror_maker import MirrorMaker

from ottla import Admin, Consumer, Producer, TopicPartition
from ottla.clients.admin.descriptions import ConfigResource, NewTopic
from ottla.clients.mirror_records import Checkpoint, Heartbeat, OffsetSync
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.mirror.flow import parse_plan
from ottla.mirror.mirror import Mirror
from ottla.record.consumer_record import ConsumerRecord
from ottla.runtime import SystemClock
from ottla.testing import wait_until
from ottla.testing.processes import BrokerProcess

GROUP = "readers"
LAG_MAX = 2
LIMIT_S = 240
SETTINGS = {
    "replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "config.storage.replication.factor": "1",
    "refresh.topics.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
    "sync.topic.configs.interval.seconds": "1",
    "emit.checkpoints.interval.seconds": "1",
    "sync.group.offsets.interval.seconds": "1",
    "sync.group.offsets.enabled": "true",
    "offset.flush.interval.ms": "1000",
    "offset.lag.max": str(LAG_MAX),
    "groups": GROUP,
}


class Clusters(NamedTuple):
    """One broker of Kafka, and one of Ottla."""

    kafka: KafkaBroker
    ottla: BrokerProcess

    def properties(self, kafka: str, ottla: str, **more: str) -> dict[str, str]:
        """mm2.properties with these aliases for the two, and flows both ways."""
        return {
            "clusters": f"{kafka}, {ottla}",
            f"{kafka}.bootstrap.servers": self.kafka.bootstrap_servers,
            f"{ottla}.bootstrap.servers": self.ottla.bootstrap_servers,
            f"{kafka}->{ottla}.enabled": "true",
            f"{ottla}->{kafka}.enabled": "true",
            **SETTINGS,
            **more,
        }


class Way(NamedTuple):
    """From one of the clusters to the other; each mirror has an alias of its own for both.

    `source_alias` and `target_alias` have MirrorMaker's first, then ours.
    """

    source: str
    target: str
    source_alias: tuple[str, str]
    target_alias: tuple[str, str]

    def remote(self, topic: str) -> tuple[str, str]:
        return f"{self.source_alias[0]}.{topic}", f"{self.source_alias[1]}.{topic}"


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    """Kafka 4.1 and Ottla, both of one broker."""
    folder = tmp_path_factory.mktemp("mirror")
    kafka = KafkaBroker(KafkaTools("4.1", kafka_jars("4.1")), folder / "kafka").format()
    ottla = BrokerProcess(folder / "ottla").start()
    try:
        yield Clusters(kafka.start(), ottla)
    finally:
        kafka.stop()
        ottla.kill()


class Topics:
    """What the topics of a cluster have, each read by a consumer that stays."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.admin = Admin(servers)
        self._readers: dict[str, tuple[Consumer, list[ConsumerRecord]]] = {}

    def read(self, topic: str) -> list[ConsumerRecord]:
        """All records of a topic as it is now, each partition's in order; none without a topic."""
        if topic not in self._readers:
            if topic not in self.admin.list_topics():
                return []
            reader = Consumer(self.servers, auto_offset_reset="earliest")
            found = reader.partitions_for(topic)
            reader.assign([TopicPartition(topic, each.partition) for each in found])
            self._readers[topic] = reader, []
        reader, records = self._readers[topic]
        places = reader.assignment()
        ends = reader.end_offsets(places)
        wait_until(
            lambda: all(reader.position(place) >= ends[place] for place in places),
            f"the end of {topic}",
            LIMIT_S,
            meanwhile=lambda: records.extend(reader.poll(100)),
        )
        return sorted(records, key=lambda record: (record.partition, record.offset))

    def syncs(self, alias: str) -> dict[int, ConsumerRecord]:
        """The syncs of pages with the cluster of this alias, by the source's offset."""
        found = {}
        for record in self.read(f"mm2-offset-syncs.{alias}.internal"):
            sync = OffsetSync.of(record.key, record.value)
            if sync is not None and sync.partition.topic == "pages":
                found[sync.upstream] = record
        return found

    def checkpoints(self, alias: str) -> list[tuple[Checkpoint, ConsumerRecord]]:
        """The checkpoints of the flow from the cluster of this alias."""
        found = []
        for record in self.read(f"{alias}.checkpoints.internal"):
            point = Checkpoint.of(record.key, record.value)
            if point is not None:
                found.append((point, record))
        return found

    def beats(self) -> dict[tuple[str, str], ConsumerRecord]:
        """The last heartbeat of each flow."""
        found = {}
        for record in self.read("heartbeats"):
            beat = Heartbeat.of(record.key, record.value)
            if beat is not None:
                found[beat.source, beat.target] = record
        return found

    def close(self) -> None:
        for reader, _ in self._readers.values():
            reader.close()
        self.admin.close()


def contents(records: list[ConsumerRecord]) -> list[tuple[object, ...]]:
    """What a record is, wherever it lies."""
    return [
        (r.partition, r.offset, r.key, r.value, tuple(r.headers), r.timestamp_ms) for r in records
    ]


def write(servers: str, first: int, end: int, codec: str = "none") -> None:
    """Numbers to partition 0, in one batch, with keys, headers and times of their own."""
    with Producer(servers, compression_type=codec, linger_ms=500) as producer:
        for number in range(first, end):
            producer.send(
                "pages",
                f"/page/{number}",
                key=f"k{number}",
                headers={"n": str(number).encode()},
                partition=0,
                timestamp_ms=1_600_000_000_000 + number,
            )


def commit(servers: str, offset: int) -> None:
    with Consumer(servers, group_id=GROUP, enable_auto_commit=False) as reader:
        place = TopicPartition("pages", 0)
        reader.assign([place])
        reader.commit({place: OffsetAndMetadata(offset, metadata=f"at {offset}")})


# The flows, each under the names that MirrorMaker and we have for it.
WAYS = (
    Way("kafka", "ottla", ("jk", "pk"), ("jo", "po")),
    Way("ottla", "kafka", ("jo", "po"), ("jk", "pk")),
)
SINGLE: tuple[tuple[int, int, str], ...] = (
    (1, 1, "none"),
    (2, 1, "none"),
    (3, 3, "none"),
    (4, 2, "none"),
    (5, 4, "none"),
)
"""Records up to here, the group's offset, codec: one record a step, so that its sync is known."""
STEPS = (*SINGLE, (40, 40, "gzip"), (90, 90, "zstd"), (300, 300, "lz4"))


@pytest.fixture(scope="module")
def topics(clusters) -> Iterator[dict[str, Topics]]:
    """The topics of both clusters."""
    found = {name: Topics(getattr(clusters, name).bootstrap_servers) for name in Clusters._fields}
    yield found
    for each in found.values():
        each.close()


@pytest.fixture(scope="module")
def mirrored(clusters, topics, tmp_path_factory) -> dict[str, Topics]:
    """Both mirrors have run side by side, step by step, over the same records and groups."""
    for each in topics.values():
        settings = {"retention.ms": "-1", "retention.bytes": "123456789"}
        each.admin.create_topics([NewTopic("pages", 2, 1, configs=settings)])
    theirs = clusters.properties("jk", "jo", topics="pages")
    ours = clusters.properties("pk", "po", topics="pages")
    folder = tmp_path_factory.mktemp("mm2")
    with (
        MirrorMaker(theirs, folder) as java,
        Mirror(parse_plan(ours), SystemClock()) as mirror,
    ):
        java.start()
        mirror.start()
        done = 0
        for end, offset, codec in STEPS:
            for each in topics.values():
                write(each.servers, done, end, codec)
            done = end
            for way in WAYS:
                wait_for_step(way, topics, end, java)
            for each in topics.values():
                commit(each.servers, offset)
            for way in WAYS:
                wait_for_group(way, topics, offset, java)
        for way in WAYS:
            flows = set(zip(way.source_alias, way.target_alias, strict=True))
            wait_until(
                lambda way=way, flows=flows: flows <= topics[way.target].beats().keys(),
                "heartbeats of both",
                LIMIT_S,
                seen=lambda: java.log[-3000:],
            )
            places = [TopicPartition(name, 0) for name in way.remote("pages")]
            wait_until(
                lambda way=way, places=places: offsets_of(topics[way.target], places) == [done] * 2,
                "the group's offsets at the target",
                LIMIT_S,
                seen=lambda: java.log[-3000:],
            )
    return topics


def offsets_of(topics: Topics, places: list[TopicPartition]) -> list[int]:
    """What the group has committed."""
    found = topics.admin.list_group_offsets(GROUP)
    return [found[place].offset for place in places if place in found]


def wait_for_step(way: Way, topics: Mapping[str, Topics], end: int, java: MirrorMaker) -> None:
    """Both copies have all records, and the syncs of both say so."""

    def state() -> list[int]:
        copies = [len(topics[way.target].read(name)) for name in way.remote("pages")]
        synced = [max(topics[way.source].syncs(a), default=-1) + 1 for a in way.target_alias]
        return copies + synced

    wait_until(
        lambda: state() == [end] * 4,
        f"{way.source} to {way.target} up to {end}",
        LIMIT_S,
        seen=lambda: f"{state()}\n{java.log[-3000:]}",
    )


def wait_for_group(way: Way, topics: Mapping[str, Topics], offset: int, java: MirrorMaker) -> None:
    """Both have a checkpoint of what the group has committed, and it is the same one.

    Either may have written one that is lower before, when it had not read all syncs.
    """

    def state() -> list[tuple[int, int] | None]:
        found = [topics[way.target].checkpoints(alias) for alias in way.source_alias]
        last = [each[-1][0] if each else None for each in found]
        return [(each.upstream, each.downstream) if each else None for each in last]

    def is_same() -> bool:
        theirs, ours = state()
        return theirs is not None and theirs == ours and theirs[0] == offset

    wait_until(
        is_same,
        f"checkpoints from {way.source} at {offset}",
        LIMIT_S,
        seen=lambda: f"{state()}\n{java.log[-3000:]}",
    )


@pytest.fixture(params=WAYS, ids=["to-ottla", "to-kafka"])
def way(request) -> Way:
    return request.param


def test_copies_are_equal(mirrored, way):
    """Keys, values, headers, times, partitions and offsets of both copies, and their settings."""
    target = mirrored[way.target]
    theirs, ours = way.remote("pages")

    assert contents(target.read(ours)) == contents(target.read(theirs))
    described = target.admin.describe_topics([theirs, ours])
    configs = target.admin.describe_configs([ConfigResource.topic(name) for name in (theirs, ours)])
    assert len(described[ours].partitions) == len(described[theirs].partitions) == 2
    settings = [
        {name: entry.value for name, entry in configs[ConfigResource.topic(topic)].items()}
        for topic in (theirs, ours)
    ]
    assert settings[0] == settings[1]
    assert (settings[1]["retention.ms"], settings[1]["retention.bytes"]) == ("-1", "123456789")


def test_offset_syncs_are_equal(mirrored, way):
    """One sync for each single record, byte for byte; of more at once the last one of each step."""
    theirs, ours = (mirrored[way.source].syncs(alias) for alias in way.target_alias)
    singles = [end - 1 for end, _, _ in SINGLE]

    assert [each for each in ours if each <= singles[-1]] == singles
    assert [each for each in theirs if each <= singles[-1]] == singles
    both = ours.keys() & theirs.keys()
    assert {end - 1 for end, _, _ in STEPS} <= both
    for each in both:
        assert (ours[each].key, ours[each].value) == (theirs[each].key, theirs[each].value)


def test_checkpoints_are_equal(mirrored, way):
    """The last one of each step, byte for byte but for the alias, which has as many letters."""
    theirs, ours = (
        {
            point.upstream: (record.key.replace(f"{alias}.".encode(), b"??."), record.value)
            for point, record in mirrored[way.target].checkpoints(alias)
        }
        for alias in way.source_alias
    )

    assert ours == theirs
    assert ours.keys() == {offset for _, offset, _ in STEPS}


def test_heartbeats_are_equal(mirrored, way):
    """The same bytes but for aliases and the time."""
    found = mirrored[way.target].beats()
    theirs, ours = (found[flow] for flow in zip(way.source_alias, way.target_alias, strict=True))

    assert ours.key.replace(b"pk", b"jk").replace(b"po", b"jo") == theirs.key
    assert ours.value[:2] == theirs.value[:2]
    assert len(ours.value) == len(theirs.value)


def test_one_continues_what_the_other_has_copied(clusters, topics, tmp_path):
    """One mm2.properties, run by MirrorMaker, by us, and by MirrorMaker: each record once."""
    properties = clusters.properties("a", "b", topics="shared", **{"b->a.enabled": "false"})
    source, target = topics["kafka"], topics["ottla"]
    source.admin.create_topics([NewTopic("shared", 1, 1)])
    java = MirrorMaker(properties, tmp_path)
    for round_number in range(3):
        end = 100 * (round_number + 1)
        with Producer(source.servers) as producer:
            for number in range(end - 100, end):
                producer.send("shared", str(number), partition=0)
        mirror = Mirror(parse_plan(properties), SystemClock()) if round_number == 1 else java
        with mirror:
            mirror.start()
            wait_until(
                lambda end=end: len(target.read("a.shared")) >= end,
                f"{end} records",
                LIMIT_S,
                seen=lambda: java.log[-3000:],
            )

    assert [record.value for record in target.read("a.shared")] == [
        str(number).encode() for number in range(300)
    ]
