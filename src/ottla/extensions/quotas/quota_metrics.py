"""The effects of quotas on clients, as metrics.

A client without a limit is not measured: whose rate there is, it has one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from ottla.extensions.quotas.budget import Budget, ClientQuota, UsageMeter
from ottla.extensions.quotas.client_quotas import ClientQuotas
from ottla.extensions.quotas.token_bucket import TokenBucket
from ottla.metrics.metrics_registry import (
    Attributes,
    Family,
    FamilyName,
    Kind,
    MetricsRegistry,
    Series,
    Tags,
)
from ottla.network.connection import THROTTLED
from ottla.network.processor import Processor
from ottla.structs import ClientEntity

SERVER: Final = "kafka.server"
USES: Final = {
    "Produce": "byte-rate",
    "Fetch": "byte-rate",
    "Request": "request-time",
    "ControllerMutation": "tokens",
}
"""The attribute with the use of a quota, or with the rest of it, by the type of its MBean."""


def entity_tags(entity: ClientEntity) -> Tags:
    """`user` and `client-id`, those that the limit is of."""
    tags = []
    if entity.user is not None:
        tags.append(("user", entity.user))
    if entity.client_id is not None:
        tags.append(("client-id", entity.client_id))
    return tuple(tags)


def used(meter: UsageMeter, limit: float, now_ms: int) -> float:
    """The rate of use, a second; of a bucket, the tokens that it holds."""
    if isinstance(meter, TokenBucket):
        return meter.tokens(limit, now_ms)
    return meter.per_second(now_ms)


def of_quotas(registry: MetricsRegistry, quotas: ClientQuotas, processor: Processor) -> None:
    """Rates and delays of each entity with a limit, and how many are held now."""

    def budgets(quota: ClientQuota) -> Iterator[tuple[Budget, Attributes]]:
        now_ms = quotas.clock.monotonic_ms()
        for budget in list(quota):
            delay_ms = budget.recent_delay_ms(now_ms)
            use = used(budget.meter, budget.limit, now_ms)
            yield budget, {"use": use, "throttle-time": delay_ms}

    def series(quota: ClientQuota, attribute: str) -> Series:
        for budget, found in budgets(quota):
            shown = {attribute: found["use"], "throttle-time": found["throttle-time"]}
            yield entity_tags(budget.entity), shown

    every = (quotas.produce, quotas.fetch, quotas.request, quotas.mutation)
    for (type_name, attribute), quota in zip(USES.items(), every, strict=True):
        registry.register(
            Family(
                FamilyName(SERVER, type_name),
                Kind.KAFKA,
                f"What is used of {quota.key}, and the last delay within 30 s, in ms.",
                partial(series, quota, attribute),
                unbounded=True,
            )
        )
    registry.gauge(
        FamilyName(SERVER, "ClientQuotaManager", "ThrottledEntities"),
        "Users and clients that were over a limit within the last 30 s.",
        lambda: sum(bool(found["throttle-time"]) for quota in every for _, found in budgets(quota)),
    )
    registry.gauge(
        FamilyName(SERVER, "ClientQuotaManager", "ThrottledConnections"),
        "Connections that quotas hold now.",
        lambda: sum(bool(each.muted & THROTTLED) for each in processor.connections),
    )
