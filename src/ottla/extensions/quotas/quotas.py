"""Attaches client quotas to a broker: the limits of its clients, and the charges of requests."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.config.quota_config import CONNECTION_CREATION_RATE, QUOTA_TYPES, limit_in
from ottla.server.extension import Extension
from ottla.server.parts import Parts
from ottla.structs import ClientEntity

if TYPE_CHECKING:
    from ottla.extensions.quotas.client_quotas import ClientQuotas
    from ottla.metrics.metrics_registry import MetricsRegistry


class Quotas(Extension):
    """The limits of a broker, which follow the registry.

    The code that knows and charges them is imported when there is a first one; most brokers have
    none.
    """

    def __init__(self, broker: Parts) -> None:
        super().__init__(broker)
        self.client_quotas: ClientQuotas | None = None

    def wrap(self) -> None:
        config, dynamic = self.broker.config, self.broker.dynamic_config
        if any(map(config.is_given, ("quota.producer.default", "quota.consumer.default"))):
            self._charge(self.known())
        dynamic.on_client_change(self._follow)
        for entity in dynamic.client_entities:
            self._follow(entity)

    def measure(self, registry: MetricsRegistry) -> None:
        from ottla.extensions.quotas.quota_metrics import of_quotas

        of_quotas(registry, self.known(), self.broker.processor)

    def known(self) -> ClientQuotas:
        """The limits that there are."""
        if self.client_quotas is None:
            from ottla.extensions.quotas.client_quotas import ClientQuotas

            self.client_quotas = ClientQuotas(self.broker.runtime.clock, self.broker.config)
        return self.client_quotas

    def _follow(self, entity: ClientEntity) -> None:
        """Limits are in force for the next request, or the next connection of an address."""
        overrides = self.broker.dynamic_config.client_overrides(entity)
        if entity.ip is not None:
            limit = limit_in(entity, overrides, CONNECTION_CREATION_RATE)
            self.broker.processor.limit_ip(entity.ip, limit)
        elif self.client_quotas is not None or overrides.keys() & QUOTA_TYPES.keys():
            quotas = self.known()
            quotas.update(entity, overrides)
            self._charge(quotas)

    def _charge(self, quotas: ClientQuotas) -> None:
        """Have requests charged while there is a limit."""
        if not quotas.is_active:
            self.broker.apis.new_context = None
            return
        from ottla.extensions.quotas.request_charges import charged_context

        self.broker.apis.new_context = partial(charged_context, quotas)
