"""How clients log in, as metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from ottla.metrics.metrics_registry import FamilyName, MetricsRegistry
from ottla.metrics.sensors import Counted
from ottla.security.sasl import LoginCounts, SaslListener


class LoginRates:
    """How often clients log in at one listener, as attributes of its `socket-server-metrics`."""

    COUNTS: Final = {
        "successful-authentication": "succeeded",
        "failed-authentication": "failed",
        "successful-reauthentication": "renewed",
        "failed-reauthentication": "renewals_failed",
    }

    def __init__(self, counts: LoginCounts, now_ms: int) -> None:
        self._counts = counts
        reads = {name: partial(getattr, counts, each) for name, each in self.COUNTS.items()}
        self._counted = Counted(now_ms, **reads)

    def attributes(self, now_ms: int) -> dict[str, float]:
        """Rates and totals, and how many connections outlived their session."""
        found = self._counted.shown(now_ms)
        found["expired-connections-killed-count"] = self._counts.expired
        return found


def of_logins(registry: MetricsRegistry, listeners: Callable[[], Iterator[SaslListener]]) -> None:
    """The connections that were closed because their session had ended."""
    registry.gauge(
        FamilyName("kafka.network", "SocketServer", "ExpiredConnectionsKilledCount"),
        "Connections that were closed as their login had expired.",
        lambda: sum(each.counts.expired for each in listeners()),
    )
