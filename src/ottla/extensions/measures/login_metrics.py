"""How clients log in, as metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from ottla.metrics.metrics_registry import FamilyName, MetricsRegistry
from ottla.metrics.sensors import WindowedRate
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
        self._rates = {
            name: WindowedRate(partial(getattr, counts, attribute), now_ms)
            for name, attribute in self.COUNTS.items()
        }

    def attributes(self, now_ms: int) -> dict[str, float]:
        """Rates and totals, and how many connections outlived their session."""
        found: dict[str, float] = {}
        for name, rate in self._rates.items():
            found[f"{name}-rate"] = rate.value(now_ms)
            found[f"{name}-total"] = rate.read()
        found["expired-connections-killed-count"] = self._counts.expired
        return found


def of_logins(registry: MetricsRegistry, listeners: Callable[[], Iterator[SaslListener]]) -> None:
    """The connections that were closed because their session had ended."""
    registry.gauge(
        FamilyName("kafka.network", "SocketServer", "ExpiredConnectionsKilledCount"),
        "Connections that were closed as their login had expired.",
        lambda: sum(each.counts.expired for each in listeners()),
    )
