"""Client quotas: how much clients may use of this broker, and how long they wait after more.

A limit belongs to a user, a client id, a client id of a user, or the default of these; the most
specific entity that has the key counts (KIP-55):

    users/U/clients/C, users/U/clients/<default>, users/U, users/<default>/clients/C,
    users/<default>/clients/<default>, users/<default>, clients/C, clients/<default>

Connections with the same entity share one budget on a broker. Rates are measured over
quota.window.num samples of quota.window.size.seconds. A client that is over its limit gets its
answer at once, with throttle_time_ms in it; the broker then reads no request from the connection
until that time is over, so that clients that ignore it are held as well (KIP-219).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.config.network_config import NetworkConfig
from ottla.config.quota_config import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    limit_in,
)
from ottla.extensions.quotas.budget import Budget, Client, ClientQuota
from ottla.extensions.quotas.token_bucket import TokenBucket
from ottla.network.rate import Rate
from ottla.runtime import Clock
from ottla.structs import ClientEntity, NamedTuple

MAX_IDLE_CLIENTS: Final = 1024


class Budgets(NamedTuple):
    """The budgets of one client, kind by kind; None where it has no limit."""

    produce: Budget | None
    fetch: Budget | None
    request: Budget | None
    mutation: Budget | None


UNLIMITED: Final = Budgets(None, None, None, None)


class ClientQuotas:
    """All quotas of users and client ids on one broker."""

    def __init__(self, clock: Clock, config: NetworkConfig) -> None:
        self.clock = clock
        count, window_ms = config.quota_window_num, config.quota_window_size_seconds * 1000

        def rate() -> Rate:
            return Rate(count, window_ms)

        def token_bucket() -> TokenBucket:
            return TokenBucket(
                config.controller_quota_window_num,
                config.controller_quota_window_size_seconds * 1000,
            )

        def static(name: str, limit: int) -> float | None:
            return float(limit) if config.is_given(name) else None

        self.produce = ClientQuota(
            PRODUCER_BYTE_RATE,
            rate,
            static("quota.producer.default", config.quota_producer_default),
        )
        self.fetch = ClientQuota(
            CONSUMER_BYTE_RATE,
            rate,
            static("quota.consumer.default", config.quota_consumer_default),
        )
        self.request = ClientQuota(REQUEST_PERCENTAGE, rate, max_delay_ms=window_ms)
        self.mutation = ClientQuota(CONTROLLER_MUTATION_RATE, token_bucket)
        self.by_key: Final = {
            each.key: each for each in (self.produce, self.fetch, self.request, self.mutation)
        }
        self.burst_seconds = max(1, count - 1) * window_ms / 1000
        """A client that was quiet may use the limit of so long at once."""
        self.is_active = any(quota.is_active for quota in self.by_key.values())
        self._budgets: dict[Client, Budgets] = {}
        """The budgets of clients that were seen since a limit has changed."""
        self._sweep_at = MAX_IDLE_CLIENTS

    def update(self, entity: ClientEntity, overrides: Mapping[str, str]) -> None:
        """Take over the quotas of a user or client id; bad values have no effect."""
        for key, quota in self.by_key.items():
            quota.update(entity, limit_in(entity, overrides, key))
        self.is_active = any(quota.is_active for quota in self.by_key.values())
        self._budgets.clear()

    def budgets(self, client: Client) -> Budgets:
        """The budget of a client."""
        return self._budgets.get(client) or self._find(client)

    def _find(self, client: Client) -> Budgets:
        if len(self._budgets) >= self._sweep_at:
            self._forget_idle()
        found = Budgets(*(quota.budget(client) for quota in self.by_key.values()))
        budgets = self._budgets[client] = found if any(found) else UNLIMITED
        return budgets

    def _forget_idle(self) -> None:
        """Forget clients that have gone: they choose their names, so there may be any number."""
        self._budgets.clear()
        now_ms, left = self.clock.monotonic_ms(), 0
        for quota in self.by_key.values():
            quota.forget_idle(now_ms)
            left = max(left, len(list(quota)))
        self._sweep_at = max(MAX_IDLE_CLIENTS, 2 * left)
