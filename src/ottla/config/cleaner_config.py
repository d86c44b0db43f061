"""The broker's settings for compaction; four of them are the defaults of topic settings."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from ottla.config.config_def import ConfigTable, config_key
from ottla.config.config_type import (
    BOOLEAN,
    DOUBLE,
    DOUBLE_MAX,
    INT,
    LONG,
    LONG_MAX,
    at_least,
    between,
)
from ottla.errors import ConfigError

MIN_DEDUPE_BYTES_PER_THREAD: Final = 1 << 20


class CleanerConfig(ConfigTable, group=True):
    """When logs are compacted, and with how much memory and disk traffic."""

    log_cleaner_enable: bool = config_key(
        default=True,
        type=BOOLEAN,
        doc="Whether topics with cleanup.policy=compact are compacted. The broker's own topic of "
        "committed offsets is one of them and grows without end otherwise.",
    )
    log_cleaner_threads: int = config_key(
        default=1,
        type=INT,
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
        type=DOUBLE,
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
        type=INT,
        rule=at_least(0),
        doc="How much memory is used for reading and writing, all partitions together.",
    )
    log_cleaner_io_buffer_load_factor: float = config_key(
        default=0.9,
        type=DOUBLE,
        rule=between(0.01, 1.0),
        doc="How full the memory for keys may get. Fuller, a round of compaction gets further, and "
        "finding a key takes longer.",
    )
    log_cleaner_min_cleanable_ratio: float = config_key(
        default=0.5,
        type=DOUBLE,
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
