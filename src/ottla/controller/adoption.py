"""Takes over the partitions that a Kafka broker, or an Ottla that lost its registry, left on disk.

The registry is new, but the log directories hold partitions already. Their topics are written into
the registry with the ids that they have on disk, led by this broker in an epoch above those in the
logs. There is no way back, so an operator has to ask for it. Logs are loaded with their topics'
settings, so it takes three steps:

    check_adoption(disk, config, is_wanted)    before the first byte is written
    adoption = Adoption(runtime, registry, config, broker_id, is_wanted)
    await adoption.prepare()                   the settings, before they and the logs are loaded
    await adoption.complete(logs)              the topics, all at once, and no producer id twice

A KRaft broker kept settings in its metadata log. Where the settings are unknown, the topics
keep their records until an operator sets a retention.

Wing: attaches to `server/broker`, for directories of Apache Kafka; the core works without it.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from ottla.config.topic_config import TopicConfig
from ottla.controller.broker_registration import random_uuid
from ottla.controller.topic_assignment import offsets_topic
from ottla.controller.topic_store import TOPICS, EntityConfigs, TopicReader
from ottla.errors import ConfigError
from ottla.log.log_dir import (
    CLUSTER_METADATA_DIR,
    LOG_SUFFIX,
    META_PROPERTIES_FILE,
    PARTITION_METADATA,
    MetaProperties,
    parse_partition_dir,
    parse_segment_name,
    read_owner,
    read_topic_id,
)
from ottla.record.record_batch import batches
from ottla.registry.embedded import REGISTRY_DIRECTORY
from ottla.registry.paths import PRODUCER_ID_BLOCK
from ottla.registry.tree import NoNodeError, Registry
from ottla.registry.znodes import ProducerIdBlock
from ottla.structs import INTERNAL_TOPICS, NO_UUID, OFFSETS_TOPIC, LeaderAndIsr, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ottla.config.broker_config import BrokerConfig
    from ottla.log.log import Log
    from ottla.protocol.message import Message
    from ottla.runtime import Disk, Runtime

logger = logging.getLogger(__name__)


# What a KRaft broker's metadata log says about the topics whose partitions are on the same disk.
#
# `__cluster_metadata-0/` holds a log of changes, and sometimes snapshots (`<end offset>-<epoch>.
# checkpoint`) that replace the log before them. Both are read and never written.


CHECKPOINT_SUFFIX: Final = ".checkpoint"
OFFSET_DIGITS: Final = 20
TOPIC_RESOURCE: Final = 2
FRAME_BYTES: Final = 3


class KraftMetadata(NamedTuple):
    """The overrides of each topic, and the first producer id not yet given to a broker."""

    topic_configs: Mapping[str, Mapping[str, str]]
    next_producer_id: int


def read_kraft_metadata(disk: Disk, log_dir: str) -> KraftMetadata | None:
    """What the metadata log in a log directory says; None if there is no such log."""
    directory = f"{log_dir}/{CLUSTER_METADATA_DIR}"
    if not disk.is_dir(directory):
        return None
    replay = _Replay()
    for record in _records(disk, directory):
        replay.apply(record)
    configs = {name: configs for name, configs in replay.configs.items() if configs}
    return KraftMetadata(configs, replay.next_producer_id)


class _Replay:
    """The state after the records so far."""

    def __init__(self) -> None:
        self.names = {NO_UUID: ""}
        self.configs: dict[str, dict[str, str]] = {}
        self.next_producer_id = 0

    def apply(self, record: Message) -> None:
        from ottla.protocol.metadata_records import (
            ConfigRecord,
            ProducerIdsRecord,
            RemoveTopicRecord,
            TopicRecord,
        )

        if isinstance(record, TopicRecord):
            self.names[record.topic_id] = record.name
        elif isinstance(record, RemoveTopicRecord):
            self.configs.pop(self.names.pop(record.topic_id, ""), None)
        elif isinstance(record, ProducerIdsRecord):
            self.next_producer_id = record.next_producer_id
        elif isinstance(record, ConfigRecord) and record.resource_type == TOPIC_RESOURCE:
            configs = self.configs.setdefault(record.resource_name, {})
            if record.value is None:
                configs.pop(record.name, None)
            else:
                configs[record.name] = record.value


def _records(disk: Disk, directory: str) -> Iterator[Message]:
    """The newest snapshot, then what the log has after it."""
    names = sorted(disk.list_dir(directory))
    snapshots = [name for name in names if name.endswith(CHECKPOINT_SUFFIX)]
    start_offset = 0
    if snapshots:
        start_offset = int(snapshots[-1][:OFFSET_DIGITS])
        yield from _records_of(disk, f"{directory}/{snapshots[-1]}", 0)
    for name in names:
        parsed = parse_segment_name(name)
        if parsed is not None and parsed[1:] == (LOG_SUFFIX, ""):
            yield from _records_of(disk, f"{directory}/{name}", start_offset)


def _records_of(disk: Disk, path: str, start_offset: int) -> Iterator[Message]:
    # Imported only here: few brokers take such a directory over.
    from ottla.protocol.message import decode
    from ottla.protocol.metadata_records import FRAME_VERSION, METADATA_RECORDS

    for batch in batches(disk.read_bytes(path)):
        if batch.is_control or batch.last_offset < start_offset:
            continue
        for record in batch.records():
            value = record.value or b""
            if record.offset < start_offset or len(value) < FRAME_BYTES:
                continue
            # The three varints of the frame are small numbers: one byte each.
            frame_version, key, version = value[:FRAME_BYTES]
            cls = METADATA_RECORDS.get(key)
            if frame_version != FRAME_VERSION or cls is None:
                continue
            if version > cls.max_version:
                logger.warning("%s: %s of version %d is passed over", path, cls.__name__, version)
                continue
            yield decode(cls, version, value, FRAME_BYTES)


Found = dict[str, dict[int, UUID]]
"""The topic id that each partition has on disk, by topic and partition."""


def check_adoption(disk: Disk, config: BrokerConfig, is_wanted: bool) -> None:
    """ConfigError if a start without a registry finds partitions, unless they are wanted.

    Nothing has been written yet: what Apache Kafka left there is unchanged.
    """
    first = config.log_dirs[0].rstrip("/")
    if config.zookeeper_connect is not None or disk.is_dir(f"{first}/{REGISTRY_DIRECTORY}"):
        return
    found = find_partitions(disk, config.log_dirs)
    if found:
        _check_wanted(found, config, is_wanted, owner_of(disk, config.log_dirs))
        logger.warning(
            "log.dirs=%s: %s are adopted. This cannot be undone: Apache Kafka does not start on "
            "the directory afterwards, and what is written from now on is not in its metadata",
            ",".join(config.log_dirs),
            _counted(found),
        )


def _check_wanted(
    found: Found, config: BrokerConfig, is_wanted: bool, owner: MetaProperties | None
) -> None:
    if is_wanted:
        return
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
                if name == CLUSTER_METADATA_DIR or parsed is None:
                    continue
                topic_id = read_topic_id(disk, f"{path}/{name}/{PARTITION_METADATA}")
                found.setdefault(parsed.topic, {})[parsed.partition] = topic_id
    return found


class Adoption:
    """Does nothing where the registry knows topics, or where there are no partitions."""

    def __init__(
        self,
        runtime: Runtime,
        registry: Registry,
        config: BrokerConfig,
        broker_id: int,
        is_wanted: bool,
    ) -> None:
        self.runtime = runtime
        self.registry = registry
        self.config = config
        self.broker_id = broker_id
        self.is_wanted = is_wanted
        self._topics: dict[str, tuple[UUID, list[int]]] = {}
        self._next_producer_id = 0

    async def prepare(self) -> None:
        """Look for partitions that the registry does not know, and store their settings.

        ConfigError if there are some and adoption was not asked for.
        """
        store = TopicReader(self.registry)
        # With ZooKeeper the topics are in ZooKeeper, and so is what is being deleted.
        if self.config.zookeeper_connect is not None or await store.names():
            return
        found = find_partitions(self.runtime.disk, self.config.log_dirs)
        if not found:
            return
        owner = owner_of(self.runtime.disk, self.config.log_dirs)
        _check_wanted(found, self.config, self.is_wanted, owner)
        metadata = self._read_metadata()
        for topic, partitions in sorted(found.items()):
            topic_id = self._topic_id(topic, partitions)
            if topic_id is None:
                continue
            self._topics[topic] = topic_id, sorted(partitions)
            settings = self._settings(topic, metadata)
            if settings:
                await EntityConfigs(self.registry).write(TOPICS, topic, settings)
        if metadata is not None:
            self._next_producer_id = metadata.next_producer_id

    async def complete(self, logs: Iterable[Log]) -> None:
        """Write the topics, and make sure that no producer id in a log is given out again."""
        epochs: dict[TopicPartition, int] = {}
        next_id = self._next_producer_id
        for log in logs:
            epochs[log.topic_partition] = log.leader_epoch_cache.latest_epoch
            next_id = max(next_id, 1 + max(log.producer_state_manager.producers, default=-1))
        await self._reserve_producer_ids(next_id)
        if not self._topics:
            return
        topics = {}
        for topic, (topic_id, partitions) in self._topics.items():
            known = {index: epochs.get(TopicPartition(topic, index), 0) for index in partitions}
            topics[topic] = (
                topic_id,
                {
                    index: LeaderAndIsr(self.broker_id, max(epoch, 0), (self.broker_id,))
                    for index, epoch in known.items()
                },
            )
        await TopicReader(self.registry).adopt(topics)
        logger.info(
            "adopted from %s: %s",
            ",".join(self.config.log_dirs),
            ", ".join(f"{topic} ({len(states)})" for topic, (_, states) in topics.items()),
        )

    def _topic_id(self, topic: str, partitions: Mapping[int, UUID]) -> UUID | None:
        """The id of a topic that can be taken over; None if it is left alone."""
        ids = set(partitions.values()) - {NO_UUID}
        missing = sorted(set(range(max(partitions) + 1)) - set(partitions))
        if missing:
            logger.warning("%s is not adopted: partitions %s are not here", topic, missing)
            return None
        if len(ids) > 1:
            logger.warning("%s is not adopted: its partitions have different topic ids", topic)
            return None
        return ids.pop() if ids else random_uuid(self.runtime.random.getrandbits)

    def _read_metadata(self) -> KraftMetadata | None:
        for log_dir in self.config.log_dirs:
            metadata = read_kraft_metadata(self.runtime.disk, log_dir.rstrip("/"))
            if metadata is not None:
                return metadata
        return None

    def _settings(self, topic: str, metadata: KraftMetadata | None) -> Mapping[str, str]:
        if metadata is not None:
            known = {}
            for name, value in metadata.topic_configs.get(topic, {}).items():
                try:
                    TopicConfig.validate({name: value})
                    known[name] = value
                except ConfigError as error:
                    logger.warning("%s: a setting is not adopted: %s", topic, error)
            return known
        if topic == OFFSETS_TOPIC:
            config = offsets_topic(self.config, (self.broker_id,)).config
            return {name: value for name, value in config.items() if value is not None}
        if topic in INTERNAL_TOPICS:
            return {"cleanup.policy": "compact"}
        logger.warning("the settings of %s are not known: its records are kept for ever", topic)
        return no_limits()

    async def _reserve_producer_ids(self, next_id: int) -> None:
        try:
            data, stat = await self.registry.get(PRODUCER_ID_BLOCK)
        except NoNodeError:
            if next_id > 0:
                block = ProducerIdBlock(self.broker_id, 0, next_id - 1)
                await self.registry.create(PRODUCER_ID_BLOCK, block.encode())
            return
        known = ProducerIdBlock.decode(data)
        if known.last_id < next_id - 1:
            block = ProducerIdBlock(self.broker_id, known.last_id + 1, next_id - 1)
            await self.registry.set(PRODUCER_ID_BLOCK, block.encode(), stat.version)


def no_limits() -> dict[str, str]:
    """The settings of a topic with which none of its records is deleted for its age or size."""
    rows = [row for row in TopicConfig.keys.values() if row.keeps_all is not None]
    return {row.name: str(row.keeps_all) for row in rows}
