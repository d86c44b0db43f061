"""The broker's settings for groups and the topic that keeps them and their offsets."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ottla.config.config_def import HIGH, ConfigTable, config_key
from ottla.config.config_type import (
    INT,
    INT_MAX,
    LIST,
    LONG,
    SHORT,
    STRING,
    at_least,
    each_one_of,
    one_of,
)
from ottla.errors import ConfigError


class GroupConfig(ConfigTable, group=True):
    """Consumer groups and the topic that keeps their offsets."""

    group_min_session_timeout_ms: int = config_key(
        default=6000,
        type=INT,
        doc="The shortest session timeout that a group member may ask for.",
    )
    group_max_session_timeout_ms: int = config_key(
        default=1800000,
        type=INT,
        doc="The longest session timeout that a group member may ask for.",
    )
    group_initial_rebalance_delay_ms: int = config_key(
        default=3000,
        type=INT,
        doc="How long the first rebalance of an empty group waits for more members. Where it is "
        "not set, a broker without zookeeper.connect does not wait: a lone broker is tried out "
        "by one person more often than it is joined by many members at once.",
    )
    group_max_size: int = config_key(
        default=INT_MAX,
        type=INT,
        rule=at_least(1),
        doc="How many members a group may have.",
    )
    offset_metadata_max_bytes: int = config_key(
        default=4096,
        type=INT,
        importance=HIGH,
        doc="The longest text that may be kept with a committed offset.",
    )
    offsets_commit_timeout_ms: int = config_key(
        default=5000,
        type=INT,
        rule=at_least(1),
        importance=HIGH,
        doc="How long a commit waits for the replicas of the offsets topic.",
    )
    offsets_retention_minutes: int = config_key(
        default=10080,
        type=INT,
        rule=at_least(1),
        importance=HIGH,
        doc="How long the offsets of a group without members are kept.",
    )
    offsets_retention_check_interval_ms: int = config_key(
        default=600000,
        type=LONG,
        rule=at_least(1),
        importance=HIGH,
        doc="How often expired offsets are looked for.",
    )
    offsets_topic_num_partitions: int = config_key(
        default=50,
        type=INT,
        rule=at_least(1),
        importance=HIGH,
        doc="How many partitions the offsets topic gets when it is created.",
    )
    offsets_topic_replication_factor: int = config_key(
        default=3,
        type=SHORT,
        rule=at_least(1),
        importance=HIGH,
        doc="The replication factor of the offsets topic; fewer live brokers make it less.",
    )
    offsets_topic_segment_bytes: int = config_key(
        default=104857600,
        type=INT,
        rule=at_least(1),
        importance=HIGH,
        doc="The segment size of the offsets topic, small so that compaction can work.",
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = config_key(
        default=("classic", "consumer"),
        type=LIST,
        rule=each_one_of("classic", "consumer"),
        doc="The protocols that members of groups may speak; classic cannot be left out.",
    )
    group_consumer_assignors: tuple[str, ...] = config_key(
        default=("uniform", "range"),
        type=LIST,
        rule=each_one_of("uniform", "range"),
        doc="The assignors of consumer groups (KIP-848); the first is for groups that name none.",
    )
    group_consumer_max_size: int = config_key(
        default=INT_MAX,
        type=INT,
        rule=at_least(1),
        doc="How many members a consumer group may have.",
    )
    group_consumer_session_timeout_ms: int = config_key(
        default=45000,
        type=INT,
        rule=at_least(1),
        doc="A member of a consumer group that is silent for this long is put out of it.",
    )
    group_consumer_min_session_timeout_ms: int = config_key(
        default=45000,
        type=INT,
        rule=at_least(1),
        doc="The least that group.consumer.session.timeout.ms may be.",
    )
    group_consumer_max_session_timeout_ms: int = config_key(
        default=60000,
        type=INT,
        rule=at_least(1),
        doc="The most that group.consumer.session.timeout.ms may be.",
    )
    group_consumer_heartbeat_interval_ms: int = config_key(
        default=5000,
        type=INT,
        rule=at_least(1),
        doc="How often members of consumer groups are told to send heartbeats.",
    )
    group_consumer_min_heartbeat_interval_ms: int = config_key(
        default=5000,
        type=INT,
        rule=at_least(1),
        doc="The least that group.consumer.heartbeat.interval.ms may be.",
    )
    group_consumer_max_heartbeat_interval_ms: int = config_key(
        default=15000,
        type=INT,
        rule=at_least(1),
        doc="The most that group.consumer.heartbeat.interval.ms may be.",
    )
    group_consumer_migration_policy: str = config_key(
        default="bidirectional",
        type=STRING,
        rule=one_of("bidirectional", "upgrade", "downgrade", "disabled"),
        doc="Whether groups with members change between the classic and the consumer protocol: "
        "upgrade when the first member of the consumer protocol joins, downgrade when the last "
        "has left, or both.",
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        super().complete(values, given)
        if "classic" not in values["group_coordinator_rebalance_protocols"]:
            raise ConfigError(
                "group.coordinator.rebalance.protocols: must have classic, which cannot be disabled"
            )
        _check_between(
            values,
            "group_consumer_session_timeout_ms",
            values["group_consumer_min_session_timeout_ms"],
            values["group_consumer_max_session_timeout_ms"],
        )
        _check_between(
            values,
            "group_consumer_heartbeat_interval_ms",
            values["group_consumer_min_heartbeat_interval_ms"],
            values["group_consumer_max_heartbeat_interval_ms"],
        )
        interval_ms = values["group_consumer_heartbeat_interval_ms"]
        if interval_ms >= values["group_consumer_session_timeout_ms"]:
            raise ConfigError(
                f"group.consumer.heartbeat.interval.ms={interval_ms}: must be less than "
                f"group.consumer.session.timeout.ms ({values['group_consumer_session_timeout_ms']})"
            )


def _check_between(values: dict[str, Any], attribute: str, least: int, most: int) -> None:
    """The limits of these settings are settings as well."""
    value, key = values[attribute], attribute.replace("_", ".")
    if not least <= value <= most:
        raise ConfigError(
            f"{key}={value}: must be from {key.replace('consumer.', 'consumer.min.')} ({least}) "
            f"to {key.replace('consumer.', 'consumer.max.')} ({most})"
        )
