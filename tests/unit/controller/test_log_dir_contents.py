"""Partitions that a registry does not know keep a broker from starting."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.controller.broker_registration import ensure_persistent_paths
from ottla.controller.log_dir_contents import (
    check_with_registry,
    check_without_registry,
    find_partitions,
    reserve_producer_ids,
)
from ottla.controller.topic_store import TopicReader
from ottla.errors import ConfigError
from ottla.registry.embedded import EmbeddedRegistry
from ottla.registry.paths import PRODUCER_ID_BLOCK
from ottla.registry.znodes import ProducerIdBlock, TopicNode
from ottla.structs import NO_UUID, LeaderAndIsr, TopicPartition
from ottla.testing import mock_runtime


def test_directory_without_a_registry_is_checked_before_anything_is_written(caplog):
    """What Kafka left is left as it is; the warning of what cannot be undone comes first."""
    disk, config = mock_runtime().disk, BrokerConfig.parse({"log.dirs": "/kafka,/more"})
    disk.make_dirs("/kafka/__cluster_metadata-0")
    check_without_registry(disk, config)
    disk.make_dirs("/more/t-0")

    with pytest.raises(ConfigError, match=r"which do not say whose they are.*cannot go back"):
        check_without_registry(disk, config)
    check_without_registry(disk, config.replace(ottla_adopt_log_dirs=True))
    assert "1 partition(s) of 1 topic(s) are adopted. This cannot be undone" in caplog.text


def test_directory_of_another_cluster_is_named_as_what_it_is():
    """A broker that is tried out after a cluster finds the cluster's directory at the default."""
    disk, config = mock_runtime().disk, BrokerConfig.parse({"log.dirs": "/data"})
    disk.make_dirs("/data/t-0")
    disk.replace("/data/meta.properties", b"version=0\nbroker.id=3\ncluster.id=abc\n")

    with pytest.raises(ConfigError, match="of broker 3 of cluster abc, which keeps its topics"):
        check_without_registry(disk, config)


def test_file_that_is_named_like_a_partition_is_none():
    """A broker whose last topic was deleted did not start any more on its own directory."""
    disk, config = mock_runtime().disk, BrokerConfig.parse({"log.dirs": "/data"})
    disk.make_dirs("/data")
    disk.replace("/data/backup-2024", b"mine")

    check_without_registry(disk, config)
    assert find_partitions(disk, ["/data"]) == {}
    disk.make_dirs("/data/t-0")
    assert find_partitions(disk, ["/data"]) == {"t": {0: NO_UUID}}


@pytest.mark.parametrize("adopts", ["false", "true"])
@pytest.mark.parametrize("log_dirs", ["/b,/a", "/new,/a,/b", "/new,/a/"])
def test_registry_must_be_in_the_first_directory(log_dirs, adopts):
    """It was taken for lost: the error offered to adopt the partitions, without their settings."""
    disk = mock_runtime().disk
    disk.make_dirs("/a/registry")
    disk.make_dirs("/b/t-0")
    config = BrokerConfig.parse({"log.dirs": log_dirs, "ottla.adopt.log.dirs": adopts})

    with pytest.raises(ConfigError, match=r"registry of this broker is in /a/?; name"):
        check_without_registry(disk, config)
    check_without_registry(disk, config.replace(log_dirs=("/a", "/b")))


def test_directory_beside_a_registry_without_topics_is_adopted_where_it_is_wanted():
    """The topics are in the registry then; those of ZooKeeper are never taken for unknown."""
    runtime = mock_runtime()
    registry, run = EmbeddedRegistry(runtime, "/data/registry"), runtime.scheduler.run
    run(registry.start())
    run(ensure_persistent_paths(registry))
    runtime.disk.make_dirs("/data/t-0")
    config, adopting, zookeeper = (
        BrokerConfig.parse({"log.dirs": "/data", **each})
        for each in ({}, {"ottla.adopt.log.dirs": "true"}, {"zookeeper.connect": "z:2181"})
    )
    found = {"t": {0: NO_UUID}}
    topics, state = TopicReader(registry), LeaderAndIsr(3, 5, (3,))

    with pytest.raises(ConfigError, match="1 partition"):
        run(check_with_registry(runtime.disk, config, registry))
    assert run(check_with_registry(runtime.disk, zookeeper, registry)) == {}
    assert run(check_with_registry(runtime.disk, adopting, registry)) == found
    run(topics.adopt({"t": (UUID(int=7), {0: state})}))
    assert run(topics.read("t")) == TopicNode({0: (3,)}, UUID(int=7))
    (stored,) = run(topics.read_states([TopicPartition("t", 0)])).values()
    assert stored.state == state
    assert run(check_with_registry(runtime.disk, config, registry)) == {}


def test_directory_with_a_registry_needs_no_permission():
    """It is a broker's own, and so is one whose topics are in ZooKeeper."""
    disk = mock_runtime().disk
    disk.make_dirs("/data/t-0")
    settings = {"log.dirs": "/data", "zookeeper.connect": "localhost:2181"}
    check_without_registry(disk, BrokerConfig.parse(settings))
    disk.make_dirs("/data/registry")
    check_without_registry(disk, BrokerConfig.parse({"log.dirs": "/data"}))


@pytest.mark.parametrize(
    ("known", "producers", "following"),
    [
        (None, [[], []], None),
        (None, [[0]], (0, 0)),
        (None, [[4, 7], [], [2]], (0, 7)),
        ((1000, 1999), [[5, 1999]], (1000, 1999)),
        ((1000, 1999), [[2000], [5]], (2000, 2000)),
    ],
)
def test_blocks_of_producer_ids_follow_each_other(known, producers, following):
    """Ids up to those that the logs know are taken, and none where they know no new one."""
    runtime = mock_runtime()
    registry, run = EmbeddedRegistry(runtime, "/data/registry"), runtime.scheduler.run
    run(registry.start())
    run(ensure_persistent_paths(registry))
    if known is not None:
        run(registry.create(PRODUCER_ID_BLOCK, ProducerIdBlock(3, *known).encode()))
    managers = [SimpleNamespace(producers=dict.fromkeys(ids)) for ids in producers]
    logs = [SimpleNamespace(producer_state_manager=manager) for manager in managers]
    run(reserve_producer_ids(registry, 3, logs))

    if following is None:
        assert run(registry.exists(PRODUCER_ID_BLOCK)) is None
    else:
        data, stat = run(registry.get(PRODUCER_ID_BLOCK))
        assert ProducerIdBlock.decode(data) == ProducerIdBlock(3, *following)
        assert stat.version == (known not in (None, following))
