"""Groups and transactions that a broker coordinates, as metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla.extensions.measures.domains import SERVER
from ottla.metrics.metrics_registry import (
    NO_TAGS,
    Family,
    FamilyName,
    Kind,
    MetricsRegistry,
    Series,
)
from ottla.metrics.sensors import WindowedRate
from ottla.metrics.sums import summed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.coordinator.group.group import Group
    from ottla.coordinator.group.group_metadata_manager import GroupMetadataManager
    from ottla.coordinator.transaction.transaction_coordinator import TransactionCoordinator


def of_groups(registry: MetricsRegistry, manager: GroupMetadataManager) -> None:
    """The groups that this broker coordinates; consumer groups (KIP-848) count in NumGroups."""
    type_name = "GroupMetadataManager"
    domain = "kafka.coordinator.group"

    def gauge(name: str, doc: str, value: Callable[[Group], int]) -> None:
        family = FamilyName(domain, type_name, name)
        registry.register(Family(family, Kind.GAUGE, doc, lambda: summed(manager.groups(), value)))

    gauge("NumGroups", "Groups that this broker coordinates.", lambda group: 1)
    gauge(
        "NumOffsets",
        "Offsets that groups of this broker have committed.",
        lambda group: len(group.offsets),
    )
    for state in ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty"):
        gauge(
            f"NumGroups{state}",
            f"Groups of this broker that are {state}.",
            partial(is_in_state, state),
        )
    _rates_of_groups(registry, manager)


def _rates_of_groups(registry: MetricsRegistry, manager: GroupMetadataManager) -> None:
    counts = manager.counts
    rates = {
        name: WindowedRate(partial(getattr, counts, attribute), registry.now_ms)
        for name, attribute in (
            ("offset-commit", "commits"),
            ("offset-expiration", "expirations"),
            ("offset-deletion", "deletions"),
            ("group-completed-rebalance", "rebalances"),
        )
    }

    def read() -> Series:
        found = load_times(manager.partitions.last_loads_ms)
        for name, rate in rates.items():
            found[f"{name}-rate"] = rate.value(registry.now_ms)
            found[f"{name}-count"] = rate.read()
        yield NO_TAGS, found

    registry.register(
        Family(
            FamilyName(SERVER, "group-coordinator-metrics"),
            Kind.KAFKA,
            "What groups of this broker do, and how long their partitions took to load, in ms.",
            read,
        )
    )


def is_in_state(state: str, group: Group) -> bool:
    """Whether the group has the state of this name."""
    return group.state_name == state


def load_times(last_ms: Sequence[int]) -> dict[str, float]:
    """How long it took to load partitions of a coordinator's topic; NaN where none was."""
    average = sum(last_ms) / len(last_ms) if last_ms else math.nan
    largest = max(last_ms, default=math.nan)
    return {"partition-load-time-avg": average, "partition-load-time-max": largest}


def of_transactions(registry: MetricsRegistry, coordinator: TransactionCoordinator) -> None:
    """Transactions that this broker coordinates."""
    registry.register(
        Family(
            FamilyName(SERVER, "transaction-coordinator-metrics"),
            Kind.KAFKA,
            "How long partitions of transactions took to load, in ms.",
            lambda: ((NO_TAGS, load_times(coordinator.manager.partitions.last_loads_ms)),),
        )
    )
    registry.gauge(
        FamilyName(
            "kafka.coordinator.transaction",
            "TransactionMarkerChannelManager",
            "LogAppendRetryQueueSize",
        ),
        "Transactions whose markers are to be sent again; where it grows, they are stuck.",
        lambda: coordinator.markers.retry_count,
    )
