"""The use of the limit of one key, by whom, and how long it has to wait for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

from ottla.extensions.quotas.token_bucket import TokenBucket
from ottla.network.rate import Rate
from ottla.structs import ClientEntity

logger = logging.getLogger(__name__)

Client = tuple[str, str]
"""A user and its client id, which may be empty."""

LOG_EVERY_MS: Final = 60_000
RECENT_MS: Final = 30_000

UsageMeter = Rate | TokenBucket
"""How much was used, held against a limit per second."""


class Budget:
    """The budget that the connections of one entity share on this broker."""

    __slots__ = ("_logged_ms", "_throttled_ms", "entity", "limit", "meter", "throttle_time_ms")

    def __init__(self, entity: ClientEntity, meter: UsageMeter) -> None:
        self.entity = entity
        self.limit = 0.0
        self.meter = meter
        self.throttle_time_ms = 0
        """The last delay."""
        self._throttled_ms = self._logged_ms = -LOG_EVERY_MS

    def note_delay(self, delay_ms: int, key: str, now_ms: int) -> None:
        """Remember a delay; once a minute it is logged, or nobody would see why clients wait."""
        self.throttle_time_ms, self._throttled_ms = delay_ms, now_ms
        if now_ms - self._logged_ms >= LOG_EVERY_MS:
            self._logged_ms = now_ms
            user, client_id, _ = self.entity
            logger.info(
                "%s%s over %s=%.15g, and waits for %d ms",
                "" if user is None else f"user {user} ",
                "is" if client_id is None else f"client {client_id} is",
                key,
                self.limit,
                delay_ms,
            )

    def recent_delay_ms(self, now_ms: int) -> int:
        """The last delay, until half a minute has passed without another; then 0."""
        return self.throttle_time_ms if now_ms - self._throttled_ms < RECENT_MS else 0


class ClientQuota:
    """The limits of one key, and the budgets of the clients that have used some of them."""

    def __init__(
        self,
        key: str,
        new_meter: Callable[[], UsageMeter],
        default: float | None = None,
        max_delay_ms: int | None = None,
    ) -> None:
        self.key = key
        self._new_meter = new_meter
        self._max_delay_ms = max_delay_ms
        self._default = default
        """The limit of client ids for which the registry has none."""
        self._limits: dict[ClientEntity, float] = {}
        self._budgets: dict[ClientEntity, Budget] = {}
        self.is_active = default is not None

    def __iter__(self) -> Iterator[Budget]:
        return iter(self._budgets.values())

    def update(self, entity: ClientEntity, limit: float | None) -> None:
        """Change a limit, or remove it; earlier use still counts."""
        if limit is None:
            self._limits.pop(entity, None)
        else:
            self._limits[entity] = limit
        self.is_active = bool(self._limits) or self._default is not None

    def budget(self, client: Client) -> Budget | None:
        """The budget that a user's client id is charged to; None: it has no limit."""
        found = self.limit_of(*client)
        if found is None:
            return None
        owner, limit = found
        budget = self._budgets.get(owner)
        if budget is None:
            budget = self._budgets[owner] = Budget(owner, self._new_meter())
        budget.limit = limit
        return budget

    def charge(self, budget: Budget, amount: float, now_ms: int) -> int:
        """Note a use; returns for how many milliseconds the client must wait."""
        meter, limit = budget.meter, budget.limit
        meter.record(amount, limit, now_ms)
        delay_ms = meter.delay_ms(limit, now_ms)
        if delay_ms > 0:
            if self._max_delay_ms is not None:
                delay_ms = min(delay_ms, self._max_delay_ms)
            budget.note_delay(delay_ms, self.key, now_ms)
        return delay_ms

    def limit_of(self, user: str, client_id: str) -> tuple[ClientEntity, float] | None:
        """The entity whose budget a client uses, and its limit; no client id has the defaults."""
        pair, of_user = ClientEntity(user, client_id), ClientEntity(user)
        of_client = ClientEntity(client_id=client_id)
        limits = self._limits
        for entity, owner in (
            (pair, pair),
            (ClientEntity(user, ""), pair),
            (of_user, of_user),
            (ClientEntity("", client_id), pair),
            (ClientEntity("", ""), pair),
            (ClientEntity(""), of_user),
            (of_client, of_client),
            (ClientEntity(client_id=""), of_client),
        ):
            limit = limits.get(entity)
            if limit is not None:
                return owner, limit
        return None if self._default is None else (of_client, self._default)

    def forget_idle(self, now_ms: int) -> None:
        """Forget a budget that a new one would equal."""
        self._budgets = {
            entity: budget
            for entity, budget in self._budgets.items()
            if not budget.meter.is_idle(budget.limit, now_ms)
        }
