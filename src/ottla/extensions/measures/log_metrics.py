"""Log directories, flushes, and the transactions in logs, as metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.extensions.measures.domains import LOG
from ottla.metrics.metrics_registry import Family, FamilyName, Kind, MetricsRegistry, Series
from ottla.metrics.sums import summed

if TYPE_CHECKING:
    from ottla.coordinator.transaction.transaction_verifier import TransactionVerifier
    from ottla.log.log_manager import LogManager
    from ottla.replication.partition import Partition
    from ottla.replication.replica_manager import ReplicaManager

LATE_MS: Final = 5 * 60 * 1000
"""A transaction counts as late if it has outlived the longest timeout by this, as in Kafka."""


def of_log_dirs(registry: MetricsRegistry, logs: LogManager) -> None:
    """The log directories that have failed, and the time that flushes take."""
    dirs = logs.dirs
    registry.gauge(
        FamilyName(LOG, "LogManager", "OfflineLogDirectoryCount"),
        "Log directories that have failed.",
        lambda: sum(each.is_offline for each in dirs),
    )

    def offline() -> Series:
        for each in dirs:
            yield (("logDirectory", each.path),), int(each.is_offline)

    family = FamilyName(LOG, "LogManager", "LogDirectoryOffline")
    registry.register(Family(family, Kind.GAUGE, "Whether it has failed.", offline))
    flushes = registry.timer(
        FamilyName(LOG, "LogFlushStats", "LogFlushRateAndTimeMs"),
        "How often a log was brought to its disk (fsync), and how long it took, in ms.",
    )

    def on_flush(took_ms: int) -> None:
        flushes.update(took_ms, registry.now_ms)

    for each in dirs:
        each.on_flush = on_flush


def of_open_transactions(
    registry: MetricsRegistry,
    replicas: ReplicaManager,
    verifier: TransactionVerifier,
    max_timeout_ms: int,
) -> None:
    """Transactions that stay open, and the coordinators' view of those that a log does not know."""

    def is_late(partition: Partition) -> bool:
        if not partition.is_leader:
            return False
        state = partition.log.producer_state_manager
        first = next(iter(state.ongoing_txns.values()), None)
        entry = None if first is None else state.producers.get(first)
        now_ms = registry.runtime.clock.now_ms()
        return entry is not None and now_ms - entry.last_timestamp_ms > max_timeout_ms + LATE_MS

    registry.register(
        Family(
            FamilyName("kafka.server", "ReplicaManager", "PartitionsWithLateTransactionsCount"),
            Kind.GAUGE,
            "Partitions led here whose oldest open transaction should have timed out.",
            lambda: summed(replicas.partitions.values(), is_late),
        )
    )
    times = registry.histogram(
        FamilyName("kafka.server", "AddPartitionsToTxnManager", "VerificationTimeMs"),
        "How long coordinators took to confirm that partitions are in a transaction, in ms.",
    )
    registry.meter(
        FamilyName("kafka.server", "AddPartitionsToTxnManager", "VerificationFailureRate"),
        "Partitions of transactions that were not confirmed.",
        lambda: verifier.failure_count,
    )
    verifier.on_answer = lambda took_ms: times.update(took_ms, registry.now_ms)
