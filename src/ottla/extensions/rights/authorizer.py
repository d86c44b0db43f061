"""The authorizer of a broker: decides by the ACLs in the registry, logs and counts.

Nothing is asked where `authorizer.class.name` is not set: there is no authorizer then. With
`authorizer.mode=log` a denial is logged and counted, and the request is served all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ottla.config.broker_config import BrokerConfig
from ottla.network.request_context import RequestContext
from ottla.protocol.header import RequestHeader
from ottla.registry.acl_store import AclStore
from ottla.registry.tree import Registry
from ottla.runtime import Runtime
from ottla.security.acls import (
    CLUSTER,
    TOLD_OPERATIONS,
    AclOperation,
    AclTable,
    Resource,
    ResourceType,
    operation_bits,
    parse_super_users,
)
from ottla.security.principal import KafkaPrincipal
from ottla.server.api import request_name
from ottla.structs import NamedTuple, Value

if TYPE_CHECKING:
    from ottla.server.apis import OnDenial

logger = logging.getLogger("ottla.authorizer")

REPEAT_MS: Final = 60_000
"""The same denial is logged once in this time: clients that were denied ask again and again."""
MAX_REMEMBERED: Final = 10_000
MAX_LOGGED_NAME: Final = 200
"""Letters of a denied name that a line of the log has, and that are remembered of it."""
SUM_MS: Final = 1_000
"""The time after which a line says how many more names were denied in a request."""

Denial = tuple[object, AclOperation, Resource]


class DenialKind(NamedTuple):
    """The subject of one line of the log, however many names of a request are denied."""

    header: RequestHeader
    principal: KafkaPrincipal
    operation: AclOperation
    type: ResourceType


class Sight(Value, frozen=True):
    """The resources of a type that a client may see, by its rights of the moment.

    Two of one principal and host are equal. It does not keep the connection.
    """

    table: AclTable
    principal: KafkaPrincipal
    host: str
    type: ResourceType
    operation: AclOperation

    def __call__(self, name: str) -> bool:
        """Whether the client may see the resource of this name."""
        resource = Resource(self.type, name)
        return self.table.is_allowed(self.principal, self.host, self.operation, resource)


class Authorizer:
    """The questions of handlers before they act for a client."""

    def __init__(self, runtime: Runtime, registry: Registry, config: BrokerConfig) -> None:
        self.runtime = runtime
        self.table = AclTable(
            parse_super_users(config.super_users), config.allow_everyone_if_no_acl_found
        )
        self.store = AclStore(runtime, registry, self.table)
        self.is_enforcing = config.enforces_rights
        self.denied_count = 0
        """Denials since the start, those included that were only logged."""
        self.on_denial: Sequence[OnDenial] = ()
        self._logged: dict[Denial, int] = {}
        self._more: dict[DenialKind, int] = {}
        """What of a request is logged already, and how many more names were denied in it."""
        self._no_brokers: set[KafkaPrincipal] = set()

    async def start(self) -> None:
        """Read all ACLs; from here on their changes are followed."""
        await self.store.start()
        logger.info("%d ACLs are in force", len(self.table))
        if not self.is_enforcing:
            logger.warning(
                "authorizer.mode=log: requests that ACLs deny are SERVED, and only logged here"
            )

    def stop(self) -> None:
        """Follow no more changes."""
        self.store.stop()

    def authorize(
        self, context: RequestContext, operation: AclOperation, resource: Resource
    ) -> bool:
        """Whether the client may do this; a denial is logged and counted."""
        allowed = self.table.is_allowed(context.principal, context.client_host, operation, resource)
        return allowed or self._deny(context, operation, resource)

    def may_read(self, context: RequestContext, topic: str) -> bool:
        """Whether the client may read the topic."""
        return self.authorize(context, AclOperation.READ, Resource(ResourceType.TOPIC, topic))

    def authorize_on_any(
        self, context: RequestContext, operation: AclOperation, type_: ResourceType
    ) -> bool:
        """Whether the client may do this with at least one resource of the type."""
        return self.table.is_allowed_on_any(
            context.principal, context.client_host, operation, type_
        )

    def may_be_broker(self, context: RequestContext) -> bool:
        """Whether the client's requests are read as those of brokers, before they are looked at."""
        return not self.is_enforcing or self.has(context, AclOperation.CLUSTER_ACTION, CLUSTER)

    def authorize_broker(self, context: RequestContext) -> bool:
        """Whether the client may act as a broker; if not, the log says how to allow it."""
        if self.authorize(context, AclOperation.CLUSTER_ACTION, CLUSTER):
            return True
        if context.principal not in self._no_brokers:
            if len(self._no_brokers) >= MAX_REMEMBERED:
                self._no_brokers.clear()
            self._no_brokers.add(context.principal)
            logger.error(
                "%s asked for what only brokers may ask: if it is a broker of this cluster, add it "
                "to super.users on all brokers, or allow it CLUSTER_ACTION on the cluster",
                context.principal,
            )
        return False

    def has(self, context: RequestContext, operation: AclOperation, resource: Resource) -> bool:
        """Whether the client has a right, in any mode, without a line in the log."""
        return self.table.is_allowed(context.principal, context.client_host, operation, resource)

    def shows(self, context: RequestContext, resource: Resource, operation: AclOperation) -> bool:
        """Whether a list that was asked for as a whole names the resource: no denial is logged."""
        return not self.is_enforcing or self.table.is_allowed(
            context.principal, context.client_host, operation, resource
        )

    def sight(
        self, context: RequestContext, type_: ResourceType, operation: AclOperation
    ) -> Callable[[str], bool] | None:
        """The answers of `shows` for any name, now and later; None: all."""
        if not self.is_enforcing:
            return None
        return Sight(self.table, context.principal, context.client_host, type_, operation)

    def operations(self, context: RequestContext, resource: Resource) -> int:
        """The operations that the client may do with a resource, as bits (KIP-430)."""
        return operation_bits(
            operation
            for operation in TOLD_OPERATIONS[resource.type]
            if self.shows(context, resource, operation)
        )

    def _deny(self, context: RequestContext, operation: AclOperation, resource: Resource) -> bool:
        """Note a denial; whether the request is served all the same."""
        self.denied_count += 1
        for each in self.on_denial:
            each(context, operation, resource, not self.is_enforcing)
        kind = DenialKind(context.header, context.principal, operation, resource.type)
        if kind in self._more:
            self._more[kind] += 1
        elif self._is_news((context.principal, operation, resource)):
            if not self._more:
                self.runtime.scheduler.call_later(SUM_MS, self._log_more)
            self._more[kind] = 0
            logger.info(
                "Principal = %.200s is Denied Operation = %s from host = %s on resource = "
                "%s:LITERAL:%s for request = %s%s",
                context.principal,
                operation.title,
                context.client_host,
                resource.type.title,
                resource.name[:MAX_LOGGED_NAME],
                request_name(context.header),
                self._served,
            )
        return not self.is_enforcing

    @property
    def _served(self) -> str:
        return "" if self.is_enforcing else ", and served (authorizer.mode=log)"

    def _log_more(self) -> None:
        """Say how many more names were denied in a request than the one that was logged."""
        more = {kind: count for kind, count in self._more.items() if count}
        self._more.clear()
        for kind, count in more.items():
            logger.info(
                "Principal = %.200s is Denied Operation = %s on %d more of %s for request = %s%s",
                kind.principal,
                kind.operation.title,
                count,
                kind.type.title,
                request_name(kind.header),
                self._served,
            )

    def _is_news(self, denial: Denial) -> bool:
        principal, operation, (type_, name) = denial
        denial = (principal, operation, Resource(type_, name[:MAX_LOGGED_NAME]))
        now_ms = self.runtime.clock.monotonic_ms()
        logged_ms = self._logged.get(denial)
        if logged_ms is not None and now_ms - logged_ms < REPEAT_MS:
            return False
        if len(self._logged) >= MAX_REMEMBERED:
            self._logged.clear()
        self._logged[denial] = now_ms
        return True
