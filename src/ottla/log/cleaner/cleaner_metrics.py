"""What there is to know about compaction while it goes on, by the names of Kafka's sensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ottla.log.cleaner.cleaning import CleaningStats
from ottla.log.cleaner.selection import LogToClean
from ottla.log.log import Log


@dataclass(slots=True)
class CleanerMetrics:
    """The last values; those of a round are of the last one that ended."""

    uncleanable_partitions_count: dict[str, int] = field(default_factory=dict)
    """For each log directory, how many partitions cannot be compacted."""
    uncleanable_bytes: dict[str, int] = field(default_factory=dict)
    max_dirty_percent: int = 0
    max_compaction_delay_secs: int = 0
    max_clean_time_secs: int = 0
    max_buffer_utilization_percent: int = 0
    cleaner_recopy_percent: int = 0

    def note_candidates(self, logs: Iterable[LogToClean]) -> None:
        """The compacted logs as they were found."""
        self.max_dirty_percent = int(100 * max((log.dirty_ratio for log in logs), default=0))

    def note_begun(self, log: LogToClean) -> None:
        """A round that begins."""
        self.max_compaction_delay_secs = log.compaction_delay_ms // 1000

    def note_uncleanable(self, logs: Mapping[Log, str]) -> None:
        """The logs that are passed over, all of them."""
        counts: dict[str, int] = {}
        sizes: dict[str, int] = {}
        for log in logs:
            path = log.log_dir.path
            counts[path] = counts.get(path, 0) + 1
            sizes[path] = sizes.get(path, 0) + log.size_in_bytes
        self.uncleanable_partitions_count, self.uncleanable_bytes = counts, sizes

    def note_round(self, stats: CleaningStats, took_ms: int) -> None:
        """A round that has ended well."""
        self.max_clean_time_secs = took_ms // 1000
        self.max_buffer_utilization_percent = int(100 * stats.map_utilization)
        copied = stats.bytes_read - stats.bytes_mapped
        self.cleaner_recopy_percent = 100 * stats.bytes_written // copied if copied else 0
