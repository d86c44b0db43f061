"""Attaches delegation tokens to a broker: logins by them, their end, and their metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.extensions.tokens.token_store import TokenStore
from ottla.extensions.tokens.tokens_handler import DelegationTokensHandler
from ottla.security.delegation_tokens import TokenTable
from ottla.server.extension import Extension
from ottla.server.parts import Parts

if TYPE_CHECKING:
    from ottla.metrics.metrics_registry import MetricsRegistry


class Tokens(Extension):
    """The tokens of a broker, which it knows before the first client comes."""

    def __init__(self, broker: Parts) -> None:
        super().__init__(broker)
        self.table = TokenTable(broker.config.delegation_token_secret, broker.runtime.clock)
        self.store = TokenStore(broker.runtime, broker.registry, self.table)
        broker.find_token = self.table.login

    async def before_clients(self) -> None:
        await self.store.start()

    def begin(self) -> None:
        broker = self.broker
        interval_ms = broker.config.delegation_token_expiry_check_interval_ms
        self.store.sweep_every(interval_ms, lambda: broker.controller.is_active)

    def measure(self, registry: MetricsRegistry) -> None:
        from ottla.extensions.tokens.token_metrics import of_tokens  # only where it is shown

        of_tokens(registry, self.table, self.broker.runtime.clock)

    def stop(self) -> None:
        self.store.stop()


def new_tokens_handler(broker: Parts) -> DelegationTokensHandler:
    """The handlers of requests for tokens, which say so where there are none."""
    tokens = broker.find(Tokens)
    return DelegationTokensHandler(
        None if tokens is None else tokens.store,
        broker.runtime,
        broker.config.delegation_token_max_lifetime_ms,
        broker.config.delegation_token_expiry_time_ms,
    )
