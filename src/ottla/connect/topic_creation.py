"""Creates the topics that a source writes to, with the settings of its groups (KIP-158).

    topic.creation.groups=logs
    topic.creation.default.replication.factor=3      topic.creation.default.partitions=1
    topic.creation.logs.include=log-.*               topic.creation.logs.cleanup.policy=compact

The first group that a topic matches counts, `default` last. Without `topic.creation.default.`
settings nothing is created here: that is left to the broker's auto.create.topics.enable.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.clients.admin.admin import Admin
from ottla.clients.admin.descriptions import NewTopic
from ottla.config.config_type import INT, LIST, SHORT
from ottla.config.connect_config import SourceConnectorConfig
from ottla.connect.worker_clients import with_prefix
from ottla.connect.worker_task import TaskParts
from ottla.errors import ConfigError, ErrorCode, KafkaError

logger = logging.getLogger(__name__)

PREFIX: Final = "topic.creation."
DEFAULT_GROUP: Final = "default"
PARTITIONS: Final = "partitions"
REPLICATION_FACTOR: Final = "replication.factor"
INCLUDE: Final = "include"
EXCLUDE: Final = "exclude"


class TopicCreation:
    """Makes sure that the topics of one task are there; each is looked up once."""

    def __init__(
        self, properties: Mapping[str, str], config: SourceConnectorConfig, parts: TaskParts
    ) -> None:
        is_on = parts.worker_config.topic_creation_enable
        self._groups = topic_groups(properties, config) if is_on else ()
        self._parts = parts
        self._admin: Admin | None = None
        self._known: set[str] = set()

    def ensure(self, topic: str) -> None:
        """Create the topic unless it is there; KafkaError if that cannot be done."""
        if not self._groups or topic in self._known:
            return
        if self._admin is None:
            self._admin = self._parts.clients.admin(self._parts.id)
        if topic not in self._admin.list_topics():
            group = next(group for group in self._groups if group.has(topic))
            new = NewTopic(topic, group.partitions, group.replication_factor, configs=group.config)
            try:
                self._admin.create_topics([new])
                logger.info("Created topic %s by group %s", topic, group.name)
            except KafkaError as error:
                if error.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
        self._known.add(topic)

    def make_again(self) -> None:
        """Create the topics that were deleted since: records would wait for them without end."""
        known, self._known = self._known, set()
        try:
            for topic in sorted(known):
                self.ensure(topic)
        except KafkaError:
            self._known = known
            raise

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()


class TopicGroup(NamedTuple):
    """Topics that are created alike."""

    name: str
    include: tuple[re.Pattern[str], ...]
    exclude: tuple[re.Pattern[str], ...]
    partitions: int
    replication_factor: int
    config: Mapping[str, str]

    def has(self, topic: str) -> bool:
        """Whether a topic is one of the group."""
        if any(pattern.fullmatch(topic) for pattern in self.exclude):
            return False
        return any(pattern.fullmatch(topic) for pattern in self.include)


def topic_groups(
    properties: Mapping[str, str], config: SourceConnectorConfig
) -> tuple[TopicGroup, ...]:
    """The groups of a connector's settings, in the order in which they are asked."""
    factor = properties.get(f"{PREFIX}{DEFAULT_GROUP}.{REPLICATION_FACTOR}")
    if factor is None:
        if config.topic_creation_groups:
            raise ConfigError(
                f"{PREFIX}{DEFAULT_GROUP}.{REPLICATION_FACTOR}: must be set, as {PREFIX}groups is"
            )
        return ()
    default = _group(DEFAULT_GROUP, properties, None)
    named = [_group(name, properties, default) for name in config.topic_creation_groups]
    return (*named, default)


def _group(name: str, properties: Mapping[str, str], default: TopicGroup | None) -> TopicGroup:
    prefix = f"{PREFIX}{name}."
    own = with_prefix(properties, prefix)
    if default is None:
        include: tuple[re.Pattern[str], ...] = (re.compile(".*"),)
    else:
        include = _patterns(prefix + INCLUDE, own.pop(INCLUDE, ""))
        if not include:
            raise ConfigError(f"{prefix}{INCLUDE}: must be set")
    exclude = _patterns(prefix + EXCLUDE, own.pop(EXCLUDE, ""))
    numbers = {}
    for key, kind in ((PARTITIONS, INT), (REPLICATION_FACTOR, SHORT)):
        text = own.pop(key, None)
        if text is None and default is not None:
            numbers[key] = getattr(default, key.replace(".", "_"))
            continue
        if text is None:
            raise ConfigError(f"{prefix}{key}: must be set")
        number = kind.parse(prefix + key, text)
        if number < 1 and number != -1:
            raise ConfigError(f"{prefix}{key}={text}: must be at least 1, or -1 for the broker's")
        numbers[key] = number
    return TopicGroup(name, include, exclude, numbers[PARTITIONS], numbers[REPLICATION_FACTOR], own)


def _patterns(key: str, text: str) -> tuple[re.Pattern[str], ...]:
    try:
        return tuple(re.compile(each) for each in LIST.parse(key, text))
    except re.error as error:
        raise ConfigError(f"{key}={text}: must be regular expressions: {error}") from None
