"""Takes over the partitions that a Kafka broker, or an Ottla that lost its registry, left on disk.

The registry is new, but the log directories hold partitions already. Their topics are written into
the registry with the ids that they have on disk, led by this broker in an epoch above those in the
logs. There is no way back, so an operator has to ask for it. Logs are loaded with their topics'
settings, so it takes two steps: the settings, before they and the logs are loaded, and then the
topics, all at once.

A KRaft broker kept settings in its metadata log. Where the settings are unknown, the topics
keep their records until an operator sets a retention.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from uuid import UUID

from ottla.config.topic_config import TopicConfig
from ottla.controller.broker_registration import random_uuid
from ottla.controller.entity_configs import TOPICS, EntityConfigs
from ottla.controller.log_dir_contents import check_with_registry, reserve_ids_before
from ottla.controller.requested_topic import offsets_topic
from ottla.controller.topic_store import TopicReader
from ottla.errors import ConfigError
from ottla.extensions.adoption.kraft_metadata import KraftMetadata, read_kraft_metadata
from ottla.server.extension import Extension
from ottla.server.parts import Parts
from ottla.structs import INTERNAL_TOPICS, NO_UUID, OFFSETS_TOPIC, LeaderAndIsr, TopicPartition

logger = logging.getLogger(__name__)


class Adoption(Extension):
    """Does nothing where the registry knows topics, or where there are no partitions."""

    def __init__(self, broker: Parts) -> None:
        super().__init__(broker)
        self._topics: dict[str, tuple[UUID, list[int]]] = {}
        self._next_producer_id = 0

    async def before_clients(self) -> None:
        """Look for partitions that the registry does not know, and store their settings."""
        broker = self.broker
        found = await check_with_registry(broker.runtime.disk, broker.config, broker.registry)
        if not found:
            return
        self._check_all_are_there()
        metadata = self._read_metadata()
        for topic, partitions in sorted(found.items()):
            topic_id = self._topic_id(topic, partitions)
            if topic_id is None:
                continue
            self._topics[topic] = topic_id, sorted(partitions)
            settings = self._settings(topic, metadata)
            if settings:
                await EntityConfigs(broker.registry).write(TOPICS, topic, settings)
        if metadata is not None:
            self._next_producer_id = metadata.next_producer_id

    async def after_logs(self) -> None:
        """Write the topics, and make sure that no producer id of their cluster is given out."""
        broker = self.broker
        await reserve_ids_before(broker.registry, broker.broker_id, self._next_producer_id)
        if not self._topics:
            return
        epochs = {
            log.topic_partition: log.leader_epoch_cache.latest_epoch
            for log in broker.log_manager.all_logs()
        }
        topics = {}
        for topic, (topic_id, partitions) in self._topics.items():
            known = {index: epochs.get(TopicPartition(topic, index), 0) for index in partitions}
            topics[topic] = (
                topic_id,
                {
                    index: LeaderAndIsr(broker.broker_id, max(epoch, 0), (broker.broker_id,))
                    for index, epoch in known.items()
                },
            )
        await TopicReader(broker.registry).adopt(topics)
        logger.info(
            "adopted from %s: %s",
            ",".join(broker.config.log_dirs),
            ", ".join(f"{topic} ({len(states)})" for topic, (_, states) in topics.items()),
        )

    def _check_all_are_there(self) -> None:
        """ConfigError where a directory has failed: its partitions could not be adopted later."""
        failed = [each.path for each in self.broker.log_manager.dirs if each.is_offline]
        if failed:
            raise ConfigError(
                f"log.dirs={','.join(failed)}: cannot be used, as the lines above say, and "
                "partitions are adopted from all directories at once: mend it, or leave it out"
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
        return ids.pop() if ids else random_uuid(self.broker.runtime.random.getrandbits)

    def _read_metadata(self) -> KraftMetadata | None:
        for log_dir in self.broker.config.log_dirs:
            metadata = read_kraft_metadata(self.broker.runtime.disk, log_dir.rstrip("/"))
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
            config = offsets_topic(self.broker.config, (self.broker.broker_id,)).config
            return {name: value for name, value in config.items() if value is not None}
        if topic in INTERNAL_TOPICS:
            return {"cleanup.policy": "compact"}
        logger.warning("the settings of %s are not known: its records are kept for ever", topic)
        return no_limits()


def no_limits() -> dict[str, str]:
    """The settings of a topic with which none of its records is deleted for its age or size."""
    rows = [row for row in TopicConfig.keys.values() if row.keeps_all is not None]
    return {row.name: str(row.keeps_all) for row in rows}
