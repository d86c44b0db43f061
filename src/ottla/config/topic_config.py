"""The settings of a topic; those that a topic does not set come from its broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from ottla.config.broker_config import BrokerConfig
from ottla.config.config_def import ConfigKey, ConfigTable, config_key
from ottla.config.config_type import LONG, LONG_MAX
from ottla.config.known_keys import TOPIC_REFUSED, TOPIC_UNUSED, Refusal, refuse
from ottla.config.rule import at_least, throttled_replicas
from ottla.errors import ConfigError


def _as_broker(broker_key: str, keeps_all: Any = None) -> Any:
    """A setting with the type, default, rule and text of the broker's, whose value it has unset."""
    row = BrokerConfig.keys[broker_key]
    return config_key(
        default=row.default,
        type=row.type,
        rule=row.rule,
        broker_keys=(broker_key,),
        keeps_all=keeps_all,
        doc=row.doc,
    )


class TopicConfig(ConfigTable):
    """Everything that one topic is set up with: its own values over those of the broker."""

    unused: ClassVar[Mapping[str, str]] = TOPIC_UNUSED
    refused: ClassVar[Mapping[str, Refusal]] = TOPIC_REFUSED

    cleanup_policy: tuple[str, ...] = _as_broker("log.cleanup.policy")
    compression_gzip_level: int = _as_broker("compression.gzip.level")
    compression_lz4_level: int = _as_broker("compression.lz4.level")
    compression_type: str = _as_broker("compression.type")
    compression_zstd_level: int = _as_broker("compression.zstd.level")
    delete_retention_ms: int = _as_broker("log.cleaner.delete.retention.ms")
    file_delete_delay_ms: int = config_key(
        default=60000,
        type=LONG,
        rule=at_least(0),
        broker_keys=("log.segment.delete.delay.ms",),
        doc="How long the file of a deleted segment stays.",
    )
    flush_messages: int = _as_broker("log.flush.interval.messages")
    flush_ms: int = config_key(
        default=LONG_MAX,
        type=LONG,
        rule=at_least(0),
        broker_keys=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        doc="A record is forced to disk at this age.",
    )
    index_interval_bytes: int = _as_broker("log.index.interval.bytes")
    max_compaction_lag_ms: int = _as_broker("log.cleaner.max.compaction.lag.ms")
    max_message_bytes: int = _as_broker("message.max.bytes")
    message_downconversion_enable: bool = _as_broker("log.message.downconversion.enable")
    leader_replication_throttled_replicas: tuple[str, ...] = config_key(
        default=(),
        rule=throttled_replicas(),
        doc="The replicas, as partition:broker with commas between or *, that their leader sends "
        "to at leader.replication.throttled.rate while they are not in sync.",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = config_key(
        default=(),
        rule=throttled_replicas(),
        doc="The replicas, as partition:broker with commas between or *, that are fetched at "
        "follower.replication.throttled.rate.",
    )
    message_timestamp_type: str = _as_broker("log.message.timestamp.type")
    message_timestamp_difference_max_ms: int = _as_broker("log.message.timestamp.difference.max.ms")
    message_timestamp_before_max_ms: int = _as_broker("log.message.timestamp.before.max.ms")
    message_timestamp_after_max_ms: int = _as_broker("log.message.timestamp.after.max.ms")
    min_cleanable_dirty_ratio: float = _as_broker("log.cleaner.min.cleanable.ratio")
    min_compaction_lag_ms: int = _as_broker("log.cleaner.min.compaction.lag.ms")
    min_insync_replicas: int = _as_broker("min.insync.replicas")
    retention_bytes: int = _as_broker("log.retention.bytes", keeps_all=-1)
    retention_ms: int = config_key(
        default=604800000,
        type=LONG,
        rule=at_least(-1),
        broker_keys=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        keeps_all=-1,
        doc="Segments whose newest record is older than this are deleted; -1 keeps them for ever.",
    )
    segment_bytes: int = _as_broker("log.segment.bytes")
    segment_index_bytes: int = _as_broker("log.index.size.max.bytes")
    segment_jitter_ms: int = config_key(
        default=0,
        type=LONG,
        rule=at_least(0),
        broker_keys=("log.roll.jitter.ms", "log.roll.jitter.hours"),
        doc="Up to this much is taken off segment.ms, so that segments do not all roll at once.",
    )
    segment_ms: int = config_key(
        default=604800000,
        type=LONG,
        rule=at_least(1),
        broker_keys=("log.roll.ms", "log.roll.hours"),
        doc="A segment is closed at this age even if it is not full.",
    )
    unclean_leader_election_enable: bool = _as_broker("unclean.leader.election.enable")

    @classmethod
    def of(cls, broker_config: BrokerConfig, overrides: Mapping[str, str]) -> Self:
        """The settings of a topic with these overrides (dotted keys) on this broker.

        Overrides have been through `validate` when they were set; names without effect are passed
        over in silence here, because this runs at every start and for every topic.
        """
        values = {row.attribute: _broker_default(row, broker_config) for row in cls.keys.values()}
        given = [row for name, row in cls.keys.items() if name in overrides]
        for row in given:
            values[row.attribute] = row.parse(overrides[row.name])
        config = cls.__new__(cls)
        config._freeze(values, frozenset(row.name for row in given))
        return config

    @classmethod
    def validate(cls, overrides: Mapping[str, str | None]) -> None:
        """ConfigError for a name that is no topic setting and for a value that breaks its rule."""
        for name, value in overrides.items():
            row = cls.keys.get(name)
            if row is not None:
                if value is None:
                    raise ConfigError(f"{name}=null: must have a value")
                row.parse(value)
            elif name in cls.unused:
                cls.warn_of_unknown(name)
            elif not refuse(name, value, cls.refused):
                cls.refuse_misspelt(name, value)
                raise ConfigError(f"{name}={value}: there is no topic setting of this name")
        cls._validate_lags(overrides)

    @classmethod
    def _validate_lags(cls, overrides: Mapping[str, str | None]) -> None:
        """No record may have to be compacted before it may be."""
        least, most = "min.compaction.lag.ms", "max.compaction.lag.ms"
        if least in overrides and most in overrides:
            lag_ms = cls.keys[least].parse(overrides[least])
            if lag_ms > cls.keys[most].parse(overrides[most]):
                raise ConfigError(f"{least}={lag_ms}: must not be above {most}={overrides[most]}")


def _broker_default(row: ConfigKey, broker_config: BrokerConfig) -> Any:
    if not row.broker_keys:
        return row.default
    return getattr(broker_config, row.broker_keys[0].replace(".", "_"))
