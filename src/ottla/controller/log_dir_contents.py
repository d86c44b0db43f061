"""The contents of log directories that the registry has to know: partitions and producers' ids.

A broker does not start on partitions that its registry does not know, as they may be another
broker's, or of a cluster that keeps its topics elsewhere; where a setting says so, it adopts them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from uuid import UUID

from ottla.config.broker_config import BrokerConfig
from ottla.controller.topic_store import TopicReader
from ottla.errors import ConfigError
from ottla.log.log import Log
from ottla.log.log_dir import META_PROPERTIES_FILE, MetaProperties, read_owner, read_topic_id
from ottla.log.log_files import CLUSTER_METADATA_DIR, PARTITION_METADATA, parse_partition_dir
from ottla.registry.embedded import REGISTRY_DIRECTORY
from ottla.registry.paths import PRODUCER_ID_BLOCK
from ottla.registry.tree import NoNodeError, Registry
from ottla.registry.znodes import ProducerIdBlock
from ottla.runtime import Disk

logger = logging.getLogger(__name__)

Found = dict[str, dict[int, UUID]]
"""The topic id that each partition has on disk, by topic and partition."""


def check_without_registry(disk: Disk, config: BrokerConfig) -> None:
    """ConfigError if a start finds no registry, and one elsewhere, or partitions without consent.

    Nothing has been written yet: Apache Kafka's files are unchanged.
    """
    first = config.log_dirs[0].rstrip("/")
    if config.zookeeper_connect is not None or disk.is_dir(f"{first}/{REGISTRY_DIRECTORY}"):
        return
    for path in config.log_dirs[1:]:
        with suppress(OSError):
            if disk.is_dir(f"{path.rstrip('/')}/{REGISTRY_DIRECTORY}"):
                why = f"the registry of this broker is in {path}; name that directory first"
                raise ConfigError(f"log.dirs={','.join(config.log_dirs)}: {why}")
    found = find_partitions(disk, config.log_dirs)
    if found:
        _check_adopted(disk, config, found)
        logger.warning(
            "log.dirs=%s: %s are adopted. This cannot be undone: Apache Kafka does not start on "
            "the directory afterwards, and what is written from now on is not in its metadata",
            ",".join(config.log_dirs),
            _counted(found),
        )


async def check_with_registry(disk: Disk, config: BrokerConfig, registry: Registry) -> Found:
    """The partitions that a registry without topics does not know; none with ZooKeeper.

    Raises:
        ConfigError: there are some, and they are not adopted.
    """
    # With ZooKeeper the topics are in ZooKeeper, and so are those that are being deleted.
    if config.zookeeper_connect is not None or await TopicReader(registry).names():
        return {}
    found = find_partitions(disk, config.log_dirs)
    if found:
        _check_adopted(disk, config, found)
    return found


def _check_adopted(disk: Disk, config: BrokerConfig, found: Found) -> None:
    if config.ottla_adopt_log_dirs:
        return
    owner = owner_of(disk, config.log_dirs)
    whose = "which do not say whose they are"
    if owner is not None:
        whose = (
            f"of broker {owner.broker_id} of cluster {owner.cluster_id}, which keeps its topics "
            "elsewhere: a broker of Ottla or Kafka with zookeeper.connect, or one of KRaft"
        )
    raise ConfigError(
        f"log.dirs={','.join(config.log_dirs)}: must be a directory of this broker, and has "
        f"{_counted(found)} {whose}. Choose another directory for a broker of its own, or start "
        "that broker with its zookeeper.connect. `ottla broker --adopt-log-dirs` takes the "
        "partitions over; their owner cannot go back to the directory then, so do it on a copy"
    )


def owner_of(disk: Disk, log_dirs: Iterable[str]) -> MetaProperties | None:
    """The broker and the cluster that the first directory with such a note names."""
    for log_dir in log_dirs:
        with suppress(OSError, ConfigError):
            found = read_owner(disk, f"{log_dir.rstrip('/')}/{META_PROPERTIES_FILE}")
            if found is not None:
                return found
    return None


def _counted(found: Found) -> str:
    partitions = sum(map(len, found.values()))
    return f"{partitions} partition(s) of {len(found)} topic(s)"


def find_partitions(disk: Disk, log_dirs: Iterable[str]) -> Found:
    """The partitions in log directories; a directory that cannot be read has none."""
    found = Found()
    for log_dir in log_dirs:
        path = log_dir.rstrip("/")
        with suppress(OSError):  # the log manager takes such a directory out of service
            for name in disk.list_dir(path) if disk.is_dir(path) else ():
                parsed = parse_partition_dir(name)
                is_log = parsed is not None and disk.is_dir(f"{path}/{name}")
                if name == CLUSTER_METADATA_DIR or parsed is None or not is_log:
                    continue
                topic_id = read_topic_id(disk, f"{path}/{name}/{PARTITION_METADATA}")
                found.setdefault(parsed.topic, {})[parsed.partition] = topic_id
    return found


async def reserve_producer_ids(registry: Registry, broker_id: int, logs: Iterable[Log]) -> None:
    """Make sure that no producer id in a log is given out again."""
    next_id = 0
    for log in logs:
        next_id = max(next_id, 1 + max(log.producer_state_manager.producers, default=-1))
    await reserve_ids_before(registry, broker_id, next_id)


async def reserve_ids_before(registry: Registry, broker_id: int, next_id: int) -> None:
    """Have producer ids given out from this one on, at the lowest."""
    try:
        data, stat = await registry.get(PRODUCER_ID_BLOCK)
    except NoNodeError:
        if next_id > 0:
            block = ProducerIdBlock(broker_id, 0, next_id - 1)
            await registry.create(PRODUCER_ID_BLOCK, block.encode())
        return
    known = ProducerIdBlock.decode(data)
    if known.last_id < next_id - 1:
        block = ProducerIdBlock(broker_id, known.last_id + 1, next_id - 1)
        await registry.set(PRODUCER_ID_BLOCK, block.encode(), stat.version)
