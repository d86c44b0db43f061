"""Partitions on disk that a new registry does not know are taken over, and nothing else is."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

import pytest
from broker_world import LOG_DIR, BrokerWorld

from ottla.config.broker_config import BrokerConfig
from ottla.config.topic_config import TopicConfig
from ottla.controller.broker_registration import ensure_persistent_paths
from ottla.controller.entity_configs import TOPICS, EntityConfigs
from ottla.controller.log_dir_contents import reserve_producer_ids
from ottla.controller.topic_store import TopicReader
from ottla.coordinator.transaction.producer_id_manager import ProducerIdManager
from ottla.errors import ConfigError
from ottla.extensions.adoption.adoption import Adoption
from ottla.log.log_manager import LogManager
from ottla.protocol.message import encode
from ottla.protocol.metadata_records import ConfigRecord, ProducerIdsRecord
from ottla.record.batch_builder import build_batch
from ottla.registry.embedded import EmbeddedRegistry
from ottla.registry.znodes import TopicNode
from ottla.server.membership import BrokerState
from ottla.structs import NO_UUID, LeaderAndIsr, TopicPartition
from ottla.testing import mock_runtime

ID = UUID(int=7)
EPOCH = 5
BROKER = 3


class Directory:
    """A log directory that outlives its registry."""

    def __init__(self, log_dirs="/data"):
        self.runtime = mock_runtime()
        self.config = BrokerConfig.parse({"log.dirs": log_dirs})
        self.run = self.runtime.scheduler.run
        self.registry = EmbeddedRegistry(self.runtime, "/data/registry")
        self.run(self.registry.start())
        self.run(ensure_persistent_paths(self.registry))

    def acquire(self):
        topic_config = TopicConfig.of(self.config, {})
        manager = LogManager(self.runtime, self.config, lambda _: topic_config)
        manager.acquire()
        return manager

    def load(self):
        manager = self.acquire()
        self.run(manager.startup())
        return manager

    def write(self, topic, *partitions, topic_id=ID, producer_id=-1):
        """A topic of another broker."""
        manager = self.load()
        for partition in partitions:
            log = manager.get_or_create_log(TopicPartition(topic, partition), topic_id)
            sequence = 0 if producer_id >= 0 else -1
            producer = {"producer_id": producer_id, "producer_epoch": 0}
            batch = build_batch([(0, b"k", b"v", ())], base_sequence=sequence, **producer)
            log.append_as_leader(memoryview(bytearray(batch)), EPOCH, now_ms=0)
        self.run(manager.shutdown())

    def adopt(self, is_wanted=True):
        """A start of Ottla, as far as it matters here."""
        broker = SimpleNamespace(
            runtime=self.runtime,
            registry=self.registry,
            config=self.config.replace(ottla_adopt_log_dirs=is_wanted),
            broker_id=BROKER,
            log_manager=self.acquire(),
        )
        adoption = Adoption(broker)
        try:
            self.run(adoption.before_clients())
        except ConfigError:
            for each in broker.log_manager.dirs:
                each.release()
            raise
        self.run(broker.log_manager.startup())
        self.run(reserve_producer_ids(self.registry, BROKER, broker.log_manager.all_logs()))
        self.run(adoption.after_logs())
        self.run(broker.log_manager.shutdown())

    def topics(self):
        return self.run(TopicReader(self.registry).names())

    def settings(self, topic):
        return self.run(EntityConfigs(self.registry).read(TOPICS, topic))


@pytest.fixture
def directory():
    return Directory()


def test_topics_on_disk_are_adopted(directory):
    """With their ids, all partitions led by this broker in the epoch that their logs know."""
    directory.write("t", 0, 1)
    directory.write("u", 0, topic_id=UUID(int=8))
    directory.adopt()
    store = TopicReader(directory.registry)

    assert directory.topics() == ["t", "u"]
    assert directory.run(store.read("t")) == TopicNode({0: (BROKER,), 1: (BROKER,)}, ID)
    partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
    states = directory.run(store.read_states(partitions))
    assert {partition: stored.state for partition, stored in states.items()} == dict.fromkeys(
        partitions, LeaderAndIsr(BROKER, EPOCH, (BROKER,))
    )


def test_unknown_partitions_are_refused_unless_they_are_wanted(directory):
    """The sentence says how many there are, and what has to be said to take them."""
    directory.write("t", 0, 1)
    with pytest.raises(ConfigError, match=r"log\.dirs=/data: .* 2 partition.*--adopt-log-dirs"):
        directory.adopt(is_wanted=False)

    assert directory.topics() == []


@pytest.mark.parametrize("failed", ["/more", "/data"])
def test_nothing_is_adopted_while_a_directory_is_away(failed):
    """What it has could not be adopted once there are topics, and would be put away."""
    directory = Directory("/data,/more")
    directory.write("t", 0, 1, 2)
    directory.write("u", 0, topic_id=UUID(int=8))
    fault = directory.runtime.disk.fail("lock", f"{failed}/.lock", times=1)
    with pytest.raises(ConfigError, match=rf"log\.dirs={failed}: cannot be used"):
        directory.adopt()
    assert (fault.times, directory.topics()) == (0, [])

    directory.adopt()
    assert directory.topics() == ["t", "u"]


def test_topic_without_an_id_gets_one(directory):
    """Partitions from before Kafka 2.8 say no id."""
    directory.write("t", 0, topic_id=NO_UUID)
    directory.adopt()

    assert directory.run(TopicReader(directory.registry).read("t")).topic_id != NO_UUID


def test_known_registry_adopts_nothing(directory):
    """A directory that appears beside topics that are known is nobody's: maybe it was deleted."""
    directory.write("t", 0)
    directory.adopt()
    directory.write("u", 0)
    directory.adopt()

    assert directory.topics() == ["t"]


def test_incomplete_topics_are_left_alone(directory, caplog):
    """Partitions that are elsewhere, or of two topics, are not made up for."""
    directory.write("holes", 0, 2)
    directory.write("mixed", 0)
    directory.write("mixed", 1, topic_id=UUID(int=9))
    directory.adopt()

    assert directory.topics() == []
    assert "holes is not adopted: partitions [1] are not here" in caplog.text
    assert "mixed is not adopted" in caplog.text


def test_producer_ids_are_not_given_out_again(directory):
    """The next id is above all those that the logs know, in an old registry as well."""
    manager = ProducerIdManager(directory.registry, BROKER)
    directory.write("t", 0, producer_id=41)
    directory.adopt()
    assert directory.run(manager.generate_producer_id()) == 42

    directory.write("t", 0, producer_id=5000)
    directory.adopt()
    manager = ProducerIdManager(directory.registry, BROKER)
    assert directory.run(manager.generate_producer_id()) == 5001


def test_records_are_kept_where_settings_are_not_known(directory, caplog):
    """No retention but one that somebody wanted; the offsets are compacted in any case."""
    directory.write("t", 0)
    directory.write("__consumer_offsets", 0)
    directory.adopt()

    assert directory.settings("t") == {"retention.ms": "-1", "retention.bytes": "-1"}
    assert directory.settings("__consumer_offsets")["cleanup.policy"] == "compact"
    assert "the settings of t are not known" in caplog.text


def test_settings_come_from_the_metadata_of_kraft(directory, caplog):
    """As well as the producer ids; a setting that Ottla refuses is named."""
    wanted = {"retention.ms": "5", "segment.bytes": "none"}
    records = [
        b"\x01\x04\x00" + encode(record, 0)
        for record in (
            ConfigRecord(resource_type=2, resource_name="t", name=name, value=value)
            for name, value in wanted.items()
        )
    ]
    records.append(b"\x01\x0f\x00" + encode(ProducerIdsRecord(next_producer_id=3000), 0))
    batch = build_batch([(0, None, record, ()) for record in records])
    directory.write("t", 0)
    directory.write("u", 0)
    directory.runtime.disk.make_dirs("/data/__cluster_metadata-0")
    directory.runtime.disk.replace(f"/data/__cluster_metadata-0/{0:020d}.log", batch)
    directory.adopt()
    ids = ProducerIdManager(directory.registry, BROKER)

    assert directory.topics() == ["t", "u"]
    assert directory.settings("t") == {"retention.ms": "5"}
    assert directory.settings("u") == {}
    assert "segment.bytes=none" in caplog.text
    assert directory.run(ids.generate_producer_id()) == 3000


def test_broker_takes_over_partitions_where_it_is_told_to():
    """Its topics are there as before, with their settings."""
    world = BrokerWorld().start()
    world.create("t", segment_bytes=5_000)
    world.stop()
    world.disk.end_process()
    world.disk.remove_tree(f"{LOG_DIR}/registry")
    after = BrokerWorld(world.disk, ottla_adopt_log_dirs=True).start()

    assert after.broker.cache.topic("t") is not None
    assert after.broker.state is BrokerState.RUNNING
