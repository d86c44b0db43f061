"""The settings of a topic; those that a topic does not set come from its broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from ottla.config.broker_config import BrokerConfig
from ottla.config.config_def import ConfigKey, ConfigTable, config_key
from ottla.config.config_type import LONG, LONG_MAX
from ottla.config.known_keys import TOPIC_REFUSED, TOPIC_UNUSED, Refusal, refuse
from ottla.config.rule import any_of, at_least, between, each_one_of, one_of, throttled_replicas
from ottla.errors import ConfigError


class TopicConfig(ConfigTable):
    """Everything that one topic is set up with: its own values over those of the broker."""

    unused: ClassVar[Mapping[str, str]] = TOPIC_UNUSED
    refused: ClassVar[Mapping[str, Refusal]] = TOPIC_REFUSED

    cleanup_policy: tuple[str, ...] = config_key(
        default=("delete",),
        rule=each_one_of("delete", "compact", may_be_empty=True),
        broker_keys=("log.cleanup.policy",),
        doc="What happens to old segments: deletion by age and size, compaction by key, or both. "
        "Where it is empty, only records that were deleted by DeleteRecords go.",
    )
    compression_gzip_level: int = config_key(
        default=-1,
        rule=any_of(between(1, 9), between(-1, -1)),
        broker_keys=("compression.gzip.level",),
        doc="The level of gzip where the broker compresses; -1 is the default of the library.",
    )
    compression_lz4_level: int = config_key(
        default=9,
        rule=between(1, 17),
        broker_keys=("compression.lz4.level",),
        doc="The level of lz4 where the broker compresses.",
    )
    compression_type: str = config_key(
        default="producer",
        rule=one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        broker_keys=("compression.type",),
        doc="The codec that batches are stored with; producer keeps them as they came.",
    )
    compression_zstd_level: int = config_key(
        default=3,
        rule=between(-131072, 22),
        broker_keys=("compression.zstd.level",),
        doc="The level of zstd where the broker compresses.",
    )
    delete_retention_ms: int = config_key(
        default=86400000,
        type=LONG,
        rule=at_least(0),
        broker_keys=("log.cleaner.delete.retention.ms",),
        doc="How long the record that deletes a key stays after compaction first passed over it.",
    )
    file_delete_delay_ms: int = config_key(
        default=60000,
        type=LONG,
        rule=at_least(0),
        broker_keys=("log.segment.delete.delay.ms",),
        doc="How long the file of a deleted segment stays.",
    )
    flush_messages: int = config_key(
        default=LONG_MAX,
        type=LONG,
        rule=at_least(1),
        broker_keys=("log.flush.interval.messages",),
        doc="After so many unflushed records the log is forced to disk.",
    )
    flush_ms: int = config_key(
        default=LONG_MAX,
        type=LONG,
        rule=at_least(0),
        broker_keys=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        doc="A record is forced to disk at this age.",
    )
    index_interval_bytes: int = config_key(
        default=4096,
        rule=at_least(0),
        broker_keys=("log.index.interval.bytes",),
        doc="About every so many bytes of log an entry is added to the indexes.",
    )
    max_compaction_lag_ms: int = config_key(
        default=LONG_MAX,
        type=LONG,
        rule=at_least(1),
        broker_keys=("log.cleaner.max.compaction.lag.ms",),
        doc="A partition is compacted when a record has waited for this long, whatever its share "
        "of new records.",
    )
    max_message_bytes: int = config_key(
        default=1048588,
        rule=at_least(0),
        broker_keys=("message.max.bytes",),
        doc="The largest record batch that is accepted, after compression.",
    )
    message_downconversion_enable: bool = config_key(
        default=True,
        broker_keys=("log.message.downconversion.enable",),
        doc="Whether consumers from before Kafka 0.11 get the records in a format that they know.",
    )
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
    message_timestamp_type: str = config_key(
        default="CreateTime",
        rule=one_of("CreateTime", "LogAppendTime"),
        broker_keys=("log.message.timestamp.type",),
        doc="Whether records keep the producer's timestamp or get that of the append.",
    )
    message_timestamp_difference_max_ms: int = config_key(
        default=LONG_MAX,
        type=LONG,
        rule=at_least(0),
        broker_keys=("log.message.timestamp.difference.max.ms",),
        doc="How far a record's timestamp may be from the broker's clock, either way.",
    )
    message_timestamp_before_max_ms: int = config_key(
        default=LONG_MAX,
        type=LONG,
        rule=at_least(0),
        broker_keys=("log.message.timestamp.before.max.ms",),
        doc="How far a record's timestamp may lie in the past.",
    )
    message_timestamp_after_max_ms: int = config_key(
        default=LONG_MAX,
        type=LONG,
        rule=at_least(0),
        broker_keys=("log.message.timestamp.after.max.ms",),
        doc="How far a record's timestamp may lie in the future.",
    )
    min_cleanable_dirty_ratio: float = config_key(
        default=0.5,
        rule=between(0, 1),
        broker_keys=("log.cleaner.min.cleanable.ratio",),
        doc="A partition is compacted when more than this share of it is new since the last time.",
    )
    min_compaction_lag_ms: int = config_key(
        default=0,
        type=LONG,
        rule=at_least(0),
        broker_keys=("log.cleaner.min.compaction.lag.ms",),
        doc="Younger records are not compacted.",
    )
    min_insync_replicas: int = config_key(
        default=1,
        rule=at_least(1),
        broker_keys=("min.insync.replicas",),
        doc="How many replicas must be in sync for a write with acks=all.",
    )
    retention_bytes: int = config_key(
        default=-1,
        type=LONG,
        broker_keys=("log.retention.bytes",),
        keeps_all=-1,
        doc="Oldest segments are deleted while a partition is larger than this; -1: no limit.",
    )
    retention_ms: int = config_key(
        default=604800000,
        type=LONG,
        rule=at_least(-1),
        broker_keys=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        keeps_all=-1,
        doc="Segments whose newest record is older than this are deleted; -1 keeps them for ever.",
    )
    segment_bytes: int = config_key(
        default=1073741824,
        rule=at_least(14),
        broker_keys=("log.segment.bytes",),
        doc="A segment file that would grow beyond this size is closed and a new one begun.",
    )
    segment_index_bytes: int = config_key(
        default=10485760,
        rule=at_least(4),
        broker_keys=("log.index.size.max.bytes",),
        doc="The largest offset index; a full index closes its segment.",
    )
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
    unclean_leader_election_enable: bool = config_key(
        default=False,
        broker_keys=("unclean.leader.election.enable",),
        doc="Whether a replica that is not in sync may lead as the last resort, losing records.",
    )

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
