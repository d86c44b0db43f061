"""The settings of coordinators: of groups and their offsets, of one group, and of transactions.

A setting that a group does not set comes from its broker.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Self

from ottla.config.config_def import HIGH, LOW, ConfigTable, config_key
from ottla.config.config_type import INT_MAX, LONG, SHORT
from ottla.config.rule import at_least, each_one_of, one_of
from ottla.errors import ConfigError


class GroupConfig(ConfigTable, group=True):
    """Consumer groups and the topic that keeps their offsets."""

    group_min_session_timeout_ms: int = config_key(
        default=6000,
        doc="The shortest session timeout that a group member may ask for.",
    )
    group_max_session_timeout_ms: int = config_key(
        default=1800000,
        doc="The longest session timeout that a group member may ask for.",
    )
    group_initial_rebalance_delay_ms: int = config_key(
        default=3000,
        doc="How long the first rebalance of an empty group waits for more members. Where it is "
        "not set, a broker without zookeeper.connect does not wait: a lone broker is tried out "
        "by one person more often than it is joined by many members at once.",
    )
    group_max_size: int = config_key(
        default=INT_MAX,
        rule=at_least(1),
        doc="How many members a group may have.",
    )
    offset_metadata_max_bytes: int = config_key(
        default=4096,
        importance=HIGH,
        doc="The longest text that may be kept with a committed offset.",
    )
    offsets_commit_timeout_ms: int = config_key(
        default=5000,
        rule=at_least(1),
        importance=HIGH,
        doc="How long a commit waits for the replicas of the offsets topic.",
    )
    offsets_retention_minutes: int = config_key(
        default=10080,
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
        rule=at_least(1),
        importance=HIGH,
        doc="The segment size of the offsets topic, small so that compaction can work.",
    )
    group_coordinator_rebalance_protocols: tuple[str, ...] = config_key(
        default=("classic", "consumer"),
        rule=each_one_of("classic", "consumer"),
        doc="The protocols that members of groups may speak; classic cannot be left out.",
    )
    group_consumer_assignors: tuple[str, ...] = config_key(
        default=("uniform", "range"),
        rule=each_one_of("uniform", "range"),
        doc="The assignors of consumer groups (KIP-848); the first is for groups that name none.",
    )
    group_consumer_max_size: int = config_key(
        default=INT_MAX,
        rule=at_least(1),
        doc="How many members a consumer group may have.",
    )
    group_consumer_session_timeout_ms: int = config_key(
        default=45000,
        rule=at_least(1),
        doc="A member of a consumer group that is silent for this long is put out of it.",
    )
    group_consumer_min_session_timeout_ms: int = config_key(
        default=45000,
        rule=at_least(1),
        doc="The least that group.consumer.session.timeout.ms may be.",
    )
    group_consumer_max_session_timeout_ms: int = config_key(
        default=60000,
        rule=at_least(1),
        doc="The most that group.consumer.session.timeout.ms may be.",
    )
    group_consumer_heartbeat_interval_ms: int = config_key(
        default=5000,
        rule=at_least(1),
        doc="How often members of consumer groups are told to send heartbeats.",
    )
    group_consumer_min_heartbeat_interval_ms: int = config_key(
        default=5000,
        rule=at_least(1),
        doc="The least that group.consumer.heartbeat.interval.ms may be.",
    )
    group_consumer_max_heartbeat_interval_ms: int = config_key(
        default=15000,
        rule=at_least(1),
        doc="The most that group.consumer.heartbeat.interval.ms may be.",
    )
    group_consumer_migration_policy: str = config_key(
        default="bidirectional",
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


class ConsumerGroupConfig(ConfigTable):
    """The settings of one group: its own values over those of the broker."""

    consumer_session_timeout_ms: int = config_key(
        default=45000,
        rule=at_least(1),
        broker_keys=("group.consumer.session.timeout.ms",),
        doc="A member of the group that is silent for this long is put out of it.",
    )
    consumer_heartbeat_interval_ms: int = config_key(
        default=5000,
        rule=at_least(1),
        broker_keys=("group.consumer.heartbeat.interval.ms",),
        doc="How often members of the group are told to send heartbeats.",
    )

    @classmethod
    def of(cls, broker: GroupConfig, overrides: Mapping[str, str]) -> Self:
        """The values in force for a group with these overrides."""
        given = {
            row.attribute: getattr(broker, GroupConfig.keys[row.broker_keys[0]].attribute)
            for row in cls.keys.values()
        }
        given |= {
            row.attribute: overrides[name] for name, row in cls.keys.items() if name in overrides
        }
        return cls(**given)

    @classmethod
    def validate(cls, broker: GroupConfig, overrides: Mapping[str, str]) -> None:
        """ConfigError for an unknown setting, or a value that the broker does not allow."""
        for name in overrides:
            if name not in cls.keys:
                raise ConfigError(f"{name}: not a setting of groups")
        config = cls.of(broker, overrides)
        for name in overrides:
            row = cls.keys[name]
            least, most = cls.limits(broker, name)
            value = getattr(config, row.attribute)
            if not least <= value <= most:
                raise ConfigError(
                    f"{name}={value}: must be from {limit_key(name, 'min')} ({least}) "
                    f"to {limit_key(name, 'max')} ({most})"
                )
        if config.consumer_heartbeat_interval_ms >= config.consumer_session_timeout_ms:
            raise ConfigError(
                f"consumer.heartbeat.interval.ms={config.consumer_heartbeat_interval_ms}: must be "
                f"less than consumer.session.timeout.ms ({config.consumer_session_timeout_ms})"
            )

    @classmethod
    def limits(cls, broker: GroupConfig, name: str) -> tuple[int, int]:
        """The least and the greatest value that the broker allows for a setting."""
        least, most = (GroupConfig.keys[limit_key(name, end)] for end in ("min", "max"))
        return getattr(broker, least.attribute), getattr(broker, most.attribute)


def limit_key(name: str, end: str) -> str:
    """The name of the broker's setting that limits a setting of a group."""
    return "group." + name.replace("consumer.", f"consumer.{end}.", 1)


class TransactionConfig(ConfigTable, group=True):
    """Transactions: how long they may take, and where their state is kept."""

    transaction_max_timeout_ms: int = config_key(
        default=900000,
        rule=at_least(1),
        importance=HIGH,
        doc="The longest transaction.timeout.ms that a producer may ask for.",
    )
    transactional_id_expiration_ms: int = config_key(
        default=604800000,
        rule=at_least(1),
        importance=HIGH,
        doc="How long a transactional id that nobody uses is kept.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = config_key(
        default=10000,
        rule=at_least(1),
        importance=LOW,
        doc="How often transactions that have taken too long are looked for, to be aborted.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = config_key(
        default=3600000,
        rule=at_least(1),
        importance=LOW,
        doc="How often expired transactional ids are looked for.",
    )
    transaction_state_log_num_partitions: int = config_key(
        default=50,
        rule=at_least(1),
        importance=HIGH,
        doc="How many partitions the topic of transactional ids gets when it is created.",
    )
    transaction_state_log_replication_factor: int = config_key(
        default=3,
        type=SHORT,
        rule=at_least(1),
        importance=HIGH,
        doc="The replication factor of that topic; fewer live brokers make it less.",
    )
    transaction_state_log_min_isr: int = config_key(
        default=2,
        rule=at_least(1),
        importance=HIGH,
        doc="The min.insync.replicas of that topic; at most its replication factor.",
    )
    transaction_state_log_segment_bytes: int = config_key(
        default=104857600,
        rule=at_least(1),
        importance=HIGH,
        doc="The segment size of that topic, small so that compaction can work.",
    )
