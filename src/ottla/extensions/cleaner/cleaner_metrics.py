"""The metrics of compaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ottla.extensions.cleaner.log_cleaner import LogCleaner
from ottla.log.log import Log
from ottla.log.log_manager import LogManager
from ottla.metrics.metrics_registry import Family, FamilyName, Kind, MetricsRegistry, Series


def of_cleaner(registry: MetricsRegistry, cleaner: LogCleaner, logs: LogManager) -> None:
    """How compaction goes."""

    def gauge(type_name: str, name: str, doc: str, read: Callable[[], float]) -> None:
        registry.gauge(FamilyName("kafka.log", type_name, name), doc, read)

    gauge(
        "LogCleaner",
        "max-clean-time-secs",
        "How long the last round of compaction took, in seconds.",
        lambda: cleaner.last_round.took_ms / 1000,
    )
    gauge(
        "LogCleaner",
        "max-compaction-delay-secs",
        "By how much the last log was beyond max.compaction.lag.ms, in seconds.",
        lambda: cleaner.last_round.delay_ms / 1000,
    )
    gauge(
        "LogCleaner",
        "cleaner-recopy-percent",
        "The share of what the last round read that it wrote again, in percent.",
        lambda: 100 * cleaner.last_round.recopied,
    )
    gauge(
        "LogCleanerManager",
        "max-dirty-percent",
        "The largest share of a log that is not compacted, in percent.",
        lambda: 100 * cleaner.max_dirty_ratio,
    )
    gauge(
        "LogCleanerManager",
        "time-since-last-run-ms",
        "How long ago the cleaner has last looked for logs to compact, in ms.",
        lambda: registry.now_ms - cleaner.looked_ms,
    )
    registry.meter(
        FamilyName("kafka.utils", "Throttler", "cleaner-io"),
        "Bytes that compaction has read and written.",
        lambda: cleaner.throttler.byte_count,
        "bytes",
    )
    _of_uncleanable(registry, cleaner, logs)


def _of_uncleanable(registry: MetricsRegistry, cleaner: LogCleaner, logs: LogManager) -> None:
    """Logs that cannot be read, and grow until the broker is started again."""

    def given_up(path: str) -> Iterator[Log]:
        return (log for log in cleaner.uncleanable if log.log_dir.path == path)

    def counts() -> Series:
        for each in logs.dirs:
            yield (("logDirectory", each.path),), sum(1 for _ in given_up(each.path))

    def sizes() -> Series:
        for each in logs.dirs:
            size = sum(log.size_in_bytes for log in given_up(each.path))
            yield (("logDirectory", each.path),), size

    for name, doc, read in (
        ("uncleanable-partitions-count", "Logs that cannot be compacted.", counts),
        ("uncleanable-bytes", "The bytes of logs that cannot be compacted.", sizes),
    ):
        family = FamilyName("kafka.log", "LogCleanerManager", name)
        registry.register(Family(family, Kind.GAUGE, doc, read))
