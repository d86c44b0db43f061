"""Attaches client quotas to a broker: the limits of its clients, and what requests are charged."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.config.quota_config import CONNECTION_CREATION_RATE, limit_in
from ottla.extensions.quotas.client_quotas import ClientQuotas
from ottla.extensions.quotas.request_charges import charged_context
from ottla.server.extension import Extension
from ottla.server.parts import Parts
from ottla.structs import ClientEntity

if TYPE_CHECKING:
    from ottla.metrics.metrics_registry import MetricsRegistry


class Quotas(Extension):
    """The limits of a broker, which follow the registry; requests cost nothing without any."""

    def __init__(self, broker: Parts) -> None:
        super().__init__(broker)
        self.client_quotas = ClientQuotas(broker.runtime.clock, broker.config)
        self._charge = partial(charged_context, self.client_quotas)

    def wrap(self) -> None:
        dynamic = self.broker.dynamic_config
        dynamic.on_client_change(self._follow)
        for entity in dynamic.client_entities:
            self._follow(entity)
        self._switch()

    def measure(self, registry: MetricsRegistry) -> None:
        from ottla.extensions.quotas.quota_metrics import of_quotas  # only where it is shown

        of_quotas(registry, self.client_quotas, self.broker.processor)

    def _follow(self, entity: ClientEntity) -> None:
        """Limits are in force for the next request, or the next connection of an address."""
        overrides = self.broker.dynamic_config.client_overrides(entity)
        if entity.ip is not None:
            limit = limit_in(entity, overrides, CONNECTION_CREATION_RATE)
            self.broker.processor.limit_ip(entity.ip, limit)
            return
        self.client_quotas.update(entity, overrides)
        self._switch()

    def _switch(self) -> None:
        """Have requests charged while there is a limit."""
        self.broker.apis.new_context = self._charge if self.client_quotas.is_active else None
