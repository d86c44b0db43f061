"""The metrics of delegation tokens."""

from __future__ import annotations

from typing import Final

from ottla.metrics.metrics_registry import (
    NO_TAGS,
    Family,
    FamilyName,
    Kind,
    MetricsRegistry,
    Series,
)
from ottla.runtime import Clock
from ottla.security.delegation_tokens import TokenTable

NAME: Final = "DelegationTokens"


def of_tokens(registry: MetricsRegistry, tokens: TokenTable, clock: Clock) -> None:
    """Their number, and when the next one ends: its user needs another one by then."""

    def next_expiry() -> Series:
        ends_ms = [min(token.expiry_ms, token.max_ms) for token in tokens]
        if ends_ms:
            yield NO_TAGS, (min(ends_ms) - clock.now_ms()) / 1000

    registry.gauge(
        FamilyName("kafka.server", NAME, "Count"), "Delegation tokens.", lambda: len(tokens)
    )
    registry.register(
        Family(
            FamilyName("kafka.server", NAME, "SecondsToNextExpiry"),
            Kind.GAUGE,
            "Seconds until the next delegation token ends.",
            next_expiry,
        )
    )
