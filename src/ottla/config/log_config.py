"""The broker's settings for its logs; most of them are the defaults of topic settings."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from ottla.config.config_def import HIGH, ConfigTable, config_key
from ottla.config.config_type import DOUBLE_MAX, LONG, LONG_MAX
from ottla.config.rule import any_of, at_least, between, each_one_of, not_empty, one_of
from ottla.errors import ConfigError
from ottla.structs import MS_PER_HOUR, MS_PER_MINUTE

NO_LIMIT: Final = LONG_MAX


class LogConfig(ConfigTable, group=True):
    """Where logs are kept, when segments roll, and when records are flushed and deleted."""

    log_dir: str = config_key(
        default="/tmp/ottla-logs",
        rule=not_empty(),
        importance=HIGH,
        doc="The directory of the logs, used when log.dirs is not set. It is not Kafka's "
        "/tmp/kafka-logs: a broker that is tried out must not meet a broker of Kafka there.",
    )
    log_dirs: tuple[str, ...] = config_key(
        default=None,
        importance=HIGH,
        doc="The directories of the logs, with commas between. Unset: log.dir.",
    )
    ottla_adopt_log_dirs: bool = config_key(
        default=False,
        doc="Take over partitions that Apache Kafka, or a lost registry, left in log.dirs, as "
        "`ottla broker --adopt-log-dirs` does for one start. Ottla's own setting.",
    )
    log_segment_bytes: int = config_key(
        default=1073741824,
        rule=at_least(14),
        importance=HIGH,
        doc="A segment file that would grow beyond this size is closed and a new one begun.",
    )
    log_roll_ms: int = config_key(
        default=None,
        type=LONG,
        rule=at_least(1),
        importance=HIGH,
        doc="A segment is closed at this age even if it is not full. Unset: log.roll.hours.",
    )
    log_roll_hours: int = config_key(
        default=168,
        rule=at_least(1),
        importance=HIGH,
        doc="The age in hours at which a segment is closed, used when log.roll.ms is not set.",
    )
    log_roll_jitter_ms: int = config_key(
        default=None,
        type=LONG,
        rule=at_least(0),
        importance=HIGH,
        doc="Up to this much is taken off the age of rolling, so that segments do not all roll "
        "at once. Unset: log.roll.jitter.hours.",
    )
    log_roll_jitter_hours: int = config_key(
        default=0,
        rule=at_least(0),
        importance=HIGH,
        doc="The same in hours, used when log.roll.jitter.ms is not set.",
    )
    log_retention_bytes: int = config_key(
        default=-1,
        type=LONG,
        importance=HIGH,
        doc="Oldest segments are deleted while a partition is larger than this; -1: no limit.",
    )
    log_retention_ms: int = config_key(
        default=None,
        type=LONG,
        importance=HIGH,
        doc="Segments whose newest record is older than this are deleted; -1 keeps them for ever. "
        "Unset: log.retention.minutes.",
    )
    log_retention_minutes: int | None = config_key(
        default=None,
        importance=HIGH,
        doc="Retention in minutes, used when log.retention.ms is not set. "
        "Unset: log.retention.hours.",
    )
    log_retention_hours: int = config_key(
        default=168,
        importance=HIGH,
        doc="Retention in hours, used when neither ms nor minutes are set.",
    )
    log_retention_check_interval_ms: int = config_key(
        default=300000,
        type=LONG,
        rule=at_least(1),
        doc="How often old segments are looked for.",
    )
    log_segment_delete_delay_ms: int = config_key(
        default=60000,
        type=LONG,
        rule=at_least(0),
        importance=HIGH,
        doc="How long a deleted segment's file stays, so that reads in progress can end.",
    )
    log_cleanup_policy: tuple[str, ...] = config_key(
        default=("delete",),
        rule=each_one_of("delete", "compact", may_be_empty=True),
        doc="What happens to old segments: deletion by age and size, compaction by key, or both. "
        "Where it is empty, only records that were deleted by DeleteRecords go.",
    )
    log_index_size_max_bytes: int = config_key(
        default=10485760,
        rule=at_least(4),
        doc="The largest offset index; a full index closes its segment.",
    )
    log_index_interval_bytes: int = config_key(
        default=4096,
        rule=at_least(0),
        doc="About every so many bytes of log an entry is added to the indexes.",
    )
    log_flush_interval_messages: int = config_key(
        default=NO_LIMIT,
        type=LONG,
        rule=at_least(1),
        importance=HIGH,
        doc="After so many unflushed records the log is forced to disk.",
    )
    log_flush_interval_ms: int = config_key(
        default=None,
        type=LONG,
        importance=HIGH,
        doc="A record is forced to disk at this age. Unset: log.flush.scheduler.interval.ms.",
    )
    log_flush_scheduler_interval_ms: int = config_key(
        default=NO_LIMIT,
        type=LONG,
        importance=HIGH,
        doc="Old form of log.flush.interval.ms, used when that one is not set.",
    )
    log_flush_offset_checkpoint_interval_ms: int = config_key(
        default=60000,
        rule=at_least(0),
        importance=HIGH,
        doc="How often the points are written from which recovery begins.",
    )
    log_flush_start_offset_checkpoint_interval_ms: int = config_key(
        default=60000,
        rule=at_least(0),
        importance=HIGH,
        doc="How often the first offsets of the logs are written.",
    )
    num_recovery_threads_per_data_dir: int = config_key(
        default=2,
        rule=at_least(1),
        importance=HIGH,
        doc="How many logs of a directory are recovered at once when the broker starts.",
    )
    log_message_downconversion_enable: bool = config_key(
        default=True,
        doc="Whether consumers from before Kafka 0.11 get the records in a format that they know.",
    )
    log_message_timestamp_type: str = config_key(
        default="CreateTime",
        rule=one_of("CreateTime", "LogAppendTime"),
        doc="Whether records keep the producer's timestamp or get that of the append.",
    )
    log_message_timestamp_difference_max_ms: int = config_key(
        default=NO_LIMIT,
        type=LONG,
        rule=at_least(0),
        doc="How far a record's timestamp may be from the broker's clock, either way.",
    )
    log_message_timestamp_before_max_ms: int = config_key(
        default=NO_LIMIT,
        type=LONG,
        rule=at_least(0),
        doc="How far a record's timestamp may lie in the past.",
    )
    log_message_timestamp_after_max_ms: int = config_key(
        default=NO_LIMIT,
        type=LONG,
        rule=at_least(0),
        doc="How far a record's timestamp may lie in the future.",
    )
    message_max_bytes: int = config_key(
        default=1048588,
        rule=at_least(0),
        importance=HIGH,
        doc="The largest record batch that is accepted, after compression.",
    )
    compression_gzip_level: int = config_key(
        default=-1,
        rule=any_of(between(1, 9), between(-1, -1)),
        doc="The level of gzip where the broker compresses; -1 is the default of the library.",
    )
    compression_lz4_level: int = config_key(
        default=9,
        rule=between(1, 17),
        doc="The level of lz4 where the broker compresses.",
    )
    compression_type: str = config_key(
        default="producer",
        rule=one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        importance=HIGH,
        doc="The codec that batches are stored with; producer keeps them as they came.",
    )
    compression_zstd_level: int = config_key(
        default=3,
        rule=between(-131072, 22),
        doc="The level of zstd where the broker compresses.",
    )
    min_insync_replicas: int = config_key(
        default=1,
        rule=at_least(1),
        importance=HIGH,
        doc="How many replicas must be in sync for a write with acks=all.",
    )
    unclean_leader_election_enable: bool = config_key(
        default=False,
        importance=HIGH,
        doc="Whether a replica that is not in sync may lead as the last resort, losing records.",
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        super().complete(values, given)
        values["log_dirs"] = _log_dirs(values)
        values["log_retention_ms"] = _retention_ms(values)
        if values["log_roll_ms"] is None:
            values["log_roll_ms"] = values["log_roll_hours"] * MS_PER_HOUR
        if values["log_roll_jitter_ms"] is None:
            values["log_roll_jitter_ms"] = values["log_roll_jitter_hours"] * MS_PER_HOUR
        if values["log_flush_interval_ms"] is None:
            values["log_flush_interval_ms"] = values["log_flush_scheduler_interval_ms"]


def _log_dirs(values: dict[str, Any]) -> tuple[str, ...]:
    dirs = tuple(values["log_dirs"] or (values["log_dir"],))
    if not all(dirs) or len({each.rstrip("/") for each in dirs}) != len(dirs):
        raise ConfigError(
            f"log.dirs={','.join(dirs)}: must be names of directories, each of them once"
        )
    return dirs


def _retention_ms(values: dict[str, Any]) -> int:
    """ms before minutes before hours; a negative number means no limit; Kafka refuses 0, too."""
    for attribute, unit_ms in (
        ("log_retention_ms", 1),
        ("log_retention_minutes", MS_PER_MINUTE),
        ("log_retention_hours", MS_PER_HOUR),
    ):
        count = values[attribute]
        if count == 0:
            raise ConfigError(f"{attribute.replace('_', '.')}=0: must be positive, or -1")
        if count is not None:
            return -1 if count < 0 else int(count * unit_ms)
    raise AssertionError("log.retention.hours has a default")


MIN_DEDUPE_BYTES_PER_THREAD: Final = 1 << 20


class CleanerConfig(ConfigTable, group=True):
    """When logs are compacted, and with how much memory and disk traffic."""

    log_cleaner_enable: bool = config_key(
        default=True,
        doc="Whether topics with cleanup.policy=compact are compacted. The broker's own topic of "
        "committed offsets is one of them and grows without end otherwise.",
    )
    log_cleaner_threads: int = config_key(
        default=1,
        rule=at_least(0),
        doc="How many partitions are compacted at a time.",
    )
    log_cleaner_backoff_ms: int = config_key(
        default=15000,
        type=LONG,
        rule=at_least(1),
        doc="How often partitions are looked for that should be compacted.",
    )
    log_cleaner_io_max_bytes_per_second: float = config_key(
        default=DOUBLE_MAX,
        rule=at_least(1),
        doc="How much compaction may read and write per second, all partitions together.",
    )
    log_cleaner_dedupe_buffer_size: int = config_key(
        default=134217728,
        type=LONG,
        rule=at_least(MIN_DEDUPE_BYTES_PER_THREAD),
        doc="How much memory the keys of partitions that are being compacted may take, all of them "
        "together. A key takes 24 bytes; a partition with more new keys needs several rounds.",
    )
    log_cleaner_io_buffer_size: int = config_key(
        default=524288,
        rule=at_least(0),
        doc="How much memory is used for reading and writing, all partitions together.",
    )
    log_cleaner_io_buffer_load_factor: float = config_key(
        default=0.9,
        rule=between(0.01, 1.0),
        doc="How full the memory for keys may get. Fuller, a round of compaction gets further, and "
        "finding a key takes longer.",
    )
    log_cleaner_min_cleanable_ratio: float = config_key(
        default=0.5,
        rule=between(0, 1),
        doc="A partition is compacted when more than this share of it is new since the last time.",
    )
    log_cleaner_delete_retention_ms: int = config_key(
        default=86400000,
        type=LONG,
        rule=at_least(0),
        doc="How long the record that deletes a key stays after compaction first passed over it.",
    )
    log_cleaner_min_compaction_lag_ms: int = config_key(
        default=0,
        type=LONG,
        rule=at_least(0),
        doc="Younger records are not compacted.",
    )
    log_cleaner_max_compaction_lag_ms: int = config_key(
        default=LONG_MAX,
        type=LONG,
        rule=at_least(1),
        doc="A partition is compacted when a record has waited for this long, whatever its share "
        "of new records.",
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        super().complete(values, given)
        threads, size = values["log_cleaner_threads"], values["log_cleaner_dedupe_buffer_size"]
        if size < threads * MIN_DEDUPE_BYTES_PER_THREAD:
            raise ConfigError(
                f"log.cleaner.dedupe.buffer.size={size}: must be at least "
                f"{MIN_DEDUPE_BYTES_PER_THREAD} for each of the {threads} log.cleaner.threads"
            )
